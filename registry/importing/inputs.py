"""Inputs of both forms: the paper's ordered steps, and the program's flat parameters, whose order its code fixed."""

from benchlock.registry.importing.findings import shown
from benchlock.registry.importing.original import Original
from benchlock.registry.importing.outline import Lines, block, element, flow
from benchlock.registry.importing.paper import paper_input
from benchlock.registry.importing.pictures import (
    ASK_ASPECT,
    Picture,
    decode_step,
    dimensions,
    layout_line,
    resize_step,
    shape_lines,
)
from benchlock.registry.importing.ports import Network, description_comment, dtype_lines, name_lines

CODE = (
    *("before_preprocess", "preprocess", "after_preprocess"),
    *("before_postprocess", "postprocess", "after_postprocess"),
)
"""The keys that hold code, which the program ran in place of built-in steps."""


def inputs_lines(top: Original, network: Network) -> Lines:
    """The native inputs; and TODO lines for what an original's inputs do not say."""
    ports = top.elements("inputs")
    if not ports:
        what = "the original describes no input"
        return [top.notes.todo(top.path("inputs"), "no-inputs", "inputs", what, "describe each, with its steps")]
    return block("inputs", [line for index, port in enumerate(ports) for line in _input(port, index, network)])


def _input(port: Original, position: int, network: Network) -> Lines:
    kind = port.text("type")
    described = description_comment(port)
    if port.says("steps"):
        return element([*described, *paper_input(port, kind, position, network)])
    parameters = port.mapping("parameters") or Original(port.place.at("parameters"), {}, port.notes)
    lines = name_lines(parameters, "input_layer", position, "input", network)[1]
    if kind != "image":
        return element([*described, *lines, *_unknown_kind(port, kind), *dtype_lines(parameters)[1]])
    return element([*described, *lines, "type: image", *_code_image(parameters)])


def _unknown_kind(port: Original, kind: str | None) -> Lines:
    what = f"an input of type {shown(kind)} has no form that follows from it" if kind else "the original says no type"
    ask = "write type (image, audio, text or tensor), shape and steps"
    return [port.notes.todo(port.path("type"), "input-type", "type", what, ask)]


def _code_image(port: Original) -> Lines:
    """A picture by the flat parameters.

    Their program did, in this order: decode, resize, ``(value - mean) / scale`` as float32, layout, element type.
    """
    dtype, typed = dtype_lines(port)
    layout, laid_out = layout_line(port, "layout")
    found = dimensions(port, "dimensions")
    picture = Picture(*found, layout) if found else Picture(layout=layout)
    confirm = _confirm(port, sized=found is not None)
    steps = [*_code_steps(port, picture, dtype), *_layout_step(picture)]
    return [*typed, *shape_lines(port, picture, "dimensions"), *laid_out, *confirm, *block("steps", steps)]


def _confirm(port: Original, *, sized: bool) -> Lines:
    """Everything that follows from the program's code and not from the original, in one line to confirm."""
    read = ["the steps are in the order of their code"]
    if sized:
        read.append("dimensions are channels, height, width, and the batch is free")
    if port.says("mean") or port.says("scale"):
        read.append("scale divides after mean is subtracted, and a missing one is 0 or 1")
    else:
        read.append("without mean and scale there is no normalize")
    what = "read as their program did: " + "; ".join(read)
    return [port.notes.todo(port.place.path, "inferred", "confirm", what, "check, then delete this line")]


def _code_steps(port: Original, picture: Picture, dtype: str | None) -> Lines:
    lines = decode_step(port, "color_mode")
    aspect = _aspect_lines(port)
    if picture.height is not None and not aspect:
        lines += resize_step(port, picture, "dimensions", [])
    lines += aspect + _crop_lines(port)
    normalized = _normalize_step(port, picture)
    lines += normalized
    path, notes = port.path("element_type"), port.notes
    if normalized and dtype == "uint8":
        what = "their program cut off the fraction after mean and scale, and cast rounds"
        lines.append(notes.todo(path, "cut-off", "cast", what, "write the cast that the network wants"))
    elif dtype not in (None, "uint8") and not (normalized and dtype == "float32"):
        lines += [f"- cast: {flow({'dtype': dtype})}"]
    return lines


def _aspect_lines(port: Original) -> Lines:
    """What the original says of the aspect ratio, and of sides, in place of a size."""
    lines, notes = Lines(), port.notes
    if port.says("keep_aspect_ratio") and port.boolean("keep_aspect_ratio"):
        what = "the aspect ratio is kept, and nothing says by what crop or margin"
        lines.append(notes.todo(port.path("keep_aspect_ratio"), "aspect-ratio", "resize", what, ASK_ASPECT))
    for key, ask in (
        ("max_dimension", "no resize here goes by the longer side: write resize: {size: …}, or a python step"),
        ("min_dimension", "write resize: {shorter: …} if the shorter side is meant"),
    ):
        if port.says(key):
            what = f"{key} is {shown(port.use(key))}"
            lines.append(notes.todo(port.path(key), "side", "resize", what, ask))
    return lines


def _crop_lines(port: Original) -> Lines:
    said = [f"{key} is {shown(port.use(key))}" for key in ("crop_method", "crop_ratio") if port.says(key)]
    if not said:
        return []
    key = "crop_method" if port.says("crop_method") else "crop_ratio"
    what = f"{' and '.join(said)}, and nothing says before or after which step"
    ask = "write center_crop: {fraction: …} at its place, if the centre is meant"
    return [port.notes.todo(port.path(key), "crop", "center_crop", what, ask)]


def _normalize_step(port: Original, picture: Picture) -> Lines:
    mean, scale = port.numbers("mean"), port.numbers("scale")
    if mean is None and scale is None:
        return []
    mean, scale = mean or (0,), scale or (1,)
    path = port.path("mean" if port.says("mean") else "scale")
    written = f"mean {flow(list(mean))} and scale {flow(list(scale))}"
    channels = picture.channels or 3
    if len(mean) not in (1, channels) or len(scale) not in (1, channels) or any(one <= 0 for one in scale):
        ask = f"write normalize with {channels} means and positive deviations"
        return [port.notes.todo(path, "normalize", "normalize", f"{written} fit no {channels} channels", ask)]
    width = max(len(mean), len(scale))
    mean, scale = (list(one) * (width // len(one)) for one in (mean, scale))  # type: ignore[assignment]
    ordered = len(set(mean)) > 1 or len(set(scale)) > 1
    if ordered and str(port.value.get("color_mode")).strip().upper() != "RGB":
        what = f"{written} are in the order R, G, B in their program, whatever color_mode says"
        ask = "write normalize: {mean: …, std: …} in the order of the picture's colours"
        return [port.notes.todo(path, "mean-order", "normalize", what, ask)]
    return [f"- normalize: {flow({'mean': mean, 'std': scale})}"]


def _layout_step(picture: Picture) -> Lines:
    return [f"- transpose: {flow({'layout': 'NCHW'})}"] if picture.layout == "NCHW" else []


def list_code(top: Original) -> None:
    """List code in the original, which is not taken over."""
    for key in CODE:
        if top.says(key):
            written = top.use(key)
            lines = written.count("\n") if isinstance(written, str) else 0
            what = f"{lines} lines of code: {shown(written)}" if lines > 1 else f"code: {shown(written)}"
            ask = "it ran in place of the steps below: say there what it does, then delete this line"
            top.notes.todo_unplaced(top.path(key), "code", what, ask)
