"""Group commit: writers that wait at the same time share one transaction and one fsync."""

import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Connection, Engine

from benchlock.registry.database.engine import hold_write_turn, transaction, translate_errors, write_transaction

T = TypeVar("T")
_SAVEPOINT: Final = "one_of_several"


@dataclass(slots=True, eq=False)
class _PendingWrite(Generic[T]):
    """A change that waits for its transaction, the context of its caller, and its outcome."""

    act: Callable[[Connection], T]
    context: Context = field(default_factory=copy_context)
    done: tuple[T] | None = None
    error: Exception | None = None

    def do(self, connection: Connection) -> "tuple[T] | Exception":
        """Run the change in a savepoint and return its result or its error; an error undoes the change.

        Raises:
            sqlite3.Error: The transaction cannot continue.
        """
        execute = connection.connection.cursor().execute
        execute(f"SAVEPOINT {_SAVEPOINT}")
        outcome: tuple[T] | Exception
        try:
            with translate_errors(connection.engine):
                outcome = (self.context.run(self.act, connection),)
        except Exception as error:  # noqa: BLE001 - the caller's thread raises it
            execute(f"ROLLBACK TO {_SAVEPOINT}")
            outcome = error
        execute(f"RELEASE {_SAVEPOINT}")
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
    """Group commit: each change is applied whole or not at all, and is on the disk when ``do`` returns.

    The thread with the write turn runs the changes of all waiting threads in one transaction. A change that fails is
    undone alone, and its error goes to its own caller only.
    """

    def __init__(self, engine: Engine) -> None:
        """Create the group commit of the database ``engine``."""
        self._engine = engine
        self._own = threading.Lock()
        self._waiting: dict[_PendingWrite[Any], None] = {}

    def do(self, act: Callable[[Connection], T]) -> T:
        """Run ``act`` in a write transaction and return its result or raise its error.

        Another thread may run ``act``, in the context of the calling thread.

        Raises:
            UnavailableError: The database cannot be used, or other writers did not end in time. If others were about to
                run
                the change, it may still be committed.
        """
        if self._engine.dialect.name == "postgresql":  # writers wait for each other in the server
            with write_transaction(self._engine) as connection:
                return act(connection)
        change = _PendingWrite(act)
        with self._own:
            self._waiting[change] = None
        try:
            with hold_write_turn(self._engine):
                if not change.is_over:
                    self._write(self._collect_waiting(change))
        finally:
            with self._own:
                self._waiting.pop(change, None)
        return change.result()

    def _collect_waiting(self, change: _PendingWrite[Any]) -> list[_PendingWrite[Any]]:
        """Return this change and all waiting changes, and remove them from the waiting ones."""
        with self._own:
            self._waiting.pop(change, None)
            others = list(self._waiting)
            self._waiting.clear()
        return [change, *others]

    def _write(self, batch: list[_PendingWrite[Any]]) -> None:
        try:
            with transaction(self._engine) as connection:
                outcomes = [change.do(connection) for change in batch]
        except Exception as error:  # noqa: BLE001 - the transaction failed as a whole, for every change
            outcomes = [error] * len(batch)
        for change, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                change.error = outcome
            else:
                change.done = outcome
