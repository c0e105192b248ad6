"""What uses a version: locks, versions that need it, and its yanks."""

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from sqlalchemy import Engine, event

from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.artifact_names import parse_reference
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.catalogue.version_uses import YankChange
from tests.registry.lock.test_operator_locks import ask, operators
from tests.support.registry.frameworks import publish_framework
from tests.support.resolution.variants import variant

pytestmark = pytest.mark.databases
START = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def ticking(database: Engine) -> Catalogue:
    """A catalogue whose clock goes on by an hour at each look."""
    hours = count()
    return Catalogue(database, lambda: START + timedelta(hours=next(hours)))


def test_the_history_of_yanks_stays_and_says_who_and_when(ticking: Catalogue, store: LocalStore) -> None:
    publish_framework(ticking, store, "acme", "1.0.0")
    publish_framework(ticking, store, "acme", "1.0.1")
    reference = parse_reference("framework/acme@1.0.0")
    assert ticking.list_yank_changes(reference, 10) == ()
    ticking.yank(reference, "wrong labels")
    ticking.yank(parse_reference("framework/acme@1.0.1"), "of another version")
    ticking.unyank(reference)
    ticking.yank(reference, "wrong again")
    changes = ticking.list_yank_changes(reference, 10)
    assert [(change.yanked, change.reason) for change in changes] == [
        (True, "wrong again"),
        (False, ""),
        (True, "wrong labels"),
    ]
    assert [change.at for change in changes] == sorted((change.at for change in changes), reverse=True)
    assert {change.actor for change in changes} == {"embedded"}
    assert ticking.list_yank_changes(reference, 1) == changes[:1]
    assert isinstance(changes[0], YankChange)


def test_locks_with_a_version_come_newest_first_in_pages_that_join(ticking: Catalogue, store: LocalStore) -> None:
    locks = []
    for number in range(5):
        made = variant({"model": {"name": f"m{number}"}, "request": {"model": {"name": f"m{number}", "version": "*"}}})
        made.publish(ticking, store)
        ticking.put_lock(made.lock)
        locks.append(made.lock)
    for kind, artifact in locks[0].artifacts().items():
        reference = parse_reference(f"{kind}/{artifact.name}@{artifact.version}")
        found, after = [], None
        while True:
            page = ticking.list_locks_with(reference, 2, after)
            assert len(page.locks) <= 2
            found += [lock.id for lock in page.locks]
            after = page.after
            if after is None:
                break
        assert found == [lock.id for lock in (locks[:1] if kind == "model" else locks[::-1])]
    assert ticking.list_locks_with(parse_reference("model/none@1.0.0"), 2).locks == ()
    (listed,) = ticking.list_locks(locks[3].id[:19], 10)
    assert (listed.id, listed.model) == (locks[3].id, f"m3 {locks[3].subject.version}")


def test_locks_of_an_operator_are_found_by_its_manifest_without_their_texts(
    ticking: Catalogue, database: Engine
) -> None:
    older, newer = operators("1.0.0"), operators("1.1.0")
    for shelf in (older, newer):
        ticking.publish(next(iter(shelf.chosen.all())), Provenance("", {}))
    locks = [older.lock(ask(seed=str(seed))) for seed in range(1, 6)]
    for lock in (*locks, newer.lock(ask())):
        ticking.put_lock(lock)
    statements: list[str] = []
    event.listen(database, "before_cursor_execute", lambda *parts: statements.append(parts[2]))
    found, after = [], None
    while True:
        page = ticking.list_locks_with(parse_reference("operator/gemm@1.0.0"), 2, after)
        assert len(page.locks) <= 2
        found += [lock.id for lock in page.locks]
        after = page.after
        if after is None:
            break
    assert found == [lock.id for lock in locks[::-1]]
    assert statements
    assert [statement for statement in statements if "locks.text" in statement] == []


def test_versions_that_need_a_framework_are_those_whose_constraint_admits_it(
    ticking: Catalogue, store: LocalStore
) -> None:
    for number, constraint in enumerate((">=1.2 <2", "1.31.1", "^1.27")):
        model = {"name": f"m{number}", "framework": {"name": "onnxruntime", "version": constraint}}
        request = {"model": {"name": f"m{number}", "version": "*"}}
        variant({"model": model, "request": request}).publish(ticking, store, ("model",))
    made = variant({})
    made.publish(ticking, store, ("framework", "image"))

    def read(target: str, limit: int) -> list[str]:
        names, after = [], None
        while True:
            page = ticking.list_dependents(parse_reference(target), limit, after)
            assert len(page.dependents) <= limit
            names += [f"{one.kind}/{one.name}" for one in page.dependents]
            after = page.after
            if after is None:
                return names

    for limit in (1, 2, 50):
        every = [f"image/{made.lock.image.name}", "model/m0", "model/m1", "model/m2"]
        assert read(f"framework/onnxruntime@{made.lock.framework.version}", limit) == every
        assert read("framework/onnxruntime@1.40.0", limit) == ["model/m0", "model/m2"]
        assert read("framework/onnxruntime@2.0.0-rc.1", limit) == []
        assert read("framework/other@1.31.1", limit) == []
    assert read("model/m0@1.0.0", 9) == []
