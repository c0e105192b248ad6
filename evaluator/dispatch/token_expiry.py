"""Revoked and expired tokens in the queue: the leases of their workers end, and their jobs are cancelled."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, exists, select, text, update

from benchlock.evaluator.dispatch.ending import AT_ONCE, end_lease
from benchlock.evaluator.dispatch.owners import token_states
from benchlock.evaluator.dispatch.rows import select_held
from benchlock.evaluator.dispatch.tables import jobs, lease_slots, leases
from benchlock.evaluator.dispatch.times import Moment
from benchlock.registry.access.log import note
from benchlock.registry.access.tables import token_revocations, tokens
from benchlock.registry.access.tokens import State, expiry

FAILURES: Final[Mapping[State, str]] = {"revoked": "token-revoked", "expired": "token-expired"}
"""The failure of a job whose token ended before the job did."""


def find_ended_tokens(connection: Connection, at: datetime) -> dict[str, State]:
    """Find the revoked and expired tokens that still have a waiting or running job, or a lease."""
    held = select(leases.c.owner).join(lease_slots, lease_slots.c.fence == leases.c.fence)
    waiting = [select(jobs.c.owner).where(text(f"jobs.state = '{state}'")) for state in ("leased", "delayed")]
    owners = {owner for query in (held, *waiting) for owner in connection.execute(query.distinct()).scalars()}
    queued = exists().where(text("jobs.state = 'queued'"), jobs.c.owner == tokens.c.id)
    revoked = exists().where(token_revocations.c.token == tokens.c.id)
    ended = select(tokens.c.id).where((expiry() <= at) | revoked, queued)
    owners |= set(connection.execute(ended).scalars())
    states = token_states(connection, owners, at)
    return {token: state for token, state in states.items() if state != "valid"}


def cancel_token_work(connection: Connection, moment: Moment) -> bool:
    """Cancel the waiting jobs of ended tokens, and end the leases of their workers, a few at a time.

    A running job continues if its token expired. If its token was revoked, its worker is asked to stop it.

    Returns:
        Whether there may be more to do.
    """
    ended, more = find_ended_tokens(connection, moment.at), False
    for token, state in ended.items():
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
        note(connection, "job.cancel", f"{count} of {token}, which is {state}", at)
