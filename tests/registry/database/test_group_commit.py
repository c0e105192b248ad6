"""Changes that several threads ask for at once: one transaction, and each as if it were alone."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import pytest
from sqlalchemy import Connection, Engine, event, select
from sqlalchemy.exc import OperationalError

from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.registry.auth.audit_log import action_record, record_action
from benchlock.registry.auth.permissions import ANONYMOUS, Actor, act_as
from benchlock.registry.database.engine import hold_write_turn, read_transaction
from benchlock.registry.database.group_commit import GroupCommit
from benchlock.registry.database.record_chain import insert_records
from benchlock.registry.database.registry_schema import actions

T = TypeVar("T")
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
WRITERS = 8
SOON = 10.0


@pytest.fixture
def begun(database: Engine) -> list[int]:
    """A number for each transaction that began."""
    found: list[int] = []
    event.listen(database, "begin", lambda _: found.append(len(found)))
    return found


def write(name: str) -> Callable[[Connection], str]:
    """A change that says who made it, and fails where its name says so."""

    def act(connection: Connection) -> str:
        record_action(connection, "a.test", name, NOON)
        if name == "refused":
            raise InvalidInputError("it is refused")
        if name == "broken":
            raise ZeroDivisionError
        return f"{name} is done"

    return act


def as_somebody(together: GroupCommit, name: str) -> str:
    def do() -> str:
        act_as(Actor(f"actor of {name}", ANONYMOUS.scopes))
        return together.do(write(name))

    return copy_context().run(do)  # whoever this thread acts as otherwise


def written(database: Engine) -> set[tuple[str, str]]:
    with read_transaction(database) as connection:
        return {(row.actor, row.target) for row in connection.execute(select(actions.c.actor, actions.c.target))}


def test_a_database_that_cannot_be_read_is_told_so_too(database: Engine) -> None:
    with database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE record_chain RENAME TO lost")
        with pytest.raises(OperationalError, match="no such table"):
            record_action(connection, "a.test", "it has no chain", NOON)


def test_a_row_of_other_columns_is_refused(database: Engine) -> None:
    """Its digest would be of more than what is stored."""
    record = action_record("a.test", "more than a row", NOON)
    more = replace(record, values={**record.values, "more": 1})
    with database.begin() as connection, pytest.raises(ValueError, match="other columns"):
        insert_records(connection, [more])


def fill_database(connection: Connection) -> None:
    for number in range(1000):
        record_action(connection, "a.test", f"{number} {'x' * 1000}", NOON)


@contextmanager
def asked_at_once(database: Engine, names: list[str]) -> Iterator[dict[str, "Future[str]"]]:
    """All of them ask while somebody else writes, who ends when the context is left."""
    together = GroupCommit(database)
    with ThreadPoolExecutor(len(names)) as pool, hold_write_turn(database):
        found = {name: pool.submit(as_somebody, together, name) for name in names}
        until(lambda: len(together._waiting) == len(names))
        yield found


def until(is_so: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(int(SOON * 100)):
        if is_so():
            return
        waited.wait(0.01)
    raise AssertionError("it never was")


def test_those_who_wait_are_written_in_one_transaction_each_as_themselves(database: Engine, begun: list[int]) -> None:
    names = [f"writer {number}" for number in range(WRITERS)]
    with asked_at_once(database, names) as found:
        begun.clear()
    assert {name: one.result() for name, one in found.items()} == {name: f"{name} is done" for name in names}
    assert len(begun) == 1
    assert written(database) == {(f"actor of {name}", name) for name in names}


def test_what_fails_changes_nothing_and_nobody_else_hears_of_it(database: Engine, begun: list[int]) -> None:
    names = ["first", "refused", "second", "broken", "third"]
    with asked_at_once(database, names) as found:
        begun.clear()
    assert [found[name].result() for name in ("first", "second", "third")] == [
        "first is done",
        "second is done",
        "third is done",
    ]
    with pytest.raises(InvalidInputError, match="it is refused"):
        found["refused"].result()
    with pytest.raises(ZeroDivisionError):
        found["broken"].result()
    assert len(begun) == 1
    assert {target for _, target in written(database)} == {"first", "second", "third"}


def test_all_are_told_where_nothing_can_be_written(database: Engine) -> None:
    def refuse(_: object) -> None:
        raise UnavailableError("the disk is full")

    with asked_at_once(database, ["first", "second"]) as found:
        event.listen(database, "begin", refuse)
    event.remove(database, "begin", refuse)
    for one in found.values():
        with pytest.raises(UnavailableError, match="the disk is full"):
            one.result()
    assert written(database) == set()


def test_a_full_database_is_told_from_a_record_that_cannot_be_inserted(database: Engine) -> None:
    """Whoever ends many records logs the errors of one and goes on, but raises those of the database."""
    with database.begin() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # at least the pages that it has
        with pytest.raises(OperationalError):
            fill_database(connection)


@pytest.mark.databases
def test_one_after_the_other_is_well_too(database: Engine) -> None:
    together = GroupCommit(database)
    assert [as_somebody(together, name) for name in ("one", "two")] == ["one is done", "two is done"]
    with pytest.raises(InvalidInputError, match="it is refused"):
        as_somebody(together, "refused")
    assert {target for _, target in written(database)} == {"one", "two"}
