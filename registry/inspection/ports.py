"""Inputs and outputs of a manifest held against those of its graph, and labels against the width of scores."""

from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.budgets import BUDGET, read_whole
from benchlock.registry.inspection.content import Content
from benchlock.registry.inspection.graphs import FoundGraph, FoundTensor, Size
from benchlock.registry.labels import parse_labels
from benchlock.registry.manifests import Input, Model, Output
from benchlock.registry.manifests.effects import follow
from benchlock.registry.manifests.tensors import Tensor, batch_axis, declared
from benchlock.registry.names import find_close
from benchlock.registry.problems import Problems
from benchlock.registry.yaml import Document, Place

_RESIZED = ("tflite",)
"""Formats whose batch axis the predictor sets, whatever the graph was made for."""


def check_ports(model: Model, graph: FoundGraph, content: Content, problems: Problems) -> None:
    """Names, types and shapes; an input that the graph needs and the manifest leaves out, too."""
    for kind, ports, found in (("input", model.inputs, graph.inputs), ("output", model.outputs, graph.outputs)):
        known = {tensor.name: tensor for tensor in found}
        for index, port in enumerate(ports):
            place = Place(Document(None, content.name)).at(f"{kind}s", index)
            if port.name in known:
                _check_port(port, known[port.name], place, problems, resized=model.format in _RESIZED)
            else:
                near = find_close(port.name, known)
                step = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
                problems.add(place.at("name").error(f"the graph has no {kind} {port.name!r}", step))
    fed = {port.name for port in model.inputs}
    for tensor in graph.inputs:
        if tensor.name not in fed:
            what = f"the graph has an input {tensor.name!r}, which the manifest does not feed"
            problems.add(content.error(what, "inputs", "add it, as a constant if it never changes"))


def _check_port(port: Input | Output, found: FoundTensor, place: Place, problems: Problems, *, resized: bool) -> None:
    if found.other is not None:
        what = f"{found.name!r} is {found.other} in the graph, and no tensor"
        problems.add(
            place.at("type").error(what, "export it as a tensor; converters of scikit-learn take zipmap=False")
        )
    if found.dtype is not None and port.dtype != found.dtype:
        what = f"the graph has {found.dtype}, not {port.dtype}"
        problems.add(place.at("dtype").error(what, f"write dtype: {found.dtype}"))
    if found.sizes is None or port.shape is UNSET:
        return
    batch = _batch_axis(port, place) if resized else None
    sizes = zip(port.shape, found.sizes, strict=False)
    fitting = all(axis == batch or _fits(written, size) for axis, (written, size) in enumerate(sizes))
    if len(port.shape) != len(found.sizes) or not fitting:
        what = f"the graph has the shape {shown(found.sizes)}, not {shown(port.shape)}"
        problems.add(place.at("shape").error(what, _shape_step(_unfixed(found.sizes, batch))))


def _shape_step(sizes: tuple[Size, ...]) -> str:
    """Return what to write for the shape of a graph: one null, for the batch axis, and names for other free axes."""
    free = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
    written = [
        size if isinstance(size, int) else None if axis == free[0] else size or f"axis_{axis}"
        for axis, size in enumerate(sizes)
    ]
    step = f"write shape: {shown(tuple(written))}"
    if free:
        return step if free == [0] else f"{step}, with null where the batch axis is"
    return f"{step}, with batch_axis: none" + (f", or batch_axis: 0 if it is a batch of {sizes[0]}" if sizes else "")


def _unfixed(sizes: tuple[Size, ...], batch: int | None) -> tuple[Size, ...]:
    """Return the sizes with the axis free that the predictor resizes."""
    return tuple(None if axis == batch else size for axis, size in enumerate(sizes))


def _fits(written: Size, found: Size) -> bool:
    """A number in the graph is fixed; an axis that it leaves free, a manifest may fix."""
    return written == found if isinstance(found, int) else True


def shown(sizes: tuple[Size, ...]) -> str:
    return f"[{', '.join('null' if size is None else str(size) for size in sizes)}]"


def check_labels(model: Model, graph: FoundGraph | None, content: Content, problems: Problems) -> None:
    """As many labels as an output has classes, where its width is known from the manifest or the graph."""
    found = {tensor.name: tensor for tensor in graph.outputs} if graph else {}
    for index, output in enumerate(model.outputs):
        if output.labels is UNSET:
            continue
        with problems.noted():
            _check_names(output, _classes(output, found.get(output.name), content), content, f"outputs[{index}].labels")


def _check_names(output: Output, classes: int | None, content: Content, where: str) -> None:
    path = str(output.labels)
    with content.open(path, where) as stream:
        names = parse_labels(read_whole(stream, BUDGET.document), path)
    if classes is not None and len(names) != classes:
        what = f"{path} names {len(names)} classes, and the output {output.name} has {classes}"
        raise content.error(what, where, "name every class in the order of the output, one a line")


def _classes(output: Output, found: FoundTensor | None, content: Content) -> int | None:
    """How many classes the scores are of; None where that is not known."""
    if output.type != "class-scores":
        return None
    place = Place(Document(None, content.name))
    try:
        tensor = declared(output, place)
        if tensor.sizes is None and found is not None and found.sizes is not None:
            axis = batch_axis(output, place)
            tensor = Tensor(tuple(size for index, size in enumerate(found.sizes) if index != axis), output.dtype)
        sizes = follow(tensor, () if output.steps is UNSET else output.steps, place).sizes
    except InvalidInputError:  # told where the rules of manifests are checked
        return None
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        return None
    width = max((size for size in sizes if isinstance(size, int)), default=1)
    return 2 if width == 1 else width


def _batch_axis(port: Input | Output, place: Place) -> int | None:
    try:
        return batch_axis(port, place)
    except InvalidInputError:  # told where the rules of manifests are checked
        return None
