"""Masks: pictures whose pixels are classes."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..libraries import POSTSCRIPT, needed_by

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_MASK_TYPES = {"1": np.uint8, "L": np.uint8, "P": np.uint8, "I;16": np.uint16, "I": np.int32}
"""Pillow's modes of pictures whose pixels are one whole number each, and the type of these."""
_ORIENTATION = 0x0112
_TURNED = range(2, 9)
_SCALED = {"L;2": 2, "L;2I": 2, "L;4": 4, "L;4I": 4}
"""Grey of fewer than 8 bits, which Pillow makes 8 by multiplying: a 1 of 4 bits becomes 17."""


def read_mask(file: Path | BytesIO, name: str) -> NDArray[Any]:
    """The classes of a picture's pixels, [H, W]: grey values, or indices into the palette.

    Raises:
        ValueError: it has colours, which are no classes; or it asks to be turned, or has so few bits that its pixels
            are other numbers to other readers.
    """
    with needed_by("a mask"):
        from PIL import Image  # noqa: PLC0415 - a dataset is opened without it too

    with Image.open(file) as picture:
        if picture.format == POSTSCRIPT:
            raise ValueError(f"{name}: a mask in PostScript, which is a program")
        mode = "I;16" if picture.mode.startswith("I;16") else picture.mode
        if mode not in _MASK_TYPES:
            raise ValueError(f"{name}: a mask of the mode {mode}, where each pixel is one whole number (L, P, I;16)")
        _check_as_stored(picture, name)
        return np.asarray(picture).astype(_MASK_TYPES[mode])


def _check_as_stored(picture: "ImageFile", name: str) -> None:
    """The pixels will be those that are stored: Pillow forgets with them how many bits they had, and how they lay."""
    arguments = picture.tile[0].args if picture.tile else None
    bits = _SCALED.get(str(arguments[0] if isinstance(arguments, tuple) else arguments))
    if bits is not None:
        raise ValueError(f"{name}: a mask of {bits} bits of grey, which readers make other numbers of: store 8 bits")
    orientation = picture.getexif().get(_ORIENTATION, 1)
    if orientation in _TURNED:
        raise ValueError(
            f"{name}: a mask that asks to be turned (orientation {orientation}), and whether its picture is, a model's "
            "decode says: store the mask's pixels as they lie over the picture's, without that tag"
        )
