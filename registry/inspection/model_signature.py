"""Comparison of declared inputs and outputs with the graph, the labels and the golden tensors."""

from collections.abc import Iterator, Mapping

from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.artifact_names import find_close
from benchlock.registry.inspection.draft_content import DraftContent
from benchlock.registry.inspection.formats.model_graphs import GraphSignature, GraphTensor, Size
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.tensor_files import ArrayHeader, read_arrays
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, read_whole
from benchlock.registry.inspection.label_files import parse_labels
from benchlock.registry.manifests import Input, Model, Output
from benchlock.registry.manifests.manifest_types import ConstantInput, StateInput
from benchlock.registry.manifests.step_shapes import apply_steps
from benchlock.registry.manifests.tensor_shapes import Sizes, Tensor, batch_axis, declare_tensor, format_sizes
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.parsed_text import Document, Place

_RESIZED = ("tflite",)
"""Formats whose batch axis the predictor sets, whatever size the graph has."""


def check_ports(model: Model, graph: GraphSignature, content: DraftContent, problems: Problems) -> None:
    """Compare names, dtypes and shapes with the graph; every input of the graph must be declared.

    Args:
        model: The manifest.
        graph: The inputs and outputs of the graph.
        content: The files of the draft.
        problems: Receives what is wrong.
    """
    for kind, ports, tensors in (("input", model.inputs, graph.inputs), ("output", model.outputs, graph.outputs)):
        known = {tensor.name: tensor for tensor in tensors}
        for index, port in enumerate(ports):
            place = Place(Document(None, content.name)).at(f"{kind}s", index)
            if port.name in known:
                _check_port(port, known[port.name], place, problems, resized=model.format in _RESIZED)
            else:
                near = find_close(port.name, known)
                step = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
                problems.add(place.at("name").error(f"the graph has no {kind} {port.name!r}", step))
    declared = {port.name for port in model.inputs}
    for tensor in graph.inputs:
        if tensor.name not in declared:
            what = f"the graph has an input {tensor.name!r}, which the manifest does not feed"
            problems.add(content.error(what, "inputs", "add it, as a constant if it never changes"))


def _check_port(port: Input | Output, tensor: GraphTensor, place: Place, problems: Problems, *, resized: bool) -> None:
    """Compare one input or output with the graph."""
    if tensor.other is not None:
        what = f"{tensor.name!r} is {tensor.other} in the graph, not a tensor"
        problems.add(
            place.at("type").error(what, "export it as a tensor; in converters of scikit-learn with zipmap=False")
        )
    if tensor.dtype is not None and port.dtype != tensor.dtype:
        what = f"the dtype in the graph is {tensor.dtype}, not {port.dtype}"
        problems.add(place.at("dtype").error(what, f"write dtype: {tensor.dtype}"))
    if tensor.sizes is None or port.shape is UNSET:
        return
    batch = _batch_axis(port, place) if resized else None
    # A manifest may fix an axis that is dynamic in the graph.
    sizes = enumerate(zip(port.shape, tensor.sizes, strict=False))
    fitting = all(axis == batch or not isinstance(size, int) or declared == size for axis, (declared, size) in sizes)
    if len(port.shape) != len(tensor.sizes) or not fitting:
        what = f"the graph has the shape {format_graph_sizes(tensor.sizes)}, not {format_graph_sizes(port.shape)}"
        free = tuple(None if axis == batch else size for axis, size in enumerate(tensor.sizes))
        problems.add(place.at("shape").error(what, _shape_step(free)))


def _shape_step(sizes: tuple[Size, ...]) -> str:
    """Return the advice for the shape of a graph: null for the batch axis, and names for other free axes."""
    free = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
    advised = [
        size if isinstance(size, int) else None if axis == free[0] else size or f"axis_{axis}"
        for axis, size in enumerate(sizes)
    ]
    step = f"write shape: {format_graph_sizes(tuple(advised))}"
    if free:
        return step if free == [0] else f"{step}, with null where the batch axis is"
    return f"{step}, with batch_axis: none" + (f", or batch_axis: 0 if it is a batch of {sizes[0]}" if sizes else "")


def format_graph_sizes(sizes: tuple[Size, ...]) -> str:
    """Write sizes as in a manifest; ``null`` is a free axis."""
    return f"[{', '.join('null' if size is None else str(size) for size in sizes)}]"


def check_labels(model: Model, graph: GraphSignature | None, content: DraftContent, problems: Problems) -> None:
    """Check that labels files have as many names as their output has classes, if that number is known.

    Args:
        model: The manifest.
        graph: The inputs and outputs of the graph; None if they are unknown.
        content: The files of the draft.
        problems: Receives what is wrong.
    """
    tensors = {tensor.name: tensor for tensor in graph.outputs} if graph else {}
    for index, output in enumerate(model.outputs):
        if output.labels is UNSET:
            continue
        with problems.noted():
            _check_names(
                output, _classes(output, tensors.get(output.name), content), content, f"outputs[{index}].labels"
            )


def _check_names(output: Output, classes: int | None, content: DraftContent, where: str) -> None:
    """Check the number of names in a labels file."""
    path = str(output.labels)
    with content.open(path, where) as stream:
        names = parse_labels(read_whole(stream, BUDGET.document), path)
    if classes is not None and len(names) != classes:
        what = f"{path} has {len(names)} class names, but the output {output.name} has {classes} classes"
        raise content.error(what, where, "write all class names in the order of the output, one per line")


def _classes(output: Output, graph_tensor: GraphTensor | None, content: DraftContent) -> int | None:
    """Return the number of classes of scores; None if it is unknown."""
    if output.type != "class-scores":
        return None
    place = Place(Document(None, content.name))
    try:
        tensor = declare_tensor(output, place)
        if tensor.sizes is None and graph_tensor is not None and graph_tensor.sizes is not None:
            axis = batch_axis(output, place)
            tensor = Tensor(tuple(size for index, size in enumerate(graph_tensor.sizes) if index != axis), output.dtype)
        sizes = apply_steps(tensor, () if output.steps is UNSET else output.steps, place).sizes
    except InvalidInputError:  # reported by the rules of manifests
        return None
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        return None
    width = max((size for size in sizes if isinstance(size, int)), default=1)
    return 2 if width == 1 else width


def _batch_axis(port: Input | Output, place: Place) -> int | None:
    """Return the batch axis; None if it is invalid."""
    try:
        return batch_axis(port, place)
    except InvalidInputError:  # reported by the rules of manifests
        return None


_MAKE = "create golden tensors for the manifest"
_TYPES = {"<f2": "float16", "<f4": "float32", "<f8": "float64", "|b1": "bool", "|u1": "uint8", "|i1": "int8"} | {
    f"<{kind}{size}": f"{name}{8 * size}" for kind, name in (("i", "int"), ("u", "uint")) for size in (2, 4, 8)
}
"""The dtypes of tensors by NumPy's names."""

Arrays = dict[str, ArrayHeader]


def check_goldens(model: Model, content: DraftContent, problems: Problems) -> None:
    """Check that the golden file can be compared with a run of the model.

    Args:
        model: The manifest.
        content: The files of the draft.
        problems: Receives what is wrong.
    """
    files = [(index, file) for index, file in enumerate(model.files) if file.role == "golden"]
    for index, _ in files[1:]:
        what = "a model can have only one golden file"
        problems.add(content.error(what, f"files[{index}].role", "merge all samples into one file"))
    for index, file in files[:1]:
        with problems.noted():
            arrays = _read(file.path, content, f"files[{index}]")
            for fault in _faults(model, file.path, arrays, content, f"files[{index}]"):
                problems.add(fault)


def _read(path: str, content: DraftContent, where: str) -> Arrays:
    """Return the headers of the arrays in a golden file."""
    with content.open(path, where) as stream:
        try:
            return {array.name: array for array in read_arrays(stream)}
        except MalformedError as error:
            raise content.error(f"{path} is not a valid npz file: {error}", where, _MAKE) from error


def _faults(model: Model, path: str, arrays: Arrays, content: DraftContent, where: str) -> Iterator[InvalidInputError]:
    """Yield what is wrong with a golden file."""
    names = [port.name for port in model.inputs if not isinstance(port, ConstantInput | StateInput)]
    counts = {name: _count(name, arrays) for name in names}
    samples = max(counts.values(), default=0)
    for name, count in counts.items():
        if count != samples or not count:
            what = f"{path} has {count} samples of the input {name}, raw/{name}/0 and so on"
            yield content.error(what, where, f"give each input {samples or 'at least one'}; {_MAKE}")
    known = {f"raw/{name}/{number}" for name, count in counts.items() for number in range(count)}
    yield from _expected(model, path, arrays, samples, (content, where))
    for name in sorted(arrays.keys() - known - _keys(model)):
        yield content.error(f"{path} has {name!r}, which is not a sample, input or output of the model", where, _MAKE)


def _keys(model: Model) -> set[str]:
    """Return the names of the tensors that a golden file may expect."""
    inputs = {f"input/{port.name}" for port in model.inputs if not isinstance(port, ConstantInput | StateInput)}
    return inputs | {f"output/{port.name}" for port in model.outputs if port.type != "state"}


def _count(name: str, arrays: Mapping[str, object]) -> int:
    """Return the number of golden samples of an input."""
    count = 0
    while f"raw/{name}/{count}" in arrays:
        count += 1
    return count


def _expected(
    model: Model, path: str, arrays: Arrays, samples: int, target: tuple[DraftContent, str]
) -> Iterator[InvalidInputError]:
    """Yield what is wrong with the expected tensors."""
    content, where = target
    if not _keys(model) & arrays.keys():
        yield content.error(f"{path} has no expected values: neither input/ nor output/", where, _MAKE)
    for kind, ports in (("input", model.inputs), ("output", model.outputs)):
        for index, port in enumerate(ports):
            array = arrays.get(f"{kind}/{port.name}")
            if array is None:
                continue
            if port.tolerance is UNSET:
                what = f"the {kind} {port.name} has golden tensors, but no tolerance"
                step = "write tolerance: {absolute: …, relative: …}, the permitted difference between machines"
                yield content.error(what, f"{kind}s[{index}].tolerance", step)
            fault = _misfit(array, _wanted(port, content), samples)
            if fault:
                yield content.error(
                    f"{kind}/{port.name} of {path} {fault}", where, "create it again: the manifest has changed"
                )


def _wanted(port: Input | Output, content: DraftContent) -> Tensor:
    """Return one sample as declared, of an output after its steps; an empty tensor if the declaration is invalid."""
    place = Place(Document(None, content.name))
    try:
        tensor = declare_tensor(port, place)
        return apply_steps(tensor, port.steps, place) if isinstance(port, Output) else tensor
    except InvalidInputError:  # reported by the rules of manifests
        return Tensor()


def _misfit(array: ArrayHeader, declared: Tensor, samples: int) -> str:
    """Return why an array is not the tensor of all samples; several calls per sample are an additional axis."""
    if array.shape[:1] != (samples,):
        return f"has the shape {list(array.shape)}, but there are {samples} samples"
    dtype = _TYPES.get(str(array.descr), str(array.descr))
    if declared.dtype is not None and dtype != declared.dtype:
        return f"has the dtype {dtype}, but the manifest states {declared.dtype}"
    sizes = array.shape[1:]
    if declared.sizes is None or _sizes_fit(sizes, declared.sizes) or _sizes_fit(sizes[1:], declared.sizes):
        return ""
    return f"has {list(sizes)} per sample, but the manifest states {format_sizes(declared.sizes)}"


def _sizes_fit(sizes: tuple[int, ...], declared: Sizes) -> bool:
    """Return whether sizes equal the declared ones, as far as these are known."""
    pairs = zip(sizes, declared, strict=False)
    return len(sizes) == len(declared) and all(
        not isinstance(declared_size, int) or declared_size == size for size, declared_size in pairs
    )
