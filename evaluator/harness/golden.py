"""Golden tensors: reference samples, and what a model's steps and the model itself must make of them.

A file of arrays (``.npz``): ``raw/INPUT/0``, ``raw/INPUT/1``, … one sample each as a dataset holds it, an encoded file
or text as 1-D uint8; ``input/INPUT`` and ``output/OUTPUT`` stacked, the first axis the sample. An input is what the
steps give, of a sample that takes several calls all of them; an output is the value after its steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .calling import Session, query
from .datasets import Samples
from .deviations import deviation, explanation
from .failures import Failure, failing
from .finiteness import FiniteCheck
from .job import Input, Model, Output, Tolerance
from .pipeline import Pipeline, Prediction, Prepared
from .predictors import Predictor, Tensors
from .steps import Source

Array = NDArray[Any]
Expected = Mapping[str, Array]
"""By the name of an input or output: all samples on the first axis."""


@dataclass(frozen=True, slots=True)
class Golden:
    """``raw`` has, by the name of an input, one source a sample."""

    raw: Mapping[str, tuple[Source, ...]]
    inputs: Expected
    outputs: Expected

    @property
    def count(self) -> int:
        return len(next(iter(self.raw.values())))


@dataclass(frozen=True, slots=True)
class Made:
    """A sample as the dataset holds it, and what was made of it: each input after its steps, each output."""

    fields: Mapping[str, Source]
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


def check_golden(model: Model, predictor: Predictor, pipeline: Pipeline, folder: Path) -> dict[str, Any] | None:
    """Run the model's golden samples, and say how near it came; None where the model ships none.

    Raises:
        Failure: ``golden``: an input or output deviates; names it, by how much and where. ``load``: the file is no such
            file. ``step``, ``predict``, ``non-finite`` as in any phase.
    """
    if model.golden is None:
        return None
    golden = read_golden(folder / model.golden, model)
    samples = sources(model, golden.raw)
    prepared = [pipeline.prepare(samples, number) for number in range(golden.count)]
    report: dict[str, Any] = {"samples": golden.count, "inputs": {}, "outputs": {}}
    made = [inputs_of(one) for one in prepared]
    for port in model.inputs:
        if port.name in golden.inputs:
            report["inputs"][port.name] = _compare("input", port, made, golden.inputs[port.name])
    if golden.outputs:
        session = Session(predictor, model)
        finite = FiniteCheck(model, samples.names)
        with finite.checking():
            made = [
                predict_sample(pipeline, session, one, (number, samples.names[number]), finite)
                for number, one in enumerate(prepared)
            ]
        for output in model.outputs:
            if output.name in golden.outputs:
                report["outputs"][output.name] = _compare("output", output, made, golden.outputs[output.name])
    return report


def inputs_of(prepared: Prepared) -> Tensors:
    """Each input of a sample after its steps; where the sample takes several calls, those on a new first axis."""
    first, *others = prepared.calls
    if not others:
        return first
    return {name: np.stack([call[name] for call in prepared.calls]) for name in first}


def predict_sample(
    pipeline: Pipeline, session: Session, prepared: Prepared, place: tuple[int, str], finite: FiniteCheck
) -> Prediction:
    """Return the prediction of one sample, which is given to the model alone.

    Args:
        pipeline: The steps of the model.
        session: The model.
        prepared: The sample after the steps of the inputs.
        place: The number of the sample, and what messages call it.
        finite: Counts the values that the model returns.

    Raises:
        Failure: As in any phase.
    """
    number, where = place
    calls = [pipeline.stack([call]) for call in prepared.calls]
    with failing("predict", where):
        found = query(session, calls)
    for tensors in found:
        finite.add_call(tensors, number, 1)
    return pipeline.combine([pipeline.answers(tensors, 1, where)[0] for tensors in found])


def read_golden(path: Path, model: Model) -> Golden:
    """The golden tensors of ``model`` in the file ``path``.

    Raises:
        Failure: ``load``: it cannot be read, or is not of this model.
    """
    with failing("load", path.name), np.load(path, allow_pickle=False) as arrays:
        found = {name: np.asarray(arrays[name]) for name in arrays.files}
    raw: dict[str, tuple[Source, ...]] = {}
    for port in (port for port in model.inputs if port.fed):
        prefix, kept = f"raw/{port.name}/", list[Source]()
        while f"{prefix}{len(kept)}" in found:
            kept.append(_stored(port, found.pop(f"{prefix}{len(kept)}"), f"{path.name}, {prefix}{len(kept)}"))
        raw[port.name] = tuple(kept)
    golden = Golden(raw, _taken(found, "input/", model.inputs), _taken(found, "output/", model.outputs))
    _check(golden, found, path.name)
    return golden


def write_golden(path: Path, model: Model, samples: Sequence[Made]) -> None:
    """Write some samples, and what was made of each.

    Raises:
        Failure: ``golden``: the tensors of an input or output differ in shape, and so cannot be stacked.
    """
    arrays: dict[str, Array] = {}
    for port in (port for port in model.inputs if port.fed):
        for number, sample in enumerate(samples):
            fields = sample.fields
            arrays[f"raw/{port.name}/{number}"] = _kept(fields[port.field or next(iter(fields))])
    for kind, tensors in (("input", [one.inputs for one in samples]), ("output", [one.outputs for one in samples])):
        for name in tensors[0]:
            with failing("golden", f"{kind} {name}, of all samples"):
                arrays[f"{kind}/{name}"] = np.stack([one[name] for one in tensors])
    with path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]  # its last parameter is a flag
    path.chmod(0o644)


def sources(model: Model, raw: Mapping[str, Sequence[Source]]) -> Samples:
    """The golden samples as those of a dataset whose fields are the ones that feed the model."""
    ports = [port for port in model.inputs if port.fed]
    named = [port.field for port in ports if port.field is not None]
    fields = {port.field or next(iter(named), "sample"): raw[port.name] for port in reversed(ports)}
    count = len(raw[ports[0].name])

    def read(number: int) -> Mapping[str, Source]:
        return {field: kept[number] for field, kept in fields.items()}

    return Samples(read, [f"golden sample {number}" for number in range(count)], None, frozenset(fields))


def _compare(kind: str, port: Input | Output, samples: Sequence[Tensors], expected: Array) -> dict[str, float]:
    """The largest deviation, and the tolerance. Raises ``Failure`` (``golden``) with the sample that deviates most."""
    tolerance = port.tolerance
    if tolerance is None:
        raise Failure("load", f"{kind} {port.name}: it has golden tensors, and declares no tolerance")
    faults: list[tuple[float, str]] = []
    largest = 0.0
    for number, wanted in enumerate(expected):
        values = samples[number][port.name]
        amount, why = _fault(values, wanted, tolerance)
        largest = max(largest, amount)
        if why:
            # Of an output whose inputs are as expected, a picture's faults explain nothing.
            advice = explanation(values, wanted) if kind == "input" else ""
            faults.append((amount, f"sample {number}: {why}" + (f"; {advice}" if advice else "")))
    if faults:
        allowed = f"tolerance {tolerance.absolute:g} + {tolerance.relative:g} * |expected|"
        worst = max(faults, key=lambda fault: fault[0])[1]
        what = f"{kind} {port.name} deviates in {len(faults)} of {len(samples)} golden samples"
        raise Failure("golden", f"{what}, most in {worst} ({allowed})")
    return {"largest": largest, "absolute": tolerance.absolute, "relative": tolerance.relative}


def _fault(values: Array, wanted: Array, tolerance: Tolerance) -> tuple[float, str]:
    """The largest difference, and what is wrong, empty where nothing is."""
    if values.dtype != wanted.dtype or values.shape != wanted.shape:
        return np.inf, f"it is {_form(values)}, and {_form(wanted)} is expected"
    found = deviation(values, wanted, tolerance)
    return found.largest, str(found) if found.beyond else ""


def _form(values: Array) -> str:
    return f"{values.dtype} {list(values.shape)}"


def _stored(port: Input, values: Array, where: str) -> Source:
    """A sample as a dataset would give it: bytes of an encoded file, a text, or an array."""
    encoded = values.dtype == np.uint8 and values.ndim == 1
    if port.type == "text":
        with failing("load", where):
            return values.tobytes().decode("utf-8") if encoded else str(values[()])
    return values.tobytes() if encoded and port.type != "tensor" else values


def _kept(source: Source) -> Array:
    if isinstance(source, str):
        source = source.encode("utf-8")
    return np.frombuffer(source, np.uint8) if isinstance(source, bytes) else source


def _taken(found: dict[str, Array], prefix: str, ports: Sequence[Input | Output]) -> Expected:
    names = [port.name for port in ports]
    return {name: found.pop(f"{prefix}{name}") for name in names if f"{prefix}{name}" in found}


def _check(golden: Golden, rest: Mapping[str, Array], name: str) -> None:
    if rest:
        raise Failure("load", f"{name}: {min(rest)!r} is no sample, input or output of the model")
    for port, kept in golden.raw.items():
        if not kept or len(kept) != golden.count:
            raise Failure("load", f"{name}: raw/{port}/ has {len(kept)} samples, of {golden.count or 'one or more'}")
    if not golden.inputs and not golden.outputs:
        raise Failure("load", f"{name}: nothing is expected of its samples: no input/ and no output/")
    for kind, tensors in (("input", golden.inputs), ("output", golden.outputs)):
        for port, values in tensors.items():
            if not values.ndim or len(values) != golden.count:
                raise Failure("load", f"{name}: {kind}/{port} is {_form(values)}, of {golden.count} samples")
