"""Definitions of metrics: meaning, unit, direction, and the scenarios that measure them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.artifact_names import find_close
from benchlock.registry.text.collected_problems import Problems

Direction = Literal["higher", "lower", "none"]

_CLASSIFICATION = ("image-classification", "audio-classification", "text-classification")
_LOADED = ("single_stream", "multi_stream", "server", "offline", "batch_sweep")
_SATURATED = ("single_stream", "multi_stream", "offline", "batch_sweep")
"""Scenarios whose throughput is a property of the model; that of ``server`` is the arrival rate."""
_COLD = (
    "cold_start",
    *(f"cold_start_{phase}" for phase in ("start", "import", "load", "prepare", "predict", "outputs")),
)
OPERATOR: Final = ("paired",)
"""The scenario of operators, whose metrics have a value for each case."""
TRAINING: Final = ("time_to_quality",)
"""The scenario of trainings, whose metrics are medians over repeats."""
NETWORK: Final = ("micro_batch",)
"""The scenario of networks, some of whose metrics have a value for each number of parts."""
PARTS: Final = ("peak_memory", "batch_latency")
"""The metrics of networks that have a value for each number of parts."""
DISTRIBUTED: Final = ("steps",)
"""The scenario of distributed trainings."""
TRAINING_COST: Final = "training_cost"
"""The metric of trainings that needs a price in the request."""
MEMORY: Final = (
    "step_memory",
    "memory_weights",
    "memory_gradients",
    "memory_optimizer",
    "memory_saved",
    "memory_transient",
    "memory_growth",
)
"""The metrics of trainings that state the memory of a step, its parts, and what a step does not release."""
GRADIENT: Final = "gradient_error"
"""The metric that needs a description of its check in the request."""
COST: Final = "cost_per_million"
"""The metric that needs a price in the request."""
SCORED: Final = ("auroc", "average_precision", "ece_15", "brier")
"""Metrics of the probabilities of classes."""
DECIDED: Final = ("f1_macro", "f1_weighted")
"""Metrics of samples with one decided class each that are not counts."""
_QUERIED = ("single_stream", "multi_stream", "server", "batch_sweep")


OVERHEAD: Final = "trace_overhead_"
"""The beginning of the names of metrics that state what a trace costs."""
TRACE_COSTS: Final[Mapping[str, tuple[str, ...]]] = {
    "none": (),
    "model": ("model",),
    "framework": ("model", "framework"),
    "system": ("model", "system"),
    "full": ("model", "framework", "system"),
}
"""The levels whose cost a run states, by the trace level of its request."""


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """The definition of a metric; its meaning and its interval are described in ``docs/reference/metrics.md``.

    Attributes:
        name: The name in requests and results.
        unit: The unit of the value.
        direction: Whether higher or lower values are better.
        version: Incremented when the meaning of the metric changes.
        tasks: The tasks with this metric; None for all.
        scenarios: The scenarios with this metric; None for all.
        bracketed: Whether one run reports neighbouring tested values beside its value instead of a confidence interval.
        automatic: Whether runs report it without a request. It is informational: no claim, comparison, gate or verdict
            uses it.
        signed: Whether the value can be negative, as a difference.
    """

    name: str
    unit: str
    direction: Direction
    version: int = 1
    tasks: tuple[str, ...] | None = None
    scenarios: tuple[str, ...] | None = None
    bracketed: bool = False
    automatic: bool = False
    signed: bool = False

    @property
    def is_per_case(self) -> bool:
        """Whether a run reports the metric for each case of an operator, or for each number of parts of a batch."""
        return self.scenarios == OPERATOR or self.name in PARTS

    @property
    def is_quality(self) -> bool:
        """Whether the metric judges predictions, and so needs labels, rather than time."""
        return self.scenarios is None


_DEPENDENT: Final = 2
"""The version whose intervals allow for calls that depend on each other; version 1 assumed independent calls."""


_CLUSTERED: Final = 2
"""The version whose intervals stay correct for few samples with several decisions or many pixels each.

Version 1 drew samples with replacement.
"""


def _quality(name: str, unit: str, direction: Direction, *tasks: str, version: int = 1) -> MetricDefinition:
    """Return the definition of a metric of predictions."""
    return MetricDefinition(name, unit, direction, version, tasks=tasks)


def _times(prefix: str) -> tuple[MetricDefinition, ...]:
    """Return the definitions of a query's latency, and of the throughput of the performance phase."""
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
    *(_quality(name, "fraction", "higher", *_CLASSIFICATION) for name in ("f1_macro", "f1_weighted")),
    *(_quality(name, "fraction", "higher", *_CLASSIFICATION) for name in ("auroc", "average_precision")),
    _quality("ece_15", "fraction", "lower", *_CLASSIFICATION),
    _quality("brier", "squared error", "lower", *_CLASSIFICATION),
    _quality("mae", "label", "lower", "regression"),
    _quality("rmse", "label", "lower", "regression"),
    *_times(""),
    *_times("pipeline_"),
    MetricDefinition("throughput_per_core", "samples/s", "higher", scenarios=_SATURATED),
    MetricDefinition(COST, "currency", "lower", scenarios=_SATURATED),
    MetricDefinition("optimal_batch", "samples", "none", _DEPENDENT, scenarios=("batch_sweep",), bracketed=True),
    MetricDefinition("peak_qps", "queries/s", "higher", scenarios=("server",), bracketed=True),
    *(MetricDefinition(name, "s", "lower", scenarios=("cold_start",)) for name in _COLD),
    MetricDefinition("operator_latency", "s", "lower", scenarios=OPERATOR),
    MetricDefinition("wrapper_overhead", "s", "lower", scenarios=OPERATOR, signed=True),
    MetricDefinition("wrapper_overhead_share", "fraction", "lower", scenarios=OPERATOR, signed=True),
    MetricDefinition("outputs_equal", "fraction", "higher", scenarios=NETWORK),
    MetricDefinition("outputs_difference", "ratio", "lower", scenarios=NETWORK),
    MetricDefinition("peak_memory", "B", "lower", scenarios=NETWORK),
    MetricDefinition("batch_latency", "s", "lower", scenarios=NETWORK),
    MetricDefinition("epochs_to_quality", "epochs", "lower", scenarios=TRAINING),
    MetricDefinition("epochs_to_quality_olympic", "epochs", "lower", scenarios=TRAINING),
    MetricDefinition("samples_to_quality", "samples", "lower", scenarios=TRAINING),
    MetricDefinition("time_to_quality", "s", "lower", scenarios=TRAINING),
    MetricDefinition("cpu_time_to_quality", "s", "lower", scenarios=TRAINING),
    MetricDefinition("training_throughput", "samples/s", "higher", scenarios=TRAINING),
    MetricDefinition(TRAINING_COST, "currency", "lower", scenarios=TRAINING),
    MetricDefinition("final_quality", "fraction", "higher", scenarios=TRAINING),
    *(MetricDefinition(name, "B", "lower", scenarios=TRAINING, signed=name in MEMORY[-2:]) for name in MEMORY),
    MetricDefinition("steps_per_second", "steps/s", "higher", scenarios=DISTRIBUTED),
    MetricDefinition("communication", "B", "lower", scenarios=DISTRIBUTED),
    MetricDefinition("communication_logical", "B", "lower", scenarios=DISTRIBUTED),
    MetricDefinition("speedup", "ratio", "higher", scenarios=DISTRIBUTED),
    MetricDefinition("efficiency", "fraction", "higher", scenarios=DISTRIBUTED),
    MetricDefinition("loss_difference", "ratio", "lower", scenarios=DISTRIBUTED),
    *(MetricDefinition(name, "ratio", "lower", scenarios=OPERATOR) for name in ("error_l2", "error_linf", GRADIENT)),
    *(
        MetricDefinition(
            f"{OVERHEAD}{level}", "s", "lower", scenarios=(*_LOADED, "cold_start"), automatic=True, signed=True
        )
        for level in TRACE_COSTS["full"]
    ),
)
DEFINITIONS: dict[str, MetricDefinition] = {definition.name: definition for definition in _ALL}
"""Every metric by name."""

_PERCENTILES = ("latency_p50", "latency_p90", "latency_p99")
GROUPS: dict[str, tuple[str, ...]] = {
    "latency": _PERCENTILES,
    "pipeline_latency": tuple(f"pipeline_{name}" for name in _PERCENTILES),
    "cold_start": _COLD,
}
"""Names that stand for several metrics."""


def find_definition(name: str, version: int) -> MetricDefinition | None:
    """Return one version of the definition of a metric; None if there is none.

    Earlier versions are kept: a lock names the version that its runs are computed and recomputed by.
    """
    newest = DEFINITIONS.get(name)
    return None if newest is None or not 1 <= version <= newest.version else replace(newest, version=version)


def is_quality(name: str) -> bool:
    """Return whether ``name`` is a metric of predictions; False for an unknown name."""
    return name in DEFINITIONS and DEFINITIONS[name].is_quality


def is_bracketed(name: str) -> bool:
    """Return whether one run reports ``name`` without a confidence interval; False for an unknown name."""
    return name in DEFINITIONS and DEFINITIONS[name].bracketed


def is_automatic(name: str) -> bool:
    """Return whether runs report ``name`` without a request, as information; False for an unknown name."""
    return name in DEFINITIONS and DEFINITIONS[name].automatic


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Return the metrics that ``names`` stand for, each once, in the order of first mention."""
    return tuple(dict.fromkeys(metric for name in names for metric in GROUPS.get(name, (name,))))


def check_metrics(task: str | None, scenario: str | None, names: Sequence[str]) -> None:
    """Check that the task and the scenario can report all metrics and groups in ``names``.

    Args:
        task: The task of the model; None for any.
        scenario: The scenario of the request; None for any.
        names: Names of metrics and of groups.

    Raises:
        InvalidInputError: A metric is unknown or not reported, with all others like it; ``where`` is its index:
            ``metrics[1]``.
    """
    problems = Problems()
    for index, name in enumerate(names):
        with problems.noted():
            _check_metric(task, scenario, name, f"metrics[{index}]")
    problems.refuse()


def _check_metric(task: str | None, scenario: str | None, name: str, where: str) -> None:
    """Check one name of a metric or group."""
    for metric in GROUPS.get(name, (name,)):
        definition = DEFINITIONS.get(metric)
        if definition is None:
            raise InvalidInputError(f"unknown metric {name!r}", where=where, next_step=_nearest(name))
        if definition.automatic:
            raise InvalidInputError(
                f"the metric {name} is informational and reported without a request",
                where=where,
                next_step="remove it; a request with trace: framework reports what tracing costs",
            )
        _check_reported_by(definition, "task", task, definition.tasks, where)
        _check_reported_by(definition, "scenario", scenario, definition.scenarios, where)


def _check_reported_by(
    definition: MetricDefinition, what: str, value: str | None, supported: Sequence[str] | None, where: str
) -> None:
    """Raise unless the metric is reported by the task or scenario ``value``."""
    if value is None or supported is None or value in supported:
        return
    raise InvalidInputError(
        f"the {what} {value} does not give the metric {definition.name}",
        where=where,
        next_step=f"remove it, or choose the {what} {' or '.join(supported)}",
    )


def _nearest(name: str) -> str:
    """Return the next step for an unknown metric."""
    known = sorted({*(name for name in DEFINITIONS if not is_automatic(name)), *GROUPS})
    close = find_close(name, known)
    return f"did you mean {close[0]!r}?" if close else f"known metrics: {', '.join(known)}"
