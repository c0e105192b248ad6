"""The blobs and fields that a finished run must have, decided by its lock alone.

A newer harness leaves more evidence. Each row of the table therefore names the first version, the locks, and the
blobs, columns of the raw samples and fields of ``result.json`` that these must have. Records of older harnesses may
lack what their harness did not leave.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.core.distributed_job import SINGLE
from benchlock.evaluator.harness.core.job import COLD_PHASES, PEAK, PIPELINE_METRICS
from benchlock.evaluator.harness.core.scenarios import MAX_NETWORKS
from benchlock.evaluator.harness.core.training_job import MEMORY
from benchlock.evaluator.harness.tracing.trace_levels import EXPERIMENTS, TRACE_TENSORS
from benchlock.evaluator.runner.job_folder import fingerprint_lock
from benchlock.evaluator.runner.run_outcome import RANK_ROLES, outputs_role
from benchlock.evaluator.runner.run_stages import harness_version
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import is_quality

FINGERPRINT: Final = "lock_fingerprint"
"""The key of the lock's fingerprint in ``result.json`` and in the metadata of tensor files."""
FIRST_CHECKED: Final = (1, 1)
"""The first version of the harness whose results are complete, so that their required parts are known."""
FIRST_NAMED: Final = (1, 2)
"""The first version whose results name their lock and contain the logs of the probes of a peak search."""
FIRST_TRACED: Final = (1, 4)
"""The first version of the harness with traces."""
FIRST_MEASURED: Final = (1, 4)
"""The first version whose results have the resources of the run."""
FIRST_OPERATORS: Final = (1, 5)
"""The first version of the harness that measures operators."""
_PAIRED: Final = "paired"
FIRST_TRAININGS: Final = (1, 6)
"""The first version of the harness that trains recipes."""
FIRST_DISTRIBUTED: Final = (1, 7)
"""The first version of the harness that trains in several processes."""
_STEPS: Final = "steps"
_TIME_TO_QUALITY: Final = "time_to_quality"
FIRST_NETWORKS: Final = (1, 7)
"""The first version of the harness that computes a batch in parts."""
_MICRO_BATCH: Final = "micro_batch"
_TENSOR_ROLES: Final = (
    "predictions",
    "reference",
    "samples",
    "pipeline-samples",
    "quality",
    "trace",
    "breakdown",
    *(outputs_role(place) for place in range(MAX_NETWORKS)),
)
"""The roles of tensor files whose metadata name the lock, beside ``RANK_ROLES``."""

_DRIVEN: Final = ("single_stream", "multi_stream", "server", "offline")
_METERED: Final = (
    "latency_ns",
    "cpu_ns",
    "preempted",
    "start_ns",
    "before_ns",
    "end_ns",
    "samples",
    "index",
    "warmup_ns",
)
_ARRIVALS: Final = ("service_ns", "issue_delay_ns")
_STAGES: Final = ("prepare_ns", "predict_ns", "outputs_ns")
_COUNTED: Final = ("queries", "samples_per_query", "samples", "duration_s", "warmup_calls", "timed")
_DISTURBED: Final = ("preempted", "cpu_scope")
_ACCOUNT: Final = (
    "version",
    "valid",
    "errors",
    "settings",
    "results",
    "sequence_sha256",
    "percentiles",
    "clocks_agree",
)


def is_timed(lock: Lock) -> bool:
    """Return whether a run of the lock times calls of a model or starts of processes."""
    return bool(lock.scenario["name"] not in ("accuracy", _PAIRED, _TIME_TO_QUALITY, _MICRO_BATCH, _STEPS))


def is_driven(lock: Lock) -> bool:
    """Return whether LoadGen drives a run of the lock."""
    return lock.scenario["name"] in _DRIVEN


def is_complete(lock: Lock) -> bool:
    """Return whether the results of the locked harness are complete."""
    return harness_version(lock) >= FIRST_CHECKED


def _is_scenario(*names: str) -> Callable[[Lock], bool]:
    return lambda lock: lock.scenario["name"] in names


def _is_always(_lock: Lock) -> bool:
    return True


def _is_predicted(lock: Lock) -> bool:
    return lock.scenario["name"] == "accuracy" or any(map(is_quality, lock.metrics))


def _has_pipeline(lock: Lock) -> bool:
    return any(name in PIPELINE_METRICS for name in lock.metrics)


def _has_driven_pipeline(lock: Lock) -> bool:
    return _has_pipeline(lock) and is_driven(lock)


def _has_pipeline_of_arrivals(lock: Lock) -> bool:
    return _has_pipeline(lock) and lock.scenario["name"] == "server"


def _has_pipeline_of_a_sweep(lock: Lock) -> bool:
    return _has_pipeline(lock) and lock.scenario["name"] == "batch_sweep"


def _has_peak(lock: Lock) -> bool:
    return PEAK in lock.metrics


def _has_breakdown(lock: Lock) -> bool:
    return any(name in MEMORY for name in lock.metrics)


def _is_traced(*experiments: str) -> Callable[[Lock], bool]:
    """Return whether a trace has the experiments, or any if none is given."""
    levels = [level for level, names in EXPERIMENTS.items() if names and set(experiments) <= set(names)]
    return lambda lock: lock.request.get("trace", "none") in levels


@dataclass(frozen=True, slots=True)
class Requirement:
    """The evidence that a harness leaves for certain locks.

    Attributes:
        since: The first version of the harness that leaves it.
        applies: Whether the requirement applies to a lock.
        blobs: Roles of blobs.
        columns: Names of columns, by the role of their blob.
        fields: Paths in ``result.json`` whose values must not be null.
        nullable: Paths that must exist and may be null.
    """

    since: tuple[int, int]
    applies: Callable[[Lock], bool]
    blobs: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    nullable: tuple[str, ...] = ()


def _under(prefix: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}.{name}" for name in names)


_TABLE: Final = (
    Requirement(FIRST_CHECKED, _is_always, fields=("harness", "environment.device", "environment.threads.requested")),
    Requirement(FIRST_NAMED, _is_always, fields=(FINGERPRINT,)),
    Requirement(FIRST_CHECKED, _is_predicted, ("predictions",), fields=("accuracy.batch", "accuracy.threads_ahead")),
    Requirement(
        FIRST_CHECKED,
        is_timed,
        ("samples",),
        {"samples": ("latency_ns", "warmup_ns")},
        _under("performance", *_COUNTED),
        ("audits.answers",),
    ),
    Requirement(
        FIRST_CHECKED,
        _is_scenario(*_DRIVEN, "batch_sweep"),
        columns={"samples": _METERED},
        fields=(*_under("performance", *_DISTURBED, "overhead"), "audits.caching"),
    ),
    Requirement(
        FIRST_CHECKED,
        is_driven,
        ("loadgen-detail", "loadgen-summary"),
        fields=(*_under("performance", "batch", "loaded_samples"), *_under("loadgen", *_ACCOUNT)),
    ),
    Requirement(FIRST_CHECKED, _is_scenario("server"), columns={"samples": _ARRIVALS}, fields=("loadgen.trace_cost",)),
    Requirement(
        FIRST_CHECKED, _is_scenario("batch_sweep"), columns={"samples": ("batch",)}, fields=("performance.rounds",)
    ),
    Requirement(
        FIRST_CHECKED, _is_scenario("cold_start"), columns={"samples": tuple(f"{phase}_ns" for phase in COLD_PHASES)}
    ),
    Requirement(
        FIRST_CHECKED,
        _has_pipeline,
        ("pipeline-samples",),
        {"pipeline-samples": _METERED},
        _under("pipeline", *_COUNTED, *_DISTURBED),
        ("audits.pipeline.answers",),
    ),
    Requirement(
        FIRST_CHECKED,
        _has_driven_pipeline,
        ("pipeline-loadgen-detail", "pipeline-loadgen-summary"),
        {"pipeline-samples": _STAGES},
        (*_under("pipeline", "batch", "preparing_threads"), *_under("pipeline.loadgen", *_ACCOUNT)),
    ),
    Requirement(FIRST_CHECKED, _has_pipeline_of_arrivals, columns={"pipeline-samples": _ARRIVALS}),
    Requirement(FIRST_CHECKED, _has_pipeline_of_a_sweep, columns={"pipeline-samples": ("batch",)}),
    Requirement(
        FIRST_CHECKED,
        _has_peak,
        fields=_under("peak", "qps", "failed_qps", "target_latency", "probes"),
        nullable=("audits.peak.answers",),
    ),
    Requirement(FIRST_NAMED, _has_peak, ("peak-loadgen-detail",)),
    Requirement(
        FIRST_OPERATORS, _is_scenario(_PAIRED), ("predictions", "reference", "samples"), fields=("operator.cases",)
    ),
    Requirement(
        FIRST_TRAININGS, _is_scenario(_TIME_TO_QUALITY), ("predictions", "samples"), fields=("training.repeats",)
    ),
    Requirement(FIRST_NETWORKS, _is_scenario(_MICRO_BATCH), fields=("network.batch", "network.parts")),
    Requirement(
        FIRST_DISTRIBUTED,
        _is_scenario(_STEPS),
        (SINGLE, f"weights-{SINGLE}"),
        fields=("distributed.reference", "distributed.ranks"),
    ),
    Requirement(FIRST_TRAININGS, _has_breakdown, ("breakdown",), fields=("training.breakdown",)),
    Requirement(FIRST_TRACED, _is_traced(), ("trace",), fields=_under("trace", "level", "calls", "rows")),
    *(
        Requirement(
            FIRST_TRACED, _is_traced(name), columns={"trace": tuple(f"{name}.{tensor}" for tensor in TRACE_TENSORS)}
        )
        for name in EXPERIMENTS["full"]
    ),
    Requirement(FIRST_MEASURED, _is_always, fields=("resources.peak_memory",)),
    Requirement(
        FIRST_MEASURED,
        _is_scenario(*_DRIVEN, "batch_sweep"),
        fields=_under("performance.resources", "seconds", "cpu_seconds", "cpus"),
        nullable=_under("performance.resources", "read_bytes", "process_peak_bytes"),
    ),
)
_EXCLUSIVE: Final = {
    "accuracy": _is_predicted,
    "performance": is_timed,
    "loadgen": is_driven,
    "pipeline": _has_pipeline,
    "peak": _has_peak,
    "trace": _is_traced(),
    "operator": _is_scenario(_PAIRED),
    "training": _is_scenario(_TIME_TO_QUALITY),
    "network": _is_scenario(_MICRO_BATCH),
    "distributed": _is_scenario(_STEPS),
}
"""The parts of ``result.json`` that only runs of certain locks have."""


def requirements_of(lock: Lock) -> tuple[Requirement, ...]:
    """Return the rows of the table for a run of the lock."""
    version = harness_version(lock)
    return tuple(row for row in _TABLE if version >= row.since and row.applies(lock))


def check_requirements(lock: Lock, document: Mapping[str, Any], files: Mapping[str, Path]) -> None:
    """Raise unless a finished run left everything that its lock demands, and names that lock.

    Args:
        lock: The lock of the run.
        document: Its ``result.json``.
        files: The files of its blobs, by role.

    Raises:
        InvalidInputError: Something is missing, names another lock, or belongs to another scenario.
    """
    required = requirements_of(lock)
    missing = [f"the blob {role}" for row in required for role in row.blobs if role not in files]
    missing += [f"{path} in result.json" for row in required for path in _missing_fields(row, document)]
    for role in sorted({role for row in required for role in row.columns if role in files}):
        columns = _read_header(role, files[role])[0]
        names = dict.fromkeys(name for row in required for name in row.columns.get(role, ()))
        missing += [f"{name} in the blob {role}" for name in names if name not in columns]
    if missing:
        more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
        raise InvalidInputError(
            f"the evidence lacks {', '.join(missing[:_MAX_NAMED])}{more}, which harness "
            f"{lock.harness.version} writes for every run of this lock",
            next_step="run the lock again",
        )
    if is_complete(lock):
        _check_parts(lock, document)
    _check_names(lock, document, files)


_MAX_NAMED: Final = 8


def _missing_fields(required: Requirement, document: Mapping[str, Any]) -> Iterator[str]:
    for path in required.fields:
        if _find(document, path) is None:
            yield path
    for path in required.nullable:
        parent, _, name = path.rpartition(".")
        if name not in (_find(document, parent) or {}):
            yield path


def _find(document: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 - JSON
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _check_parts(lock: Lock, document: Mapping[str, Any]) -> None:
    """Raise if the result has a part that no run of the lock has, or comes from another harness."""
    if document["harness"] != lock.harness.version:
        raise InvalidInputError(
            f"the lock has harness {lock.harness.version}, but {document['harness']!r:.80} wrote the result",
            next_step="run the lock again",
        )
    for name, applies in _EXCLUSIVE.items():
        if document.get(name) is not None and not applies(lock):
            raise InvalidInputError(
                f"the harness reports {name}, which no run with this scenario and these metrics has",
                next_step="run the lock again",
            )


def _check_names(lock: Lock, document: Mapping[str, Any], files: Mapping[str, Path]) -> None:
    """Raise if a result names another lock, or none although its harness writes it."""
    expected, is_named = fingerprint_lock(lock), harness_version(lock) >= FIRST_NAMED
    fingerprints = {"result.json": document.get(FINGERPRINT)}
    fingerprints |= {
        f"the blob {role}": _read_header(role, files[role])[1].get(FINGERPRINT)
        for role in (*_TENSOR_ROLES, *RANK_ROLES)
        if role in files
    }
    for source, fingerprint in fingerprints.items():
        if fingerprint != expected and (is_named or fingerprint is not None):
            problem = "references no lock" if fingerprint is None else "references another lock"
            raise InvalidInputError(
                f"{source} {problem}, so it does not belong to a run of this lock", next_step="run the lock again"
            )


def _read_header(role: str, path: Path) -> tuple[Collection[str], Mapping[str, str]]:
    """Return the names of the tensors in a file, and its metadata."""
    try:
        with safe_open(path, framework="numpy") as file:
            return frozenset(file.keys()), file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise InvalidInputError(f"the blob {role} is not a safetensors file: {error}") from error
