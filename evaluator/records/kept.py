"""What is asked of recorded runs, wherever they are recorded: in this process, or on a server."""

from typing import Protocol

from benchlock.artifacts.digest import Digest
from benchlock.evaluator.records.runs import DamagedRun, Outcome, Run, RunEnd, RunId, RunStart


class KeptRuns(Protocol):
    """Recorded runs. ``Records`` says what each verb promises."""

    def start(self, start: RunStart) -> None: ...

    def finish(self, run: RunId, end: RunEnd) -> None: ...

    def get(self, run: RunId) -> Run: ...

    def list(self, *, lock: Digest | None = None, outcome: Outcome | None = None, limit: int = 100) -> tuple[Run, ...]:
        """Return summaries of the newest, newest first; ``get`` reads all of one."""
        ...

    def list_entries(
        self,
        *,
        lock: Digest | None = None,
        outcome: Outcome | None = None,
        before: RunId | None = None,
        limit: int = 100,
        examine: bool = True,
    ) -> tuple[Run | DamagedRun, ...]: ...

    def count(self, lock: Digest) -> int: ...

    def hide(self, run: RunId, reason: str) -> bool: ...

    def unhide(self, run: RunId) -> bool: ...


class OpenRuns(Protocol):
    """The runs without an end that a machine may have left, and how they are given one."""

    def unfinished(self) -> tuple[Run, ...]: ...

    def finish(self, run: RunId, end: RunEnd) -> None: ...
