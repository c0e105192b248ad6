"""Interleaved comparisons as jobs: the machines that can run all locks, and the jobs in their order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.queue.job_matching import JobRequirements, list_lacks
from benchlock.evaluator.queue.queue_texts import machine_state
from benchlock.evaluator.queue.queue_types import (
    MAX_COMPARED_LOCKS,
    MAX_ROUNDS,
    Job,
    JobRequest,
    Machine,
    MachineId,
    new_job_id,
)
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.queue.submission_checks import make_job_request
from benchlock.evaluator.records.comparison_types import ComparisonTurn
from benchlock.evaluator.workflows.compare import (
    balanced_orders,
    check_margins,
    check_question,
    default_rounds,
    plan_turns,
    shared_margins,
)
from benchlock.registry.lock.lockfile import Lock

MACHINES: Final = 1000
"""The maximum number of machines that are considered."""


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """An interleaved comparison to queue.

    Attributes:
        id: Its id; the same id again is the same comparison.
        locks: The locks, the reference first.
        machine: The machine that runs all of them; None for the only one that can.
        rounds: The number of rounds; None for the smallest balanced number.
        margins: Relative margins of equivalence by metric, in place of those that all locks state. With margins, there
            may be a single lock, which runs twice a round: its runs are the new ones of a verdict, as those of a rerun.
    """

    id: str
    locks: Sequence[Lock]
    machine: MachineId | None = None
    rounds: int | None = None
    margins: Mapping[str, float] = field(default_factory=dict)


def list_rounds(locks: int) -> tuple[int, ...]:
    """Return the numbers of rounds, up to the maximum, in which every order comes equally often."""
    return tuple(range(default_rounds(locks), MAX_ROUNDS + 1, len(balanced_orders(locks + 1))))


def find_machines(machines: Sequence[Machine], wants: Sequence[JobRequirements]) -> list[MachineId]:
    """Return the machines that get jobs now and that can run all jobs with the requirements ``wants``."""
    return [
        machine.id
        for machine in machines
        if machine_state(machine) in ("free", "busy")
        and not any(list_lacks(one, machine.facts, machine.id) for one in wants)
    ]


def queue_comparison(
    queue: SqlQueue, store: FileStore, request: ComparisonRequest, now: Callable[[], datetime]
) -> list[Job]:
    """Queue an interleaved comparison, and return its jobs in the order in which they run.

    Args:
        queue: The queue.
        store: The registry's blob store.
        request: The comparison.
        now: The calendar clock.

    Raises:
        InvalidInputError: The number of locks or rounds is out of bounds, a lock comes twice, or several machines fit.
        RefusedError: Runs of the locks will not be comparable, or no machine can run all of them.
        BenchlockError: As ``make_job_request`` and ``SqlQueue.submit_comparison``.
    """
    locks, rounds = request.locks, request.rounds or default_rounds(len(request.locks))
    if len({lock.id for lock in locks}) < len(locks) or len(locks) > MAX_COMPARED_LOCKS or rounds > MAX_ROUNDS:
        raise InvalidInputError(
            f"cannot compare {len(locks)} locks in {rounds} rounds",
            next_step=f"choose at most {MAX_COMPARED_LOCKS} different locks and {MAX_ROUNDS} rounds",
        )
    margins = {**shared_margins(locks), **request.margins}
    if len(locks) == 1 and margins:
        check_margins(locks, margins)
    else:
        check_question(locks, margins)
    jobs = {lock.id: make_job_request(lock, store, None, now) for lock in locks}
    machine = _choose_machine(queue, [job.wants for job in jobs.values()], request.machine)
    turns: list[tuple[JobRequest, ComparisonTurn]] = []
    for lock, turn in plan_turns(locks, request.id, rounds, margins):
        job = jobs[lock.id]
        turns.append((replace(job, id=new_job_id(now()), wants=replace(job.wants, machine=machine)), turn))
    return queue.submit_comparison(turns)


def _choose_machine(queue: SqlQueue, wants: Sequence[JobRequirements], machine: MachineId | None) -> MachineId:
    """Return the machine, or the only one that can run all the jobs."""
    able = find_machines(queue.machines(limit=MACHINES), wants)
    if not able or machine not in (None, *able):
        raise RefusedError(
            f"{'no machine' if machine is None else machine} can run all these locks now",
            where="machine",
            next_step=f"choose {' or '.join(able[:3])}" if able else "start a worker on a machine that can",
        )
    if machine is None and len(able) > 1:
        raise InvalidInputError(
            f"{len(able)} machines can run all these locks", where="machine", next_step=f"choose {' or '.join(able)}"
        )
    return machine or able[0]
