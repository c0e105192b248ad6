"""Runs, reruns and comparisons on this machine, as commands and the Python API make them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from benchlock.api.local.run_setup import build_runner
from benchlock.api.schemas.registry_protocol import Registry
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.evidence.prediction_scores import PredictionPairs
from benchlock.evaluator.records.comparison_types import Verdict
from benchlock.evaluator.records.evidence_status import SCRATCH
from benchlock.evaluator.records.run_types import Isolation, Run, RunId
from benchlock.evaluator.runner.wall_clock import WallClock
from benchlock.evaluator.workflows.compare import (
    Comparison,
    Margins,
    check_question,
    compare_recorded_runs,
    compare_speeds,
    default_rounds,
    interleave,
    shared_margins,
)
from benchlock.evaluator.workflows.rerun import (
    REPEATS,
    find_original,
    find_sides,
    judge_reruns,
    margins_of,
    repeat_rerun,
)
from benchlock.registry.lock.lockfile import Lock

FEWEST_ROUNDS = 3
"""Fewer rounds have no spread worth an interval."""


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
        count = repeat or (REPEATS if margins_of(lock) and not lock.recipe else 1)

        def once(part_of: Mapping[str, Any]) -> Run:
            run = self.run(lock, original=original, part_of=part_of if count > 1 else None)
            if count > 1:
                self.say(f"run {part_of['number']} of {count}: {run.id} {run.end.outcome if run.end else 'running'}")
            return run

        if count < 1:
            raise InvalidInputError(f"invalid number of runs {count}", next_step="repeat at least once")
        new_runs = repeat_rerun(original, once, count)
        sides = replace(find_sides(self.registry.records, lock, original, new_runs[0]), reruns=new_runs)
        verdict, again = judge_reruns(lock, original, sides, self.registry.store)
        return RerunResult(replace(verdict, reported=(*verdict.reported, *skipped)), again, new_runs)

    def compare(self, locks: Sequence[Lock], rounds: int | None, margins: Margins) -> Comparison:
        """Run locks interleaved, and compare each further lock with the first.

        Args:
            locks: The locks, the reference first.
            rounds: The number of rounds; None for the smallest balanced number.
            margins: The relative margins of equivalence by metric, in place of those that the locks state.

        Raises:
            BenchlockError: As ``check_question`` and ``Runner.run``.
        """
        stated = {**shared_margins(locks), **_check_margins(margins)}
        check_question(locks, stated)
        if rounds is not None and rounds < FEWEST_ROUNDS:
            raise InvalidInputError(
                f"{rounds} rounds are too few", next_step=f"use {FEWEST_ROUNDS} rounds or more; 6 to 10 by default"
            )

        def once(lock: Lock, part_of: Mapping[str, Any]) -> Run:
            run = self.run(lock, part_of=part_of)
            word = "running" if run.end is None else run.end.outcome
            control = ", again" if part_of["control"] else ""
            self.say(f"round {part_of['round']} of {part_of['rounds']}: {lock.subject.name}{control}: {run.id} {word}")
            return run

        pairs = PredictionPairs(self.registry.store, self.registry.home / SCRATCH)
        return interleave(locks, once, rounds or default_rounds(len(locks)), stated, pairs.compare_all)

    def _find_original(self, lock: Lock, against: RunId | None) -> tuple[Run, tuple[str, ...]]:
        """Return the run to compare with, and notes on later runs that cannot be compared with."""
        latest = find_original(self.registry.records, lock.id, against)
        for sentence in latest.skipped:
            self.say(f"warning: {sentence}")
        return latest.run, latest.skipped


def _check_margins(margins: Margins) -> Margins:
    for name, share in margins.items():
        if not 0 < share < 1:
            raise InvalidInputError(
                f"invalid margin {share!r} for {name}", where=name, next_step="state a share, such as 0.05 for 5 %"
            )
    return margins


def compare_by_id(
    registry: Registry, read_lock: Callable[[Digest], Lock], ids: Sequence[RunId], *, force: bool
) -> Comparison:
    """Compare recorded runs.

    Args:
        registry: The registry of the runs.
        read_lock: Returns the lock with an id.
        ids: The runs, the reference first.
        force: Compare the runs even if they are not comparable.

    Raises:
        RefusedError: The runs are not comparable, and ``force`` is false.
    """
    pairs = PredictionPairs(registry.store, registry.home / SCRATCH)
    comparison = compare_recorded_runs(registry.records, read_lock, ids, pairs.compare_all)
    if comparison.reasons and not force:
        raise RefusedError(
            f"these runs are not comparable with {ids[0]}: {'; '.join(comparison.reasons)}",
            next_step="compare runs with equal conditions, or show them anyway",
        )
    return compare_speeds(comparison, registry.store)
