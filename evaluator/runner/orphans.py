"""Orphaned runs: detection by a file lock, clean-up and their record."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from benchlock.artifacts.atomic_files import lock_if_free
from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.records.run_types import Run, RunEnd, RunEndedError, RunId
from benchlock.evaluator.runner import container_run, process_run
from benchlock.evaluator.runner.container_engine import Engine
from benchlock.evaluator.runner.job_folder import RunFolders

_RUNS = "runs"
_ALIVE = "alive"
_PREFIX = "run/"
_CREATION_SECONDS = 10
_BETWEEN_LOOKS = 0.2


@contextmanager
def claim_folder(home: Path, run: RunId) -> Iterator[RunFolders]:
    """Create the empty folder of a run, and remove it at the end of the context.

    Within the context the run counts as alive; the kernel releases the lock when the process dies. A folder whose
    container could not be removed stays for the next sweep.

    Raises:
        UnavailableError: The disk is full or cannot be written.
    """
    root = _root(home, run)
    try:
        descriptor = _claim(root)
    except OSError as error:
        raise UnavailableError(
            f"cannot create the folder of the run: {error.strerror or error}",
            where=str(root),
            next_step="check free space and permissions on the registry's disk",
        ) from error
    try:
        yield RunFolders(root)
    finally:
        if not (root / container_run.MARK).exists():
            shutil.rmtree(root, ignore_errors=True)
        os.close(descriptor)


def sweep(
    runs: Iterable[Run],
    finish: Callable[[RunId, RunEnd], None],
    engine: Engine | None,
    home: Path,
    now: Callable[[], datetime],
) -> tuple[RunId, ...]:
    """Find abandoned runs, end their containers and processes, remove their folders, and record them.

    Without an engine the folder of a run that may have a container stays, and a later sweep with an engine removes the
    container.

    Args:
        runs: The runs without an end.
        finish: Records the end of a run.
        engine: The container engine; None without one.
        home: The registry's folder.
        now: The calendar clock.

    Returns:
        The ids of the abandoned runs.
    """
    unfinished = {run.id: run for run in runs}
    abandoned = []
    for run in unfinished:
        with _check_dead(_root(home, run)) as is_dead:
            if is_dead:
                _clean(_root(home, run), run, engine)
                with suppress(RunEndedError):  # another sweep, or the run itself, recorded an end first
                    finish(run, RunEnd(outcome="abandoned", ended_at=now()))
                    abandoned.append(run)
    clear(engine, home, unfinished)
    return tuple(abandoned)


def clear(engine: Engine | None, home: Path, but: Container[RunId] = ()) -> None:
    """Remove the containers, processes and folders of dead runs in ``home``, but record nothing."""
    folder = home / _RUNS
    for root in sorted(folder.iterdir()) if folder.is_dir() else ():
        run = RunId(_PREFIX + root.name)
        if run not in but:
            with _check_dead(root) as is_dead:
                if is_dead:
                    _clean(root, run, engine)


def halt(engine: Engine | None, home: Path, run: RunId) -> None:
    """Kill the process or the container of a run; the thread that waits for it sees a killed run."""
    process_run.end_abandoned(_root(home, run) / process_run.MARK)
    if engine is not None:
        engine.remove(run)


def _root(home: Path, run: RunId) -> Path:
    return home / _RUNS / run.removeprefix(_PREFIX)


def _claim(root: Path) -> int:
    """Return a locked descriptor; if a sweep removes the folder before it is locked, create it again."""
    while True:
        root.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            descriptor = os.open(root / _ALIVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.fstat(descriptor).st_ino == (root / _ALIVE).stat().st_ino:
                    return descriptor
            os.close(descriptor)


@contextmanager
def _check_dead(root: Path) -> Iterator[bool]:
    """Yield whether no process holds the run; within the context no other process finds it dead."""
    try:
        # A missing file is created: a process that is about to claim the folder then waits, and finds it removed.
        descriptor = os.open(root / _ALIVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        yield True
        return
    except OSError:  # not a folder of a run
        yield False
        return
    with lock_if_free(descriptor) as is_dead:
        yield is_dead


def _clean(root: Path, run: RunId, engine: Engine | None) -> None:
    process_run.end_abandoned(root / process_run.MARK)
    mark = root / container_run.MARK
    if mark.exists():
        if engine is None:
            return
        try:
            # The engine may still create a container for a process that has died.
            while not engine.remove(run) and time.time() - mark.stat().st_mtime < _CREATION_SECONDS:
                time.sleep(_BETWEEN_LOOKS)
        except UnavailableError:
            return
    shutil.rmtree(root, ignore_errors=True)
