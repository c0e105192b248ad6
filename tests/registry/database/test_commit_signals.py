"""Signals between processes: those that wait are woken by a commit, and not by time alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from sqlalchemy import Engine, text

from benchlock.evaluator.queue.queue_clock import queue_id
from benchlock.registry.database.commit_signals import JOBS, Signal, open_signal, send_signal
from benchlock.registry.database.engine import write_transaction

LONG = 60.0


@pytest.fixture
def signal(database: Engine) -> Iterator[Signal]:
    """The signals of jobs; those from before are over."""
    opened = open_signal(database, JOBS)
    opened.wait(0)
    yield opened
    opened.close()


def send(database: Engine) -> None:
    with write_transaction(database) as connection:
        queue_id(connection)
        connection.execute(text("UPDATE dispatch SET latest = 1"))
        send_signal(connection, JOBS)


@contextmanager
def waiting(signal: Signal) -> Iterator[list[bool]]:
    """Wait in another thread; the result is there when the context ends."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(signal.wait(LONG)))
    thread.start()
    yield found
    thread.join()


@pytest.mark.databases
def test_a_commit_wakes_the_one_that_waits(database: Engine, signal: Signal) -> None:
    with waiting(signal) as found:
        send(database)
    assert found == [True]


@pytest.mark.databases
def test_a_commit_between_two_waits_is_not_missed(database: Engine, signal: Signal) -> None:
    send(database)
    assert signal.wait(LONG)
    assert not signal.wait(0.01)


@pytest.mark.databases
def test_what_is_rolled_back_wakes_nobody(database: Engine, signal: Signal) -> None:
    with suppress(ZeroDivisionError), write_transaction(database) as connection:
        send_signal(connection, JOBS)
        raise ZeroDivisionError
    assert not signal.wait(0.01)


@pytest.mark.databases
def test_a_signal_that_was_closed_opens_again(database: Engine, signal: Signal) -> None:
    signal.close()
    assert signal.wait(LONG)  # what came before is unknown
    send(database)
    assert signal.wait(LONG)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_session_that_the_server_ends_is_opened_again(database: Engine, signal: Signal) -> None:
    with waiting(signal) as found, write_transaction(database) as connection:
        ended = text("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        assert connection.scalar(ended) == 1
    assert found == [True]
    assert signal.wait(LONG)  # the new session
    send(database)
    assert signal.wait(LONG)
