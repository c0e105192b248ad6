"""Runs whose raw samples are those of another run: one measurement under several ids counts once.

Samples have the nanoseconds of every call, so two measurements never leave equal ones. A run whose samples are
byte-equal to those of another one is refused; runs with equal latencies count once where runs are compared, whatever
else differs. A run of the scenario ``accuracy`` leaves no samples, and its results may repeat.
"""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, select

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import IntegrityError
from benchlock.evaluator.records.hidings import HIDDEN_RUNS
from benchlock.evaluator.records.runs import Run, RunEnd, RunId
from benchlock.evaluator.records.tables import run_blobs, runs

SAMPLES: Final = "samples"
"""The role of the blob with the raw samples of a timed phase."""


class ReplayedRunError(IntegrityError):
    """The samples of a run are recorded as those of another run of the same lock."""


def refuse_replay(connection: Connection, run: RunId, lock: Digest, end: RunEnd) -> None:
    """Raise if another run of the lock has samples that are byte-equal to those of this one.

    Hidden runs do not count: a forgery that was hidden does not block the run that it copies. Since harness 1.2.0
    results name their lock, so those of another lock contradict the record already. Under harness 1.0 and 1.1 a replay
    of another lock's samples is not detected.

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
            next_step="run the lock again (`benchlock run`): each run measures anew",
        )


def is_replay(run: Run, other: Run) -> bool:
    """Return whether two runs of different ids are one measurement."""
    measurement = _measurement(run)
    return run.id != other.id and measurement is not None and measurement == _measurement(other)


def drop_replays(measured: Iterable[Run]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """Return the runs, of those with one measurement the first recorded alone; and a sentence on each of the others."""
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
    kept = tuple(run for run in measured if run.id not in replays)
    return kept, tuple(f"{run} has the samples of {original}, so they count once" for run, original in replays.items())


def _measurement(run: Run) -> Digest | None:
    """Return the digest of the latencies; where nobody compared the run with its blobs, that of its samples."""
    if run.evidence is not None and run.evidence.measurement is not None:
        return run.evidence.measurement
    blob = None if run.end is None else run.end.blobs.get(SAMPLES)
    return None if blob is None else blob.digest
