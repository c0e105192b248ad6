"""A worker that waits for a job is woken at once by what changes its answer, on each kind of database."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine

from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.registry.auth.permissions import Actor, Scopes, UnauthorizedError, use_actor
from benchlock.registry.auth.token_format import TokenId
from benchlock.registry.auth.tokens import Tokens
from benchlock.registry.database.commit_signals import Signal
from tests.support.evaluator.queues import BOOT, Ticking, facts, machine, queue_of, wish

pytestmark = pytest.mark.databases
RUN = Scopes.parse(["run"])
LONG = 600.0


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def queue(database: Engine) -> SqlQueue:
    return queue_of(database, Ticking())


@pytest.fixture
def token(database: Engine) -> TokenId:
    return Tokens(database, now).create("a-worker", RUN)[0].id


@pytest.fixture
def signal(queue: SqlQueue, token: TokenId) -> Iterator[Signal]:
    """The signals of jobs, as a service listens to them; ``token`` has enrolled a machine before."""
    with use_actor(Actor(token, RUN)):
        queue.enrol(machine(1), BOOT, facts())
    opened = queue.open_signal()
    opened.wait(0)
    yield opened
    opened.close()


@pytest.mark.parametrize("change", ["submit", "drain", "resume", "revoke"])
def test_waiting_workers_are_woken(
    change: str, database: Engine, queue: SqlQueue, token: TokenId, signal: Signal
) -> None:
    acts: dict[str, Callable[[], object]] = {
        "submit": lambda: queue.submit(wish()),
        "drain": lambda: queue.drain(machine(1), "maintenance"),
        "resume": lambda: queue.drain(machine(1), None),
        "revoke": lambda: Tokens(database, now).revoke(token),
    }
    acts[change]()
    assert signal.wait(LONG)


def test_a_worker_whose_token_ended_while_it_waited_is_told(database: Engine, queue: SqlQueue, token: TokenId) -> None:
    old = Tokens(database, lambda: now() - timedelta(days=3650)).create("an-old-worker", RUN)[0].id
    with use_actor(Actor(old, RUN)), pytest.raises(UnauthorizedError, match="the token is expired"):
        queue.may_take(machine(1))
    with use_actor(Actor(token, RUN)):
        queue.enrol(machine(1), BOOT, facts())
        assert not queue.may_take(machine(1))
        Tokens(database, now).revoke(token)
        with pytest.raises(UnauthorizedError, match="the token is revoked"):
            queue.wait_for_job(machine(1), LONG)
