"""Why a job is where it is, and what each machine lacks for it."""

from collections import Counter
from typing import Final

from sqlalchemy import Connection, func, select, text, tuple_

from benchlock.evaluator.dispatch.queue import COUNTED_AHEAD, Explanation, Job, JobId, Machine, MachineId, Standing
from benchlock.evaluator.dispatch.rows import load_job, load_machines
from benchlock.evaluator.dispatch.tables import avoided, eligible, jobs
from benchlock.evaluator.dispatch.times import Moment

SHOWN: Final = 100
"""Machines of an explanation: those that lack least."""


def explain(connection: Connection, job: JobId, moment: Moment) -> Explanation:
    """The explanation of a job. Raises as ``Queue.explain``."""
    found = load_job(connection, job, moment.now)
    if found.state not in ("queued", "delayed"):
        return Explanation(found, blocked=False, sentence=_told(found))
    row = connection.execute(
        select(jobs.c.since, jobs.c.seq, jobs.c["class"].label("wanted")).where(jobs.c.id == job)
    ).one()
    known = {one.id: one for one in load_machines(connection, moment)}
    fits = connection.execute(select(eligible).where(eligible.c["class"] == row.wanted)).all()
    kept_from = set(connection.execute(select(avoided.c.machine).where(avoided.c.job == job)).scalars())
    standings = sorted(
        (
            Standing(known[one.machine].id, tuple(one.lacks), _obstacle(known[one.machine], one.machine in kept_from))
            for one in fits
            if one.machine in known
        ),
        key=lambda one: (len(one.lacks), one.obstacle is not None, one.machine),
    )
    ahead = _ahead(connection, row.wanted, row.since, row.seq)
    open_ = [one for one in standings if not one.lacks and one.obstacle is None]
    sentence = _sentence(found, standings, open_, known, ahead)
    return Explanation(found, not open_, sentence, tuple(standings[:SHOWN]), ahead)


def _obstacle(machine: Machine, avoids: bool) -> str | None:
    if machine.draining is not None:
        return f"gets no more jobs: {machine.draining}"
    if machine.gone_because is not None:
        return machine.gone_because
    if machine.gone:
        return f"its worker ended, or nothing was heard of it for {machine.unseen:.0f} s"
    if machine.held_for:
        return f"is held back for {machine.held_for:.0f} s more: {machine.held}"
    return "the job failed there, and another one may do better" if avoids else None


def _ahead(connection: Connection, wanted: str, since: float, seq: int) -> int:
    before = tuple_(jobs.c.since, jobs.c.seq) < tuple_(since, seq)
    own = select(jobs.c.seq).where(text("jobs.state = 'queued'"), jobs.c["class"] == wanted, before)
    return connection.execute(select(func.count()).select_from(own.limit(COUNTED_AHEAD).subquery())).scalar_one()


def _told(job: Job) -> str:
    if job.state == "leased":
        asked = ", and is asked to end it" if job.cancel_asked else ""
        return f"{job.machine} has it ({job.phase}){asked}"
    if job.state == "done":
        return f"{job.run} is its result" if job.run else "it is done"
    if job.state == "cancelled":
        return f"it was cancelled: {job.reason}" if job.failure else "it was cancelled"
    if job.state == "quarantined":
        return f"it is set aside: {job.tally.lost} machines were lost with it{_reason(job)}"
    return f"it failed ({job.failure}): {job.reason or 'see its run'}" if job.failure else "it failed"


def _sentence(
    job: Job, standings: list[Standing], open_: list[Standing], known: dict[MachineId, Machine], ahead: int
) -> str:
    if open_:
        free = [one for one in open_ if known[one.machine].job is None]
        wait = f"is tried again in {job.due:.0f} s{_reason(job)}" if job.due else f"waits, {_many(ahead)} before it"
        return f"it {wait}; {len(open_)} of {len(known)} machines may take it, {len(free)} of them free"
    if not standings:
        return "no machine can take it: none is known; start `benchlock worker` on one"
    fitting = [one for one in standings if not one.lacks]
    if fitting:
        of_them = "; ".join(f"{one.machine}: {one.obstacle}" for one in fitting[:3])
        return f"no machine can take it now: {len(fitting)} of {len(known)} would fit, but {of_them}"
    nearest = standings[0]
    most = Counter(reason for one in standings for reason in one.lacks).most_common(1)[0]
    common = "" if len(standings) == 1 or most[0] in nearest.lacks else f" (most often: {most[0]})"
    return (
        f"no machine can take it: 0 of {len(known)} fit{common}; the nearest is {nearest.machine}, "
        f"and it lacks: {'; '.join(nearest.lacks)}"
    )


def _reason(job: Job) -> str:
    return f" ({job.reason})" if job.reason else ""


def _many(ahead: int) -> str:
    if ahead >= COUNTED_AHEAD:
        return f"{COUNTED_AHEAD} jobs or more like it"
    return "no job like it" if not ahead else f"{ahead} job{'s' * (ahead > 1)} like it"
