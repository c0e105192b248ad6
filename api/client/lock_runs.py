"""Runs, reruns and comparisons on this machine, as commands and the Python API make them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from benchlock.api.local.local_registry import build_runner
from benchlock.api.schemas.registry_protocol import Registry
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import RefusedError
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.records.comparison_types import Verdict
from benchlock.evaluator.records.run_types import Isolation, RecordedRuns, Run, RunId
from benchlock.evaluator.runner.wall_clock import WallClock
from benchlock.evaluator.workflows.compare import Comparison, Pair, compare_recorded_runs
from benchlock.evaluator.workflows.rerun import (
    REPEATS,
    find_original,
    find_sides,
    judge_reruns,
    margins_of,
    repeat_rerun,
)
from benchlock.registry.lock.lockfile import Lock


@dataclass(frozen=True, slots=True)
class RerunResult:
    """The result of a rerun: its verdict, the new run that the verdict is about, and all new runs."""

    verdict: Verdict
    run: Run
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class LockRunner:
    """Runs locks on this machine, and records the runs in a registry.

    Attributes:
        registry: The registry.
        progress: Shows transfers and stages.
        say: Gets messages for people.
        isolation: The requested isolation; None for the default.
        allow_code: Whether a model's own code may run in a process.
    """

    registry: Registry
    progress: Progress
    say: Callable[[str], None]
    isolation: Isolation | None = None
    allow_code: bool = False

    def run(
        self,
        lock: Lock,
        *,
        original: Run | None = None,
        part_of: Mapping[str, Any] | None = None,
        clock: WallClock | None = None,
    ) -> Run:
        """Run a lock, and return the record, also of a failed run.

        Args:
            lock: The lock.
            original: The run that this one repeats.
            part_of: As for ``Runner.run``.
            clock: Measures how long each phase takes.

        Raises:
            BenchlockError: As ``Runner.run``.
        """
        clock = clock or WallClock()
        with clock.part("registry"):
            runner = build_runner(self.registry, self.progress, self.say, clock)
        return runner.run(
            lock, isolation=self.isolation, allow_code=self.allow_code, original=original, part_of=part_of
        )

    def rerun(self, lock: Lock, against: RunId | None = None, repeat: int | None = None) -> RerunResult:
        """Run a lock again, and compare with an earlier run.

        Args:
            lock: The lock.
            against: The run to compare with; None for the latest one.
            repeat: The number of new runs; None for one, or for ``REPEATS`` if the request states an ``equivalence``.

        Raises:
            BenchlockError: As ``find_original``, ``Runner.run`` and ``judge_rerun``.
        """
        original, skipped = self._find_original(lock, against)
        count = repeat or (REPEATS if margins_of(lock) else 1)

        def once(part_of: Mapping[str, Any]) -> Run:
            run = self.run(lock, original=original, part_of=part_of if count > 1 else None)
            if count > 1:
                self.say(f"run {part_of['number']} of {count}: {run.id} {run.end.outcome if run.end else 'running'}")
            return run

        new_runs = repeat_rerun(original, once, count)
        sides = replace(find_sides(self.registry.records, lock, original, new_runs[0]), reruns=new_runs)
        verdict, again = judge_reruns(lock, original, sides, self.registry.store)
        return RerunResult(replace(verdict, reported=(*verdict.reported, *skipped)), again, new_runs)

    def _find_original(self, lock: Lock, against: RunId | None) -> tuple[Run, tuple[str, ...]]:
        """Return the run to compare with, and notes on later runs that cannot be compared with."""
        latest = find_original(self.registry.records, lock.id, against)
        for sentence in latest.skipped:
            self.say(f"warning: {sentence}")
        return latest.run, latest.skipped


def compare_by_id(
    records: RecordedRuns, read_lock: Callable[[Digest], Lock], ids: Sequence[RunId], pair: Pair, *, force: bool
) -> Comparison:
    """Compare recorded runs.

    Args:
        records: The runs of the registry.
        read_lock: Returns the lock with an id.
        ids: The runs, the reference first.
        pair: As for ``compare_runs``.
        force: Compare the runs even if they are not comparable.

    Raises:
        RefusedError: The runs are not comparable, and ``force`` is false.
    """
    comparison = compare_recorded_runs(records, read_lock, ids, pair)
    if comparison.reasons and not force:
        raise RefusedError(
            f"these runs are not comparable with {ids[0]}: {'; '.join(comparison.reasons)}",
            next_step="compare runs with equal conditions, or show them anyway",
        )
    return comparison
