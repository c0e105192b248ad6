"""Definitions of metrics: meaning, unit, direction, and the scenarios that measure them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.names import find_close
from benchlock.registry.text.problems import Problems

Direction = Literal["higher", "lower", "none"]

_CLASSIFICATION = ("image-classification", "audio-classification", "text-classification")
_LOADED = ("single_stream", "multi_stream", "server", "offline", "batch_sweep")
_COLD = (
    "cold_start",
    *(f"cold_start_{phase}" for phase in ("start", "import", "load", "prepare", "predict", "outputs")),
)
_QUERIED = ("single_stream", "multi_stream", "server", "batch_sweep")


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """``tasks`` and ``scenarios`` that give the metric, None for all; ``version`` grows when its meaning changes.

    ``bracketed``: beside the value of one run stand values tried on either side of it, no confidence interval. What
    each means, and how its interval is made, is in ``docs/metrics.md``.
    """

    name: str
    unit: str
    direction: Direction
    version: int = 1
    tasks: tuple[str, ...] | None = None
    scenarios: tuple[str, ...] | None = None
    bracketed: bool = False

    @property
    def is_quality(self) -> bool:
        """Whether it is of the predictions, and so needs labels, rather than of time."""
        return self.scenarios is None


_DEPENDENT: Final = 2
"""The version whose intervals allow for calls that depend on each other; version 1 took them for independent."""


_CLUSTERED: Final = 2
"""The version whose intervals hold the truth of few samples that add several decisions, or many pixels, each; version 1
drew samples with replacement."""


def _quality(name: str, unit: str, direction: Direction, *tasks: str, version: int = 1) -> MetricDefinition:
    return MetricDefinition(name, unit, direction, version, tasks=tasks)


def _times(prefix: str) -> tuple[MetricDefinition, ...]:
    """A query's latency, and the samples of the whole performance phase."""
    percentiles = (
        MetricDefinition(f"{prefix}latency_{percentile}", "s", "lower", _DEPENDENT, scenarios=_QUERIED)
        for percentile in ("p50", "p90", "p99")
    )
    return (*percentiles, MetricDefinition(f"{prefix}throughput", "samples/s", "higher", _DEPENDENT, scenarios=_LOADED))


_ALL = (
    _quality("top1", "fraction", "higher", *_CLASSIFICATION, version=_CLUSTERED),
    _quality("top5", "fraction", "higher", *_CLASSIFICATION, version=_CLUSTERED),
    _quality("map", "fraction", "higher", "object-detection"),
    _quality("map_50", "fraction", "higher", "object-detection"),
    _quality("miou", "fraction", "higher", "semantic-segmentation", version=_CLUSTERED),
    _quality("mae", "label", "lower", "regression"),
    _quality("rmse", "label", "lower", "regression"),
    *_times(""),
    *_times("pipeline_"),
    MetricDefinition("optimal_batch", "samples", "none", _DEPENDENT, scenarios=("batch_sweep",), bracketed=True),
    MetricDefinition("peak_qps", "queries/s", "higher", scenarios=("server",), bracketed=True),
    *(MetricDefinition(name, "s", "lower", scenarios=("cold_start",)) for name in _COLD),
)
DEFINITIONS: dict[str, MetricDefinition] = {definition.name: definition for definition in _ALL}
"""Every metric by its name."""

_PERCENTILES = ("latency_p50", "latency_p90", "latency_p99")
GROUPS: dict[str, tuple[str, ...]] = {
    "latency": _PERCENTILES,
    "pipeline_latency": tuple(f"pipeline_{name}" for name in _PERCENTILES),
    "cold_start": _COLD,
}
"""Names that stand for several metrics."""


def find_definition(name: str, version: int) -> MetricDefinition | None:
    """Return a version of a metric's definition; None where there is none.

    Earlier versions are kept: a lock names the one that its runs are computed, and recomputed, by.
    """
    newest = DEFINITIONS.get(name)
    return None if newest is None or not 1 <= version <= newest.version else replace(newest, version=version)


def is_quality(name: str) -> bool:
    """Whether ``name`` is a metric of the predictions; one that is not known is none."""
    return name in DEFINITIONS and DEFINITIONS[name].is_quality


def is_bracketed(name: str) -> bool:
    """Whether no confidence interval stands beside ``name`` of one run; beside one that is not known there is one."""
    return name in DEFINITIONS and DEFINITIONS[name].bracketed


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """The metrics that ``names`` stand for, each once, in the order of first mention."""
    return tuple(dict.fromkeys(metric for name in names for metric in GROUPS.get(name, (name,))))


def check_metrics(task: str | None, scenario: str | None, names: Sequence[str]) -> None:
    """``names``, groups among them, are metrics that ``task`` and ``scenario`` can give; None is any.

    Raises:
        InvalidInputError: one is not, with all others that are not; ``where`` is its index: ``metrics[1]``.
    """
    problems = Problems()
    for index, name in enumerate(names):
        with problems.noted():
            _check_metric(task, scenario, name, f"metrics[{index}]")
    problems.refuse()


def _check_metric(task: str | None, scenario: str | None, name: str, where: str) -> None:
    for metric in GROUPS.get(name, (name,)):
        definition = DEFINITIONS.get(metric)
        if definition is None:
            raise InvalidInputError(f"no metric is called {name!r}", where=where, next_step=_nearest(name))
        _check_given(definition, "task", task, definition.tasks, where)
        _check_given(definition, "scenario", scenario, definition.scenarios, where)


def _check_given(
    definition: MetricDefinition, what: str, by: str | None, givers: Sequence[str] | None, where: str
) -> None:
    if by is None or givers is None or by in givers:
        return
    raise InvalidInputError(
        f"the {what} {by} does not give the metric {definition.name}",
        where=where,
        next_step=f"leave it out, or choose the {what} {' or '.join(givers)}",
    )


def _nearest(name: str) -> str:
    known = sorted({*DEFINITIONS, *GROUPS})
    close = find_close(name, known)
    return f"did you mean {close[0]!r}?" if close else f"the metrics are {', '.join(known)}"
