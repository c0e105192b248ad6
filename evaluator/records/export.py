"""Taking a run out again: its predictions, samples and other blobs, verified."""

from pathlib import Path

from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.store import BlobStore, copy_out
from benchlock.evaluator.evidence.status import RUN_AGAIN
from benchlock.evaluator.records.runs import Run
from benchlock.evaluator.runner.results import FILES


def export_run(run: Run, store: BlobStore, folder: Path) -> int:
    """Write every blob of ``run`` to ``folder`` where the harness left it in its own, others by their role; how many.

    Raises:
        InvalidInputError: the run has no end yet, or the folder holds something already.
        IntegrityError: a blob is not what its digest says.
    """
    if run.end is None:
        raise InvalidInputError(f"{run.start.id} has not ended", next_step="wait for its end")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInputError(f"{folder} is not empty", next_step="name another folder with -o")
    folder.mkdir(parents=True, exist_ok=True)
    for role, blob in run.end.blobs.items():
        # A record that was imported names roles as it likes; of those that we know, two have files of the same name.
        path = FILES.get(role) or Path(f"{role}.txt").name
        try:
            copy_out(store, blob, folder / path, name=f"{run.start.id} {role}")
        except IntegrityError as error:
            error.next_step = RUN_AGAIN
            raise
    return len(run.end.blobs)
