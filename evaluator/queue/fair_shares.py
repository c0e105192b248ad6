"""Fair shares of machine time among the owners of jobs, and the order of jobs that follows from them.

An owner is the token that submitted a job; its jobs wait in one line. A machine that requests work gets the first job
that it can run of the owner with the least machine time for its weight (weighted fair queueing). Three rules:

* The time of ended leases is charged when they end: seconds divided by the weight. A running job counts with the mean
  of its owner's leases, with ``LEAST_ESTIMATE`` or with the time that it has run, whichever is longest, and its end
  replaces that by the time that it took. No row is written for that when a job is leased, so claims of one owner do
  not wait for one another. A lease that the machine, not the job, ended is free.
* An owner without a waiting or running job starts, with its next job, at the least time of the owners that have
  running jobs: nobody saves up time.
* A job keeps the time that its owner had when it was leased, its *start tag*, as in start-time fair queueing (P. Goyal,
  H. Vin, H. Cheng, "Start-Time Fair Queueing", 1996). Whoever waits for a turn has no less time than the least start
  tag of the running jobs, or the last one if none runs. An owner further behind than ``MAX_LAG`` waited for a machine
  that fits, and counts as ``MAX_LAG`` behind, or it would keep every other machine as well.
* The owner's jobs are sorted by the time of submission. One step of priority moves a job by ``PRIORITY_SECONDS``, so a
  job of low priority waits at most that much longer for each step, whatever is submitted after it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from msgspec import UNSET, UnsetType
from sqlalchemy import Connection, Row, func, select, text, update

from benchlock.artifacts.errors import UnknownNameError
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.queue.queue_schema import jobs, shares, usages
from benchlock.evaluator.queue.queue_types import OWN_FAULTS, LeaseEnd, Share
from benchlock.registry.auth.audit_log import record_action
from benchlock.registry.database.registry_schema import tokens

PRIORITY_SECONDS: Final = 3600.0
"""The seconds by which one step of priority moves a job in the line of its owner."""
MAX_LAG: Final = 3600.0
"""The maximum seconds, divided by the weight, by which an owner counts as behind the least start tag."""
LEAST_ESTIMATE: Final = 60.0
"""The least seconds that count for a running job: an owner cannot make its jobs look short by many tiny ones."""
HEADS: Final = (2, 8, 32, 128)
"""Lengths of the list of candidates, tried in turn: other transactions may have locked the first jobs."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A queued job that a machine may take.

    Attributes:
        seq: Its number.
        owner: Its owner.
        max_running: The quota of the owner; None without one.
        start_tag: The time of the owner.
        is_continued: Whether it is the next one of the interleaved comparison that the machine has begun.
    """

    seq: int
    owner: str
    max_running: int | None = None
    start_tag: float | None = None
    is_continued: bool = False


_NOW: Final = "CAST(:now AS double precision)"


def _owners(queued: str = "", leased: str = "") -> str:
    """Return the queries ``waiting``, the owners with queued jobs, and ``running``, those with leased jobs.

    ``waiting`` looks once into an index for each owner, however many jobs there are. The arguments name the indexes.
    """
    return f"""
WITH RECURSIVE waiting(owner) AS (
    SELECT min(jobs.owner) FROM jobs {queued} WHERE jobs.state = 'queued'
    UNION ALL
    SELECT (SELECT min(jobs.owner) FROM jobs {queued} WHERE jobs.state = 'queued' AND jobs.owner > waiting.owner)
    FROM waiting WHERE waiting.owner IS NOT NULL
), running AS (
    SELECT jobs.owner, count(*) AS number, min(jobs.start_tag) AS start_tag,
        sum({_NOW} - coalesce(jobs.leased_at, {_NOW})) AS elapsed
    FROM jobs {leased} WHERE jobs.state = 'leased' GROUP BY jobs.owner
)
"""  # noqa: S608 - constants of this module


_INDEXES: Final = ("INDEXED BY ix_jobs_queued_owner", "INDEXED BY ix_jobs_leased")
"""The planner of SQLite needs the names of the indexes; that of PostgreSQL finds them."""


def _sorted(owners: str) -> str:
    """Return the query of the shares of ``owners``, with ``rank``, by which they are sorted, and the start tag."""
    tag = "coalesce((SELECT min(running.start_tag) FROM running), (SELECT max(usages.start_tag) FROM usages))"
    floor = f"coalesce({tag} - {MAX_LAG}, 0.0)"
    mean = _greater("coalesce(usages.seconds / nullif(usages.leases, 0), 0.0)", str(LEAST_ESTIMATE))
    return f"""
SELECT share.*, share.start_tag + {_greater("share.estimated", "share.elapsed")} / share.weight AS rank FROM (
    SELECT {owners}.owner, coalesce(shares.weight, 1.0) AS weight, shares.max_running,
        coalesce(running.number, 0) AS running, coalesce(usages.seconds, 0.0) AS seconds,
        {_greater("coalesce(usages.used, 0.0)", floor)} AS start_tag,
        coalesce(running.number, 0) * {mean} AS estimated, coalesce(running.elapsed, 0.0) AS elapsed
    FROM {owners} LEFT JOIN usages ON usages.owner = {owners}.owner LEFT JOIN shares ON shares.owner = {owners}.owner
    LEFT JOIN running ON running.owner = {owners}.owner
) AS share
"""  # noqa: S608 - constants of this module


def _greater(first: str, second: str) -> str:
    """Return the expression of the greater of two; SQLite and PostgreSQL have no common function for that."""
    return f"CASE WHEN {first} > {second} THEN {first} ELSE {second} END"


def _may_run(owners: str, left_out: str = "") -> str:
    """Return the query ``open``, the classes that the machine may take and that have queued jobs, and ``sorted``.

    ``sorted`` has the owners below their quotas, in the order in which they are served.
    """
    return f"""
{owners}, line AS ({_sorted("waiting")}), open AS MATERIALIZED (
    SELECT eligible.class FROM eligible WHERE eligible.machine = :machine AND eligible.fits
    AND EXISTS (SELECT 1 FROM jobs WHERE jobs.state = 'queued' AND jobs.class = eligible.class)
), sorted AS (
    SELECT line.owner, line.max_running, line.rank, line.start_tag FROM line
    WHERE line.owner IS NOT NULL AND (line.max_running IS NULL OR line.running < line.max_running) {left_out}
    ORDER BY line.rank, line.owner LIMIT 1000000
)
"""  # noqa: S608 - constants of this module


_OWN: Final = """
    SELECT jobs.seq, jobs.since FROM jobs
    WHERE jobs.state = 'queued' AND jobs.owner = sorted.owner AND jobs.class = open.class AND NOT EXISTS (
        SELECT 1 FROM avoided WHERE avoided.job = jobs.id AND avoided.machine = :machine
    )
    ORDER BY jobs.since, jobs.seq LIMIT """


_LEFT_OUT: Final = "AND line.owner <> ALL(CAST(:left_out AS text[]))"


def _heads(count: int) -> str:
    # The count is a literal: with a parameter the server would plan the query anew each time. The rows of ``sorted``
    # are visited in their order, and no further than to the last head that is needed.
    return f"""
{_may_run(_owners(), _LEFT_OUT)} SELECT head.seq, sorted.owner, sorted.max_running, sorted.start_tag
FROM sorted CROSS JOIN LATERAL (
    SELECT own.seq, own.since FROM open CROSS JOIN LATERAL ({_OWN} {count}) AS own
    ORDER BY own.since, own.seq LIMIT {count}
) AS head LIMIT {count}
"""  # noqa: S608 - constants of this module


POSTGRESQL: Final = tuple(text(_heads(count)) for count in HEADS)
"""Select the first jobs for a machine; one statement for each length of the list."""

SQLITE: Final = text(f"""
{_may_run(_owners(*_INDEXES))} SELECT found.seq, found.owner, found.max_running, found.start_tag FROM (
    SELECT sorted.owner, sorted.max_running, sorted.start_tag, (
        SELECT head.seq FROM open CROSS JOIN jobs AS head ON head.seq = (SELECT own.seq FROM ({_OWN} 1) AS own)
        ORDER BY head.since, head.seq LIMIT 1
    ) AS seq FROM sorted LIMIT 1000000
) AS found WHERE found.seq IS NOT NULL LIMIT 1
""")  # noqa: S608 - constants of this module
"""Select the first job for a machine; one is enough, because SQLite has a single writer."""

_CONTINUED: Final = text("""
SELECT jobs.seq, jobs.owner FROM jobs WHERE jobs.state = 'queued' AND jobs.comparison = :comparison AND NOT EXISTS (
    SELECT 1 FROM avoided WHERE avoided.job = jobs.id AND avoided.machine = :machine
) AND EXISTS (
    SELECT 1 FROM eligible WHERE eligible.machine = :machine AND eligible.class = jobs.class AND eligible.fits
) ORDER BY jobs.seq LIMIT 1
""")
"""Select the next job of an interleaved comparison, which keeps its machine."""


def list_candidates(
    connection: Connection,
    machine: str,
    comparison: str | None,
    now: float,
    tried: int = 0,
    left_out: Collection[str] = (),
) -> list[Candidate]:
    """List the jobs that the machine may take, in the order in which it should, read without a lock.

    Args:
        connection: The connection.
        machine: The machine that requests work.
        comparison: The interleaved comparison of its last job, whose jobs come first; None without one.
        now: The time by the queue's clock, in seconds.
        tried: The number of shorter lists that were tried before; each list is longer than the one before.
        left_out: Owners whose quotas are reached or locked, on PostgreSQL.
    """
    if comparison is not None:
        row = connection.execute(_CONTINUED, {"machine": machine, "comparison": comparison}).first()
        if row is not None:
            return [Candidate(row.seq, row.owner, is_continued=True)]
    question, values = SQLITE, dict[str, Any](machine=machine, now=now)
    if connection.dialect.name == "postgresql":
        question, values = POSTGRESQL[tried], values | {"left_out": sorted(left_out)}
    rows = connection.execute(question, values)
    return [Candidate(row.seq, row.owner, row.max_running, row.start_tag) for row in rows]


_LOCK_SHARES: Final = """
SELECT shares.owner, shares.max_running FROM shares WHERE shares.owner = ANY(:owners) ORDER BY shares.owner FOR UPDATE
"""
_LOCKS: Final = (text(_LOCK_SHARES), text(f"{_LOCK_SHARES} SKIP LOCKED"))
_COUNT_RUNNING: Final = text(
    "SELECT jobs.owner, count(*) AS number FROM jobs WHERE jobs.state = 'leased' GROUP BY jobs.owner"
)


def keep_quotas(connection: Connection, candidates: Sequence[Candidate], tried: int) -> list[Candidate]:
    """Leave out the jobs of owners that have reached their quotas meanwhile, on PostgreSQL.

    The quotas stay locked until the transaction ends. It waits for a lock only as long as it has none, so that two
    transactions never wait for each other; later it leaves out the owners whose quota another one has locked.

    Args:
        connection: The transaction.
        candidates: The jobs.
        tried: The number of earlier calls in this transaction.
    """
    limited = {one.owner for one in candidates if one.max_running is not None}
    if not limited:
        return list(candidates)
    rows = connection.execute(_LOCKS[min(tried, 1)], {"owners": sorted(limited)})
    limits = {row.owner: row.max_running for row in rows}
    running = {row.owner: row.number for row in connection.execute(_COUNT_RUNNING)}
    free = {owner for owner, limit in limits.items() if limit is None or running.get(owner, 0) < limit}
    return [one for one in candidates if one.owner not in limited - free]


def start_owner(connection: Connection, owner: str, now: float) -> None:
    """Let an owner start where the others are, before its next job, if it has none that waits or runs.

    Args:
        connection: A ``write_transaction``.
        owner: The owner.
        now: The time by the queue's clock, in seconds.
    """
    states = ("queued", "leased", "delayed")
    own = select(jobs.c.seq).where(jobs.c.owner == owner).limit(1)
    if any(connection.execute(own.where(text(f"jobs.state = '{state}'"))).first() for state in states):
        return
    least = connection.execute(_LEAST[connection.dialect.name], {"now": now}).scalar()
    if least is None:  # nobody is served: all that was used is over
        least = connection.execute(select(func.max(usages.c.used))).scalar() or 0.0
    connection.execute(_START, {"owner": owner, "least": least})


def _least(owners: str) -> str:
    return f"""
{owners}, served AS (SELECT running.owner FROM running), line AS ({_sorted("served")}) SELECT min(line.rank) FROM line
"""  # noqa: S608 - constants of this module


_LEAST: Final = {"postgresql": text(_least(_owners())), "sqlite": text(_least(_owners(*_INDEXES)))}
_START: Final = text("""
INSERT INTO usages (owner, used, seconds, leases) VALUES (:owner, :least, 0, 0)
ON CONFLICT (owner) DO UPDATE SET used = CASE WHEN usages.used < :least THEN :least ELSE usages.used END
""")
_FREE: Final = frozenset((*OWN_FAULTS, "returned"))
"""Ends of leases that the job did not cause; its owner does not pay for them."""
_CHARGE: Final = text("""
INSERT INTO usages (owner, used, seconds, leases, start_tag) VALUES (:owner, :used, :seconds, 1, :start_tag)
ON CONFLICT (owner) DO UPDATE SET
    used = :used, seconds = usages.seconds + :seconds, leases = usages.leases + 1, start_tag = :start_tag
""")
_ACCOUNT: Final = text("""
SELECT coalesce((SELECT usages.used FROM usages WHERE usages.owner = :owner), 0.0) AS used,
    coalesce((SELECT shares.weight FROM shares WHERE shares.owner = :owner), 1.0) AS weight
""")


def charge(connection: Connection, job: Row[Any], lease_end: LeaseEnd, now: float) -> None:
    """Charge the machine time of a lease that ends to the owner of its job.

    Args:
        connection: The ``write_transaction`` that ends the lease.
        job: The row of the job with its lease, as from ``select_held``.
        lease_end: How the lease ended.
        now: The time by the queue's clock, in seconds.
    """
    if lease_end in _FREE and not (lease_end == "returned" and job.cancel_asked):
        return
    seconds, account = max(0.0, now - job.at), connection.execute(_ACCOUNT, {"owner": job.owner}).one()
    tag = account.used if job.start_tag is None else job.start_tag
    values = {"used": max(account.used, tag) + seconds / account.weight, "seconds": seconds, "start_tag": tag}
    connection.execute(_CHARGE, {"owner": job.owner, **values})


def _all(owners: str) -> str:
    return f"""
{owners}, owners AS (
    SELECT usages.owner FROM usages UNION SELECT shares.owner FROM shares UNION
    SELECT waiting.owner FROM waiting WHERE waiting.owner IS NOT NULL
), line AS ({_sorted("owners")})
SELECT line.*, EXISTS (SELECT 1 FROM waiting WHERE waiting.owner = line.owner) AS is_waiting
FROM line ORDER BY line.rank, line.owner
"""  # noqa: S608 - constants of this module


_SHARES: Final = {"postgresql": text(_all(_owners())), "sqlite": text(_all(_owners(*_INDEXES)))}


def load_shares(connection: Connection, now: float) -> list[Share]:
    """Load the shares of all owners at the time ``now``, in the order in which machines serve them."""
    return [
        Share(
            owner=row.owner,
            weight=row.weight,
            max_running=row.max_running,
            running=row.running,
            is_waiting=bool(row.is_waiting),
            seconds=row.seconds,
            used=row.rank,
        )
        for row in connection.execute(_SHARES[connection.dialect.name], {"now": now})
    ]


def has_quota(connection: Connection, owner: str) -> bool:
    """Return whether the number of running jobs of an owner is limited."""
    return connection.execute(select(shares.c.max_running).where(shares.c.owner == owner)).scalar() is not None


def set_share(
    connection: Connection,
    owner: str,
    weight: float | UnsetType,
    max_running: int | UnsetType | None,
    at: datetime,
) -> None:
    """Set the weight or the quota of an owner or both, and record it in the audit log.

    Args:
        connection: A ``write_transaction``.
        owner: A token, or another owner that has submitted jobs.
        weight: Its part of the machine time, relative to the weights of the other owners; it holds from now on.
        max_running: The maximum number of its running jobs; None without a limit.
        at: The calendar time.

    Raises:
        UnknownNameError: There is no such owner.
    """
    known = (select(tokens.c.id).where(tokens.c.id == owner), select(usages.c.owner).where(usages.c.owner == owner))
    if all(connection.execute(query).first() is None for query in known):
        raise UnknownNameError(
            f"the queue has no owner {owner}", where=owner, next_step="use the id of a token, or an owner of `shares`"
        )
    connection.execute(_ADD, {"owner": owner})
    changes = {"weight": weight, "max_running": max_running}
    changed = update(shares).where(shares.c.owner == owner)
    values = {name: value for name, value in changes.items() if value is not UNSET}
    if values:
        connection.execute(changed.values(values))
    row = connection.execute(select(shares).where(shares.c.owner == owner)).one()
    quota = "no quota" if row.max_running is None else f"at most {format_count(row.max_running, 'running job')}"
    record_action(connection, "share.set", f"{owner}: weight {row.weight:g}, {quota}", at)


_ADD: Final = text("INSERT INTO shares (owner, weight) VALUES (:owner, 1.0) ON CONFLICT (owner) DO NOTHING")


def explain_share(line: Sequence[Share], owner: str) -> str | None:
    """Explain why machines serve other owners first; None if they do not.

    Args:
        line: The shares of all owners in their order.
        owner: The owner of a waiting job.
    """
    own = next(share for share in line if share.owner == owner)
    if own.is_full:
        return f"its owner has {own.running} of at most {format_count(own.max_running or 0, 'running job')}"
    waiting = [share.owner for share in line if share.is_waiting and not share.is_full]
    before = waiting.index(owner)
    if not before:
        return None
    weight = "" if own.weight == 1 else f" (its owner: weight {own.weight:g})"
    return f"{before} of {len(waiting)} owners with queued jobs used less machine time and come first{weight}"
