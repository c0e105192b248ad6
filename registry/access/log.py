"""Who did what: a row for each change, written in its transaction; and for what was refused."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from sqlalchemy import Connection, Engine, select

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.limits import AUDIT_TEXT, truncate
from benchlock.registry.access.actors import Actor, acting
from benchlock.registry.access.secret import masked
from benchlock.registry.access.tables import actions
from benchlock.registry.catalogue.chain import check_records, digest_record, insert_record
from benchlock.registry.catalogue.database import reading
from benchlock.registry.ids import is_id, new_id

Outcome = Literal["done", "refused", "failed"]

MOST: Final = 10_000
"""Entries that are given at once."""


@dataclass(frozen=True, slots=True)
class Logged:
    """Something that was done, or refused. ``request`` is the id of the request to a server, where there was one."""

    id: str
    at: datetime
    actor: str
    action: str
    target: str
    request: str | None
    outcome: Outcome
    reason: str


def note(connection: Connection, action: str, target: str, at: datetime) -> None:
    """Write down, in the transaction that does it, what is being done; who does it is known."""
    _insert(connection, acting(), action, target, at, "done", "")


def note_refusal(
    connection: Connection, actor: Actor, action: str, target: str, at: datetime, outcome: Outcome, reason: str
) -> None:
    """Write down what was not done, and why."""
    _insert(connection, actor, action, target, at, outcome, reason)


class Log:
    """What was done in a registry, and by whom."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list(self, *, limit: int = 100, before: str | None = None, actor: str | None = None) -> tuple[Logged, ...]:
        """The newest entries, newest first: those before an entry, and of somebody, where one is given.

        Raises:
            InvalidInputError: ``before`` is the id of no entry, or ``limit`` no number that is given at once.
        """
        if not 1 <= limit <= MOST:
            raise InvalidInputError(f"limit {limit} is not between 1 and {MOST}", where="limit")
        if before is not None and not is_id(before):
            raise InvalidInputError(
                f"{before[:AUDIT_TEXT]!r} is the id of no entry", where="before", next_step="give the id of one"
            )
        query = select(actions).order_by(actions.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(actions.c.id < before)
        if actor is not None:
            query = query.where(actions.c.actor == actor)
        with reading(self._engine) as connection:
            rows = {row.id: row._asdict() for row in connection.execute(query)}
            digests = {(actions.name, id_): digest_record({actions.name: [row]}) for id_, row in rows.items()}
            check_records(connection, (actions.name,), rows, digests)
            return tuple(Logged(**row) for row in rows.values())


def _insert(
    connection: Connection, actor: Actor, action: str, target: str, at: datetime, outcome: Outcome, reason: str
) -> None:
    row = {
        "id": new_id(at),
        "at": at,
        "actor": actor.id,
        "action": truncate(masked(action), AUDIT_TEXT),
        "target": truncate(masked(target), AUDIT_TEXT),
        "request": actor.request and truncate(masked(actor.request), AUDIT_TEXT),
        "outcome": outcome,
        "reason": truncate(masked(reason), AUDIT_TEXT),
    }
    insert_record(connection, actions, row)


def now() -> datetime:
    """The time, for who has no clock of their own."""
    return datetime.now(UTC)
