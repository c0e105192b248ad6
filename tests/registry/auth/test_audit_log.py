"""Who did what is written where it is done, or neither is."""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine, func, select

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.auth.audit_log import AuditLog, DenialCounter, DenialLog
from benchlock.registry.auth.permissions import ANONYMOUS, Actor, ForbiddenError, Scopes, use_actor
from benchlock.registry.auth.token_format import new_secret
from benchlock.registry.auth.tokens import Tokens
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.engine import read_transaction
from benchlock.registry.database.registry_schema import actions
from benchlock.registry.publishing.publication import Draft, publish
from tests.support.system.clocks import Standing

pytestmark = pytest.mark.databases

Author = Callable[..., Draft]

DATASET = """\
schema: 1
kind: dataset
name: {name}
version: 1.0.0
license: MIT
format: image-index
splits: {{test: {{index: all/index.csv, samples: 1}}}}
files: [{{path: all/, source: all}}]
"""
FILES = {"all/index.csv": b"path,label\na.png,1\n", "all/a.png": b"a picture"}
OWNER = Actor("token/owner", Scopes.parse(["publish:acme"]), "request-1")
STRANGER = Actor("token/stranger", Scopes.parse(["publish:other", "run"]), "request-2")


def said(database: Engine) -> list[tuple[str, str]]:
    return [(entry.actor, entry.action) for entry in reversed(AuditLog(database).list())]


def test_what_is_published_and_yanked_is_logged_with_who_did_it(
    author: Author, store: LocalStore, catalogue: Catalogue, database: Engine
) -> None:
    draft = author(DATASET.format(name="acme/pictures"), FILES)
    with use_actor(OWNER):
        published = publish(draft, store, catalogue)
        publish(draft, store, catalogue)
        catalogue.yank(published.reference, "no good")
    catalogue.unyank(published.reference)
    assert said(database) == [
        ("token/owner", "version.publish"),
        ("token/owner", "version.yank"),
        ("embedded", "version.unyank"),
    ]
    last, yanked, first = AuditLog(database).list()
    assert first.target == f"{published.reference} {published.digest}"
    assert (yanked.target, yanked.request, yanked.outcome) == (f"{published.reference} no good", "request-1", "done")
    assert last.request is None


def test_another_namespace_is_neither_published_to_nor_yanked_nor_logged_as_done(
    author: Author, store: LocalStore, catalogue: Catalogue, database: Engine
) -> None:
    draft = author(DATASET.format(name="acme/pictures"), FILES)
    with use_actor(STRANGER), pytest.raises(ForbiddenError, match="publish:acme"):
        publish(draft, store, catalogue)
    assert catalogue.list() == ()
    reference = publish(draft, store, catalogue).reference
    with use_actor(STRANGER):
        assert not publish(draft, store, catalogue).changed
        with pytest.raises(ForbiddenError):
            catalogue.yank(reference, "of spite")
        with pytest.raises(ForbiddenError):
            catalogue.unyank(reference)
    assert catalogue.get(reference).yanked is None
    assert said(database) == [("embedded", "version.publish")]


def test_a_change_that_fails_leaves_no_entry(
    author: Author, store: LocalStore, catalogue: Catalogue, database: Engine
) -> None:
    publish(author(DATASET.format(name="pictures"), FILES), store, catalogue)
    other = DATASET.format(name="pictures").replace("MIT", "BSD-3-Clause")
    with pytest.raises(InvalidInputError, match="with different content"):
        publish(author(other, FILES), store, catalogue)
    assert said(database) == [("embedded", "version.publish")]


def test_refusals_are_written_so_often_a_minute_and_then_counted(database: Engine, standing: Standing) -> None:
    refusals = DenialLog(database, standing)
    for _ in range(DenialLog.MAX_ENTRIES + 70):
        refusals.note(ANONYMOUS, "POST /v1/artifacts", "", "refused", "unauthorized")
    assert refusals.note(STRANGER, "POST /v1/artifacts", "", "refused", "forbidden")
    with read_transaction(database) as connection:
        assert connection.execute(select(func.count()).select_from(actions)).scalar() == DenialLog.MAX_ENTRIES + 1
    standing.go_on(minutes=1)
    assert refusals.note(ANONYMOUS, "POST /v1/artifacts", "", "refused", "unauthorized")
    (last,) = AuditLog(database).list(limit=1)
    assert last.reason == "unauthorized (70 earlier ones omitted)"


def test_a_refusal_that_repeats_is_counted_in_a_line_a_minute_later_and_then_every_hour(
    database: Engine, standing: Standing
) -> None:
    refusals = DenialLog(database, standing)

    def refused(count: int, reason: str = "the token is revoked") -> list[bool]:
        return [refusals.repeats.is_first(STRANGER, "POST /v1/leases", "/v1/leases", reason) for _ in range(count)]

    assert refused(150).count(True) == 1
    assert refused(1, "another reason") == [True]
    assert refusals.summarise() == ()
    standing.go_on(minutes=1)
    assert [one.count for one in refusals.summarise()] == [149]
    assert refused(60).count(True) == 0
    standing.go_on(minutes=59)
    assert refusals.summarise() == ()
    standing.go_on(minutes=1)
    assert [one.count for one in refusals.summarise()] == [60]
    assert [(one.actor, one.reason.split(" (")[1]) for one in AuditLog(database).list()] == [
        (STRANGER.id, "60 more since 12:01:00 UTC)"),
        (STRANGER.id, "149 more since 12:00:00 UTC)"),
    ]
    standing.go_on(hours=1, seconds=1)
    assert refused(1) == [True]


def test_the_kinds_of_refusals_that_are_counted_are_bounded(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchlock.registry.auth.audit_log.MAX_KINDS", 10)
    repeats = DenialCounter(standing)
    for number in range(100):
        assert repeats.is_first(STRANGER, "GET /", "/", f"reason {number}")
    assert len(repeats._kinds) == 10
    assert not repeats.is_first(STRANGER, "GET /", "/", "reason 99")


def test_a_token_that_was_written_in_the_wrong_place_is_not_kept(database: Engine, standing: Standing) -> None:
    secret = new_secret()
    DenialLog(database, standing).note(ANONYMOUS, f"GET /{secret.text}", secret.text * 99, "refused", secret.text)
    (entry,) = AuditLog(database).list()
    assert secret.text[10:] not in f"{entry}"
    assert len(entry.target) <= 500


def test_the_log_is_read_page_by_page(tokens: Tokens, database: Engine, standing: Standing) -> None:
    for _ in range(7):
        tokens.create("ci", Scopes.parse(["read"]))
        standing.go_on(seconds=1)
    log, found, before = AuditLog(database), list[str](), None
    while page := log.list(limit=3, before=before):
        before = page[-1].id
        found += [entry.id for entry in page]
    assert len(found) == 7
    assert found == sorted(found, reverse=True)
    assert log.list(actor="token/none") == ()
    with pytest.raises(InvalidInputError, match="limit"):
        log.list(limit=100_000)
    with pytest.raises(InvalidInputError, match="invalid entry id"):
        log.list(before="'; DROP TABLE actions; --")
