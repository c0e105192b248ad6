"""Leases of jobs: claim, end, expiry, and revocation with their token.

How a machine claims a job::

    machines          classes            queued jobs by owner and class
    +-----------+     +-------------+    +---------------------------+
    | m1        |--+->| class A fits|--->| owner 1, A: seq 4, 7, 9 ..|--+
    | (row      |  |  +-------------+    +---------------------------+  |  oldest first     leases       lease_slots
    |  locked)  |  +->| class B fits|--->| owner 1, B: seq 5, 6 ...  |--+->[4, 5, 6]-----+->[fence 81]-->[m1, slot 0]
    +-----------+  |  +-------------+    +---------------------------+                   |
                   +--| class C     |    | owner 2, A: seq 1, 2 ...  |   the first job that no other
                      |   does not  |    +---------------------------+   transaction has locked: 5
                      +-------------+

1. ``GLANCE`` reads whether the machine has a lease and whether any lease or wait is over. It takes no lock. The
   candidates are listed as in step 3; where there is none and the machine was seen lately, the claim ends here.
2. ``MARK_SEEN`` updates the row of the machine and so locks it: no other transaction can give it a job.
3. ``list_candidates`` (``fair_shares.py``) sorts the owners of queued jobs and reads, for the first owner and each
   class that the machine may take, the oldest jobs through an index that holds queued jobs alone, leaves out the jobs
   in ``avoided``, and merges the classes by ``(since, seq)``. The next owner is read only if these are too few.
4. If a token enrolled the machine, ``sort_by_held`` (``file_locality.py``) puts the first jobs of the class of the
   first candidate before it, sorted by the bytes of their files that the machine has, within limits.
5. ``GIVE`` (PostgreSQL) does the rest in one statement: it locks the first candidate that is still queued and
   that no other transaction has locked (``SKIP LOCKED``), inserts its lease, whose number is the fence, inserts
   the slot of the machine, whose key refuses a second lease, and marks the job as leased. Before it,
   ``keep_quotas`` locks the quotas of the owners that have one.
6. If other transactions took every job of a full list, steps 3 to 5 repeat with a longer list (``HEADS``).

On SQLite there is a single writer, so no row needs a lock: step 3 lists one job, and the statements ``LEASE``,
``SLOT`` and ``TAKE`` replace step 5.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, cast, get_args

from sqlalchemy import JSON, Connection, Row, delete, exists, select, text, update
from sqlalchemy.exc import OperationalError

from benchlock.artifacts.size_limits import REASON, truncate
from benchlock.evaluator.queue.fair_shares import (
    HEADS,
    Candidate,
    charge,
    has_quota,
    keep_quotas,
    list_candidates,
)
from benchlock.evaluator.queue.file_locality import ArtifactSizes, sort_by_held
from benchlock.evaluator.queue.job_status import select_held, tally_of
from benchlock.evaluator.queue.lease_times import Moment
from benchlock.evaluator.queue.queue_schema import avoided, eligible, job_results, jobs, lease_slots, leases, machines
from benchlock.evaluator.queue.queue_types import (
    INCOMPLETE,
    OWN_FAULTS,
    LeaseEnd,
    MachineId,
    NextState,
    decide_next_state,
)
from benchlock.evaluator.queue.worker_machines import count_fault, discount_job, is_free_probe, token_states
from benchlock.evaluator.records.run_store import record_end
from benchlock.evaluator.records.run_types import RunEnd, RunId
from benchlock.evaluator.runner.run_outcome import FailureClass
from benchlock.registry.auth.audit_log import record_action
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.auth.token_format import State
from benchlock.registry.auth.tokens import expiry
from benchlock.registry.database.commit_signals import JOBS, send_signal
from benchlock.registry.database.record_chain import Record
from benchlock.registry.database.registry_schema import token_revocations, tokens

_DUE = """
    EXISTS (SELECT 1 FROM jobs WHERE jobs.state = 'leased' AND jobs.lease_until < :now)
    OR EXISTS (SELECT 1 FROM jobs WHERE jobs.state = 'delayed' AND jobs.not_before <= :now)
"""
DUE = text(f"SELECT {_DUE}")
"""Select whether any lease has expired or any delay is over."""

GLANCE = text(f"""
SELECT
    (SELECT machines.seen FROM machines WHERE machines.id = :machine) AS seen,
    (SELECT machines.owner FROM machines WHERE machines.id = :machine) AS owner,
    (SELECT machines.comparison FROM machines WHERE machines.id = :machine) AS comparison,
    EXISTS (SELECT 1 FROM lease_slots WHERE lease_slots.machine = :machine) AS busy,
    EXISTS (
        SELECT 1 FROM lease_slots JOIN leases ON leases.fence = lease_slots.fence
        WHERE lease_slots.machine = :machine AND leases.nonce = :nonce
    ) AS asked,
    {_DUE} AS due
""")  # noqa: S608 - constants of this module
"""Select the state that decides a claim before anything is written."""

MARK_SEEN = text(
    "UPDATE machines SET seen = :now WHERE id = :machine RETURNING draining, owner, held_until, comparison"
)
"""Mark the machine as seen. This locks its row until the transaction ends, so no other one can give it a job."""

IS_QUEUED = text("SELECT 1 FROM jobs WHERE seq = :seq AND state = 'queued'")

BUSY = text("SELECT fence FROM lease_slots WHERE machine = :machine")

_LEASE = """
INSERT INTO leases (job, machine, boot, owner, nonce, at)
SELECT {job}.id, :machine, :boot, :owner, :nonce, :now FROM {job} {where} RETURNING fence
"""
_SLOT = "INSERT INTO lease_slots (machine, slot, fence)"
_TAKE = """
UPDATE jobs SET state = 'leased', phase = 'preparing', fence = {fence}, lease_until = :until, leased_at = :now,
    start_tag = {start_tag}
"""
_TAKEN = """
RETURNING jobs.id, jobs.lock, jobs.isolation, jobs.allow_code, jobs.fence, jobs.owner, jobs.part_of, jobs.comparison
"""

LEASE = text(_LEASE.format(job="jobs", where="WHERE jobs.seq = :seq"))
"""Insert a lease on a job; its number is the fence."""

SLOT = text(f"{_SLOT} VALUES (:machine, 0, :fence)")
"""Occupy the only slot of a machine: it runs one job at a time, whether or not the job is timed."""

TAKE = text(f"{_TAKE.format(fence=':fence', start_tag=':start_tag')} WHERE seq = :seq {_TAKEN}").columns(part_of=JSON)

_OWN_TAG = """
(CAST(:start_tags AS double precision[]))[array_position(CAST(:candidates AS bigint[]), jobs.seq)]
"""

GIVE = text(f"""
WITH free AS (
    SELECT jobs.seq, jobs.id FROM jobs WHERE jobs.seq = ANY(:candidates) AND jobs.state = 'queued'
    ORDER BY array_position(CAST(:candidates AS bigint[]), jobs.seq) LIMIT 1 FOR UPDATE SKIP LOCKED
), lease AS ({_LEASE.format(job="free", where="")}
), slot AS ({_SLOT} SELECT :machine, 0, lease.fence FROM lease)
{_TAKE.format(fence="lease.fence", start_tag=_OWN_TAG)} FROM free, lease WHERE jobs.seq = free.seq {_TAKEN}
""").columns(part_of=JSON)  # noqa: S608 - constants of this module
"""Lease the first job that no other transaction has locked, in one statement (step 5 above)."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A machine's request for work at the time ``now``; the same ``nonce`` again is the same request.

    ``comparison`` is the interleaved comparison of the machine's last job; None without one. ``sizes`` are those of
    models and datasets; None if no token enrolled the machine, so that it takes the jobs in their order.
    """

    machine: MachineId
    boot: str
    nonce: str | None
    now: float
    comparison: str | None
    sizes: ArtifactSizes | None = None


def claim(
    connection: Connection, request: ClaimRequest, candidates: Sequence[Candidate], lease: float
) -> Row[Any] | None:
    """Lease a job to a machine for ``lease`` seconds; return None if there is no job for it.

    Args:
        connection: The transaction, which holds the lock on the machine's row.
        request: The request for work.
        candidates: The result of ``list_candidates`` a moment ago.
        lease: The length of the lease in seconds.

    Returns:
        The row of the job, with the columns that ``lease_of`` needs.
    """
    values = {
        "machine": request.machine,
        "boot": request.boot,
        "nonce": request.nonce,
        "now": request.now,
        "owner": get_actor().id,
        "until": request.now + lease,
    }
    is_server = connection.dialect.name == "postgresql"
    give = _claim_among if is_server else _claim_alone
    row = give(connection, request, candidates, values)
    if row is not None and row.comparison != request.comparison:
        changed = update(machines).where(machines.c.id == request.machine).values(comparison=row.comparison)
        connection.execute(changed)
    return row


def _claim_among(
    connection: Connection, request: ClaimRequest, candidates: Sequence[Candidate], values: Mapping[str, Any]
) -> Row[Any] | None:
    """Lease the first candidate that no other transaction takes, on PostgreSQL."""
    left_out: set[str] = set()
    for tried, length in enumerate(HEADS):
        if tried or not candidates:
            # A comparison comes first in the first list alone: if another transaction has its job, others follow.
            comparison = None if tried else request.comparison
            candidates = list_candidates(connection, request.machine, comparison, request.now, tried, left_out)
        # Of the first list, the quota of one owner is locked alone: usually it has a job that nobody has locked.
        chosen = candidates if tried else [one for one in candidates if one.owner == candidates[0].owner]
        kept = keep_quotas(connection, chosen, tried)
        left_out |= {one.owner for one in chosen} - {one.owner for one in kept}
        order = _sort_by_files(connection, request, kept)
        listed = {"candidates": [one.seq for one in order], "start_tags": [one.start_tag for one in order]}
        row = connection.execute(GIVE, {**values, **listed}).first() if kept else None
        is_whole = len(chosen) == len(candidates) < length and not any(one.is_continued for one in candidates)
        if row is not None or is_whole:
            return row
    return None


def _sort_by_files(
    connection: Connection, request: ClaimRequest, candidates: Sequence[Candidate]
) -> Sequence[Candidate]:
    """Put the jobs before the candidates that the machine takes for its files; they are of the first owner."""
    if request.sizes is None or not candidates or candidates[0].is_continued:
        return candidates
    first = candidates[0]
    order = sort_by_held(connection, request.machine, request.boot, first.owner, first.seq, request.sizes)
    return [*(replace(first, seq=number) for number in order), *(one for one in candidates if one.seq not in order)]


def _claim_alone(
    connection: Connection, request: ClaimRequest, candidates: Sequence[Candidate], values: Mapping[str, Any]
) -> Row[Any] | None:
    """Lease the first job on SQLite, where the single writer needs no row locks.

    A candidate without a quota that is still queued is as good as a new one.
    """
    first = next(iter(candidates), None)
    if first is None or first.max_running is not None or not connection.scalar(IS_QUEUED, {"seq": first.seq}):
        listed = list_candidates(connection, request.machine, request.comparison, request.now)
        first = next(iter(listed), None)
    if first is None:
        return None
    first = _sort_by_files(connection, request, [first])[0]
    fence = connection.execute(LEASE, {**values, "seq": first.seq}).scalar_one()
    connection.execute(SLOT, {**values, "fence": fence})
    return connection.execute(TAKE, {**values, "seq": first.seq, "fence": fence, "start_tag": first.start_tag}).one()


AT_ONCE: Final = 16
"""The maximum number of leases that end, or of jobs that are queued again, in one transaction."""
_log = logging.getLogger("benchlock")


def classify_lease_end(end: RunEnd) -> LeaseEnd:
    """Return how a lease ended, according to the end of its run."""
    if end.outcome == "done":
        return "done"
    if end.outcome == "failed":
        return cast("LeaseEnd", end.failure_class if end.failure_class in get_args(FailureClass) else "crash")
    return "cancelled"


def end_lease(
    connection: Connection,
    job: Row[Any],
    lease_end: LeaseEnd,
    reason: str | None,
    moment: Moment,
    end: RunEnd | None = None,
) -> None:
    """End the lease of a leased job, and move the job to its next state.

    Args:
        connection: The transaction; it holds the lock on the job's row.
        job: The row of the job with its lease, as from ``select_held``.
        lease_end: How the lease ended.
        reason: The message of the end, for people.
        moment: The time, and the queue's intervals.
        end: The end of the lease's run; without one, a run that has begun is recorded as abandoned.
    """
    reason = None if reason is None else truncate(reason, REASON)
    probe = is_free_probe(connection, job, lease_end)
    following = decide_next_state(lease_end, tally_of(job), cancel_asked=job.cancel_asked, is_probe=probe)
    result = Record(job_results, {"job": job.id, "run": job.run, "fence": job.fence})
    is_result = end is not None and following.state in ("done", "failed")
    if job.run is not None:
        recorded = end or RunEnd(outcome="abandoned", ended_at=moment.at)
        record_end(connection, RunId(job.run), recorded, *([result] if is_result else []))
    connection.execute(delete(lease_slots).where(lease_slots.c.fence == job.fence))
    connection.execute(update(leases).where(leases.c.fence == job.fence).values(ended=lease_end, reason=reason))
    connection.execute(update(jobs).where(jobs.c.seq == job.seq).values(_changes(following, reason, moment)))
    if following.state == "queued" or has_quota(connection, job.owner):
        send_signal(connection, JOBS)
    if job.comparison is not None and following.state in INCOMPLETE:
        _cancel_comparison(connection, job)
    if following.elsewhere:
        _avoid(connection, job, moment)
    charge(connection, job, lease_end, moment.now)
    count_fault(connection, job, lease_end, reason, moment)
    if lease_end in OWN_FAULTS and following.state in ("failed", "quarantined"):
        discount_job(connection, job)


def expire(connection: Connection, moment: Moment) -> int:
    """End expired leases, at most ``AT_ONCE`` of them, and return how many had expired.

    A lease that cannot be ended does not block the others: the error is logged, and the lease is tried again after the
    length of a lease.
    """
    query = (
        select_held()
        .where(text("jobs.state = 'leased'"), jobs.c.lease_until < moment.now)
        .order_by(jobs.c.lease_until)
        .limit(AT_ONCE)
    )
    expired = connection.execute(query.with_for_update(of=jobs, skip_locked=True)).all()
    for job in expired:
        heard = moment.now - job.lease_until + moment.times.lease
        reason = f"no heartbeat from {job.machine} for {heard:.0f} s"
        try:
            with connection.begin_nested():
                end_lease(connection, job, "lost", reason, moment)
        except OperationalError:  # the database failed, not this lease
            raise
        except Exception:  # noqa: BLE001 - any error of one lease must not keep the others open
            _log.exception("lease %s cannot be ended", job.fence)
            later = moment.now + moment.times.lease
            connection.execute(update(jobs).where(jobs.c.seq == job.seq).values(lease_until=later))
    return len(expired)


def wake(connection: Connection, now: float) -> int:
    """Queue delayed jobs whose delay is over, at most ``AT_ONCE`` of them, and return their number."""
    due = select(jobs.c.seq).where(text("jobs.state = 'delayed'"), jobs.c.not_before <= now).order_by(jobs.c.not_before)
    numbers = connection.execute(due.limit(AT_ONCE).with_for_update(skip_locked=True)).scalars().all()
    if numbers:
        changes = update(jobs).where(jobs.c.seq.in_(numbers)).values(state="queued", not_before=None)
        connection.execute(changes)
        send_signal(connection, JOBS)
    return len(numbers)


def _changes(following: NextState, reason: str | None, moment: Moment) -> dict[str, Any]:
    return {
        "state": following.state,
        "phase": None,
        "lease_until": None,
        "not_before": moment.now + following.delay * moment.times.wait if following.state == "delayed" else None,
        "lost": following.tally.lost,
        "engine": following.tally.engine,
        "crash": following.tally.crash,
        "failure": following.failure,
        "reason": None if following.state == "done" else reason,
    }


def _cancel_comparison(connection: Connection, job: Row[Any]) -> None:
    """Cancel the waiting jobs of a comparison in which ``job`` ended without a result: no run would count."""
    waiting = jobs.c.state.in_(("queued", "delayed"))
    values = {
        "state": "cancelled",
        "not_before": None,
        "failure": "comparison",
        "reason": f"{job.id} of the same comparison has no result",
    }
    connection.execute(update(jobs).where(jobs.c.comparison == job.comparison, waiting).values(values))


def _avoid(connection: Connection, job: Row[Any], moment: Moment) -> None:
    """Keep the job away from the machine if another live machine could take it."""
    failed = exists().where(avoided.c.job == job.id, avoided.c.machine == machines.c.id)
    other = (
        select(machines.c.id)
        .join(eligible, (eligible.c.machine == machines.c.id) & eligible.c.fits)
        .where(
            eligible.c["class"] == job._mapping["class"],  # noqa: SLF001 - SQLAlchemy's public name for it
            machines.c.id != job.machine,
            machines.c.draining.is_(None),
            machines.c.held.is_(None),
            machines.c.seen >= moment.now - moment.times.unseen,
            ~failed,
        )
    )
    if connection.execute(other.limit(1)).first() is not None:
        values = {"job": job.id, "machine": job.machine}
        connection.execute(
            text("INSERT INTO avoided (job, machine) VALUES (:job, :machine) ON CONFLICT DO NOTHING"), values
        )


FAILURES: Final[Mapping[State, str]] = {"revoked": "token-revoked", "expired": "token-expired"}
"""The failure of a job whose token was revoked or expired before the job ended."""


def find_ended_tokens(connection: Connection, at: datetime) -> dict[str, State]:
    """Find the revoked and expired tokens that still have a waiting or running job, or a lease."""
    leased = select(leases.c.owner).join(lease_slots, lease_slots.c.fence == leases.c.fence)
    waiting = [select(jobs.c.owner).where(text(f"jobs.state = '{state}'")) for state in ("leased", "delayed")]
    owners = {owner for query in (leased, *waiting) for owner in connection.execute(query.distinct()).scalars()}
    queued = exists().where(text("jobs.state = 'queued'"), jobs.c.owner == tokens.c.id)
    revoked = exists().where(token_revocations.c.token == tokens.c.id)
    ended_tokens = select(tokens.c.id).where((expiry() <= at) | revoked, queued)
    owners |= set(connection.execute(ended_tokens).scalars())
    states = token_states(connection, owners, at)
    return {token: state for token, state in states.items() if state != "valid"}


def cancel_token_work(connection: Connection, moment: Moment) -> bool:
    """Cancel the waiting jobs of ended tokens, and end the leases of their workers, a few at a time.

    A running job continues if its token expired. If its token was revoked, its worker is asked to stop it.

    Returns:
        Whether there may be more to do.
    """
    ended_tokens, more = find_ended_tokens(connection, moment.at), False
    for token, state in ended_tokens.items():
        rows = connection.execute(select_held().where(leases.c.owner == token).limit(AT_ONCE)).all()
        for lease in rows:
            end_lease(connection, lease, "returned", f"the token of its worker is {state}", moment)
        more = more or len(rows) == AT_ONCE
        _cancel_jobs(connection, token, state, moment.at)
    return more


def _cancel_jobs(connection: Connection, token: str, state: State, at: datetime) -> None:
    values = {
        "state": "cancelled",
        "not_before": None,
        "failure": FAILURES[state],
        "reason": f"the token that submitted it is {state}",
    }
    of_token = update(jobs).where(jobs.c.owner == token)
    count = sum(
        connection.execute(of_token.where(text(f"jobs.state = '{waiting}'")).values(values)).rowcount
        for waiting in ("queued", "delayed")
    )
    if state == "revoked":
        running = of_token.where(text("jobs.state = 'leased'"), jobs.c.cancel_asked.is_(False))
        count += connection.execute(running.values(cancel_asked=True)).rowcount
    if count:
        record_action(connection, "job.cancel", f"{count} of {token}, which is {state}", at)
