"""Inputs of both MLModelScope forms: ordered steps, and flat image parameters."""

from collections.abc import Callable
from dataclasses import dataclass

from benchlock.registry.scaffold.mlmodelscope.original_manifest import (
    DTYPES,
    Network,
    OriginalMapping,
    description_comment,
    dtype_lines,
    name_lines,
)
from benchlock.registry.text.collected_problems import format_original
from benchlock.registry.text.yaml import Lines, block_lines, element_lines, entry_lines, format_flow

LAYOUTS = {"CHW": "NCHW", "HWC": "NHWC", "NCHW": "NCHW", "NHWC": "NHWC"}
COLORS = ("RGB", "BGR", "L")
CHANNELS = (1, 3, 4)

_SIDES = 3
ASK_ASPECT = (
    "write resize: {shorter: …} with center_crop, to which torchvision's transforms add rounding: down and "
    "offset: half_even; or pad"
)
_ASK_RESIZE = "write method, antialias and, with antialias: false, coordinates"


@dataclass(frozen=True, slots=True)
class ImageParameters:
    """The known properties of the tensor that a picture becomes; None is unknown."""

    channels: int | None = None
    height: int | None = None
    width: int | None = None
    layout: str | None = None

    @property
    def shape(self) -> list[int | None] | None:
        """The native shape with a free batch axis, if all sizes are known."""
        if self.channels is None or self.layout is None:
            return None
        sides = [self.height, self.width]
        return [None, *sides, self.channels] if self.layout == "NHWC" else [None, self.channels, *sides]


def shape_lines(port: OriginalMapping, picture: ImageParameters, key: str) -> Lines:
    """Return the line of the shape, or a TODO line."""
    notes, lines = port.notes, Lines()
    if picture.shape is None or None in picture.shape[1:]:
        what = "the original does not state the whole shape"
        ask = "write it, with null for the batch axis"
        lines.append(notes.todo(port.path(key), "shape", "shape", what, ask))
    else:
        lines.append(f"shape: {format_flow(picture.shape)}")
    return lines


def layout_line(port: OriginalMapping, key: str) -> tuple[str | None, Lines]:
    """Return the layout, and its line or a TODO line."""
    original = port.text(key)
    layout = LAYOUTS.get((original or "").strip().upper())
    if layout:
        return layout, entry_lines("layout", layout)
    if original:
        what, ask = f"{format_original(original)} is not a layout of a picture", "write NHWC or NCHW"
    else:
        what, ask = "the original states none", "write NHWC, the default of MLModelScope, or NCHW"
    return None, [port.notes.todo(port.path(key), "layout", "layout", what, ask)]


def decode_step(port: OriginalMapping, key: str) -> Lines:
    """Return the first step: the colours in the original, and a TODO line for the orientation, which it never has."""
    original, notes, path = port.text(key), port.notes, port.path(key)
    color = (original or "").strip().upper()
    if color in COLORS:
        lines = entry_lines("color", color)
    elif original:
        lines = [
            notes.todo(path, "color", "color", f"unknown color mode {format_original(original)}", "write RGB, BGR or L")
        ]
    else:
        ask = "write RGB, the default of MLModelScope, BGR or L"
        lines = [notes.todo(path, "color", "color", "the original states none", ask)]
    what = "unknown whether the orientation stated in a file is applied"
    lines.append(notes.todo(path, "exif", "exif", what, "write ignore or apply"))
    return element_lines(block_lines("decode", lines))


def resize_step(port: OriginalMapping, picture: ImageParameters, key: str, stated: Lines) -> Lines:
    """Return a resize to the picture's size; ``stated`` has the arguments in the original."""
    lines = [f"size: {format_flow([picture.height, picture.width])}", *stated]
    if not any(line.startswith("method:") for line in stated):
        what = "unknown how pictures are resized"
        lines.append(port.notes.todo(port.path(key), "resize", "resize", what, _ASK_RESIZE))
    else:
        what = "antialiasing and sampling coordinates of resizing are unknown"
        ask = "write antialias and, with antialias: false, coordinates"
        lines.append(port.notes.todo(port.path(key), "resize", "resize", what, ask))
    return element_lines(block_lines("resize", lines))


def dimensions(port: OriginalMapping, key: str) -> tuple[int, int, int] | None:
    """Return channels, height and width, the order in which the program reads them, whatever the layout."""
    if not port.has_value(key):
        return None
    sizes = port.numbers(key)
    if sizes is None:
        return None
    problem = _problem(sizes)
    if not problem:
        channels, height, width = (int(size) for size in sizes)
        return channels, height, width
    ask = "MLModelScope reads channels, height, width: write shape and resize as the network needs them"
    port.notes.todo_unplaced(port.path(key), "dimensions", f"{format_original(list(sizes))} {problem}", ask)
    return None


def _problem(sizes: tuple[float, ...]) -> str:
    """Return why dimensions cannot be channels, height and width; empty if they can."""
    if any(size != int(size) or size < 1 for size in sizes):
        return "are not sizes"
    if len(sizes) == 1:
        return "is one size, which versions of MLModelScope read with 3 channels or with that many"
    if len(sizes) > _SIDES:
        return f"are {len(sizes)} sizes, and MLModelScope rejects a batch size among them"
    if len(sizes) != _SIDES:
        return "are two sizes"
    if sizes[0] not in CHANNELS:
        return f"begin with {sizes[0]:g} channels"
    return ""


_METHODS = ("nearest", "bilinear", "bicubic", "lanczos", "area")
_PAPER_SIDES = (2, 3)


def paper_input(port: OriginalMapping, kind: str | None, position: int, network: Network) -> Lines:
    """Return the lines of an input with listed steps."""
    name_part = name_lines(port, "layer_name", position, "input", network)[1]
    dtype, dtype_part = dtype_lines(port)
    if kind != "image":
        what = (
            f"an input of type {format_original(kind)} has no native equivalent"
            if kind
            else "the original states no type"
        )
        ask = "write type (image, audio, text or tensor), shape and steps"
        return [*name_part, port.notes.todo(port.path("type"), "input-type", "type", what, ask), *dtype_part]
    steps = port.elements("steps")
    picture = _picture(steps)
    shape_part = [*shape_lines(port, picture, "steps"), *_layout_lines(port, picture)]
    return [
        *name_part,
        "type: image",
        *dtype_part,
        *shape_part,
        *block_lines("steps", _steps(port, steps, picture, dtype)),
    ]


def _layout_lines(port: OriginalMapping, picture: ImageParameters) -> Lines:
    """Return the lines of the layout that the steps imply."""
    if picture.layout is None:
        return [
            port.notes.todo(port.path("steps"), "layout", "layout", "no decode step states it", "write NHWC or NCHW")
        ]
    if picture.shape is None:
        return entry_lines("layout", picture.layout)
    what = "derived from the steps: the dimensions of resize are those of the network, and its batch axis is dynamic"
    todo = port.notes.todo(port.path("steps"), "inferred", "confirm", what, "check, then delete this line")
    return [*entry_lines("layout", picture.layout), todo]


def _steps(port: OriginalMapping, steps: list[OriginalMapping], picture: ImageParameters, dtype: str | None) -> Lines:
    """Return the steps in their order; a transpose at the end gives the layout of decode, where it means the same."""
    lines = [line for step in steps for line in _step(step, picture)]
    names = [name for step in steps for name in step.value]
    if "decode" not in names:
        what = "the original lists none"
        lines = [port.notes.todo(port.path("steps"), "no-decode", "decode", what, "write it as the first step"), *lines]
    if picture.layout == "NCHW":
        lines.append(f"- transpose: {format_flow({'layout': 'NCHW'})}")
    if dtype not in (None, "uint8") and not (dtype == "float32" and "normalize" in names) and "cast" not in names:
        what = f"the network reads {dtype}, and no step states where values are converted"
        lines.append(
            port.notes.todo(port.path("element_type"), "cast", "cast", what, "write a cast in the right place")
        )
    return lines


def _picture(steps: list[OriginalMapping]) -> ImageParameters:
    """Return what decode and the last resize state about the tensor; each step reads its own values again."""
    layout = channels = height = width = None
    for step in steps:
        decode, resize = step.value.get("decode"), step.value.get("resize")
        if isinstance(decode, dict):
            layout = LAYOUTS.get(str(decode.get("data_layout")).upper(), layout)
        if isinstance(resize, dict) and _is_size(resize.get("dimensions")):
            *first, height, width = resize["dimensions"]
            channels = first[0] if first else 3
    return ImageParameters(channels, height, width, layout)


def _is_size(value: object) -> bool:
    """Return whether a value is height and width, or channels, height and width."""
    fits = (
        isinstance(value, list) and len(value) in _PAPER_SIDES and all(type(side) is int and side > 0 for side in value)
    )
    return fits and (len(value) == _PAPER_SIDES[0] or value[0] in (1, 3))  # type: ignore[arg-type, index]


def _step(step: OriginalMapping, picture: ImageParameters) -> Lines:
    """Return the native form of a step."""
    lines = Lines()
    for name in step.value:
        convert = _STEPS.get(name)
        arguments = step.mapping(name) if convert and isinstance(step.value[name], dict) else None
        if convert is None or arguments is None:
            what = f"{format_original({name: step.use(name)})} is not a known step"
            ask = "write what it does with known steps, or as a python step"
            lines.append(step.notes.todo(step.path(name), "unknown-step", "steps", what, ask))
        else:
            lines += convert(arguments, picture)
    return lines


def _decode(step: OriginalMapping, picture: ImageParameters) -> Lines:  # noqa: ARG001 - all alike
    """Convert a decode step."""
    original = step.text("data_layout")
    if original and original.upper() not in LAYOUTS:
        step.notes.tell(
            step.path("data_layout"), "layout", f"{format_original(original)} is not a layout of a picture", "omitted"
        )
    if step.has_value("element_type"):
        what = f"decode gives {format_original(step.use('element_type'))}; the native decode always gives uint8"
        step.notes.tell(step.path("element_type"), "decode-type", what, "omitted")
    return decode_step(step, "color_mode")


def _resize(step: OriginalMapping, picture: ImageParameters) -> Lines:  # noqa: ARG001
    """Convert a resize step."""
    method, stated, unknown, notes = step.text("method"), Lines(), Lines(), step.notes
    if method in _METHODS:
        stated = entry_lines("method", method)
    elif method:
        what = f"{format_original(method)} is not a known method"
        unknown = [notes.todo(step.path("method"), "resize", "method", what, f"write one of {', '.join(_METHODS)}")]
    size = step.use("dimensions")
    if step.has_value("keep_aspect_ratio") and step.boolean("keep_aspect_ratio"):
        how = f"by {method or 'no stated method'}; no crop or margin is stated"
        what = f"to {format_original(size)} with preserved aspect ratio, {how}"
        return [notes.todo(step.path("keep_aspect_ratio"), "aspect-ratio", "resize", what, ASK_ASPECT), *unknown]
    if not _is_size(size):
        what = f"the dimensions {format_original(size)} are not channels, height, width"
        todo = notes.todo(step.path("dimensions"), "dimensions", "resize", what, "write its arguments")
        return element_lines(block_lines("resize", [todo, *stated, *unknown]))
    target = ImageParameters(None, size[-2], size[-1])
    return resize_step(step, target, "method", [*stated, *unknown])


def _normalize(step: OriginalMapping, picture: ImageParameters) -> Lines:
    """Convert a normalize step."""
    mean, rescale = step.numbers("mean"), step.numbers("rescale")
    channels = picture.channels or 3
    if mean is None or len(mean) not in (1, channels):
        what = f"mean is {format_original(step.value.get('mean'))}"
        return [
            step.notes.todo(step.path("mean"), "normalize", "normalize", what, "write normalize: {mean: …, std: …}")
        ]
    if rescale is not None and set(rescale) != {1}:
        both = f"mean is {format_flow(list(mean))} and rescale {format_flow(list(rescale))}"
        what = f"{both}; unknown whether rescale divides"
        ask = f"write normalize: {{mean: {format_flow(list(mean))}, std: …}}, or scale"
        return [step.notes.todo(step.path("rescale"), "rescale", "normalize", what, ask)]
    return [f"- normalize: {format_flow({'mean': list(mean), 'std': [1] * len(mean)})}"]


def _cast(step: OriginalMapping, picture: ImageParameters) -> Lines:  # noqa: ARG001
    """Convert a cast step."""
    original = step.text("element_type") or ""
    if original.lower() in DTYPES:
        return element_lines([f"cast: {format_flow({'dtype': original.lower()})}"])
    what = f"{format_original(original)} is not a known element type"
    return [step.notes.todo(step.path("element_type"), "dtype", "cast", what, f"write one of {', '.join(DTYPES)}")]


_STEPS: dict[str, Callable[[OriginalMapping, ImageParameters], Lines]] = {
    "decode": _decode,
    "resize": _resize,
    "normalize": _normalize,
    "cast": _cast,
}


CODE = (
    *("before_preprocess", "preprocess", "after_preprocess"),
    *("before_postprocess", "postprocess", "after_postprocess"),
)
"""The keys with code, which the program ran instead of built-in steps."""


def inputs_lines(top: OriginalMapping, network: Network) -> Lines:
    """Return the native inputs, with TODO lines for missing facts."""
    ports = top.elements("inputs")
    if not ports:
        what = "the original describes no input"
        return [top.notes.todo(top.path("inputs"), "no-inputs", "inputs", what, "describe each, with its steps")]
    return block_lines("inputs", [line for index, port in enumerate(ports) for line in _input(port, index, network)])


def _input(port: OriginalMapping, position: int, network: Network) -> Lines:
    """Return the lines of an input."""
    kind = port.text("type")
    described = description_comment(port)
    if port.has_value("steps"):
        return element_lines([*described, *paper_input(port, kind, position, network)])
    parameters = port.mapping("parameters") or OriginalMapping(port.place.at("parameters"), {}, port.notes)
    lines = name_lines(parameters, "input_layer", position, "input", network)[1]
    if kind != "image":
        return element_lines([*described, *lines, *_unknown_kind(port, kind), *dtype_lines(parameters)[1]])
    return element_lines([*described, *lines, "type: image", *_code_image(parameters)])


def _unknown_kind(port: OriginalMapping, kind: str | None) -> Lines:
    """Return the TODO line of an input whose type has no native form."""
    what = (
        f"an input of type {format_original(kind)} has no native equivalent" if kind else "the original states no type"
    )
    ask = "write type (image, audio, text or tensor), shape and steps"
    return [port.notes.todo(port.path("type"), "input-type", "type", what, ask)]


def _code_image(port: OriginalMapping) -> Lines:
    """Return the lines of a picture with flat parameters.

    The program did, in this order: decode, resize, ``(value - mean) / scale`` as float32, layout, element type.
    """
    dtype, dtype_part = dtype_lines(port)
    layout, layout_part = layout_line(port, "layout")
    sizes = dimensions(port, "dimensions")
    picture = ImageParameters(*sizes, layout) if sizes else ImageParameters(layout=layout)
    confirm = _confirm(port, sized=sizes is not None)
    steps = [*_code_steps(port, picture, dtype), *_layout_step(picture)]
    return [
        *dtype_part,
        *shape_lines(port, picture, "dimensions"),
        *layout_part,
        *confirm,
        *block_lines("steps", steps),
    ]


def _confirm(port: OriginalMapping, *, sized: bool) -> Lines:
    """Return one TODO line that lists everything inferred from the program's code."""
    inferences = ["the steps are in the order of their code"]
    if sized:
        inferences.append("dimensions are channels, height, width, and the batch axis is dynamic")
    if port.has_value("mean") or port.has_value("scale"):
        inferences.append("scale divides after mean is subtracted, and a missing one is 0 or 1")
    else:
        inferences.append("without mean and scale there is no normalize")
    what = "as in MLModelScope: " + "; ".join(inferences)
    return [port.notes.todo(port.place.path, "inferred", "confirm", what, "check, then delete this line")]


def _code_steps(port: OriginalMapping, picture: ImageParameters, dtype: str | None) -> Lines:
    """Return the steps of a picture with flat parameters."""
    lines = decode_step(port, "color_mode")
    aspect = _aspect_lines(port)
    if picture.height is not None and not aspect:
        lines += resize_step(port, picture, "dimensions", [])
    lines += aspect + _crop_lines(port)
    normalized = _normalize_step(port, picture)
    lines += normalized
    path, notes = port.path("element_type"), port.notes
    if normalized and dtype == "uint8":
        what = "MLModelScope truncated values after mean and scale; cast rounds them"
        lines.append(notes.todo(path, "cut-off", "cast", what, "write the cast that the network needs"))
    elif dtype not in (None, "uint8") and not (normalized and dtype == "float32"):
        lines += [f"- cast: {format_flow({'dtype': dtype})}"]
    return lines


def _aspect_lines(port: OriginalMapping) -> Lines:
    """Return the TODO lines about the aspect ratio, and about sides that are not a size."""
    lines, notes = Lines(), port.notes
    if port.has_value("keep_aspect_ratio") and port.boolean("keep_aspect_ratio"):
        what = "the aspect ratio is preserved; the crop or margin is unknown"
        lines.append(notes.todo(port.path("keep_aspect_ratio"), "aspect-ratio", "resize", what, ASK_ASPECT))
    for key, ask in (
        ("max_dimension", "resize cannot use the longer side: write resize: {size: …}, or a python step"),
        ("min_dimension", "write resize: {shorter: …} if the shorter side is meant"),
    ):
        if port.has_value(key):
            what = f"{key} is {format_original(port.use(key))}"
            lines.append(notes.todo(port.path(key), "side", "resize", what, ask))
    return lines


def _crop_lines(port: OriginalMapping) -> Lines:
    """Return the TODO line about a crop."""
    stated = [
        f"{key} is {format_original(port.use(key))}" for key in ("crop_method", "crop_ratio") if port.has_value(key)
    ]
    if not stated:
        return []
    key = "crop_method" if port.has_value("crop_method") else "crop_ratio"
    what = f"{' and '.join(stated)}; the position among the steps is unknown"
    ask = "write center_crop: {fraction: …} in the right place, if the centre is meant"
    return [port.notes.todo(port.path(key), "crop", "center_crop", what, ask)]


def _normalize_step(port: OriginalMapping, picture: ImageParameters) -> Lines:
    """Return the normalize step of mean and scale."""
    mean, scale = port.numbers("mean"), port.numbers("scale")
    if mean is None and scale is None:
        return []
    mean, scale = mean or (0,), scale or (1,)
    path = port.path("mean" if port.has_value("mean") else "scale")
    values_text = f"mean {format_flow(list(mean))} and scale {format_flow(list(scale))}"
    channels = picture.channels or 3
    if len(mean) not in (1, channels) or len(scale) not in (1, channels) or any(values <= 0 for values in scale):
        ask = f"write normalize with {channels} means and positive deviations"
        return [port.notes.todo(path, "normalize", "normalize", f"{values_text} do not fit {channels} channels", ask)]
    width = max(len(mean), len(scale))
    mean, scale = (list(values) * (width // len(values)) for values in (mean, scale))  # type: ignore[assignment]
    differs_by_channel = len(set(mean)) > 1 or len(set(scale)) > 1
    if differs_by_channel and str(port.value.get("color_mode")).strip().upper() != "RGB":
        what = f"{values_text} are in the order R, G, B in MLModelScope, independent of color_mode"
        ask = "write normalize: {mean: …, std: …} in the order of the picture's colours"
        return [port.notes.todo(path, "mean-order", "normalize", what, ask)]
    return [f"- normalize: {format_flow({'mean': mean, 'std': scale})}"]


def _layout_step(picture: ImageParameters) -> Lines:
    """Return the transpose to the layout NCHW."""
    return [f"- transpose: {format_flow({'layout': 'NCHW'})}"] if picture.layout == "NCHW" else []


def list_code(top: OriginalMapping) -> None:
    """List code in the original, which is not imported."""
    for key in CODE:
        if top.has_value(key):
            code = top.use(key)
            lines = code.count("\n") if isinstance(code, str) else 0
            what = f"{lines} lines of code: {format_original(code)}" if lines > 1 else f"code: {format_original(code)}"
            ask = "it ran instead of the steps below: add there what it does, then delete this line"
            top.notes.todo_unplaced(top.path(key), "code", what, ask)
