"""Steps of an image input from ``preprocessor_config.json``, the settings of a Hugging Face image processor.

Source: https://github.com/huggingface/transformers/tree/main/src/transformers/models, the module ``image_processing_…``
of each known processor. An unknown processor or setting becomes a TODO line: nothing about pixels is guessed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from benchlock.registry.manifests.field_types import Layout
from benchlock.registry.scaffold.hub_metadata import PROCESSOR
from benchlock.registry.text.collected_problems import ImportNotes, format_original
from benchlock.registry.text.yaml import Lines, block_lines, element_lines, format_flow

_CLASS = re.compile(r"(\w{1,60}?)(ImageProcessor(Fast|Pil)?|FeatureExtractor)", re.ASCII)
_SQUARE = ("ViT", "DeiT", "Beit", "Segformer", "Siglip")
"""Processors for which a size that is one number is that of both sides."""
_SHORTER = ("CLIP", "Bit", "MobileNetV1", "MobileNetV2")
"""Processors for which it is that of the shorter side."""
_CROPPED = ("DeiT", "Beit", *_SHORTER)
"""Processors that crop the center unless ``do_center_crop`` is false; the others ignore it in some releases."""
_FLOATS = ("float16", "float32", "float64")
_CONVNEXT = "ConvNext"
_WARPED = 384
"""The size from which a ConvNext processor resizes both sides, and crops nothing."""
_METHODS = ("nearest", "lanczos", "bilinear", "bicubic", "area")
"""The methods of Pillow by their number; its last one, hamming, is not available."""
_CHANNELS = {1: "L", 3: "RGB"}
_READ = frozenset({
    "do_resize", "size", "resample", "do_center_crop", "crop_size", "crop_pct", "do_rescale", "rescale_factor",
    "do_normalize", "image_mean", "image_std", "do_convert_rgb",
    "image_processor_type", "feature_extractor_type", "processor_class", "_valid_processor_keys", "data_format",
    "input_data_format", "return_tensors", "device", "disable_grouping",
})  # fmt: skip
"""The settings that are read, and those that change no pixel."""
_ASK = "write the steps in their order, the first of them decode, as the author of the model prepared the images"


class _UnknownSettingError(Exception):
    """A setting whose effect on the pixels is not known; the text says which."""


@dataclass(frozen=True, slots=True)
class ImagePort:
    """The tensor that the steps must produce; None is unknown."""

    path: str
    dtype: str | None
    layout: Layout | None
    channels: int | None


def has_image_processor(settings: Mapping[str, Any]) -> bool:
    """Return whether the settings are those of an image processor."""
    return "image_processor_type" in settings or ("image_mean" in settings and "size" in settings)


def image_steps(settings: Mapping[str, Any], port: ImagePort, notes: ImportNotes) -> Lines:
    """Return the key ``steps`` of an image input, or its TODO line.

    Args:
        settings: The content of ``preprocessor_config.json``.
        port: The tensor that the model takes.
        notes: Receives the findings.
    """
    path = f"{port.path}.steps"
    try:
        name, family = _find_processor(settings)
        steps = [*_sizes(settings, family), *_values(settings, port)]
        lines = [*_color_step(settings, port, notes), *(f"- {format_flow(step)}" for step in steps)]
    except _UnknownSettingError as error:
        return [notes.todo(path, "steps", "steps", f"{PROCESSOR} is not converted: {error}", _ASK)]
    notes.tell(path, "steps", f"{PROCESSOR} has the settings of {name}", "written as steps")
    if "rescale_factor" not in settings and settings.get("do_rescale", True):
        notes.tell(path, "steps", f"{PROCESSOR} has no rescale_factor, which is 1/255 by default", "written as scale")
    if name.endswith("Fast"):
        what = f"{name} resizes by torchvision, whose pixels may differ from Pillow's by one level, and whose center "
        what += "crop by one row or column"
        lines.insert(0, notes.todo(path, "resize", "confirm", what, "check, then delete this line"))
    return block_lines("steps", lines)


def _find_processor(settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return the class of the processor, and its family, which is known."""
    name = settings.get("image_processor_type") or settings.get("feature_extractor_type")
    match = _CLASS.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise _UnknownSettingError("it does not name its image processor")
    if match[1] not in (*_SQUARE, *_SHORTER, _CONVNEXT):
        raise _UnknownSettingError(f"the processor {match[0]} is not known here")
    unknown = sorted(key for key, value in settings.items() if key not in _READ and value not in (None, False))
    if unknown:
        raise _UnknownSettingError(f"{match[0]} has the settings {', '.join(map(format_original, unknown))}")
    return match[0], match[1]


def _color_step(settings: Mapping[str, Any], port: ImagePort, notes: ImportNotes) -> Lines:
    """Return the first step, with a TODO line for the orientation, which no processor states."""
    mean = settings.get("image_mean")
    channels = port.channels or (len(mean) if isinstance(mean, list) else None)
    if channels not in _CHANNELS:
        raise _UnknownSettingError("the number of channels is unknown")
    what = f"{PROCESSOR} does not state whether the orientation stated in a file is applied"
    todo = notes.todo(f"{port.path}.steps", "exif", "exif", what, "write ignore or apply")
    return element_lines(block_lines("decode", [f"color: {_CHANNELS[channels]}", todo]))


def _sizes(settings: Mapping[str, Any], family: str) -> list[dict[str, Any]]:
    """Return the steps that change the size."""
    is_cropped = _flag(settings, "do_center_crop", default=False)
    if is_cropped and family not in _CROPPED:
        raise _UnknownSettingError("do_center_crop is true, which releases of its processor apply or ignore")
    if family == _CONVNEXT:
        return _convnext_sizes(settings)
    steps = list[dict[str, Any]]()
    if _flag(settings, "do_resize", default=True):
        steps.append(_resize(settings, _parse_size(settings, "size", is_square=family in _SQUARE)))
    if family in _CROPPED and settings.get("do_center_crop") is None:
        raise _UnknownSettingError("it does not state do_center_crop")
    if is_cropped:
        size = _parse_size(settings, "crop_size", is_square=True)
        if "size" not in size:
            raise _UnknownSettingError(f"the crop_size {format_original(settings.get('crop_size'))}")
        steps.append({"center_crop": {**size, "offset": "down"}})
    return steps


def _convnext_sizes(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a ConvNext processor, which below 384 pixels crops a fraction."""
    if not _flag(settings, "do_resize", default=True):
        return []
    size = _parse_size(settings, "size", is_square=False)
    side, fraction = size.get("shorter"), settings.get("crop_pct")
    if side is None:
        raise _UnknownSettingError(f"the size {format_original(settings.get('size'))}")
    if side >= _WARPED:
        return [_resize(settings, {"size": [side, side]})]
    if not isinstance(fraction, float | int) or not 0 < fraction <= 1:
        raise _UnknownSettingError("it does not state crop_pct")
    shorter = {"shorter": int(side / fraction), "rounding": "down"}
    return [_resize(settings, shorter), {"center_crop": {"size": [side, side], "offset": "down"}}]


def _resize(settings: Mapping[str, Any], size: dict[str, Any]) -> dict[str, Any]:
    """Return the step resize, by Pillow's method."""
    number = settings.get("resample")
    if type(number) is not int or not 0 <= number < len(_METHODS):
        raise _UnknownSettingError(f"the resample {format_original(number)}")
    return {"resize": {**size, "method": _METHODS[number], "antialias": True}}


def _parse_size(settings: Mapping[str, Any], key: str, *, is_square: bool) -> dict[str, Any]:
    """Return the arguments of resize for a size; the longer side of a shorter one is truncated."""
    size = settings.get(key)
    if _is_side(size):
        return {"size": [size, size]} if is_square else {"shorter": size, "rounding": "down"}
    if isinstance(size, dict) and size.keys() == {"height", "width"} and all(map(_is_side, size.values())):
        return {"size": [size["height"], size["width"]]}
    if isinstance(size, dict) and size.keys() == {"shortest_edge"} and _is_side(size["shortest_edge"]):
        return {"shorter": size["shortest_edge"], "rounding": "down"}
    raise _UnknownSettingError(f"the {key} {format_original(size)}")


def _values(settings: Mapping[str, Any], port: ImagePort) -> list[dict[str, Any]]:
    """Return the steps that change the values, their type and their layout."""
    steps = list[dict[str, Any]]()
    if _flag(settings, "do_rescale", default=True):
        factor = settings.get("rescale_factor", 1 / 255)
        if not _are_numbers([factor]):
            raise _UnknownSettingError(f"the rescale_factor {format_original(factor)}")
        steps.append({"scale": {"factor": factor}})
    if _flag(settings, "do_normalize", default=True):
        mean, std = settings.get("image_mean"), settings.get("image_std")
        if not _are_numbers(mean) or not _are_numbers(std) or min(std) <= 0:  # type: ignore[arg-type] # lists, as checked
            raise _UnknownSettingError("it does not state image_mean and image_std")
        steps.append({"normalize": {"mean": mean, "std": std}})
    if port.dtype is None or port.layout is None:
        raise _UnknownSettingError("the dtype or the layout of the input is unknown")
    if port.dtype not in _FLOATS and (steps or port.dtype != "uint8"):
        raise _UnknownSettingError(f"the input is {port.dtype}, so its pixels are quantized")
    if port.dtype != ("float32" if steps else "uint8"):
        steps.append({"cast": {"dtype": port.dtype}})
    return [*steps, *([{"transpose": {"layout": "NCHW"}}] if port.layout == "NCHW" else [])]


def _flag(settings: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Return a setting that is true or false."""
    value = settings.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _UnknownSettingError(f"{key} is {format_original(value)}")
    return value


def _is_side(value: object) -> bool:
    """Return whether a value is a number of pixels."""
    return type(value) is int and value > 0


def _are_numbers(values: object) -> bool:
    """Return whether a value is a list of one or three finite numbers."""
    return (
        isinstance(values, list)
        and len(values) in _CHANNELS
        and all(type(value) in (int, float) and isfinite(value) for value in values)
    )
