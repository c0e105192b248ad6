"""The agreement of a distributed training with its rerun and with its reference, bit by bit."""

from pathlib import Path

import numpy as np

from benchlock.artifacts.blob_store import FileStore, verify
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.distributed.distributed_evidence import RankSamples, read_ranks
from benchlock.evaluator.evidence.distributed.rank_details import read_rank_details
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.runner.run_outcome import RANK_ROLES
from benchlock.registry.lock.lockfile import Lock

_PAIR = 2
_NEXT = "choose another run"


def load_ranks(run: Run, lock: Lock, store: FileStore) -> RankSamples:
    """Return the samples of all processes of a done run.

    Args:
        run: The run.
        lock: Its lock.
        store: The store of its blobs.

    Raises:
        IntegrityError: A blob does not match its digest.
        InvalidInputError: A blob is missing or malformed.
    """
    assert run.end is not None
    assert lock.distribution
    files: dict[str, Path] = {}
    for role in RANK_ROLES:
        if blob := run.end.blobs.get(role):
            verify(store, blob.digest, name=f"{run.id} {role}", size=blob.size)
            files[role] = store.path(blob.digest)
    try:
        return read_ranks(files, lock.distribution.processes, lock.scenario["warmup"] + lock.scenario["steps"])
    except InvalidInputError as error:
        raise InvalidInputError(f"{run.id}: {error.what}", where=run.id, next_step=_NEXT) from error


def find_different_ranks(original: tuple[Run, RankSamples], again: tuple[Run, RankSamples]) -> str | None:
    """Return the first step and rank whose losses differ, or that the weights differ; None if all are equal."""
    losses = [samples.loss.view(np.int64) for _, samples in (original, again)]
    different = np.argwhere(losses[0] != losses[1])
    if different.size:
        step, rank = map(int, different[0])
        values = ", ".join(f"{float(samples.loss[step, rank])!r}" for _, samples in (original, again))
        return f"the losses of rank {rank} differ from step {step} on ({values})"
    references = [samples.reference_loss.view(np.int64) for _, samples in (original, again)]
    if not np.array_equal(references[0], references[1]):
        return "the losses of the reference differ, although those of the ranks are equal"
    weights = [run.end.details["distributed"] for run, _ in (original, again) if run.end is not None]
    return None if weights[0] == weights[1] else "the weights differ, although all losses are equal"


def find_departure(run: Run) -> str | None:
    """Return how two ranks depart from one process with the same arithmetic; None if they do not.

    More ranks may: the order in which they add gradients is not that of one process.
    """
    details = None if run.end is None else read_rank_details(run.end.details)
    if details is None or details.is_bit_equal or len(details.ranks) > _PAIR:
        return None
    return (
        "2 ranks must have the bits of one process, but their losses or weights differ from its; "
        f"the mean losses by up to {details.loss_difference:.2g}"
    )
