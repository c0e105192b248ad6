"""The runs of a registry on a server: read there, and recorded there by whoever runs them on this machine."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final

import msgspec

from benchlock.api.client.catalogue import Resend, sent_again
from benchlock.api.client.conversation import Conversation
from benchlock.api.wire.cursors import cursor_of
from benchlock.api.wire.runs import (
    HideRequest,
    HideResult,
    Hold,
    RunCount,
    RunOnWire,
    RunPage,
    begun_on_wire,
    entries_of,
    over_on_wire,
    run_of,
)
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, IntegrityError, UnavailableError, UnknownNameError
from benchlock.evaluator.records.runs import DamagedRun, Outcome, Run, RunEnd, RunId, RunStart

_PAGE: Final = 1000
_BEATS: Final = 4  # in the time that a hold lasts
_BETWEEN_TRIES: Final = 2.0  # seconds


class RemoteRuns:
    """Implements ``evaluator.records.kept.KeptRuns``. A run that is started is held until its end is recorded.

    ``patience`` is for how many seconds an end is tried again while the server does not answer: what was measured is
    not lost with a server that is started again.
    """

    def __init__(self, talk: Conversation, resend: Resend, *, patience: float = 120.0) -> None:
        self._talk = talk
        self._resend = resend
        self._patience = patience
        self._held: dict[RunId, Event] = {}

    def start(self, start: RunStart) -> None:
        hold = self._talk.send("POST", "runs", begun_on_wire(start), Hold)
        over = self._held[start.id] = Event()
        renew = Thread(target=self._renew, args=(start.id, hold.seconds / _BEATS, over), daemon=True)
        renew.start()

    def finish(self, run: RunId, end: RunEnd) -> None:
        path, body = f"{_path(run)}/end", over_on_wire(end)

        def send() -> RunOnWire:
            return self._talk.send("PUT", path, body, RunOnWire)

        try:
            _patiently(lambda: sent_again(self._resend, send), self._patience)
        finally:
            over = self._held.pop(run, None)
            if over is not None:
                over.set()

    def get(self, run: RunId) -> Run:
        return run_of(self._talk.get(_path(run), RunOnWire))

    def list(self, *, lock: Digest | None = None, outcome: Outcome | None = None, limit: int = 100) -> tuple[Run, ...]:
        entries = self.list_entries(lock=lock, outcome=outcome, limit=limit)
        damaged_run = next((one for one in entries if isinstance(one, DamagedRun)), None)
        if damaged_run is not None:
            raise IntegrityError(damaged_run.damage, where=damaged_run.id, next_step="restore the registry's backup")
        return tuple(one for one in entries if isinstance(one, Run))

    def list_entries(
        self,
        *,
        lock: Digest | None = None,
        outcome: Outcome | None = None,
        before: RunId | None = None,
        limit: int = 100,
        examine: bool = True,  # noqa: ARG002 - a server examines in any case
    ) -> tuple[Run | DamagedRun, ...]:
        """Return the entries of as many pages as are needed."""
        found: list[Run | DamagedRun] = []
        cursor = None if before is None else cursor_of((before,))
        while len(found) < limit:
            wanted = min(limit - len(found), _PAGE)
            page = self._talk.get("runs", RunPage, lock=lock, outcome=outcome, limit=wanted, cursor=cursor)
            found += entries_of(page)
            if isinstance(page.next, msgspec.UnsetType):
                break
            cursor = page.next
        return tuple(found)

    def count(self, lock: Digest) -> int:
        return self._talk.get("runs/count", RunCount, lock=lock).count

    def hide(self, run: RunId, reason: str) -> bool:
        return self._talk.send("POST", "hidings", HideRequest(target=run, reason=reason), HideResult).changed

    def unhide(self, run: RunId) -> bool:
        return self._talk.send("POST", "hidings", HideRequest(target=run, undo=True), HideResult).changed

    def _renew(self, run: RunId, pause: float, over: Event) -> None:
        """Say again and again that the run goes on. What the server says against it, it says again at the end."""
        while not over.wait(pause):
            with suppress(BenchlockError):
                self._talk.send("PUT", f"{_path(run)}/hold", {}, Hold)


class RunsHere:
    """Implements ``evaluator.records.kept.OpenRuns`` for the runs whose folders are on this machine, and no others."""

    def __init__(self, runs: RemoteRuns, folder: Path) -> None:
        """``folder`` has a folder for each run that began here, under the rest of its id."""
        self._runs = runs
        self._folder = folder

    def unfinished(self) -> tuple[Run, ...]:
        found: list[Run] = []
        for root in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            with suppress(UnknownNameError):
                found.append(self._runs.get(RunId(f"run/{root.name}")))
        return tuple(run for run in found if run.end is None)

    def finish(self, run: RunId, end: RunEnd) -> None:
        self._runs.finish(run, end)


def _path(run: RunId) -> str:
    return f"runs/{run.removeprefix('run/')}"


def _patiently(act: Callable[[], object], patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            act()
        except UnavailableError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_BETWEEN_TRIES)
        else:
            return
