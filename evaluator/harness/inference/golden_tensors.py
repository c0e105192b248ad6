"""Golden tensors: reference samples, expected values, and explanations of deviations.

A file of arrays (``.npz``): ``raw/INPUT/0``, ``raw/INPUT/1``, … one sample each as a dataset holds it, an encoded file
or text as 1-D uint8; ``input/INPUT`` and ``output/OUTPUT`` stacked, the first axis the sample. An input is what the
steps give, of a sample that takes several calls all of them; an output is the value after its steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.failures import Failure, classify_errors
from ..core.job import Input, Model, Output, Tolerance
from ..datasets import Samples
from ..predictors import Predictor, Tensors
from ..steps import Source
from .finiteness import FiniteCheck
from .model_session import Session, query
from .pipeline import Pipeline, Prediction, Prepared

NumericArray = NDArray[Any]

_CHANNELS = 3
_MOST_AXES = 4
_EXACT = 1e-3  # of the values' range: an explanation leaves no more than this
_ALIKE = 0.9  # the correlation from which two pictures show the same thing


@dataclass(frozen=True, slots=True)
class Deviation:
    """``beyond`` of ``values`` differ by more than the tolerance; ``worst`` is where they exceed it most.

    ``largest`` is the greatest difference of all, infinite where only one of two values is a number.
    """

    values: int
    beyond: int
    largest: float
    worst: tuple[int, ...]
    found: float
    expected: float

    def __str__(self) -> str:
        place = f" at {list(self.worst)}" if self.worst else ""
        return (
            f"{self.beyond} of {self.values} values deviate, most{place}, "
            f"where it is {self.found:.9g} and {self.expected:.9g} is expected"
        )


def find_deviation(found: NumericArray, expected: NumericArray, tolerance: Tolerance) -> Deviation:
    """How ``found`` differs from ``expected``, which has its shape: ``|f - e| <= absolute + relative * |e|`` is none.

    Two that are no number are equal, and so are two infinities of one sign.
    """
    given, wanted = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(given - wanted)
        # By where, not in place: the difference of two values without axes is a number.
        gap = np.where((given == wanted) | (np.isnan(given) & np.isnan(wanted)), 0.0, gap)
        gap = np.where(np.isnan(gap), np.inf, gap)
        allowed = tolerance.absolute + tolerance.relative * np.where(np.isfinite(wanted), np.abs(wanted), 0.0)
        excess = gap - allowed
    if not gap.size:
        return Deviation(0, 0, 0.0, (), 0.0, 0.0)
    worst = tuple(int(index) for index in np.unravel_index(int(np.argmax(excess)), gap.shape))
    beyond = int(np.count_nonzero(excess > 0))
    return Deviation(gap.size, beyond, float(gap.max()), worst, float(given[worst]), float(wanted[worst]))


def explain_deviation(found: NumericArray, expected: NumericArray) -> str:
    """What would make one of the other, as advice where to look; empty where nothing here does.

    Tried are the faults that evaluations have: another order of axes or channels, a picture turned or mirrored,
    another scale and offset, another sampling.
    """
    given, wanted = found.astype(np.float64), expected.astype(np.float64)
    if not (given.size and np.isfinite(given).all() and np.isfinite(wanted).all()):
        return ""
    if given.shape == wanted.shape and np.array_equal(given, wanted):
        return "the values are the expected ones: look at cast"
    slack = _EXACT * float(np.ptp(wanted) or 1.0)
    for word, other in _rearranged(wanted, given):
        if float(np.abs(other.reshape(-1) - given.reshape(-1)).max()) <= slack:
            return word
    if given.shape != wanted.shape:
        return ""
    return _scaled(given, wanted) or _resampled(given, wanted)


def _rearranged(wanted: NumericArray, given: NumericArray) -> Iterator[tuple[str, NumericArray]]:
    """The expected values in other orders, each as many as were found, with the fault that leads there."""
    if wanted.size != given.size or wanted.ndim > _MOST_AXES:
        return
    yield from _other_axes(wanted, given)
    if wanted.shape == given.shape:
        yield from _other_sides(wanted)


def _other_axes(wanted: NumericArray, given: NumericArray) -> Iterator[tuple[str, NumericArray]]:
    if wanted.shape != given.shape:
        yield "the values are the expected ones under another shape: look at reshape and transpose", wanted
    for order in permutations(range(wanted.ndim)):
        if order != tuple(range(wanted.ndim)):
            yield (
                f"its axes are in the order {list(order)}: look at layout, transpose and reshape",
                wanted.transpose(order),
            )


def _other_sides(wanted: NumericArray) -> Iterator[tuple[str, NumericArray]]:
    for axis, size in enumerate(wanted.shape):
        if size == _CHANNELS:
            yield "the channels are in reverse: look at color, RGB or BGR", np.flip(wanted, axis)
        elif size > 1:
            yield f"axis {axis} is in reverse: look at exif", np.flip(wanted, axis)
    rows, columns = _sides(wanted)
    if columns is not None and wanted.shape[rows] == wanted.shape[columns]:
        for turns in (1, 2, 3):
            turned = np.rot90(wanted, turns, (rows, columns))
            yield "the picture is turned: look at exif", turned
            yield "the picture is turned: look at exif", np.flip(turned, columns)
    elif columns is not None:
        yield "the picture is turned: look at exif", np.rot90(wanted, 2, (rows, columns))


def _sides(values: NumericArray) -> tuple[int, int | None]:
    """The axes of height and width: the two longest, in their order; no second one where there are fewer."""
    if values.ndim < 2:  # noqa: PLR2004 - no picture
        return 0, None
    first, second = sorted(sorted(range(values.ndim), key=lambda axis: -values.shape[axis])[:2])
    return first, second


def _scaled(given: NumericArray, wanted: NumericArray) -> str:
    """Whether one is a straight line of the other, all values or channel by channel (least squares)."""
    line = _line(given, wanted)
    if line is not None:
        factor, offset = line
        added = "" if abs(offset) <= _EXACT * abs(factor) * float(np.abs(wanted).max() or 1.0) else f" {offset:+.6g}"
        return f"it is the expected value times {factor:.6g}{added}: look at scale, normalize, cast and quantize"
    for axis, size in enumerate(given.shape):
        if 1 < size <= _MOST_AXES:
            pairs = zip(np.moveaxis(given, axis, 0), np.moveaxis(wanted, axis, 0), strict=True)
            if all(_line(one, other) is not None for one, other in pairs):
                return "each channel is the expected one on another scale: look at mean and std of normalize"
    return ""


def _line(given: NumericArray, wanted: NumericArray) -> tuple[float, float] | None:
    """Factor and offset that make ``given`` of ``wanted``; None where there are none."""
    centred = wanted - wanted.mean()
    spread = float((centred**2).sum())
    if not spread or not np.ptp(given):
        return None
    factor = float((centred * given).sum()) / spread
    offset = float(given.mean()) - factor * float(wanted.mean())
    rest = float(np.abs(given - (factor * wanted + offset)).max())
    return (factor, offset) if rest <= _EXACT * float(np.ptp(given)) else None


def _resampled(given: NumericArray, wanted: NumericArray) -> str:
    if not np.ptp(given) or not np.ptp(wanted):
        return ""
    likeness = float(np.corrcoef(given.reshape(-1), wanted.reshape(-1))[0, 1])
    if likeness >= _ALIKE:
        return (
            f"both are alike (correlation {likeness:.4f}) and not equal: "
            "look at resize (method, antialias, coordinates), crop, pad and rounding"
        )
    return f"they are not alike (correlation {likeness:.2f}): look at crop, exif and the order of the steps"


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
class GoldenSample:
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
    samples = open_golden_samples(model, golden.raw)
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
    with classify_errors("predict", where):
        found = query(session, calls)
    for tensors in found:
        finite.add_call(tensors, number, 1)
    return pipeline.combine([pipeline.answers(tensors, 1, where)[0] for tensors in found])


def read_golden(path: Path, model: Model) -> Golden:
    """The golden tensors of ``model`` in the file ``path``.

    Raises:
        Failure: ``load``: it cannot be read, or is not of this model.
    """
    with classify_errors("load", path.name), np.load(path, allow_pickle=False) as arrays:
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


def write_golden(path: Path, model: Model, samples: Sequence[GoldenSample]) -> None:
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
            with classify_errors("golden", f"{kind} {name}, of all samples"):
                arrays[f"{kind}/{name}"] = np.stack([one[name] for one in tensors])
    with path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]  # its last parameter is a flag
    path.chmod(0o644)


def open_golden_samples(model: Model, raw: Mapping[str, Sequence[Source]]) -> Samples:
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
            advice = explain_deviation(values, wanted) if kind == "input" else ""
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
    found = find_deviation(values, wanted, tolerance)
    return found.largest, str(found) if found.beyond else ""


def _form(values: Array) -> str:
    return f"{values.dtype} {list(values.shape)}"


def _stored(port: Input, values: Array, where: str) -> Source:
    """A sample as a dataset would give it: bytes of an encoded file, a text, or an array."""
    encoded = values.dtype == np.uint8 and values.ndim == 1
    if port.type == "text":
        with classify_errors("load", where):
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
