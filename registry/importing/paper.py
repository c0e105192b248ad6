"""Inputs in the paper's form: steps in their order, each with its arguments."""

from collections.abc import Callable

from benchlock.registry.importing.findings import shown
from benchlock.registry.importing.original import Original
from benchlock.registry.importing.outline import Lines, block, element, entry, flow
from benchlock.registry.importing.pictures import ASK_ASPECT, LAYOUTS, Picture, decode_step, resize_step, shape_lines
from benchlock.registry.importing.ports import DTYPES, Network, dtype_lines, name_lines

_METHODS = ("nearest", "bilinear", "bicubic", "lanczos", "area")
_SIDES = (2, 3)


def paper_input(port: Original, kind: str | None, position: int, network: Network) -> Lines:
    """The lines of one input whose ``steps`` are listed."""
    named = name_lines(port, "layer_name", position, "input", network)[1]
    dtype, typed = dtype_lines(port)
    if kind != "image":
        what = (
            f"an input of type {shown(kind)} has no form that follows from it" if kind else "the original says no type"
        )
        ask = "write type (image, audio, text or tensor), shape and steps"
        return [*named, port.notes.todo(port.path("type"), "input-type", "type", what, ask), *typed]
    steps = port.elements("steps")
    picture = _picture(steps)
    shaped = [*shape_lines(port, picture, "steps"), *_layout_lines(port, picture)]
    return [*named, "type: image", *typed, *shaped, *block("steps", _steps(port, steps, picture, dtype))]


def _layout_lines(port: Original, picture: Picture) -> Lines:
    if picture.layout is None:
        return [port.notes.todo(port.path("steps"), "layout", "layout", "no decode says it", "write NHWC or NCHW")]
    if picture.shape is None:
        return entry("layout", picture.layout)
    what = "read from the steps: the dimensions of resize are those of the network, and its batch is free"
    todo = port.notes.todo(port.path("steps"), "inferred", "confirm", what, "check, then delete this line")
    return [*entry("layout", picture.layout), todo]


def _steps(port: Original, steps: list[Original], picture: Picture, dtype: str | None) -> Lines:
    """The steps in their order; a layout that decode states is made at the end, where it means the same."""
    lines = [line for step in steps for line in _step(step, picture)]
    names = [name for step in steps for name in step.value]
    if "decode" not in names:
        what = "the original lists none"
        lines = [port.notes.todo(port.path("steps"), "no-decode", "decode", what, "write it as the first step"), *lines]
    if picture.layout == "NCHW":
        lines.append(f"- transpose: {flow({'layout': 'NCHW'})}")
    if dtype not in (None, "uint8") and not (dtype == "float32" and "normalize" in names) and "cast" not in names:
        what = f"the network takes {dtype}, and no step says where values become that"
        lines.append(port.notes.todo(port.path("element_type"), "cast", "cast", what, "write a cast at its place"))
    return lines


def _picture(steps: list[Original]) -> Picture:
    """What decode and the last resize say of the tensor; their values are read again where they are written."""
    layout = channels = height = width = None
    for step in steps:
        decode, resize = step.value.get("decode"), step.value.get("resize")
        if isinstance(decode, dict):
            layout = LAYOUTS.get(str(decode.get("data_layout")).upper(), layout)
        if isinstance(resize, dict) and _is_size(resize.get("dimensions")):
            *first, height, width = resize["dimensions"]
            channels = first[0] if first else 3
    return Picture(channels, height, width, layout)


def _is_size(value: object) -> bool:
    fits = isinstance(value, list) and len(value) in _SIDES and all(type(one) is int and one > 0 for one in value)
    return fits and (len(value) == _SIDES[0] or value[0] in (1, 3))  # type: ignore[arg-type, index]


def _step(step: Original, picture: Picture) -> Lines:
    lines = Lines()
    for name in step.value:
        known = _STEPS.get(name)
        arguments = step.mapping(name) if known and isinstance(step.value[name], dict) else None
        if known is None or arguments is None:
            what = f"{shown({name: step.use(name)})} is no step here"
            ask = "write what it does in the steps that there are, or as a python step"
            lines.append(step.notes.todo(step.path(name), "unknown-step", "steps", what, ask))
        else:
            lines += known(arguments, picture)
    return lines


def _decode(step: Original, picture: Picture) -> Lines:  # noqa: ARG001 - all alike
    written = step.text("data_layout")
    if written and written.upper() not in LAYOUTS:
        step.notes.tell(step.path("data_layout"), "layout", f"{shown(written)} is no layout of a picture", "left out")
    if step.says("element_type"):
        what = f"decode gives {shown(step.use('element_type'))}, and here always uint8"
        step.notes.tell(step.path("element_type"), "decode-type", what, "left out")
    return decode_step(step, "color_mode")


def _resize(step: Original, picture: Picture) -> Lines:  # noqa: ARG001
    method, said, notes = step.text("method"), Lines(), step.notes
    if method in _METHODS:
        said = entry("method", method)
    elif method:
        what = f"{shown(method)} is no method here"
        said = [notes.todo(step.path("method"), "resize", "method", what, f"write one of {', '.join(_METHODS)}")]
    size = step.use("dimensions")
    if step.says("keep_aspect_ratio") and step.boolean("keep_aspect_ratio"):
        what = (
            f"to {shown(size)} with the aspect ratio kept, by {method or 'no stated method'}; no crop or margin is said"
        )
        return [notes.todo(step.path("keep_aspect_ratio"), "aspect-ratio", "resize", what, ASK_ASPECT)]
    if not _is_size(size):
        what = f"the dimensions {shown(size)} are not channels, height, width"
        todo = notes.todo(step.path("dimensions"), "dimensions", "resize", what, "write its arguments")
        return element(block("resize", [todo, *said]))
    found = Picture(None, size[-2], size[-1])
    return resize_step(step, found, "method", said)


def _normalize(step: Original, picture: Picture) -> Lines:
    mean, rescale = step.numbers("mean"), step.numbers("rescale")
    channels = picture.channels or 3
    if mean is None or len(mean) not in (1, channels):
        what = f"mean is {shown(step.value.get('mean'))}"
        return [
            step.notes.todo(step.path("mean"), "normalize", "normalize", what, "write normalize: {mean: …, std: …}")
        ]
    if rescale is not None and set(rescale) != {1}:
        what = f"mean is {flow(list(mean))} and rescale {flow(list(rescale))}, and nothing says whether that divides"
        ask = f"write normalize: {{mean: {flow(list(mean))}, std: …}}, or scale"
        return [step.notes.todo(step.path("rescale"), "rescale", "normalize", what, ask)]
    return [f"- normalize: {flow({'mean': list(mean), 'std': [1] * len(mean)})}"]


def _cast(step: Original, picture: Picture) -> Lines:  # noqa: ARG001
    written = step.text("element_type") or ""
    if written.lower() in DTYPES:
        return element([f"cast: {flow({'dtype': written.lower()})}"])
    what = f"{shown(written)} is no type of elements here"
    return [step.notes.todo(step.path("element_type"), "dtype", "cast", what, f"write one of {', '.join(DTYPES)}")]


_STEPS: dict[str, Callable[[Original, Picture], Lines]] = {
    "decode": _decode,
    "resize": _resize,
    "normalize": _normalize,
    "cast": _cast,
}
