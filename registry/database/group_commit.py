"""Group commit: writers that wait at the same time share one transaction and one fsync."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine

from benchlock.registry.database.engine import transaction, translate_errors, write_transaction
from benchlock.registry.database.sqlite import hold_thread_turn

T = TypeVar("T")
_SAVEPOINT: Final = "one_of_several"
_Changes = dict[Future[Any], Callable[[Connection], Any]]
"""Changes by the future of their results."""


class GroupCommit:
    """Group commit: each change is applied whole or not at all, and is on the disk when ``do`` returns.

    The thread with the write turn runs the changes of all waiting threads in one transaction. A change that fails is
    undone alone, and its error goes to its own caller only.
    """

    def __init__(self, engine: Engine) -> None:
        """Create the group commit of the database ``engine``."""
        self._engine = engine
        self._own = threading.Lock()
        self._waiting: _Changes = {}

    def do(self, act: Callable[[Connection], T]) -> T:
        """Run ``act`` in a write transaction and return its result or raise its error.

        Another thread may run ``act``, in the context of the calling thread.

        Raises:
            UnavailableError: The database cannot be used, or other writers did not end in time. If others were about to
                run the change, it may still be committed.
        """
        if self._engine.dialect.name == "postgresql":  # writers wait for each other in the server
            with write_transaction(self._engine) as connection:
                return act(connection)
        result, context = Future[T](), copy_context()
        change = {result: lambda connection: context.run(act, connection)}
        with self._own:
            self._waiting |= change
        try:
            with hold_thread_turn(self._engine):
                if not result.done():
                    self._write(change)
        finally:
            with self._own:
                self._waiting.pop(result, None)
        return result.result()

    def _write(self, change: _Changes) -> None:
        """Run ``change`` and all waiting changes in one transaction, and set their results once it is committed."""
        with self._own:
            batch, self._waiting = change | self._waiting, {}
        try:
            with transaction(self._engine) as connection:
                if len(batch) > 1:
                    outcomes = [_attempt(connection, result, act) for result, act in batch.items()]
                else:  # an error ends the transaction, which needs no savepoint
                    outcomes = [partial(result.set_result, act(connection)) for result, act in batch.items()]
        except Exception as error:  # noqa: BLE001 - the transaction failed as a whole, for every change
            outcomes = [partial(result.set_exception, error) for result in batch]
        for set_outcome in outcomes:
            set_outcome()


def _attempt(connection: Connection, result: Future[T], act: Callable[[Connection], T]) -> Callable[[], None]:
    """Run a change in a savepoint; an error undoes it. Return the function that sets its result or its error.

    Raises:
        sqlite3.Error: The transaction cannot continue.
    """
    execute = connection.connection.cursor().execute
    execute(f"SAVEPOINT {_SAVEPOINT}")
    try:
        with translate_errors(connection.engine):
            set_outcome = partial(result.set_result, act(connection))
    except Exception as error:  # noqa: BLE001 - the caller's thread raises it
        execute(f"ROLLBACK TO {_SAVEPOINT}")
        set_outcome = partial(result.set_exception, error)
    execute(f"RELEASE {_SAVEPOINT}")
    return set_outcome
