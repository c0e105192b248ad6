"""Group commit: writers that wait at the same time share one transaction and one fsync."""

import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Connection, Engine

from benchlock.registry.database.engine import hold_write_turn, transaction, translate_errors, write_transaction

T = TypeVar("T")
_ONE: Final = "one_of_several"


@dataclass(slots=True, eq=False)
class _PendingWrite(Generic[T]):
    """One change, who asks for it, and how it ended."""

    act: Callable[[Connection], T]
    context: Context = field(default_factory=copy_context)
    done: tuple[T] | None = None
    error: Exception | None = None

    def do(self, connection: Connection) -> "tuple[T] | Exception":
        """What it came to; where it failed, nothing of it is left in the transaction.

        Raises:
            sqlite3.Error: the transaction cannot go on.
        """
        put = connection.connection.cursor().execute
        put(f"SAVEPOINT {_ONE}")
        outcome: tuple[T] | Exception
        try:
            with translate_errors(connection.engine):
                outcome = (self.context.run(self.act, connection),)
        except Exception as error:  # noqa: BLE001 - whoever asked raises it
            put(f"ROLLBACK TO {_ONE}")
            outcome = error
        put(f"RELEASE {_ONE}")
        return outcome

    @property
    def is_over(self) -> bool:
        return self.done is not None or self.error is not None

    def result(self) -> T:
        if self.done is None:
            assert self.error is not None
            raise self.error
        return self.done[0]


class GroupCommit:
    """Writes what is asked of it, each change whole or not at all, and on the disk when ``do`` returns.

    Whoever has the turn to write does so for all who wait for it by then, in one transaction. Where one of them fails,
    that one alone is undone: nobody hears of another's error.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._own = threading.Lock()
        self._waiting: dict[_PendingWrite[Any], None] = {}

    def do(self, act: Callable[[Connection], T]) -> T:
        """What ``act`` returns or raises, in a transaction that writes.

        Another thread may call it, in the context of this one.

        Raises:
            UnavailableError: as ``writing``. It may be written all the same, where others were about to.
        """
        if self._engine.dialect.name == "postgresql":  # where writers wait for each other in the server
            with write_transaction(self._engine) as connection:
                return act(connection)
        asked = _PendingWrite(act)
        with self._own:
            self._waiting[asked] = None
        try:
            with hold_write_turn(self._engine):
                if not asked.is_over:
                    self._write(self._with_others(asked))
        finally:
            with self._own:
                self._waiting.pop(asked, None)
        return asked.result()

    def _with_others(self, asked: _PendingWrite[Any]) -> list[_PendingWrite[Any]]:
        """It and those that wait, which wait no longer."""
        with self._own:
            self._waiting.pop(asked, None)
            others = list(self._waiting)
            self._waiting.clear()
        return [asked, *others]

    def _write(self, batch: list[_PendingWrite[Any]]) -> None:
        try:
            with transaction(self._engine) as connection:
                outcomes = [one.do(connection) for one in batch]
        except Exception as error:  # noqa: BLE001 - nothing could begin or be kept, whosever it was
            outcomes = [error] * len(batch)
        for one, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                one.error = outcome
            else:
                one.done = outcome
