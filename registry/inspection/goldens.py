"""Golden tensors held against the manifest: reference samples of every input, and tensors that fit what is declared."""

from collections.abc import Iterator, Mapping

from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.arrays import FoundArray, read_arrays
from benchlock.registry.inspection.content import Content
from benchlock.registry.inspection.protobuf import MalformedError
from benchlock.registry.manifests import Input, Model, Output
from benchlock.registry.manifests.effects import follow
from benchlock.registry.manifests.model import ConstantInput, StateInput
from benchlock.registry.manifests.tensors import Sizes, Tensor, declared, shown
from benchlock.registry.problems import Problems
from benchlock.registry.yaml import Document, Place

_MAKE = "benchlock golden MANIFEST writes such a file"
_TYPES = {"<f2": "float16", "<f4": "float32", "<f8": "float64", "|b1": "bool", "|u1": "uint8", "|i1": "int8"} | {
    f"<{kind}{size}": f"{name}{8 * size}" for kind, name in (("i", "int"), ("u", "uint")) for size in (2, 4, 8)
}
"""NumPy's words for the types of tensors."""

Arrays = dict[str, FoundArray]


def check_goldens(model: Model, content: Content, problems: Problems) -> None:
    """Whether each golden file can be held against a run of the model; what is wrong goes to ``problems``."""
    files = [(index, file) for index, file in enumerate(model.files) if file.role == "golden"]
    for index, _ in files[1:]:
        what = "a second golden file: a model has one"
        problems.add(content.error(what, f"files[{index}].role", "put all samples into one"))
    for index, file in files[:1]:
        with problems.noted():
            arrays = _read(file.path, content, f"files[{index}]")
            for fault in _faults(model, file.path, arrays, content, f"files[{index}]"):
                problems.add(fault)


def _read(path: str, content: Content, where: str) -> Arrays:
    with content.open(path, where) as stream:
        try:
            return {array.name: array for array in read_arrays(stream)}
        except MalformedError as error:
            raise content.error(f"{path} is no npz file: {error}", where, _MAKE) from error


def _faults(model: Model, path: str, arrays: Arrays, content: Content, where: str) -> Iterator[InvalidInputError]:
    fed = [port.name for port in model.inputs if not isinstance(port, ConstantInput | StateInput)]
    counts = {name: _count(name, arrays) for name in fed}
    samples = max(counts.values(), default=0)
    for name, count in counts.items():
        if count != samples or not count:
            what = f"{path} has {count} samples of the input {name}, raw/{name}/0 and on"
            yield content.error(what, where, f"give each input {samples or 'at least one'}; {_MAKE}")
    known = {f"raw/{name}/{number}" for name, count in counts.items() for number in range(count)}
    yield from _expected(model, path, arrays, samples, (content, where))
    for name in sorted(arrays.keys() - known - _keys(model)):
        yield content.error(f"{path} has {name!r}, which is no sample, input or output of the model", where, _MAKE)


def _keys(model: Model) -> set[str]:
    """What tensors are called that may be expected."""
    inputs = {f"input/{port.name}" for port in model.inputs if not isinstance(port, ConstantInput | StateInput)}
    return inputs | {f"output/{port.name}" for port in model.outputs if port.type != "state"}


def _count(name: str, arrays: Mapping[str, object]) -> int:
    count = 0
    while f"raw/{name}/{count}" in arrays:
        count += 1
    return count


def _expected(
    model: Model, path: str, arrays: Arrays, samples: int, found_at: tuple[Content, str]
) -> Iterator[InvalidInputError]:
    """What is wrong with the tensors that are expected of the samples."""
    content, where = found_at
    if not _keys(model) & arrays.keys():
        yield content.error(f"{path} expects nothing of its samples: it has no input/ and no output/", where, _MAKE)
    for kind, ports in (("input", model.inputs), ("output", model.outputs)):
        for index, port in enumerate(ports):
            array = arrays.get(f"{kind}/{port.name}")
            if array is None:
                continue
            if port.tolerance is UNSET:
                what = f"the {kind} {port.name} has golden tensors, and declares no tolerance"
                step = "write tolerance: {absolute: …, relative: …}, what another machine may differ by"
                yield content.error(what, f"{kind}s[{index}].tolerance", step)
            fault = _misfit(array, _wanted(port, content), samples)
            if fault:
                yield content.error(
                    f"{kind}/{port.name} of {path} {fault}", where, "make it anew: the manifest changed"
                )


def _wanted(port: Input | Output, content: Content) -> Tensor:
    """One sample, as declared; of an output after its steps. Nothing where the rules of manifests refuse it."""
    place = Place(Document(None, content.name))
    try:
        tensor = declared(port, place)
        return follow(tensor, port.steps, place) if isinstance(port, Output) else tensor
    except InvalidInputError:  # told where those rules are checked
        return Tensor()


def _misfit(array: FoundArray, wanted: Tensor, samples: int) -> str:
    """Why an array is not the tensor of all samples; several calls a sample are one axis more."""
    if array.shape[:1] != (samples,):
        return f"has the shape {list(array.shape)}, and there are {samples} samples"
    dtype = _TYPES.get(str(array.descr), str(array.descr))
    if wanted.dtype is not None and dtype != wanted.dtype:
        return f"is {dtype}, and the manifest says {wanted.dtype}"
    sizes = array.shape[1:]
    if wanted.sizes is None or _fits(sizes, wanted.sizes) or _fits(sizes[1:], wanted.sizes):
        return ""
    return f"holds {list(sizes)} a sample, and the manifest says {shown(wanted.sizes)}"


def _fits(sizes: tuple[int, ...], wanted: Sizes) -> bool:
    pairs = zip(sizes, wanted, strict=False)
    return len(sizes) == len(wanted) and all(not isinstance(must, int) or must == is_ for is_, must in pairs)
