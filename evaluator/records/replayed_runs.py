"""Replayed runs: records of different ids that are one measurement, because their samples are the same.

Samples hold the nanoseconds of every call, so two measurements never have equal ones. A run whose samples are
byte-equal to those of another run is refused. Runs with equal latencies count once in comparisons, whatever else
differs. A run of the scenario ``accuracy`` leaves no samples, and its results may repeat.
"""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, select

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import IntegrityError
from benchlock.evaluator.records.run_types import Run, RunEnd, RunId
from benchlock.evaluator.records.runs_schema import HIDDEN_RUNS, run_blobs, runs

SAMPLES: Final = "samples"
"""The role of the blob with the raw samples of a timed phase."""


class ReplayedRunError(IntegrityError):
    """A run whose samples are already recorded as those of another run of the same lock."""


def refuse_replay(connection: Connection, run: RunId, lock: Digest, end: RunEnd) -> None:
    """Raise if another run of the lock has samples that are byte-equal to those of this one.

    Hidden runs do not count, so a hidden forgery does not block the run that it copies. Since harness 1.2.0 results
    name their lock, so samples of another lock already contradict the record. With harness 1.0 and 1.1 a replay of
    another lock's samples is not detected.

    Raises:
        ReplayedRunError: There is such a run.
    """
    samples = end.blobs.get(SAMPLES)
    if samples is None:
        return
    query = (
        select(runs.c.id)
        .join(run_blobs, run_blobs.c.run == runs.c.id)
        .where(runs.c.lock == lock, runs.c.id != run, runs.c.id.not_in(HIDDEN_RUNS))
        .where(run_blobs.c.role == SAMPLES, run_blobs.c.digest == samples.digest)
    )
    other = connection.execute(query.limit(1)).scalar()
    if other is not None:
        raise ReplayedRunError(
            f"{run} has the samples of {other}: one measurement cannot be two runs",
            where=run,
            next_step="run the lock again: each run measures anew",
        )


def is_replay(run: Run, other: Run) -> bool:
    """Return whether two runs with different ids are one measurement."""
    measurement = _measurement(run)
    return run.id != other.id and measurement is not None and measurement == _measurement(other)


def drop_replays(measured: Iterable[Run]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """Return the runs without repeated measurements, and a sentence on each run that was dropped.

    Of the runs with the same measurement the one that was recorded first remains.
    """
    measured = tuple(measured)
    first: dict[tuple[Digest, Digest], RunId] = {}
    for run in sorted(measured, key=lambda run: run.order):
        if (measurement := _measurement(run)) is not None:
            first.setdefault((run.start.lock, measurement), run.id)
    replays: dict[RunId, RunId] = {}
    for run in measured:
        measurement = _measurement(run)
        if measurement is not None and (original := first[run.start.lock, measurement]) != run.id:
            replays[run.id] = original
    remaining = tuple(run for run in measured if run.id not in replays)
    return remaining, tuple(
        f"{run} has the samples of {original}, so they count once" for run, original in replays.items()
    )


def _measurement(run: Run) -> Digest | None:
    """Return the digest of the latencies, or of the samples if nobody compared the run with its blobs."""
    if run.evidence is not None and run.evidence.measurement is not None:
        return run.evidence.measurement
    blob = None if run.end is None else run.end.blobs.get(SAMPLES)
    return None if blob is None else blob.digest
