"""Bodies for lists, holds, comparisons and verdicts of runs; runs and results are values of ``evaluator.records``."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from benchlock.artifacts import size_limits
from benchlock.evaluator.records.run_types import DamagedRun, Run, RunText


class HideRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to hide, and the reason; with ``undo``, a run to show again."""

    target: RunText
    reason: Annotated[str, size_limits.limit_text(size_limits.REASON)] = ""
    undo: bool = False


class HideResult(Struct, frozen=True, kw_only=True):
    """Whether the run is hidden now; ``changed`` is false if it was already in that state."""

    target: RunText
    hidden: bool
    changed: bool


class RunPage(Struct, frozen=True, kw_only=True):
    """Runs, newest first; ``next`` is the cursor of the next page, absent on the last.

    An item has no host, process, packages or blobs, a short failure message, and only those details that tell whether
    its metrics count. The run itself has all of them. ``damaged`` are the runs of the page whose records are damaged.
    """

    runs: tuple[Run, ...]
    damaged: tuple[DamagedRun, ...] = ()
    next: str | UnsetType = UNSET


class RunCount(Struct, frozen=True, kw_only=True):
    """The number of runs of a lock, whatever their outcome."""

    count: int


class Hold(Struct, frozen=True, kw_only=True):
    """The hold of a run: if it is not renewed within ``seconds``, the run counts as abandoned."""

    run: RunText
    seconds: float


class ComparisonRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The runs to compare: the first with each of the others."""

    runs: Annotated[tuple[RunText, ...], Meta(min_length=2, max_length=100)]


class VerdictRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run, and an earlier run of the same lock to compare it with; by default the latest other successful one."""

    run: RunText
    against: RunText | UnsetType = UNSET
