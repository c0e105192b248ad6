"""Self-reported metrics, and checks that reveal impossible times."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.core.scenarios import ROUNDS
from benchlock.evaluator.harness_releases import is_released
from benchlock.evaluator.records.run_model import Isolation, Run
from benchlock.evaluator.runner.host_platform import carries_code
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.evaluator.runner.outcome import Failure
from benchlock.evaluator.runner.stages import has_stages
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Model
from benchlock.registry.manifests.metric_definitions import is_quality

if TYPE_CHECKING:  # numpy and scipy
    from benchlock.evaluator.statistics.time_metrics import Performance, Phases

_SEQUENTIAL = ("single_stream", "multi_stream")
_SLACK = 0.01
"""What two clocks may differ by, as a share."""
_CPU_SLACK, _CPU_TICKS = 0.05, 1.0
"""What two counts of CPU time may differ by, as a share and in seconds: some kernels count in ticks."""
_SHORT, _SHORT_SECONDS = 0.1, 0.1
"""By what share, and seconds, a phase may seem shorter than LoadGen says: our clock begins with the first call."""


class InvalidLoadError(InvalidInputError):
    """LoadGen logged an error, or an audit caught the model: the run has failed, whatever its result says."""


def list_self_reported(lock: Lock, model: Model, isolation: Isolation) -> tuple[str, ...]:
    """Return the metrics of the lock that code of the model, or of an unreleased harness, could have made.

    The harness has the labels and writes every result, so all figures of an unreleased one are self-reported.
    """
    return list_reported_by_model(lock, model, isolation) if is_released(lock.harness) else tuple(lock.metrics)


def list_reported_by_model(lock: Lock, model: Model, isolation: Isolation) -> tuple[str, ...]:
    """Return the metrics of the lock that code of the model could have made.

    Code of a model runs in the process that measures its times. Its quality is computed by another process, which it
    cannot reach from a container. As a process of this host it can, and a harness without stages has no other process.
    """
    if not carries_code(model):
        return ()
    quality = isolation == "process" or not has_stages(lock)
    return tuple(name for name in lock.metrics if quality or not is_quality(name))


def mark_run(run: Run, lock: Lock, store: BlobStore) -> Run:
    """Return the run with the figures marked that are self-reported, whatever its record says of them.

    Raises:
        IntegrityError: a manifest is missing, or not what its digest says.
    """
    model = read_manifests(lock, store)["model"]
    assert isinstance(model, Model)
    if run.end is None:
        return run
    marked = list_self_reported(lock, model, run.start.isolation)
    metrics = tuple(replace(one, self_reported=one.self_reported or one.name in marked) for one in run.end.metrics)
    return replace(run, end=replace(run.end, metrics=metrics))


def find_overrun(claimed: float, ran: float, claimed_cpu: float = 0.0, cpu: float | None = None) -> Failure | None:
    """Return why a run cannot have measured for so long, or computed so much; None where it can.

    Args:
        claimed: Seconds of all timed phases together.
        ran: Seconds from the start of the container or process to its end, by the clock of the runner.
        claimed_cpu: Seconds of CPU of all calls together, where they followed one another.
        cpu: Seconds of CPU that the control group of the container counted; None where nobody counted.
    """
    if claimed > ran * (1 + _SLACK):
        return Failure(
            "crash", f"the harness says that it measured for {claimed:.6g} s, and the runner saw it run for {ran:.6g} s"
        )
    if cpu is not None and claimed_cpu > cpu * (1 + _CPU_SLACK) + _CPU_TICKS:
        return Failure(
            "crash",
            f"the harness says that its calls took {claimed_cpu:.6g} s of CPU, and the container took {cpu:.6g} s",
        )
    return None


def sum_cpu(scenario: Mapping[str, Any], phases: Iterable["Performance | None"]) -> float:
    """Return the seconds of CPU of all calls together; 0 where calls overlap, or nobody counted."""
    if scenario["name"] not in _SEQUENTIAL:
        return 0.0
    return sum(float(one.samples.cpu.sum()) for one in phases if one is not None and one.samples.cpu is not None)


def check_times(lock: Lock, phases: "Phases") -> None:
    """Raise where the times that a run claims cannot be true.

    Args:
        lock: The lock of the run, whose scenario says how much is measured.
        phases: What was claimed.

    Raises:
        InvalidInputError: Calls that follow one another took longer than their phase, or a phase has fewer queries,
            samples, calls or processes, or less time, than the scenario demands.
    """
    for one in (phases.performance, phases.pipeline):
        if one is not None:
            _check_sequence(lock.scenario, one)
            _check_minima(lock.scenario, one)


def _check_sequence(scenario: Mapping[str, Any], phase: "Performance") -> None:
    if scenario["name"] not in _SEQUENTIAL:
        return
    calls = float(phase.samples.latency.sum())
    if calls > phase.duration * (1 + _SLACK):
        raise InvalidInputError(
            f"the harness says that calls one after the other took {calls:.6g} s of {phase.duration:.6g} s"
        )


def _check_minima(scenario: Mapping[str, Any], phase: "Performance") -> None:
    """Raise where a phase measured less than its scenario demands; each scenario has minima of its own."""
    for made, least, things in _counts(scenario, phase):
        if made < least:
            raise InvalidInputError(f"the harness says that it made {made} {things}, too few: {least} are the least")
    if phase.duration < float(scenario.get("min_duration", 0)) * (1 - _SHORT) - _SHORT_SECONDS:
        raise InvalidInputError(f"the harness says that it measured for {phase.duration:.6g} s, too short a time")


def _counts(scenario: Mapping[str, Any], phase: "Performance") -> Iterator[tuple[int, int, str]]:
    """Yield what a phase has, the least that its scenario demands, and what is counted."""
    rows, more = len(phase.samples.latency), phase.samples.more
    if "min_queries" in scenario:
        yield rows, int(scenario["min_queries"]), "queries"
    if "min_samples" in scenario:  # one query of all samples, with a row a call; an older harness left no sizes of them
        made = int(more["samples"].sum()) if "samples" in more else rows * int(scenario.get("batch", 1))
        yield made, int(scenario["min_samples"]), "samples"
    if "repeats" in scenario:
        yield rows, int(scenario["repeats"]), "starts of a process"
    for batch in scenario.get("batches", ()):
        made = int((more["batch"] == batch).sum()) if "batch" in more else 0
        yield made, ROUNDS, f"calls of the batch {batch}"


def check_probes(scenario: Mapping[str, Any], probes: Iterable[Mapping[str, Any]]) -> None:
    """Raise where a probe of a peak that counts as valid made fewer queries than its scenario demands.

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
                f"the harness says that a probe made {probe['queries']} queries, too few: {least} are the least"
            )


def check_audits(result: Mapping[str, Any]) -> None:
    """Raise where an audit caught the model, in whatever phase.

    Args:
        result: The harness's account of a run that is done.

    Raises:
        InvalidLoadError: An audit caught the model.
    """
    for place in _caught("audits", result.get("audits")):
        raise InvalidLoadError(f"the harness says that the run is done, and that {place} caught the model")


def _caught(place: str, audit: object) -> Iterator[str]:
    if isinstance(audit, Mapping):
        if audit.get("caught"):
            yield place
        for name, part in audit.items():
            yield from _caught(f"{place}.{name}", part)
