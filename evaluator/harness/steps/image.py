"""Steps for images: decoding, resizing, cropping and interpolation.

Sums are computed tap by tap in float64, without a matrix product, so that they do not depend on a BLAS.
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from ..core.phase_environment import POSTSCRIPT
from .step_tensor import Geometry, Source, StepError, Tensor, apply_as_hwc, as_file, axis_of, saturate

# The parameter of equation 15 in Keys, "Cubic convolution interpolation for digital image processing", 1981.
_CUBIC = -0.75

_Taps = tuple[NDArray[np.int64], NDArray[np.float64]]


def interpolate(values: NDArray[Any], size: tuple[int, int], method: str, coordinates: str) -> NDArray[Any]:
    """Resize H x W x C in float64 to ``size``, repeating the pixels of the border beyond it.

    Args:
        values: The image.
        size: The new height and width in pixels.
        method: ``nearest``, ``bilinear`` or ``bicubic``.
        coordinates: How pixels of the result map to the source.
    """
    for axis, length in enumerate(size):
        indices, weights = _taps(values.shape[axis], length, method, coordinates)
        shape = [length if index == axis else 1 for index in range(values.ndim)]
        total = np.zeros(())
        for tap in range(indices.shape[1]):
            total = total + np.take(values, indices[:, tap], axis) * weights[:, tap].reshape(shape)
        values = total
    return values


def _taps(source: int, target: int, method: str, coordinates: str) -> _Taps:
    """Return indices and weights of source pixels, each [target, taps]."""
    points = _points(source, target, coordinates)
    if method == "nearest":
        indices, weights = _nearest(points, coordinates), np.ones((target, 1))
    elif method == "bilinear":
        base = np.floor(points)
        indices = base[:, None] + [0, 1]
        weights = np.stack([1 - (points - base), points - base], axis=1)
    elif method == "bicubic":
        indices = np.floor(points)[:, None] + [-1, 0, 1, 2]
        weights = _cubic(np.abs(points[:, None] - indices))
    else:
        raise StepError(f"{method!r} always needs antialias")
    return np.clip(indices, 0, source - 1).astype(np.int64), weights


def _points(source: int, target: int, coordinates: str) -> NDArray[np.float64]:
    """Return the source position of each result, in pixels from the centre of the first pixel."""
    results = np.arange(target, dtype=np.float64)
    if coordinates == "half_pixel":
        return (results + 0.5) * source / target - 0.5
    if coordinates == "asymmetric":
        return results * source / target
    if coordinates == "align_corners":
        return results * (source - 1) / max(target - 1, 1)
    raise StepError(f"unknown coordinates {coordinates!r}")


def _nearest(points: NDArray[np.float64], coordinates: str) -> NDArray[np.float64]:
    """Return the pixel that contains each point; with ``align_corners`` the nearest centre, half to even.

    A pixel extends from half a pixel before its centre in ``half_pixel``, and from its centre in ``asymmetric``.
    """
    if coordinates == "align_corners":
        return np.rint(points)[:, None]
    shift = 0.5 if coordinates == "half_pixel" else 0.0
    return np.floor(points + shift)[:, None]


def _cubic(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    near = (_CUBIC + 2) * distance**3 - (_CUBIC + 3) * distance**2 + 1
    far = _CUBIC * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))  # noqa: PLR2004 - two pixels away


_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "area": Image.Resampling.BOX,
}
_ROUNDINGS: Mapping[str, Callable[[float], int]] = {"down": math.floor, "half_even": round}
_BACK = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""The transposition that undoes the one that each EXIF orientation requires."""
_DEEP_MODES = ("I", "F")
"""Prefixes of Pillow's modes above 8 bits a sample: I, I;16, I;16B, F. Its ``convert`` would clip them."""
_DEEP_COLOR = ";16"
"""A mark in the arguments of Pillow's decoders of 16-bit color, which keep only the high byte."""


def decode(source: Source, *, color: str, exif: str, levels: Sequence[float] | None = None) -> Tensor:
    """Decode an encoded file, or convert an array of uint8, to uint8 H x W x C; C = 1 for ``L``.

    Alpha is dropped, as in Pillow's ``convert``.

    Args:
        source: The encoded file, or the array.
        color: ``RGB``, ``BGR`` or ``L``.
        exif: ``apply`` rotates a file by its orientation, ``ignore`` leaves its pixels as stored.
        levels: The values of a file above 8 bits a sample that become 0 and 255; without them such a file is refused.
    """
    picture = _load_image(source, color, exif, levels)
    return _tensor(picture, color, Geometry.identity(picture.height, picture.width))


def decode_and_resample(
    source: Source,
    *,
    decoding: Mapping[str, str],
    method: str,
    size: Sequence[int] | None = None,
    shorter: int | None = None,
    rounding: str = "half_even",
    crop: Mapping[str, Any] | None = None,
) -> Tensor:
    """Decode, resize and crop an image inside Pillow, without arrays between the steps.

    Pillow copies pixels into an array while it holds the interpreter's lock. Cropping before the copy shortens the wait
    of other threads.

    Args:
        source: The encoded file, or the array.
        decoding: The arguments of ``decode``.
        method: The argument of ``resize``, whose ``antialias`` is true.
        size: The argument of ``resize``.
        shorter: The argument of ``resize``.
        rounding: The argument of ``resize``.
        crop: The arguments of the ``center_crop`` that follows, with ``size``. A smaller image is not cropped, so that
            the later step refuses it.
    """
    picture = _load_image(source, decoding["color"], decoding["exif"])
    height, width = _target((picture.height, picture.width), size, shorter, rounding)
    geometry = Geometry.identity(picture.height, picture.width).resized(height, width)
    picture = picture.resize((width, height), _filter(method))
    if crop is not None and crop["size"][0] <= height and crop["size"][1] <= width:
        rows, columns = crop["size"]
        top, left = _center((height, width), (rows, columns), crop.get("offset", "down"))
        picture = picture.crop((left, top, left + columns, top + rows))
        geometry = geometry.cropped(top, left, rows, columns)
    return _tensor(picture, decoding["color"], geometry)


def _load_image(source: Source, color: str, exif: str, levels: Sequence[float] | None = None) -> Image.Image:
    source = as_file(source)
    mode = "L" if color == "L" else "RGB"
    if isinstance(source, bytes):
        opened = _open_image(source)
        if levels is not None:
            _check_color_depth(opened)
        picture = ImageOps.exif_transpose(opened) if exif == "apply" else _as_stored(opened)
        if picture.mode.startswith(_DEEP_MODES):
            picture = _reduce_depth(picture, levels)
        # Pillow would copy an image that has the mode already.
        return picture if picture.mode == mode else picture.convert(mode)
    if isinstance(source, str):
        raise StepError("expected a picture, found text")
    if source.dtype != np.uint8:  # Pillow would clip most of them: 0.9 to 0, 1000 to 255
        raise StepError(f"an array must be uint8 to be a picture, but is {source.dtype}")
    return Image.fromarray(np.squeeze(source, 2) if source.shape[2:] == (1,) else source).convert(mode)


def _reduce_depth(picture: Image.Image, levels: Sequence[float] | None) -> Image.Image:
    """Convert an image above 8 bits a sample to 8: the first level becomes 0, the second 255.

    Raises:
        StepError: There are no levels, or a value is not a number.
    """
    if levels is None:
        raise StepError(
            f"the picture has more than 8 bits per channel (mode {picture.mode}): set levels: [BLACK, WHITE] in "
            "decode, the values that become 0 and 255, such as [0, 65535] for 16 bits or [0, 1] for floats"
        )
    black, white = levels
    values = np.asarray(picture).astype(np.float64)
    if np.isnan(values).any():
        raise StepError("the picture contains NaN")
    scaled = np.clip((values - black) * 255 / (white - black), 0, 255)
    return Image.fromarray(np.rint(scaled).astype(np.uint8))


def _check_color_depth(opened: Image.Image) -> None:
    """Raise ``StepError`` for 16-bit color, of which Pillow keeps 8 bits: too few to apply levels to."""
    if opened.mode.startswith("RGB") and any(_DEEP_COLOR in str(tile.args) for tile in getattr(opened, "tile", ())):
        raise StepError(
            "levels need one channel, but the picture has 16-bit color, of which Pillow keeps the high byte: "
            "omit levels, or store 8 bits"
        )


def _tensor(picture: Image.Image, color: str, geometry: Geometry) -> Tensor:
    values = np.asarray(picture)
    if color == "L":
        values = values[..., np.newaxis]
    return Tensor(values[..., ::-1] if color == "BGR" else values, "HWC", geometry=geometry)


def _open_image(content: bytes) -> Image.Image:
    try:
        opened = Image.open(io.BytesIO(content))
    except UnidentifiedImageError as error:  # Pillow's message has a memory address, which differs between runs
        raise StepError("cannot decode the file as a picture") from error
    if opened.format == POSTSCRIPT:
        raise StepError("the picture must not be PostScript, which is a program: convert it to PNG")
    return opened


def _as_stored(opened: Image.Image) -> Image.Image:
    """Return the image with its pixels as stored: only Pillow's TIFF reader rotates them, which is undone."""
    if opened.format != "TIFF":
        return opened
    orientation = opened.getexif().get(ExifTags.Base.Orientation, 1)
    opened.load()
    if orientation not in _BACK or opened.getexif().get(ExifTags.Base.Orientation) == orientation:
        return opened  # a rotated image has lost the tag
    return opened.transpose(_BACK[orientation])


def resize(
    tensor: Tensor,
    *,
    method: str,
    antialias: bool,
    size: Sequence[int] | None = None,
    shorter: int | None = None,
    rounding: str = "half_even",
    coordinates: str | None = None,
) -> Tensor:
    """Resize an image; with ``shorter`` the other side becomes ``side * shorter / shortest``, rounded.

    With ``antialias`` this is Pillow's resampling, on uint8 in 8 bits, on float32 in float32. Without it the pixels
    around each point are weighted at any scale, and uint8 is rounded half to even.
    """
    if tensor.values.dtype not in (np.uint8, np.float32):
        raise StepError(f"resize needs uint8 or float32, not {tensor.values.dtype}")

    def resized(values: NDArray[Any]) -> NDArray[Any]:
        height, width = _target(values.shape[:2], size, shorter, rounding)
        if antialias:
            return _resample(values, (height, width), method)
        if coordinates is None:
            raise StepError("resize without antialias needs coordinates")
        interpolated = interpolate(values.astype(np.float64), (height, width), method, coordinates)
        return saturate(interpolated, values.dtype)

    result = apply_as_hwc(tensor, "resize", resized)
    if tensor.geometry is None:
        return result
    return result._replace(geometry=tensor.geometry.resized(*_sides(result)))


def _target(shape: tuple[int, ...], size: Sequence[int] | None, shorter: int | None, rounding: str) -> tuple[int, int]:
    if size is not None:
        return size[0], size[1]
    if shorter is None:
        raise StepError("resize needs size or shorter")
    shortest = min(shape)
    rounded = _round_as(rounding)
    height, width = (shorter if side == shortest else rounded(side * shorter / shortest) for side in shape)
    return height, width


def _round_as(rounding: str) -> Callable[[float], int]:
    if rounding not in _ROUNDINGS:
        raise StepError(f"unknown rounding {rounding!r}")
    return _ROUNDINGS[rounding]


def _resample(values: NDArray[Any], size: tuple[int, int], method: str) -> NDArray[Any]:
    """Resample by Pillow: three 8-bit channels together, others one by one; Pillow's order is (width, height)."""
    chosen = _filter(method)
    if values.dtype == np.uint8 and values.shape[2] == 3:  # noqa: PLR2004 - red, green, blue
        channels = [np.ascontiguousarray(values)]
    else:
        channels = [np.ascontiguousarray(values[..., index]) for index in range(values.shape[2])]
    results = [np.asarray(Image.fromarray(channel).resize((size[1], size[0]), chosen)) for channel in channels]
    return results[0] if len(results) == 1 and results[0].ndim == values.ndim else np.dstack(results)


def _filter(method: str) -> Image.Resampling:
    if method not in _FILTERS:
        raise StepError(f"unknown method {method!r}")
    return _FILTERS[method]


def center_crop(
    tensor: Tensor,
    *,
    size: Sequence[int] | None = None,
    fraction: float | None = None,
    offset: str = "down",
) -> Tensor:
    """Crop the middle: ``size``, or each side times ``fraction`` rounded half to even.

    ``offset`` rounds the offsets.
    """
    result = apply_as_hwc(tensor, "center_crop", partial(_crop, size=size, fraction=fraction, offset=offset))
    if tensor.geometry is None:
        return result
    target = _sides(result)
    top, left = _center(_sides(tensor), target, offset)
    return result._replace(geometry=tensor.geometry.cropped(top, left, *target))


def _crop(values: NDArray[Any], size: Sequence[int] | None, fraction: float | None, offset: str) -> NDArray[Any]:
    sides = values.shape[:2]
    if size is None and fraction is None:
        raise StepError("center_crop needs size or fraction")
    target = size if size is not None else [round(side * (fraction or 0.0)) for side in sides]
    if any(want > side for want, side in zip(target, sides, strict=True)):
        raise StepError(f"cannot crop {list(target)} from a picture of {list(sides)}")
    top, left = _center(sides, target, offset)
    return values[top : top + target[0], left : left + target[1]]


def _center(sides: Sequence[int], target: Sequence[int], offset: str) -> tuple[int, int]:
    """Return the first row and column of the middle of ``target`` height and width."""
    rounded = _round_as(offset)
    return rounded((sides[0] - target[0]) / 2), rounded((sides[1] - target[1]) / 2)


def _sides(tensor: Tensor) -> tuple[int, int]:
    height, width = (tensor.values.shape[axis_of(tensor, letter, "a picture")] for letter in "HW")
    return height, width
