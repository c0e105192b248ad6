"""Whose a machine is: the token's that enrolled it first, for as long as that token is of use."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, func, select

from benchlock.artifacts.errors import RefusedError
from benchlock.evaluator.dispatch.queue import MachineId
from benchlock.evaluator.dispatch.tables import machines
from benchlock.registry.access.actors import acting
from benchlock.registry.access.tables import token_revocations, tokens
from benchlock.registry.access.tokens import State, expiry

MOST_OWNED: Final = 1000
"""So many machines may a token enrol that is no administrator's."""


_AT_ONCE: Final = 500
"""Tokens that are looked up in one statement."""


def check_own(owner: str | None, machine: MachineId) -> None:
    """Nothing, where whoever acts may speak for the machine.

    Raises:
        ForbiddenError: it is another's.
    """
    if owner is not None:
        acting().require_own(owner, machine)


def owner_of(connection: Connection, machine: MachineId, before: str | None, at: datetime) -> str | None:
    """Whose the machine is once whoever acts has enrolled it; ``before`` is whose it was.

    An administrator who speaks for it leaves it whose it is. Nobody owns what was enrolled without a token: in the
    registry's folder, or at a server that asks nobody for one.

    Raises:
        ForbiddenError: it is another's.
        RefusedError: whoever acts has as many as they may.
    """
    actor = acting()
    if before == actor.id and _is_token(before):
        return before
    if before is not None and token_states(connection, [before], at).get(before) == "valid":
        check_own(before, machine)
        return before
    if not _is_token(actor.id):
        return None
    mine = select(func.count()).select_from(machines).where(machines.c.owner == actor.id)
    if not actor.scopes.allow("admin") and connection.execute(mine).scalar_one() >= MOST_OWNED:
        raise RefusedError(
            f"{actor.id} has enrolled {MOST_OWNED} machines already",
            where=machine,
            next_step="use another token, or names that it has enrolled",
        )
    return actor.id


def token_states(connection: Connection, owners: Iterable[str], at: datetime) -> dict[str, State]:
    """Return the states of those ``owners`` that are tokens of this registry, at a time."""
    wanted = sorted(filter(_is_token, owners))
    joined = tokens.outerjoin(token_revocations, token_revocations.c.token == tokens.c.id)
    query = select(tokens.c.id, expiry().label("ends_at"), token_revocations.c.at.label("revoked_at"))
    states: dict[str, State] = {}
    for first in range(0, len(wanted), _AT_ONCE):
        rows = connection.execute(query.select_from(joined).where(tokens.c.id.in_(wanted[first : first + _AT_ONCE])))
        for row in rows:
            states[row.id] = "revoked" if row.revoked_at else "expired" if row.ends_at <= at else "valid"
    return states


def _is_token(owner: str) -> bool:
    """Not so is whoever opened the registry's folder, and everybody at a server that asks nobody for a token."""
    return owner.startswith("token/")
