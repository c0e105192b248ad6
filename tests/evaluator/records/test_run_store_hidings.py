"""Hidden runs: out of lists and out of the reach of others, with nothing of their record changed."""

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, insert, select

from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.artifacts.size_limits import REASON
from benchlock.evaluator.records.run_document import encode_run
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import RunId, new_run_id
from benchlock.registry.auth.permissions import Actor, ForbiddenError, Scopes, use_actor
from benchlock.registry.database.engine import read_transaction, write_transaction
from benchlock.registry.database.registry_schema import actions, locks
from tests.evaluator.records.test_run_store import LOCK, NOON, end, start

both = pytest.mark.databases
READER = Actor("token/reader", Scopes.parse(["read", "run", "publish:*"]))


@pytest.fixture
def records(database: Engine) -> Records:
    with write_transaction(database) as connection:
        columns = {column.name: "x" for column in locks.columns} | {"id": LOCK, "created_at": NOON}
        connection.execute(insert(locks).values(columns))
    return Records(database)


def ran(records: Records, number: int = 0) -> RunId:
    begun = start(number)
    records.start(begun)
    records.finish(begun.id, end())
    return begun.id


@both
def test_a_hidden_run_is_in_no_list_and_shown_again(records: Records) -> None:
    first, second = ran(records, 1), ran(records, 2)
    before = encode_run(records.get(second))
    assert records.hide(second, "throttled")
    assert [run.id for run in records.list()] == [first]
    assert [run.id for run in records.list(lock=LOCK, outcome="done", limit=1)] == [first]
    assert (records.count(LOCK), encode_run(records.get(second))) == (2, before)
    assert set(records.live_digests()) == {blob.digest for blob in end().blobs.values()}
    assert not records.hide(second, "throttled")
    assert records.hide(second, "throttled, and noisy")
    hidden = records.get(second).hidden
    assert hidden is not None
    assert hidden.reason == "throttled, and noisy"
    assert records.unhide(second)
    assert not records.unhide(second)
    assert records.get(second).hidden is None
    assert [run.id for run in records.list()] == [second, first]


@both
def test_others_do_not_see_it(records: Records) -> None:
    run = ran(records)
    records.hide(run, "throttled")
    with use_actor(READER), pytest.raises(UnknownNameError) as caught:
        records.get(run)
    absent = new_run_id(NOON)
    with use_actor(READER), pytest.raises(UnknownNameError) as never:
        records.get(absent)
    assert str(caught.value) == str(never.value).replace(absent, run), "nobody learns that it is there"


@both
def test_administrators_alone_hide(records: Records) -> None:
    run = ran(records)
    with use_actor(READER), pytest.raises(ForbiddenError):
        records.hide(run, "mine looks better")
    with use_actor(READER), pytest.raises(ForbiddenError):
        records.unhide(run)


def test_what_cannot_be_hidden_is_said(records: Records) -> None:
    run = ran(records)
    with pytest.raises(InvalidInputError, match="no reason"):
        records.hide(run, " ")
    with pytest.raises(InvalidInputError, match="limit"):
        records.hide(run, "x" * (REASON + 1))
    with pytest.raises(UnknownNameError):
        records.hide(new_run_id(NOON), "throttled")


@both
def test_hiding_is_in_the_audit_log(records: Records, database: Engine) -> None:
    run = ran(records)
    records.hide(run, "throttled")
    records.unhide(run)
    with read_transaction(database) as connection:
        rows = connection.execute(select(actions.c.action, actions.c.target).order_by(actions.c.id)).all()
    assert [tuple(row) for row in rows][-2:] == [("run.hide", f"{run} throttled"), ("run.unhide", run)]


@both
def test_hidden_runs_are_in_no_group(records: Records) -> None:
    first, second, third = (ran(records, number) for number in (1, 2, 3))
    elsewhere = replace(start(4), host={**start(4).host, "cpu_model": "another"})
    records.start(elsewhere)
    records.finish(elsewhere.id, end())
    records.start(start(5))  # it has not ended
    other, own = records.group_done()
    assert (other.runs, own.runs, own.newest_at) == (1, 3, start(3).started_at)
    assert records.list_newest(other, 10) == (elsewhere.id,)
    assert records.list_newest(own, 2) == (third, second)
    assert records.list_newest(own, 2, second) == (first,)
    assert [run.id for run in records.get_each([third, new_run_id(NOON), first])] == [third, first]
    records.hide(third, "throttled")
    assert [group.runs for group in records.group_done()] == [1, 2]
    assert records.list_newest(own, 2) == (second, first)
    assert [run.id for run in records.get_each([third, first])] == [first]
