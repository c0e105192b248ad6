"""Audits after MLPerf TEST01 and TEST04: same answers while timed, and no caching.

* After TEST01: the performance phase gives the same answers as the accuracy phase. The answers to some queries, from
  the first to the last, are stored outside the timed interval and compared with the predictions of the same samples.
* After TEST04: the model does not answer from a cache. Some samples are each queried once, again immediately, and again
  after another sample. The later calls must take at least 90 % of the time of the first, or 80 % for short calls.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from ..core.failures import Failure
from ..core.job import Model, Output
from .finite_checks import FiniteCheck
from .predictions import split_samples

# Each stored query is a sixteenth later than the one before: about 16 of the first queries, then fewer and fewer.
_STRIDE = 16
_MAX_KEPT_BYTES = 64 << 20
_MAX_SAMPLES = 64
_GROUP = 8
_WAKING = 2
_SECONDS = 5.0
# Thresholds of MLPerf: 10 %, and 20 % where a call takes 200 microseconds or less.
_SHARE, _SHARE_OF_SHORT, _SHORT_NS = 0.9, 0.8, 200_000
# Smaller differences come from CPU caches and the clock: calls this short cannot be judged.
_LEAST_NS = 50_000
_DEFAULT_SHARE = 1e-3
# With fewer samples no order statistic bounds the median at 97.5 %: all lie on one side of it too often (2**-n).
_FEWEST = 6

UNKEPT_OUTPUTS = "unkept.safetensors"
"""Outputs of the first samples that are not stored as predictions, because boxes replace them; for the audit only."""


class UnkeptOutputs:
    """The outputs ``names`` of the first samples, within a bound of memory."""

    def __init__(self, names: Sequence[str]) -> None:
        """Start without any sample."""
        self._names = names
        self._bytes = 0
        self.predictions: list[dict[str, NDArray[Any]]] = []

    def take(self, prediction: Mapping[str, NDArray[Any]]) -> None:
        """Store the outputs of the next sample, unless the memory is full."""
        if self._names and self._bytes <= _MAX_KEPT_BYTES:
            self.predictions.append({name: prediction[name] for name in self._names})
            self._bytes += _bytes(self.predictions[-1])


class AnswerReservoir:
    """Stored answers to some queries: more at the beginning, some up to the last, within a bound of memory.

    ``next`` is the number, from 1, of the next query whose answer should be stored. ``share`` is the usable share of
    the memory.
    """

    def __init__(self, share: float = 1.0) -> None:
        """Start without any answer."""
        self.next = 1
        self._most_bytes = _MAX_KEPT_BYTES * share
        self.answers: list[tuple[tuple[int, ...], Any]] = []
        self._made = 0
        self._spread = 1

    def take(self, indices: Sequence[int], answer: Any) -> None:  # noqa: ANN401 - of any shape
        """Store an answer and choose the next query; every second answer is dropped where memory is full."""
        self.answers.append((tuple(indices), answer))
        if len(self.answers) * max(1, _bytes(answer)) > self._most_bytes and len(self.answers) > 1:
            self.answers = self.answers[::2]
            self._spread *= 2
        self.next += self._spread * (1 + self.next // _STRIDE)


@dataclass(frozen=True, slots=True)
class CachingEstimate:
    """The time of repeated calls as a share of the first: medians, and the upper ends of their confidence intervals.

    ``again`` is the call after another sample, ``repeated`` the call right after the first.
    """

    samples: int
    first_ns: int
    again: tuple[float, float]
    repeated: tuple[float, float]

    @property
    def caught(self) -> bool:
        """Whether the repeated calls are so fast that the model must answer from a cache."""
        least = _SHARE if self.first_ns > _SHORT_NS else _SHARE_OF_SHORT
        return self.samples >= _FEWEST and any(
            most < least and self.first_ns * (1 - share) > _LEAST_NS for share, most in (self.again, self.repeated)
        )

    def document(self) -> dict[str, Any]:
        """Return the estimate as a JSON object."""
        return {
            "samples": self.samples,
            "first_ns": self.first_ns,
            "again": {"share": self.again[0], "at_most": self.again[1]},
            "repeated": {"share": self.repeated[0], "at_most": self.repeated[1]},
            "caught": self.caught,
        }


def check_caching(
    prepared: Callable[[int], Callable[[], int] | None], wake: Callable[[], object], total: int
) -> dict[str, Any]:
    """Time samples once and again, and compare the times.

    The first call of a sample is followed immediately by its repetition, and by one more after the next sample, so that
    a slower machine slows all three alike. Samples are prepared in groups, which bounds the memory.

    Args:
        prepared: Prepares a sample and returns the function that times a call on it in nanoseconds; None for a sample
            that is not comparable, such as one of another shape.
        wake: Makes a call that is not counted; the first calls after the preparation find cold caches and idle threads.
        total: The number of samples.

    Raises:
        Failure: ``loadgen-invalid``: repeated samples are answered faster than the model can.
    """
    rows: list[tuple[int, int, int]] = []
    end = time.perf_counter() + _SECONDS
    for start in range(0, min(total, _MAX_SAMPLES), _GROUP):
        if rows and time.perf_counter() > end:
            break
        timers = map(prepared, range(start, min(total, start + _GROUP)))
        group = [once for once in timers if once is not None]
        for _ in range(_WAKING):
            wake()
        rows += _timed(group, wake)
    first_ns = int(median(row[0] for row in rows))
    again_share, repeated_share = ([row[column] / max(row[0], 1) for row in rows] for column in (2, 1))
    estimate = CachingEstimate(len(rows), first_ns, _median_and_end(again_share), _median_and_end(repeated_share))
    if estimate.caught:
        share = min(estimate.again[0], estimate.repeated[0])
        raise Failure(
            "loadgen-invalid",
            f"audit (after MLPerf's TEST04): a repeated sample takes {share:.0%} of its first time "
            f"({estimate.first_ns / 1e6:.3g} ms), median of {estimate.samples} samples: the model answers from a cache",
        )
    return estimate.document()


def _timed(group: Sequence[Callable[[], int]], wake: Callable[[], object]) -> list[tuple[int, int, int]]:
    """Return the times of each sample: first call, immediate repetition, and one more after another sample."""
    twice: list[tuple[int, int]] = []
    again: list[int] = []
    for number, once in enumerate(group):
        twice.append((once(), once()))
        if number:
            again.append(group[number - 1]())
    if group:
        wake()
        again.append(group[-1]())
    return [(*pair, later) for pair, later in zip(twice, again, strict=True)]


def check_answers(
    answers: Iterable[tuple[int, Mapping[str, NDArray[Any]]]], model: Model, path: Path
) -> dict[str, Any] | None:
    """Compare the predictions of a timed phase with those of the accuracy phase.

    Outputs that are not stored as predictions are compared for the samples in the file ``UNKEPT_OUTPUTS`` beside
    ``path``.

    Args:
        answers: Samples and their predictions in the timed phase.
        model: The model.
        path: The file with the predictions of the accuracy phase.

    Returns:
        The report; None where there is nothing to compare with, or an answer depends on the samples before it.

    Raises:
        Failure: ``non-finite``: an answer has NaN or infinite values, which the manifest does not allow.
        Failure: ``loadgen-invalid``: an answer differs by more than the manifest's tolerance or, without a tolerance,
            by more than a thousandth of the greatest value, which a different batch size may cause.
    """
    has_expected = path.exists() and not any(port.reset == "never" for port in model.inputs)
    expected = _expected(model, path) | _expected(model, path.with_name(UNKEPT_OUTPUTS)) if has_expected else {}
    ports = [port for port in model.prediction_outputs if port.name in expected]
    finite = FiniteCheck(model, when=" in timed answers")
    compared = 0
    for sample, prediction in answers:
        finite.add_prediction(prediction, sample)
        finite.check()
        comparable = [port for port in ports if sample < len(expected[port.name])]
        compared += bool(comparable)
        for port in comparable:
            _check_answer(port, sample, prediction[port.name], expected[port.name][sample])
    return {"answers": compared, "outputs": [port.name for port in ports], "caught": False} if compared else None


def sum_audits(audits: Iterable[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Merge the reports of ``check_answers`` of several processes; None where none of them compared anything."""
    reports = [report for report in audits if report is not None]
    return reports[-1] | {"answers": sum(report["answers"] for report in reports)} if reports else None


def _expected(model: Model, path: Path) -> dict[str, Sequence[NDArray[Any]]]:
    """Return the outputs in the file, by sample."""
    if not path.exists():
        return {}
    with safe_open(path, framework="numpy") as file:
        names = set(file.keys())
        return {port.name: split_samples(file, port.name) for port in model.prediction_outputs if port.name in names}


def _check_answer(port: Output, sample: int, answer: NDArray[Any], expected: NDArray[Any]) -> None:
    if answer.shape == expected.shape and _agree(port, answer, expected):
        return
    raise Failure(
        "loadgen-invalid",
        f"audit (after MLPerf's TEST01): sample {sample}, output {port.name}: answer {_shown(answer)} when timed, "
        f"{_shown(expected)} in the accuracy phase: the model works differently when timed",
    )


def _agree(port: Output, answer: NDArray[Any], expected: NDArray[Any]) -> bool:
    if answer.dtype.kind != "f" and port.tolerance is None:
        return bool(np.array_equal(answer, expected))
    if port.tolerance is not None:
        absolute, relative = port.tolerance.absolute, port.tolerance.relative
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        absolute, relative = _DEFAULT_SHARE * float(finite.max(initial=0)), _DEFAULT_SHARE
    return bool(np.allclose(answer.astype(float), expected.astype(float), relative, absolute, equal_nan=True))


def _shown(values: NDArray[Any]) -> str:
    flat = values.reshape(-1)
    return f"[{', '.join(f'{value:.6g}' for value in flat[:4])}{', …' if flat.size > 4 else ''}]"  # noqa: PLR2004 - enough to fit one line


def _bytes(answer: Any) -> int:  # noqa: ANN401 - arrays in mappings and lists
    if isinstance(answer, Mapping):
        return sum(_bytes(part) for part in answer.values())
    if isinstance(answer, list):
        return sum(_bytes(part) for part in answer)
    return int(answer.nbytes)


def _median_and_end(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the upper end of its one-sided confidence interval of 97.5 %.

    The end is the order statistic of rank n/2 + 0.98 sqrt(n), or the last.
    """
    ordered, n = sorted(values), len(values)
    return median(ordered), ordered[min(n - 1, int(n / 2 + 0.98 * n**0.5))]
