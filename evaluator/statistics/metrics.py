"""Metrics of a run: value, unit, direction, n and interval, from the counts and samples that the harness left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.statistics.figures import Metric
from benchlock.evaluator.statistics.intervals import fraction
from benchlock.evaluator.statistics.quality import Judged
from benchlock.evaluator.statistics.timing import Figure, Phases, timed


class Definition(Protocol):
    """What a metric's name stands for."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def direction(self) -> str: ...
    @property
    def version(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Right:
    """How many of ``n`` samples were decided as labelled."""

    correct: int
    n: int


def summarise(
    definitions: Sequence[Definition], quality: Mapping[str, Right | Judged], phases: Phases
) -> tuple[Metric, ...]:
    """The metrics of each definition, in their order; of a sweep one a batch.

    * a fraction: correct / n, with the exact binomial interval; other quality metrics as they were judged;
    * metrics of time: as :func:`evaluator.statistics.timing.timed` says.

    Raises:
        InvalidInputError: the harness left nothing to compute a metric from.
    """
    return tuple(metric for definition in definitions for metric in _metrics(definition, quality, phases))


def _metrics(definition: Definition, quality: Mapping[str, Right | Judged], phases: Phases) -> list[Metric]:
    name = definition.name
    judged = quality.get(name)
    found: list[tuple[int | None, Figure]]
    if isinstance(judged, Judged):
        found = [(None, (judged.value, judged.n, judged.ci))]
    elif judged is not None and judged.n > 0:
        found = [(None, (judged.correct / judged.n, judged.n, fraction(judged.correct, judged.n)))]
    else:
        found = list(timed(name, phases, definition.version))
    if not found:
        raise InvalidInputError(f"the harness left nothing to compute {name} from")
    return [
        Metric(name, value, definition.unit, definition.direction, n, ci, definition.version, batch)
        for batch, (value, n, ci) in found
    ]
