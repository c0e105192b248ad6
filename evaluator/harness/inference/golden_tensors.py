"""Golden tensors: reference samples, expected values, and explanations of deviations.

The file is an archive of arrays (``.npz``). ``raw/INPUT/0``, ``raw/INPUT/1``, … are samples as a dataset stores them;
an encoded file or a text is 1-D uint8. ``input/INPUT`` and ``output/OUTPUT`` are stacked, with the sample as the first
axis. An input is the value after its steps, of all calls where a sample takes several; an output is the value after its
steps.
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
from .finite_checks import FiniteCheck
from .model_session import Session, query
from .pipeline import Pipeline, Prediction, PreparedSample

NumericArray = NDArray[Any]

_CHANNELS = 3
_MAX_AXES = 4
_EXACT = 1e-3  # the largest difference that an explanation may leave, as a share of the range of values
_ALIKE = 0.9  # the least correlation of two images of the same content


@dataclass(frozen=True, slots=True)
class Deviation:
    """The difference of two arrays of ``values`` values, of which ``beyond`` exceed the tolerance.

    ``worst`` is the index at which the tolerance is exceeded most. ``largest`` is the largest difference, infinite
    where only one of two values is a number.
    """

    values: int
    beyond: int
    largest: float
    worst: tuple[int, ...]
    found: float
    expected: float

    def __str__(self) -> str:
        """Return the deviation as a part of a message."""
        place = f" at {list(self.worst)}" if self.worst else ""
        return (
            f"{self.beyond} of {self.values} values deviate, most{place}: "
            f"expected {self.expected:.9g}, found {self.found:.9g}"
        )


def find_deviation(actual: NumericArray, expected: NumericArray, tolerance: Tolerance) -> Deviation:
    """Compare ``actual`` with ``expected`` of the same shape.

    A difference within ``absolute + relative * |expected|`` is none.

    Two NaN are equal, and so are two infinities of one sign.
    """
    values, reference = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(values - reference)
        # np.where instead of an assignment: the difference of two arrays without axes is a scalar.
        gap = np.where((values == reference) | (np.isnan(values) & np.isnan(reference)), 0.0, gap)
        gap = np.where(np.isnan(gap), np.inf, gap)
        allowed = tolerance.absolute + tolerance.relative * np.where(np.isfinite(reference), np.abs(reference), 0.0)
        excess = gap - allowed
    if not gap.size:
        return Deviation(0, 0, 0.0, (), 0.0, 0.0)
    worst = tuple(int(index) for index in np.unravel_index(int(np.argmax(excess)), gap.shape))
    beyond = int(np.count_nonzero(excess > 0))
    return Deviation(gap.size, beyond, float(gap.max()), worst, float(values[worst]), float(reference[worst]))


def explain_deviation(actual: NumericArray, expected: NumericArray) -> str:
    """Explain a deviation by a common fault, as advice where to look; empty where no fault explains it.

    The faults tried are: another order of axes or channels, a rotated or mirrored image, another scale and offset,
    another resampling.
    """
    values, reference = actual.astype(np.float64), expected.astype(np.float64)
    if not (values.size and np.isfinite(values).all() and np.isfinite(reference).all()):
        return ""
    if values.shape == reference.shape and np.array_equal(values, reference):
        return "values match, but not the type: check cast"
    slack = _EXACT * float(np.ptp(reference) or 1.0)
    for advice, candidate in _rearranged(reference, values):
        if float(np.abs(candidate.reshape(-1) - values.reshape(-1)).max()) <= slack:
            return advice
    if values.shape != reference.shape:
        return ""
    return _scaled(values, reference) or _resampled(values, reference)


def _rearranged(reference: NumericArray, values: NumericArray) -> Iterator[tuple[str, NumericArray]]:
    """Yield the expected values in other orders, each with the fault that would cause it."""
    if reference.size != values.size or reference.ndim > _MAX_AXES:
        return
    yield from _other_axes(reference, values)
    if reference.shape == values.shape:
        yield from _other_sides(reference)


def _other_axes(reference: NumericArray, values: NumericArray) -> Iterator[tuple[str, NumericArray]]:
    if reference.shape != values.shape:
        yield "values match, but not the shape: check reshape and transpose", reference
    for order in permutations(range(reference.ndim)):
        if order != tuple(range(reference.ndim)):
            yield (
                f"axes are in order {list(order)}: check layout, transpose and reshape",
                reference.transpose(order),
            )


def _other_sides(reference: NumericArray) -> Iterator[tuple[str, NumericArray]]:
    for axis, size in enumerate(reference.shape):
        if size == _CHANNELS:
            yield "channels are reversed: check color (RGB or BGR)", np.flip(reference, axis)
        elif size > 1:
            yield f"axis {axis} is reversed: check exif", np.flip(reference, axis)
    rows, columns = _sides(reference)
    if columns is not None and reference.shape[rows] == reference.shape[columns]:
        for quarter_turns in (1, 2, 3):
            rotated = np.rot90(reference, quarter_turns, (rows, columns))
            yield "the picture is rotated: check exif", rotated
            yield "the picture is rotated: check exif", np.flip(rotated, columns)
    elif columns is not None:
        yield "the picture is rotated: check exif", np.rot90(reference, 2, (rows, columns))


def _sides(values: NumericArray) -> tuple[int, int | None]:
    """Return the axes of height and width: the two longest, in their order; no second axis without an image."""
    if values.ndim < 2:  # noqa: PLR2004 - not an image
        return 0, None
    first, second = sorted(sorted(range(values.ndim), key=lambda axis: -values.shape[axis])[:2])
    return first, second


def _scaled(values: NumericArray, reference: NumericArray) -> str:
    """Explain a linear relation of the values, all together or by channel (least squares)."""
    line = _line(values, reference)
    if line is not None:
        factor, offset = line
        added = "" if abs(offset) <= _EXACT * abs(factor) * float(np.abs(reference).max() or 1.0) else f" {offset:+.6g}"
        return f"found is expected times {factor:.6g}{added}: check scale, normalize, cast and quantize"
    for axis, size in enumerate(values.shape):
        if 1 < size <= _MAX_AXES:
            pairs = zip(np.moveaxis(values, axis, 0), np.moveaxis(reference, axis, 0), strict=True)
            if all(_line(values_channel, reference_channel) is not None for values_channel, reference_channel in pairs):
                return "each channel has a different scale: check mean and std of normalize"
    return ""


def _line(values: NumericArray, reference: NumericArray) -> tuple[float, float] | None:
    """Return the factor and offset that turn ``reference`` into ``values``; None without a linear relation."""
    centred = reference - reference.mean()
    spread = float((centred**2).sum())
    if not spread or not np.ptp(values):
        return None
    factor = float((centred * values).sum()) / spread
    offset = float(values.mean()) - factor * float(reference.mean())
    residual = float(np.abs(values - (factor * reference + offset)).max())
    return (factor, offset) if residual <= _EXACT * float(np.ptp(values)) else None


def _resampled(values: NumericArray, reference: NumericArray) -> str:
    if not np.ptp(values) or not np.ptp(reference):
        return ""
    likeness = float(np.corrcoef(values.reshape(-1), reference.reshape(-1))[0, 1])
    if likeness >= _ALIKE:
        return (
            f"similar but not equal (correlation {likeness:.4f}): "
            "check resize (method, antialias, coordinates), crop, pad and rounding"
        )
    return f"not similar (correlation {likeness:.2f}): check crop, exif and the order of the steps"


Array = NDArray[Any]
Expected = Mapping[str, Array]
"""Arrays by the name of an input or output, with all samples on the first axis."""


@dataclass(frozen=True, slots=True)
class Golden:
    """Golden tensors: ``raw`` has one source per sample by the name of an input.

    ``inputs`` and ``outputs`` are expected.
    """

    raw: Mapping[str, tuple[Source, ...]]
    inputs: Expected
    outputs: Expected

    @property
    def count(self) -> int:
        """The number of samples."""
        return len(next(iter(self.raw.values())))


@dataclass(frozen=True, slots=True)
class GoldenSample:
    """A sample as the dataset stores it, each of its inputs after the steps, and each of its outputs."""

    fields: Mapping[str, Source]
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


def check_golden(model: Model, predictor: Predictor, pipeline: Pipeline, folder: Path) -> dict[str, Any] | None:
    """Run the model's golden samples, and report the largest deviations; None for a model without golden tensors.

    Raises:
        Failure: ``golden``: an input or output deviates; the message has its name, the amount and the place.
        Failure: ``load``: the file is malformed. ``step``, ``predict``, ``non-finite``: as in any phase.
    """
    if model.golden is None:
        return None
    golden = read_golden(folder / model.golden, model)
    samples = open_golden_samples(model, golden.raw)
    prepared = [pipeline.prepare(samples, number) for number in range(golden.count)]
    report: dict[str, Any] = {"samples": golden.count, "inputs": {}, "outputs": {}}
    tensors = [stack_inputs(sample) for sample in prepared]
    for port in model.inputs:
        if port.name in golden.inputs:
            report["inputs"][port.name] = _compare("input", port, tensors, golden.inputs[port.name])
    if golden.outputs:
        session = Session(predictor, model)
        finite = FiniteCheck(model, samples.names)
        with finite.checking():
            tensors = [
                predict_sample(pipeline, session, sample, (number, samples.names[number]), finite)
                for number, sample in enumerate(prepared)
            ]
        for output in model.outputs:
            if output.name in golden.outputs:
                report["outputs"][output.name] = _compare("output", output, tensors, golden.outputs[output.name])
    return report


def stack_inputs(prepared: PreparedSample) -> Tensors:
    """Return each input of a sample after its steps; several calls are stacked on a new first axis."""
    first, *others = prepared.calls
    if not others:
        return first
    return {name: np.stack([call[name] for call in prepared.calls]) for name in first}


def predict_sample(
    pipeline: Pipeline, session: Session, prepared: PreparedSample, place: tuple[int, str], finite: FiniteCheck
) -> Prediction:
    """Return the prediction of one sample, in calls of its own.

    Args:
        pipeline: The steps of the model.
        session: The model.
        prepared: The sample after the steps of the inputs.
        place: The number of the sample, and its name in messages.
        finite: Counts the values that the model returns.

    Raises:
        Failure: As in any phase.
    """
    number, where = place
    calls = [pipeline.stack([call]) for call in prepared.calls]
    with classify_errors("predict", where):
        answers = query(session, calls)
    for tensors in answers:
        finite.add_call(tensors, number, 1)
    return pipeline.combine([pipeline.answers(tensors, 1, where)[0] for tensors in answers])


def read_golden(path: Path, model: Model) -> Golden:
    """Read the golden tensors of ``model`` from the file ``path``.

    Raises:
        Failure: ``load``: the file cannot be read, or does not match the model.
    """
    with classify_errors("load", path.name), np.load(path, allow_pickle=False) as arrays:
        remaining = {name: np.asarray(arrays[name]) for name in arrays.files}
    raw: dict[str, tuple[Source, ...]] = {}
    for port in (port for port in model.inputs if port.is_fed):
        prefix, sources = f"raw/{port.name}/", list[Source]()
        while f"{prefix}{len(sources)}" in remaining:
            sources.append(
                _decode_source(port, remaining.pop(f"{prefix}{len(sources)}"), f"{path.name}, {prefix}{len(sources)}")
            )
        raw[port.name] = tuple(sources)
    golden = Golden(
        raw, _take_tensors(remaining, "input/", model.inputs), _take_tensors(remaining, "output/", model.outputs)
    )
    _check(golden, remaining, path.name)
    return golden


def write_golden(path: Path, model: Model, samples: Sequence[GoldenSample]) -> None:
    """Write golden samples with their inputs and outputs.

    Raises:
        Failure: ``golden``: the tensors of an input or output differ in shape and cannot be stacked.
    """
    arrays: dict[str, Array] = {}
    for port in (port for port in model.inputs if port.is_fed):
        for number, sample in enumerate(samples):
            fields = sample.fields
            arrays[f"raw/{port.name}/{number}"] = _encode_source(fields[port.field or next(iter(fields))])
    for kind, tensors in (
        ("input", [sample.inputs for sample in samples]),
        ("output", [sample.outputs for sample in samples]),
    ):
        for name in tensors[0]:
            with classify_errors("golden", f"{kind} {name}, of all samples"):
                arrays[f"{kind}/{name}"] = np.stack([sample[name] for sample in tensors])
    with path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]  # its last parameter is a flag
    path.chmod(0o644)


def open_golden_samples(model: Model, raw: Mapping[str, Sequence[Source]]) -> Samples:
    """Return the golden samples as those of a dataset whose fields feed the model."""
    ports = [port for port in model.inputs if port.is_fed]
    named = [port.field for port in ports if port.field is not None]
    fields = {port.field or next(iter(named), "sample"): raw[port.name] for port in reversed(ports)}
    count = len(raw[ports[0].name])

    def read(number: int) -> Mapping[str, Source]:
        return {field: sources[number] for field, sources in fields.items()}

    return Samples(read, [f"golden sample {number}" for number in range(count)], None, frozenset(fields))


def _compare(kind: str, port: Input | Output, samples: Sequence[Tensors], expected: Array) -> dict[str, float]:
    """Return the largest deviation and the tolerance.

    Raises:
        Failure: ``golden``: the tolerance is exceeded; the message names the worst sample.
    """
    tolerance = port.tolerance
    if tolerance is None:
        raise Failure("load", f"{kind} {port.name}: it has golden tensors, but no tolerance")
    faults: list[tuple[float, str]] = []
    largest = 0.0
    for number, reference in enumerate(expected):
        values = samples[number][port.name]
        amount, why = _fault(values, reference, tolerance)
        largest = max(largest, amount)
        if why:
            # The inputs are as expected, so faults of images cannot explain a deviating output.
            advice = explain_deviation(values, reference) if kind == "input" else ""
            faults.append((amount, f"sample {number}: {why}" + (f"; {advice}" if advice else "")))
    if faults:
        allowed = f"tolerance {tolerance.absolute:g} + {tolerance.relative:g} * |expected|"
        worst = max(faults, key=lambda fault: fault[0])[1]
        summary = f"{kind} {port.name} deviates in {len(faults)} of {len(samples)} golden samples"
        raise Failure("golden", f"{summary}, most in {worst} ({allowed})")
    return {"largest": largest, "absolute": tolerance.absolute, "relative": tolerance.relative}


def _fault(values: Array, expected: Array, tolerance: Tolerance) -> tuple[float, str]:
    """Return the largest difference and a description of the fault, empty within the tolerance."""
    if values.dtype != expected.dtype or values.shape != expected.shape:
        return np.inf, f"expected {_form(expected)}, found {_form(values)}"
    deviation = find_deviation(values, expected, tolerance)
    return deviation.largest, str(deviation) if deviation.beyond else ""


def _form(values: Array) -> str:
    return f"{values.dtype} {list(values.shape)}"


def _decode_source(port: Input, values: Array, where: str) -> Source:
    """Return a sample as a dataset would return it: bytes of an encoded file, a text, or an array."""
    encoded = values.dtype == np.uint8 and values.ndim == 1
    if port.type == "text":
        with classify_errors("load", where):
            return values.tobytes().decode("utf-8") if encoded else str(values[()])
    return values.tobytes() if encoded and port.type != "tensor" else values


def _encode_source(source: Source) -> Array:
    if isinstance(source, str):
        source = source.encode("utf-8")
    return np.frombuffer(source, np.uint8) if isinstance(source, bytes) else source


def _take_tensors(arrays: dict[str, Array], prefix: str, ports: Sequence[Input | Output]) -> Expected:
    names = [port.name for port in ports]
    return {name: arrays.pop(f"{prefix}{name}") for name in names if f"{prefix}{name}" in arrays}


def _check(golden: Golden, leftover: Mapping[str, Array], name: str) -> None:
    if leftover:
        raise Failure("load", f"{name}: {min(leftover)!r} is not a sample, input or output of the model")
    for port, sources in golden.raw.items():
        if not sources or len(sources) != golden.count:
            raise Failure(
                "load", f"{name}: raw/{port}/ has {len(sources)} samples, expected {golden.count or 'one or more'}"
            )
    if not golden.inputs and not golden.outputs:
        raise Failure("load", f"{name}: no expected values: neither input/ nor output/")
    for kind, tensors in (("input", golden.inputs), ("output", golden.outputs)):
        for port, values in tensors.items():
            if not values.ndim or len(values) != golden.count:
                raise Failure("load", f"{name}: {kind}/{port} is {_form(values)}, expected {golden.count} samples")
