"""Whose a machine is: the token's that enrolled it first, for as long as that token is of use."""

from datetime import datetime
from typing import Final

from sqlalchemy import Connection, func, select

from artifacts.errors import RefusedError
from evaluator.dispatch.queue import MachineId
from evaluator.dispatch.tables import machines
from registry.access.actors import acting
from registry.access.tables import token_revocations, tokens

MOST_OWNED: Final = 1000
"""So many machines may a token enrol that is no administrator's."""


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
    if before is not None and _is_of_use(connection, before, at):
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


def _is_of_use(connection: Connection, owner: str, at: datetime) -> bool:
    """Whether that is a token with which somebody is let in still."""
    revoked = select(token_revocations.c.token).where(token_revocations.c.token == tokens.c.id).exists()
    valid = select(tokens.c.id).where(tokens.c.id == owner, tokens.c.expires_at > at, ~revoked)
    return connection.execute(valid).first() is not None


def _is_token(owner: str) -> bool:
    """Not so is whoever opened the registry's folder, and everybody at a server that asks nobody for a token."""
    return owner.startswith("token/")
