"""Masks: pictures whose pixels are classes."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..libraries import needed_by

_MASK_TYPES = {"1": np.uint8, "L": np.uint8, "P": np.uint8, "I;16": np.uint16, "I": np.int32}
"""Pillow's modes of pictures whose pixels are one whole number each, and the type of these."""


def read_mask(file: Path | BytesIO, name: str) -> NDArray[Any]:
    """The classes of a picture's pixels, [H, W]: grey values, or indices into the palette.

    Raises:
        ValueError: it has colours, which are no classes.
    """
    with needed_by("a mask"):
        from PIL import Image  # noqa: PLC0415 - a dataset is opened without it too

    with Image.open(file) as picture:
        mode = "I;16" if picture.mode.startswith("I;16") else picture.mode
        if mode not in _MASK_TYPES:
            raise ValueError(f"{name}: a mask of the mode {mode}, where each pixel is one whole number (L, P, I;16)")
        return np.asarray(picture).astype(_MASK_TYPES[mode])
