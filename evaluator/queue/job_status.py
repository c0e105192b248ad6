"""Jobs, their progress and machines as read from the database, and explanations of why a job waits.

The lines of a lease stay until another lease reports after its end, so a page that was cut off at the end still gets
the last ones.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, Row, Select, bindparam, delete, func, insert, select, text, tuple_

from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import UnknownNameError
from benchlock.artifacts.user_output import format_bytes, format_count
from benchlock.evaluator.queue.fair_shares import explain_share, load_shares
from benchlock.evaluator.queue.file_locality import ArtifactSizes, count_overtaking, load_missing
from benchlock.evaluator.queue.job_matching import JobRequirements, MachineFacts
from benchlock.evaluator.queue.lease_times import Moment, Times
from benchlock.evaluator.queue.queue_schema import (
    avoided,
    classes,
    eligible,
    job_results,
    jobs,
    lease_slots,
    leases,
    machines,
    progress_lines,
)
from benchlock.evaluator.queue.queue_texts import job_state
from benchlock.evaluator.queue.queue_types import (
    COUNTED_AHEAD,
    MAX_LINES,
    Explanation,
    Fence,
    Job,
    JobId,
    Lease,
    LiveJob,
    Machine,
    MachineId,
    MachineMatch,
    ProgressLine,
    Tally,
)
from benchlock.evaluator.queue.worker_machines import token_states
from benchlock.evaluator.records.comparison_types import ComparisonTurn
from benchlock.evaluator.records.run_types import RunId, replace_nul
from benchlock.evaluator.records.runs_schema import HIDDEN_RUNS
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.auth.token_format import State

SEE: Final = "see "
"""Prefix of a job's reason, before the id of its failed run: the message stays with the run, which may be hidden."""
_JOB = (
    *(column for column in jobs.columns if column.name != "reason"),
    func.substr(jobs.c.reason, 1, size_limits.REASON).label("reason"),  # stored jobs may be older than the limits
)


def select_jobs() -> Select[Any]:
    """Select jobs with their last lease and result, and whether their run or the run in the reason is hidden."""
    run = func.coalesce(job_results.c.run, leases.c.run)
    hidden = run.in_(HIDDEN_RUNS) | func.substr(jobs.c.reason, len(SEE) + 1).in_(HIDDEN_RUNS)
    return (
        select(*_JOB, leases.c.machine, run.label("run"), hidden.label("hidden"))
        .outerjoin(leases, leases.c.fence == jobs.c.fence)
        .outerjoin(job_results, job_results.c.job == jobs.c.id)
    )


def select_held() -> Select[Any]:
    """Select leased jobs with their lease, and lock the rows of the jobs."""
    return (
        select(jobs, leases.c.machine, leases.c.run, leases.c.at)
        .join(leases, leases.c.fence == jobs.c.fence)
        .where(jobs.c.state == "leased")
        .with_for_update(of=jobs)
    )


def job_of(row: Row[Any], now: float) -> Job:
    """Convert a row to a job; only administrators see the fields of a hidden run."""
    shown = not row.hidden or get_actor().scopes.allow("admin")
    return Job(
        id=JobId(row.id),
        lock=Digest(row.lock),
        state=row.state,
        phase=row.phase,
        machine=None if row.machine is None else MachineId(row.machine),
        run=RunId(row.run) if row.run is not None and shown else None,
        lost=row.lost,
        engine=row.engine,
        crash=row.crash,
        cancel_asked=row.cancel_asked,
        failure=row.failure if shown else None,
        reason=row.reason if shown else None,
        due=None if row.not_before is None else max(0.0, row.not_before - now),
        submitted_at=row.submitted_at,
        part_of=_turn_of(row),
        priority=row.priority,
    )


def _turn_of(row: Row[Any]) -> ComparisonTurn | None:
    return None if row.part_of is None else msgspec.convert(row.part_of, ComparisonTurn)


def tally_of(row: Row[Any]) -> Tally:
    """Return the counted failures in a row."""
    return Tally(row.lost, row.engine, row.crash)


def lease_of(row: Row[Any], queue: str, times: Times) -> Lease:
    """Convert a row to a lease of the named queue."""
    return Lease(
        Fence(row.fence),
        JobId(row.id),
        Digest(row.lock),
        row.isolation,
        bool(row.allow_code),
        queue,
        times.lease,
        _turn_of(row),
    )


def load_job(connection: Connection, job: JobId, now: float) -> Job:
    """Load the job. Raises as ``Queue.job``."""
    row = connection.execute(select_jobs().where(jobs.c.id == job)).first()
    if row is None:
        raise UnknownNameError(f"the queue has no {job}", where=job, next_step="list its jobs")
    return job_of(row, now)


def load_machines(
    connection: Connection, moment: Moment, *, after: MachineId | None = None, limit: int | None = None
) -> list[Machine]:
    """List the machines by name, each with its leased job.

    Args:
        connection: The connection.
        moment: The time, and the queue's intervals.
        after: Only machines whose names follow this one.
        limit: The maximum number of machines.
    """
    query = (
        select(machines, leases.c.job)
        .outerjoin(lease_slots, lease_slots.c.machine == machines.c.id)
        .outerjoin(leases, leases.c.fence == lease_slots.c.fence)
        .order_by(machines.c.id)
        .limit(limit)
    )
    if after is not None:
        query = query.where(machines.c.id > after)
    rows = connection.execute(query).all()
    states = token_states(connection, {row.owner for row in rows if row.owner is not None}, moment.at)
    return [_machine_of(row, states.get(row.owner, "valid"), moment) for row in rows]


def _machine_of(row: Row[Any], state: State, moment: Moment) -> Machine:
    """Convert a row to a machine whose token has that ``state``."""
    unseen = max(0.0, moment.now - row.seen)
    return Machine(
        id=MachineId(row.id),
        boot=row.boot,
        facts=MachineFacts.read(row.facts),
        draining=row.draining,
        unseen=unseen,
        gone=unseen > moment.times.unseen or state != "valid",
        job=None if row.job is None else JobId(row.job),
        held=row.held,
        held_for=0.0 if row.held_until is None else max(0.0, row.held_until - moment.now),
        skew=row.skew,
        gone_because=None if state == "valid" else f"its token is {state}",
    )


MAX_SHOWN_MACHINES: Final = 100
"""The maximum number of machines in an explanation; those that lack least come first."""


def explain(
    connection: Connection, ids: Sequence[JobId], moment: Moment, *, with_files: bool = False
) -> list[Explanation]:
    """Explain why jobs are in their states. Raises as ``Queue.explain``.

    Args:
        connection: The connection.
        ids: The jobs.
        moment: The time, and the queue's intervals.
        with_files: Whether to compare their files with those of machines, which takes some queries for each job.
    """
    query = select_jobs().join(classes, classes.c.id == jobs.c["class"]).where(jobs.c.id.in_(ids))
    query = query.add_columns(classes.c.id.label("wanted"), classes.c.wants)
    rows = {row.id: row for row in connection.execute(query)}
    entries = [job_of(rows[id_], moment.now) if id_ in rows else load_job(connection, id_, moment.now) for id_ in ids]
    waiting = {entry.id: rows[entry.id] for entry in entries if entry.state in ("queued", "delayed")}
    if not waiting:
        return [_explain_state(entry) for entry in entries]
    by_id = {machine.id: machine for machine in load_machines(connection, moment)}
    wanted = {row.wanted for row in waiting.values()}
    fits: dict[str, list[Row[Any]]] = {}
    for fit in connection.execute(select(eligible, _WANTED).where(_WANTED.in_(wanted))):
        fits.setdefault(fit.wanted, []).append(fit)
    avoids = {(row.job, row.machine) for row in connection.execute(select(avoided).where(avoided.c.job.in_(waiting)))}
    line = load_shares(connection, moment.now)
    explanations = []
    for entry in entries:
        if (row := waiting.get(entry.id)) is None:
            explanations.append(_explain_state(entry))
            continue
        matches = _match(fits.get(row.wanted, ()), by_id, {machine for job, machine in avoids if job == entry.id})
        ready = [match for match in matches if not match.lacks and match.obstacle is None]
        able = [match.machine for match in (ready or matches) if not match.lacks]
        place = {"wanted": row.wanted, "machines": able, "since": row.since, "seq": row.seq, "owner": row.owner}
        place["priority"] = row.priority
        ahead = connection.execute(_JOBS_AHEAD, place).scalar_one()
        files = _explain_files(connection, row, ready, place) if with_files and entry.state == "queued" else ()
        share = explain_share(line, row.owner) if entry.state == "queued" else None
        sentence = _explain_waiting(entry, matches, ready, by_id, _describe_line(ahead, ready, share))
        sentence = "; ".join((sentence, *files))
        is_full = any(owner.is_full for owner in line if owner.owner == row.owner)
        wants = JobRequirements.read(row.wants)
        needs_machine = not ready and entry.state == "queued" and wants.machine is None and not is_full
        shown = tuple(matches[:MAX_SHOWN_MACHINES])
        explanations.append(Explanation(entry, not ready, sentence, shown, ahead, needs_machine, wants))
    return explanations


def _explain_state(entry: Job) -> Explanation:
    return Explanation(entry, blocked=False, sentence=_describe_state(entry))


def _match(fits: Iterable[Row[Any]], by_id: Mapping[MachineId, Machine], avoids: Collection[str]) -> list[MachineMatch]:
    """Return what each machine lacks for a job, the closest match first."""
    matches = (
        MachineMatch(machine.id, tuple(fit.lacks), _obstacle(machine, machine.id in avoids))
        for fit in fits
        if (machine := by_id.get(fit.machine)) is not None
    )
    return sorted(matches, key=lambda match: (len(match.lacks), match.obstacle is not None, match.machine))


def _obstacle(machine: Machine, avoids: bool) -> str | None:
    if machine.draining is not None:
        return f"is draining: {machine.draining}"
    if machine.gone_because is not None:
        return machine.gone_because
    if machine.gone:
        return f"its worker stopped, or has sent nothing for {machine.unseen:.0f} s"
    if machine.held_for:
        return f"is held back for another {machine.held_for:.0f} s: {machine.held}"
    return "the job failed on this machine and is left to others" if avoids else None


_WANTED: Final = eligible.c["class"].label("wanted")
_BEFORE: Final = tuple_(jobs.c.since, jobs.c.seq) < tuple_(
    bindparam("since", type_=jobs.c.since.type), bindparam("seq", type_=jobs.c.seq.type)
)
_SHARED: Final = select(eligible.c["class"]).where(
    eligible.c.machine.in_(bindparam("machines", expanding=True)), eligible.c.fits
)
_EARLIER: Final = select(jobs.c.seq).where(
    text("jobs.state = 'queued'"),
    jobs.c.owner == bindparam("owner"),
    (jobs.c["class"] == bindparam("wanted")) | jobs.c["class"].in_(_SHARED),
    _BEFORE,
)
_JOBS_AHEAD: Final = select(func.count()).select_from(_EARLIER.limit(COUNTED_AHEAD).subquery())
"""The number of queued jobs of an owner before a place that need the same machines, counted up to a limit.

Machines take the owner's oldest job that they can run, whatever it requires, so jobs with other requirements count too.
"""


def count_waiting(connection: Connection, machine: MachineId) -> int:
    """Return the number of queued jobs that a machine can run, counted up to ``COUNTED_AHEAD``."""
    fitting = select(eligible.c["class"]).where(eligible.c.machine == machine, eligible.c.fits)
    waiting = select(jobs.c.seq).where(text("jobs.state = 'queued'"), jobs.c["class"].in_(fitting))
    return connection.execute(select(func.count()).select_from(waiting.limit(COUNTED_AHEAD).subquery())).scalar_one()


_MAX_COMPARED: Final = 20
"""The maximum number of machines whose files are compared with a job."""


def _explain_files(
    connection: Connection, job: Row[Any], ready: Sequence[MachineMatch], place: Mapping[str, Any]
) -> list[str]:
    """Explain whether other jobs overtook a queued job because of their files, and what a machine would fetch for it.

    Args:
        connection: The connection.
        job: The row of the job.
        ready: The machines that can run it now.
        place: What ``count_overtaking`` needs.
    """
    names = [match.machine for match in ready[:_MAX_COMPARED]]
    caching = select(machines.c.id, machines.c.boot).where(machines.c.id.in_(names), machines.c.owner.is_not(None))
    rows, sizes = connection.execute(caching).all(), ArtifactSizes()
    missing = [(load_missing(connection, job.lock, row.id, row.boot, sizes), row.id) for row in rows]
    if not missing:
        return []
    told: list[str] = []
    if job.fence is None and job.comparison is None and (count := count_overtaking(connection, place)):
        told.append(f"{format_count(count, 'later job')} started first; machines prefer jobs whose files they have")
    least, machine = min(missing)
    if least:
        told.append(f"{machine} would fetch up to {format_bytes(least)} of its model and dataset")
    elif any(size for size, _ in missing):
        told.append(f"{machine} has its model and dataset")
    return told


def _describe_state(job: Job) -> str:
    if job.state == "leased":
        return job_state(job)
    if job.state == "done":
        return f"done, result {job.run}" if job.run else "done"
    if job.state == "cancelled":
        return f"cancelled: {job.reason}" if job.failure else "cancelled"
    if job.state == "quarantined":
        return f"quarantined: {job.tally.lost} machines were lost while they ran it{_reason(job)}"
    return f"failed ({job.failure}): {job.reason or 'see its run'}" if job.failure else "failed"


def _explain_waiting(
    job: Job, matches: list[MachineMatch], ready: list[MachineMatch], by_id: dict[MachineId, Machine], line: str
) -> str:
    if ready:
        free = [match for match in ready if by_id[match.machine].job is None]
        wait = f"{job_state(job)}{_reason(job)}" if job.due else f"queued, {line}"
        return f"{wait}; {len(ready)} of {len(by_id)} machines can run it, {len(free)} of them idle"
    if not matches:
        return "no machine can take it: none is known; start a worker on one"
    fitting = [match for match in matches if not match.lacks]
    if fitting:
        obstacles = "; ".join(f"{match.machine}: {match.obstacle}" for match in fitting[:3])
        return f"no machine can take it now: {len(fitting)} of {len(by_id)} would fit, but {obstacles}"
    nearest = matches[0]
    common_lack = Counter(reason for match in matches for reason in match.lacks).most_common(1)[0]
    common = "" if len(matches) == 1 or common_lack[0] in nearest.lacks else f" (most common reason: {common_lack[0]})"
    return (
        f"no machine can take it: 0 of {len(by_id)} fit{common}; closest match {nearest.machine}: "
        f"{'; '.join(nearest.lacks)}"
    )


def _reason(job: Job) -> str:
    return f" ({job.reason})" if job.reason else ""


def _describe_line(ahead: int, ready: Sequence[MachineMatch], share: str | None) -> str:
    """Describe the place of a job among the jobs of its owner, and that of the owner among the others."""
    where = ready[0].machine if len(ready) == 1 else "the machines that can run it"
    number = f"{COUNTED_AHEAD} or more" if ahead >= COUNTED_AHEAD else str(ahead)
    own = f"{number} {'job waits' if ahead == 1 else 'jobs wait'} before it on {where}" if ahead else None
    return "; ".join(part for part in (own, share) if part) or "no job waits before it"


def store_lines(connection: Connection, fence: int, lines: Sequence[ProgressLine]) -> None:
    """Store the lines of a valid lease that it does not have yet, and remove the lines that nobody needs any more."""
    last = connection.execute(select(func.max(progress_lines.c.number)).where(progress_lines.c.fence == fence)).scalar()
    if last is None:
        connection.execute(delete(progress_lines).where(~progress_lines.c.fence.in_(select(lease_slots.c.fence))))
    new = {line.number: line for line in lines if line.number > (last or 0)}
    if new:
        rows = [
            {
                "fence": fence,
                "number": line.number,
                "task": replace_nul(line.task),
                "done": line.done,
                "total": line.total,
            }
            for line in new.values()
        ]
        connection.execute(insert(progress_lines), rows)
        own = progress_lines.c.fence == fence
        connection.execute(delete(progress_lines).where(own, progress_lines.c.number <= max(new) - MAX_LINES))


def load_live(connection: Connection, known: Mapping[JobId, LiveJob | None]) -> dict[JobId, LiveJob]:
    """Load jobs as they are, with their ``known`` lines and those that are newer; unknown jobs are left out."""
    newest = select(func.max(progress_lines.c.number)).where(progress_lines.c.fence == jobs.c.fence).scalar_subquery()
    run = func.coalesce(job_results.c.run, leases.c.run)
    query = (
        select(jobs.c.id, jobs.c.state, jobs.c.phase, jobs.c.fence, jobs.c.cancel_asked, run.label("run"))
        .add_columns(newest.label("newest"), run.in_(HIDDEN_RUNS).label("hidden"))
        .outerjoin(leases, leases.c.fence == jobs.c.fence)
        .outerjoin(job_results, job_results.c.job == jobs.c.id)
        .where(jobs.c.id.in_(known))
    )
    found: dict[JobId, LiveJob] = {}
    for row in connection.execute(query):
        seen = "hidden" if row.hidden else row.run  # readers get the key, and they may not know the id of a hidden run
        key = f"{row.state} {row.phase} {row.fence} {bool(row.cancel_asked)} {seen}"
        job, before = LiveJob(key, row.state, row.fence or 0), known[JobId(row.id)]
        if before is not None and before.fence == job.fence and not row.hidden:
            job = replace(job, lines=before.lines)
        if (row.newest or 0) > job.last and not row.hidden:
            job = replace(job, lines=(*job.lines, *_load_lines(connection, job.fence, job.last))[-MAX_LINES:])
        found[JobId(row.id)] = job
    return found


def find_job(connection: Connection, run: RunId) -> JobId | None:
    """Return the id of the job whose lease began the run; None if it was not queued."""
    job = connection.execute(select(leases.c.job).where(leases.c.run == run)).scalar()
    return None if job is None else JobId(job)


def _load_lines(connection: Connection, fence: int, after: int) -> list[ProgressLine]:
    own = (progress_lines.c.fence == fence, progress_lines.c.number > after)
    query = select(progress_lines).where(*own).order_by(progress_lines.c.number)
    return [ProgressLine(row.number, row.task, row.done, row.total) for row in connection.execute(query)]
