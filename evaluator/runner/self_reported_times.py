"""Self-reported metrics, and checks that reveal impossible times."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.core.scenarios import ROUNDS
from benchlock.evaluator.harness_releases import is_released
from benchlock.evaluator.records.run_types import Isolation, Run
from benchlock.evaluator.runner.host_platform import carries_code
from benchlock.evaluator.runner.lock_verification import find_evaluated, read_manifests
from benchlock.evaluator.runner.run_outcome import Failure
from benchlock.evaluator.runner.run_stages import has_stages
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Evaluated
from benchlock.registry.manifests.metric_definitions import OVERHEAD, TRACE_COSTS, is_quality

if TYPE_CHECKING:  # numpy and scipy
    from benchlock.evaluator.statistics.time_metrics import Performance, Phases

_SEQUENTIAL = ("single_stream", "multi_stream")
_SLACK = 0.01
"""The maximum difference of two clocks, as a share."""
_CPU_SLACK, _CPU_TICKS = 0.05, 1.0
"""The maximum difference of two CPU times, as a share and in seconds; some kernels count in ticks."""
_SHORT, _SHORT_SECONDS = 0.1, 0.1
"""The share and seconds by which a phase may be shorter than LoadGen's: our clock begins with the first call."""


class InvalidLoadError(InvalidInputError):
    """An error in LoadGen's log, or a model caught by an audit; the run has failed, whatever its result says."""


def list_self_reported(lock: Lock, model: Evaluated, isolation: Isolation) -> tuple[str, ...]:
    """List the metrics of the lock that code of the model, or of an unreleased harness, could have forged.

    The harness has the labels and writes every result, so all metrics of an unreleased one are self-reported.
    """
    return list_reported_by_model(lock, model, isolation) if is_released(lock.harness) else list_measured(lock)


def list_measured(lock: Lock) -> tuple[str, ...]:
    """List the metrics that a run of the lock measures: those of the request, and the costs of its trace."""
    level = lock.request.get("trace", "none")
    return (*lock.metrics, *(f"{OVERHEAD}{name}" for name in TRACE_COSTS[level]))


def list_reported_by_model(lock: Lock, model: Evaluated, isolation: Isolation) -> tuple[str, ...]:
    """List the metrics of the lock that code of the model could have forged.

    Code of a model runs in the process that measures its times. Another process computes its quality, which code in a
    container cannot reach. Code in a process of this host can, and a harness without stages has no other process.
    """
    if not carries_code(model):
        return ()
    quality = isolation == "process" or not has_stages(lock)
    return tuple(name for name in list_measured(lock) if quality or not is_quality(name))


def mark_run(run: Run, lock: Lock, store: BlobStore) -> Run:
    """Return the run with its self-reported metrics marked, whatever its record says.

    Raises:
        IntegrityError: A manifest is missing, or does not match its digest.
    """
    model = find_evaluated(read_manifests(lock, store))
    if run.end is None:
        return run
    names = list_self_reported(lock, model, run.start.isolation)
    metrics = tuple(
        replace(metric, self_reported=metric.self_reported or metric.name in names) for metric in run.end.metrics
    )
    return replace(run, end=replace(run.end, metrics=metrics))


def find_overrun(claimed: float, ran: float, claimed_cpu: float = 0.0, cpu: float | None = None) -> Failure | None:
    """Return why a run cannot have measured or computed for so long; None if it can.

    Args:
        claimed: Seconds of all timed phases together.
        ran: Seconds from the start of the container or process to its end, by the runner's clock.
        claimed_cpu: CPU seconds of all calls together, if they followed one another.
        cpu: CPU seconds that the control group of the container counted; None if nobody counted.
    """
    if claimed > ran * (1 + _SLACK):
        return Failure(
            "crash", f"the harness reports {claimed:.6g} s of measurement, but the runner observed a run of {ran:.6g} s"
        )
    if cpu is not None and claimed_cpu > cpu * (1 + _CPU_SLACK) + _CPU_TICKS:
        return Failure(
            "crash",
            f"the harness reports {claimed_cpu:.6g} s of CPU time in calls, but the container used {cpu:.6g} s",
        )
    return None


def sum_cpu(scenario: Mapping[str, Any], phases: Iterable["Performance | None"]) -> float:
    """Return the CPU seconds of all calls together; 0 if calls overlap, or nobody counted."""
    if scenario["name"] not in _SEQUENTIAL:
        return 0.0
    return sum(
        float(phase.samples.cpu.sum()) for phase in phases if phase is not None and phase.samples.cpu is not None
    )


def check_times(lock: Lock, phases: "Phases") -> None:
    """Raise if the times that a run claims are impossible.

    Args:
        lock: The lock of the run, whose scenario sets the minima.
        phases: The claimed phases.

    Raises:
        InvalidInputError: Consecutive calls took longer than their phase, or a phase has fewer queries, samples, calls
            or processes, or less time, than the scenario demands.
    """
    for phase in (phases.performance, phases.pipeline):
        if phase is not None:
            _check_sequence(lock.scenario, phase)
            _check_minima(lock.scenario, phase)


def _check_sequence(scenario: Mapping[str, Any], phase: "Performance") -> None:
    if scenario["name"] not in _SEQUENTIAL:
        return
    calls = float(phase.samples.latency.sum())
    if calls > phase.duration * (1 + _SLACK):
        raise InvalidInputError(
            f"the harness reports sequential calls of {calls:.6g} s in total, but a phase of {phase.duration:.6g} s"
        )


def _check_minima(scenario: Mapping[str, Any], phase: "Performance") -> None:
    """Raise if a phase measured less than its scenario demands; each scenario has its own minima."""
    for count, least, things in _counts(scenario, phase):
        if count < least:
            raise InvalidInputError(f"the harness reports {count} {things}; the minimum is {least}")
    if phase.duration < float(scenario.get("min_duration", 0)) * (1 - _SHORT) - _SHORT_SECONDS:
        raise InvalidInputError(f"the harness reports a phase of {phase.duration:.6g} s, which is too short")


def _counts(scenario: Mapping[str, Any], phase: "Performance") -> Iterator[tuple[int, int, str]]:
    """Yield the actual count, the minimum and the name of everything that the scenario counts."""
    rows, more = len(phase.samples.latency), phase.samples.more
    if "min_queries" in scenario:
        yield rows, int(scenario["min_queries"]), "queries"
    if "min_samples" in scenario:  # one query of all samples, with a row per call; older harnesses left no sizes
        count = int(more["samples"].sum()) if "samples" in more else rows * int(scenario.get("batch", 1))
        yield count, int(scenario["min_samples"]), "samples"
    if "repeats" in scenario:
        yield rows, int(scenario["repeats"]), "process starts"
    for batch in scenario.get("batches", ()):
        count = int((more["batch"] == batch).sum()) if "batch" in more else 0
        yield count, ROUNDS, f"calls of batch size {batch}"


def check_probes(scenario: Mapping[str, Any], probes: Iterable[Mapping[str, Any]]) -> None:
    """Raise if a valid probe of a peak search made fewer queries than its scenario demands.

    Args:
        scenario: The scenario of the lock.
        probes: The probes as the result states them.

    Raises:
        InvalidInputError: There is such a probe.
        KeyError, TypeError: A probe is malformed.
    """
    least = int(scenario.get("min_queries", 0))
    for probe in probes:
        if probe["valid"] and probe["queries"] < least:
            raise InvalidInputError(
                f"the harness reports {probe['queries']} queries for a probe; the minimum is {least}"
            )


def check_audits(result: Mapping[str, Any]) -> None:
    """Raise if an audit caught the model in any phase.

    Args:
        result: The harness's result of a finished run.

    Raises:
        InvalidLoadError: An audit caught the model.
    """
    for path in _find_caught("audits", result.get("audits")):
        raise InvalidLoadError(f"the harness reports a finished run although the audit {path} failed")


def _find_caught(path: str, audit: object) -> Iterator[str]:
    if isinstance(audit, Mapping):
        if audit.get("caught"):
            yield path
        for name, part in audit.items():
            yield from _find_caught(f"{path}.{name}", part)
