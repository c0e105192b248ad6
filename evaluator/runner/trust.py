"""Which figures of a run the model itself could have made, and what the runner can say against them."""

from dataclasses import replace
from typing import TYPE_CHECKING

from artifacts.errors import InvalidInputError
from artifacts.store import BlobStore
from evaluator.records.runs import Isolation, Run
from evaluator.runner.choice import carries_code
from evaluator.runner.ending import Failure
from evaluator.runner.stages import has_stages
from evaluator.runner.verification import read_manifests
from registry.lockfile import Lock
from registry.manifests import Model
from registry.metrics import is_quality

if TYPE_CHECKING:  # numpy and scipy
    from evaluator.statistics.timing import Phases

_SEQUENTIAL = ("single_stream", "multi_stream")
_SLACK = 0.01
"""What two clocks may differ by, as a share."""
_SHORT = 0.1
"""By what share a phase may seem shorter than LoadGen says: our clock begins with the first call."""


def self_reported(lock: Lock, model: Model, isolation: Isolation) -> tuple[str, ...]:
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
    marked = self_reported(lock, model, run.start.isolation)
    metrics = tuple(replace(one, self_reported=one.self_reported or one.name in marked) for one in run.end.metrics)
    return replace(run, end=replace(run.end, metrics=metrics))


def overrun(claimed: float, ran: float) -> Failure | None:
    """Return why a run cannot have measured for so long; None where it can.

    Args:
        claimed: Seconds of all timed phases together.
        ran: Seconds from the start of the container or process to its end, by the clock of the runner.
    """
    if claimed <= ran * (1 + _SLACK):
        return None
    return Failure(
        "crash", f"the harness says that it measured for {claimed:.6g} s, and the runner saw it run for {ran:.6g} s"
    )


def check_times(lock: Lock, phases: "Phases") -> None:
    """Raise where the times that a run claims cannot be true.

    Args:
        lock: The lock of the run, whose scenario says how much is measured.
        phases: What was claimed.

    Raises:
        InvalidInputError: calls that follow one another took longer than their phase, or there are fewer queries or a
            shorter phase than LoadGen accepts.
    """
    timed = [one for one in (phases.performance, phases.pipeline) if one is not None]
    name = lock.scenario["name"]
    if name not in _SEQUENTIAL:
        return
    for one in timed:
        calls = float(one.samples.latency.sum())
        if calls > one.duration * (1 + _SLACK):
            raise InvalidInputError(
                f"the harness says that calls one after the other took {calls:.6g} s of {one.duration:.6g} s"
            )
        if len(one.samples.latency) < int(lock.scenario.get("min_queries", 0)):
            raise InvalidInputError(f"the harness says that it made {len(one.samples.latency)} queries, too few")
        if one.duration < float(lock.scenario.get("min_duration", 0)) * (1 - _SHORT):
            raise InvalidInputError(f"the harness says that it measured for {one.duration:.6g} s, too short a time")
