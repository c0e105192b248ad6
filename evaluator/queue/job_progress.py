"""The progress of leased jobs in the database.

The lines of a lease stay until another lease reports after its end, so a page that was cut off at the end still gets
the last ones.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from sqlalchemy import Connection, delete, func, insert, select

from benchlock.evaluator.queue.queue_schema import job_results, jobs, lease_slots, leases, progress_lines
from benchlock.evaluator.queue.queue_types import MAX_LINES, JobId, LiveJob, ProgressLine
from benchlock.evaluator.records.run_types import RunId, replace_nul
from benchlock.evaluator.records.runs_schema import HIDDEN_RUNS


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
