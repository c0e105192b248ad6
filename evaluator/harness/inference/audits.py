"""Audits after MLPerf TEST01 and TEST04: same answers while timed, and no caching.

* The performance phase answers as the accuracy phase does (after TEST01). Answers of some queries, from the first to
  the last, are kept while the clock stands still, and compared with the predictions of the same samples.
* The model does not answer from a cache (after TEST04). Each of some samples is asked for once, again at once, and
  again after another; the later calls may not take less than nine tenths of the first one's time, of short calls
  eight tenths.
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
from .finiteness import FiniteCheck
from .predictions import split_samples

# A sixteenth further each time: some 16 of the first queries, then fewer and fewer, up to the last.
_STRIDE = 16
_MOST_KEPT_BYTES = 64 << 20
_MOST_SAMPLES = 64
_GROUP = 8
_WAKING = 2
_SECONDS = 5.0
# MLPerf's: 10 %, and 20 % where a call takes 200 microseconds or less.
_SHARE, _SHARE_OF_SHORT, _SHORT_NS = 0.9, 0.8, 200_000
# Below this a difference is one of the processor's own caches and of the clock: such short calls cannot be judged.
_LEAST_NS = 50_000
_DEFAULT_SHARE = 1e-3
# Of fewer samples no order statistic bounds the median at 97.5 %: all of them lie on one side of it too often (2**-n).
_FEWEST = 6

UNKEPT_OUTPUTS = "unkept.safetensors"
"""Outputs of the first samples that are no predictions, but what boxes are made of: for the audit alone."""


class UnkeptOutputs:
    """The outputs of those names of the first samples, within bounds of memory."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._bytes = 0
        self.predictions: list[dict[str, NDArray[Any]]] = []

    def take(self, prediction: Mapping[str, NDArray[Any]]) -> None:
        """Of one sample after the other, from the first."""
        if self._names and self._bytes <= _MOST_KEPT_BYTES:
            self.predictions.append({name: prediction[name] for name in self._names})
            self._bytes += _bytes(self.predictions[-1])


class AnswerReservoir:
    """Answers of some queries: more at the beginning, some up to the last, within bounds of memory.

    ``next`` is the number of the query, from 1, whose answer to ``take``; ``share`` is what of the memory may be used.
    """

    def __init__(self, share: float = 1.0) -> None:
        self.next = 1
        self._most_bytes = _MOST_KEPT_BYTES * share
        self.answers: list[tuple[tuple[int, ...], Any]] = []
        self._made = 0
        self._spread = 1

    def take(self, indices: Sequence[int], answer: Any) -> None:  # noqa: ANN401 - of any shape
        self.answers.append((tuple(indices), answer))
        if len(self.answers) * max(1, _bytes(answer)) > self._most_bytes and len(self.answers) > 1:
            self.answers = self.answers[::2]
            self._spread *= 2
        self.next += self._spread * (1 + self.next // _STRIDE)


@dataclass(frozen=True, slots=True)
class CachingEstimate:
    """How long samples take again, as a share of their first time: medians, and the upper ends of their intervals.

    ``again``: after another; ``repeated``: right after itself.
    """

    samples: int
    first_ns: int
    again: tuple[float, float]
    repeated: tuple[float, float]

    @property
    def caught(self) -> bool:
        least = _SHARE if self.first_ns > _SHORT_NS else _SHARE_OF_SHORT
        return self.samples >= _FEWEST and any(
            most < least and self.first_ns * (1 - share) > _LEAST_NS for share, most in (self.again, self.repeated)
        )

    def document(self) -> dict[str, Any]:
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
    """Time samples once and again; ``prepared`` makes a sample ready and gives the function that times a call on it.

    It gives None for a sample that tells nothing, such as one of another shape. ``wake`` asks for no sample: the calls
    that follow the preparing of samples find cold caches and threads that sleep, and are not counted.

    A sample's first call is followed at once by its repetition, and after that of the next sample by one more, so that
    what slows the machine slows all three alike. It goes in groups, for which the memory is bounded.

    Raises:
        Failure: ``loadgen-invalid``: what was asked before is answered faster than the model can.
    """
    rows: list[tuple[int, int, int]] = []
    end = time.perf_counter() + _SECONDS
    for start in range(0, min(total, _MOST_SAMPLES), _GROUP):
        if rows and time.perf_counter() > end:
            break
        ready = map(prepared, range(start, min(total, start + _GROUP)))
        group = [once for once in ready if once is not None]
        for _ in range(_WAKING):
            wake()
        rows += _timed(group, wake)
    first_ns = int(median(row[0] for row in rows))
    again_share, repeated_share = ([row[place] / max(row[0], 1) for row in rows] for place in (2, 1))
    found = CachingEstimate(len(rows), first_ns, _median_and_end(again_share), _median_and_end(repeated_share))
    if found.caught:
        share = min(found.again[0], found.repeated[0])
        raise Failure(
            "loadgen-invalid",
            f"audit (after MLPerf's TEST04): a sample that was asked before takes {share:.0%} of its first time "
            f"({found.first_ns / 1e6:.3g} ms), median of {found.samples} samples: the model answers from a cache",
        )
    return found.document()


def _timed(group: Sequence[Callable[[], int]], wake: Callable[[], object]) -> list[tuple[int, int, int]]:
    """Of each sample its first call, the one right after it, and one more after another was asked for."""
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
    """Compare predictions of samples by a phase that was timed with the accuracy phase's in the file ``path``.

    Outputs that are not kept as predictions are in the file :data:`UNKEPT` beside it, of some of the samples.

    None where there is nothing to compare with, and where an answer depends on the samples before.

    Raises:
        Failure: ``non-finite``: an answer has NaN or infinities, which the manifest does not allow.
        Failure: ``loadgen-invalid``: they differ by more than the manifest's tolerance; where it states none, by more
            than a thousandth of the greatest value, which the size of a batch may well change.
    """
    has_expected = path.exists() and not any(port.reset == "never" for port in model.inputs)
    expected = _expected(model, path) | _expected(model, path.with_name(UNKEPT_OUTPUTS)) if has_expected else {}
    ports = [port for port in model.predicted if port.name in expected]
    finite = FiniteCheck(model, when=" in answers that were timed")
    compared = 0
    for sample, prediction in answers:
        finite.add_prediction(prediction, sample)
        finite.check()
        there = [port for port in ports if sample < len(expected[port.name])]
        compared += bool(there)
        for port in there:
            _check_answer(port, sample, prediction[port.name], expected[port.name][sample])
    return {"answers": compared, "outputs": [port.name for port in ports], "caught": False} if compared else None


def sum_audits(found: Iterable[dict[str, Any] | None]) -> dict[str, Any] | None:
    """What ``check_answers`` said of several processes, as one; None where none of them had anything to compare."""
    there = [one for one in found if one is not None]
    return there[-1] | {"answers": sum(one["answers"] for one in there)} if there else None


def _expected(model: Model, path: Path) -> dict[str, Sequence[NDArray[Any]]]:
    """The outputs that the file has, sample by sample."""
    if not path.exists():
        return {}
    with safe_open(path, framework="numpy") as file:
        return {port.name: split_samples(file, port.name) for port in model.predicted if port.name in file.keys()}  # noqa: SIM118 - no mapping


def _check_answer(port: Output, sample: int, found: NDArray[Any], expected: NDArray[Any]) -> None:
    if found.shape == expected.shape and _agree(port, found, expected):
        return
    raise Failure(
        "loadgen-invalid",
        f"audit (after MLPerf's TEST01): sample {sample}, output {port.name}: where it is timed the model answers "
        f"{_shown(found)}, the accuracy phase {_shown(expected)}: it does other work there",
    )


def _agree(port: Output, found: NDArray[Any], expected: NDArray[Any]) -> bool:
    if found.dtype.kind != "f" and port.tolerance is None:
        return bool(np.array_equal(found, expected))
    if port.tolerance is not None:
        absolute, relative = port.tolerance.absolute, port.tolerance.relative
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        absolute, relative = _DEFAULT_SHARE * float(finite.max(initial=0)), _DEFAULT_SHARE
    return bool(np.allclose(found.astype(float), expected.astype(float), relative, absolute, equal_nan=True))


def _shown(values: NDArray[Any]) -> str:
    flat = values.reshape(-1)
    return f"[{', '.join(f'{value:.6g}' for value in flat[:4])}{', …' if flat.size > 4 else ''}]"  # noqa: PLR2004 - a line's worth


def _bytes(answer: Any) -> int:  # noqa: ANN401 - arrays in mappings and lists
    if isinstance(answer, Mapping):
        return sum(_bytes(part) for part in answer.values())
    if isinstance(answer, list):
        return sum(_bytes(part) for part in answer)
    return int(answer.nbytes)


def _median_and_end(values: Sequence[float]) -> tuple[float, float]:
    """The median and the order statistic above it that bounds it at 97.5 % (rank n/2 + 0.98 sqrt(n)), or the last."""
    ordered, n = sorted(values), len(values)
    return median(ordered), ordered[min(n - 1, int(n / 2 + 0.98 * n**0.5))]
