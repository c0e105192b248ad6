"""Audit log: changes in their own transaction, and denials and failures, written once and then counted."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

from sqlalchemy import Connection, Engine, select

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.size_limits import AUDIT_TEXT, truncate
from benchlock.registry.auth.permissions import Actor, AuditEntry, Outcome, get_actor
from benchlock.registry.auth.token_format import mask_tokens
from benchlock.registry.database.engine import read_transaction, write_transaction
from benchlock.registry.database.ids_and_timestamps import is_id, new_id
from benchlock.registry.database.record_chain import Record, check_records, digest_record, insert_records
from benchlock.registry.database.registry_schema import actions

MAX_ENTRIES: Final = 10_000
"""Maximum number of entries that one call returns."""


def record_action(
    connection: Connection,
    action: str,
    target: str,
    at: datetime,
    actor: Actor | None = None,
    outcome: Outcome = "done",
    reason: str = "",
) -> None:
    """Record an action in the transaction that performs it, or an attempt.

    ``connection`` is in a write transaction; the other arguments are those of ``action_record``.
    """
    insert_records(connection, (action_record(action, target, at, actor, outcome, reason),))


def action_record(
    action: str,
    target: str,
    at: datetime,
    actor: Actor | None = None,
    outcome: Outcome = "done",
    reason: str = "",
) -> Record:
    """Return the record of an action.

    Args:
        action: The name of the action, such as ``version.publish``.
        target: The object of the action, with details as text.
        at: The time of the action.
        actor: Who acted; the current actor by default.
        outcome: Whether the action was done, was refused or failed.
        reason: The error message of an action that was not done.
    """
    actor = actor or get_actor()
    row = {
        "id": new_id(at),
        "at": at,
        "actor": actor.id,
        "action": truncate(mask_tokens(action), AUDIT_TEXT),
        "target": truncate(mask_tokens(target), AUDIT_TEXT),
        "request": actor.request and truncate(mask_tokens(actor.request), AUDIT_TEXT),
        "outcome": outcome,
        "reason": truncate(mask_tokens(reason), AUDIT_TEXT),
    }
    return Record(actions, row)


class AuditLog:
    """The audit log of a registry: who did what, and when."""

    def __init__(self, engine: Engine) -> None:
        """Open the audit log in the database ``engine``."""
        self._engine = engine

    def list(self, *, limit: int = 100, before: str | None = None, actor: str | None = None) -> tuple[AuditEntry, ...]:
        """Return entries, newest first.

        Args:
            limit: Maximum number of entries.
            before: The id of an entry; only older entries are returned.
            actor: An actor's id; only entries of this actor are returned.

        Raises:
            InvalidInputError: ``before`` is not an id of an entry, or ``limit`` is out of range.
        """
        if not 1 <= limit <= MAX_ENTRIES:
            raise InvalidInputError(f"the limit {limit} is not between 1 and {MAX_ENTRIES}", where="limit")
        if before is not None and not is_id(before):
            raise InvalidInputError(
                f"invalid entry id {before[:AUDIT_TEXT]!r}", where="before", next_step="write the id of an entry"
            )
        query = select(actions).order_by(actions.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(actions.c.id < before)
        if actor is not None:
            query = query.where(actions.c.actor == actor)
        with read_transaction(self._engine) as connection:
            rows = {row.id: row._asdict() for row in connection.execute(query)}
            digests = {(actions.name, id_): digest_record({actions.name: [row]}) for id_, row in rows.items()}
            check_records(connection, (actions.name,), rows, digests)
            return tuple(AuditEntry(**row) for row in rows.values())

    def find_last_times(self, actors: Iterable[str]) -> dict[str, datetime]:
        """Return the time of the newest entry of each actor that has one."""
        times = {}
        with read_transaction(self._engine) as connection:
            for actor in actors:
                newest = select(actions.c.at).where(actions.c.actor == actor).order_by(actions.c.id.desc()).limit(1)
                at = connection.execute(newest).scalar()
                if at is not None:
                    times[actor] = at
        return times


def now() -> datetime:
    """Return the current time in UTC, for callers without a clock of their own."""
    return datetime.now(UTC)


FIRST_SUMMARY: Final = timedelta(minutes=1)
"""Time from the first denial of a kind to the entry that counts the following ones."""
NEXT_SUMMARY: Final = timedelta(hours=1)
"""Time between two such entries. After this time without a denial, the next one counts as a first one again."""
MAX_KINDS: Final = 4096


@dataclass(frozen=True, slots=True)
class RepeatedDenial:
    """A denial that occurs repeatedly; ``count`` is the number of occurrences not yet in the audit log."""

    actor: Actor
    action: str
    target: str
    reason: str
    written_at: datetime
    pause: timedelta = FIRST_SUMMARY
    count: int = 0

    @property
    def summary(self) -> str:
        """The reason, with the number of occurrences since the last entry."""
        return f"{self.reason} ({self.count} more since {self.written_at:%H:%M:%S} UTC)"


class DenialCounter:
    """Thread-safe, bounded, in-memory counter of denials with the same actor, address and reason."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        """Create a counter without denials."""
        self._clock = clock
        self._kinds: OrderedDict[tuple[str, str, str], RepeatedDenial] = OrderedDict()
        self._mutex = Lock()

    def is_first(self, actor: Actor, action: str, target: str, reason: str, *, source: str = "") -> bool:
        """Count a denial; return ``False`` if one of the same kind was recorded recently.

        Args:
            actor: Who attempted the action.
            action: The name of the action.
            target: The object of the action.
            reason: The error message.
            source: The network address of the client.
        """
        at, key = self._clock(), (actor.id, source, reason)
        with self._mutex:
            previous = self._kinds.pop(key, None)
            is_first = previous is None or (not previous.count and at - previous.written_at > NEXT_SUMMARY)
            if is_first:
                self._kinds[key] = RepeatedDenial(actor, action, target, reason, at)
            elif previous is not None:
                self._kinds[key] = replace(previous, action=action, target=target, count=previous.count + 1)
            while len(self._kinds) > MAX_KINDS:
                self._kinds.popitem(last=False)
            return is_first

    def summaries(self, *, at_once: bool = False) -> tuple[RepeatedDenial, ...]:
        """Return the denials that are due for a summary, and reset their counts.

        Args:
            at_once: Return all counted denials, due or not.
        """
        at, due = self._clock(), []
        with self._mutex:
            for key, denial in list(self._kinds.items()):
                if denial.count and (at_once or at - denial.written_at >= denial.pause):
                    due.append(denial)
                    self._kinds[key] = replace(denial, written_at=at, pause=NEXT_SUMMARY, count=0)
                elif not denial.count and at - denial.written_at > NEXT_SUMMARY:
                    del self._kinds[key]
        return tuple(due)


class DenialLog:
    """Recorder of denials: at most ``MAX_ENTRIES`` entries a minute for each actor, then the number of further ones.

    An entry waits for the disk. Without a limit, a client without a token could keep the disk busy.
    """

    MAX_ENTRIES = 30

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        """Create the recorder for the database ``engine``."""
        self._engine = engine
        self._clock = clock
        self._counts: dict[str, tuple[datetime, int]] = {}
        self._suppressed: dict[str, int] = {}
        self.repeats = DenialCounter(clock)

    def note(self, actor: Actor, action: str, target: str, outcome: Outcome, reason: str) -> bool:
        """Record a denial or failure; return ``False`` if it was only counted.

        Args:
            actor: Who attempted the action.
            action: The name of the action.
            target: The object of the action.
            outcome: Whether the action was refused or failed.
            reason: The error message.
        """
        at = self._clock()
        minute = at.replace(second=0, microsecond=0)
        since, count = self._counts.get(actor.id, (minute, 0))
        count = 0 if since != minute else count
        if count >= self.MAX_ENTRIES:
            self._suppressed[actor.id] = self._suppressed.get(actor.id, 0) + 1
            return False
        self._counts[actor.id] = (minute, count + 1)
        more = self._suppressed.pop(actor.id, 0)
        text = f"{reason} ({more} earlier ones omitted)" if more else reason
        with write_transaction(self._engine) as connection:
            record_action(connection, action, target, at, actor, outcome, text)
        return True

    def summarise(self, *, at_once: bool = False) -> tuple[RepeatedDenial, ...]:
        """Record an entry for each repeated denial that is due, and return them; ``at_once`` includes all."""
        denials = self.repeats.summaries(at_once=at_once)
        if denials:
            with write_transaction(self._engine) as connection:
                for denial in denials:
                    record_action(
                        connection, denial.action, denial.target, self._clock(), denial.actor, "refused", denial.summary
                    )
        return denials
