"""The schema changes by `db upgrade` and `db downgrade` alone; every other command refuses another revision."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from benchlock.api.local.local_registry import open_registry
from benchlock.api.local.registry_database import open_existing
from benchlock.artifacts.errors import SchemaRevisionError
from benchlock.migrations import HEAD, list_revisions
from benchlock.registry.database.engine import read_revision, read_transaction, write_transaction
from tests.support.api.warm import Warm
from tests.support.registry import tiny
from tests.support.servers.postgresql import PostgresServer

BEFORE = list_revisions()[-2]
"""The revision before the newest one."""
REFUSED = (
    ("list",),
    ("doctor",),
    ("runs",),
    ("verify",),
    ("gc", "--dry-run"),
    ("log",),
    ("jobs",),
    ("machines",),
    ("token", "list"),
    ("show", "model/none"),
    ("backup", "elsewhere"),
    ("serve", "--open", "--port", "1"),
)
Call = Callable[..., dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "registry"


@pytest.fixture
def call(home: Path) -> Call:
    """Calls a command, which must end with ``code``; its document, and under ``said`` what it wrote to stderr."""

    def call(code: int, *words: str | Path, registry: str | Path = home) -> dict[str, Any]:
        variables = {name: os.environ[name] for name in ("BENCHLOCK_DATABASE",) if name in os.environ}
        answer = Warm(home, variables=variables).call("--registry", registry, *words)
        assert answer.code == code, (words, answer)
        return answer.document | {"said": answer.stderr}

    return call


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, call: Call) -> Iterator[str]:
    """An empty registry; which kind of database it has."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            monkeypatch.delenv("BENCHLOCK_DATABASE", raising=False)
        else:
            server: PostgresServer = request.getfixturevalue("postgresql")
            monkeypatch.setenv("BENCHLOCK_DATABASE", stack.enter_context(server.database()))
        call(0, "db", "create")
        yield request.param


@pytest.fixture
def confirmed(database: str) -> tuple[str, ...]:
    """What a change of the schema needs on that database."""
    return () if database == "sqlite" else ("--backup-made",)


def opened(home: Path, act: Callable[[Engine], object]) -> object:
    engine = open_existing(home)
    try:
        return act(engine)
    finally:
        engine.dispose()


def found_revision(home: Path) -> object:
    def read(engine: Engine) -> object:
        with read_transaction(engine) as connection:
            return read_revision(connection)

    return opened(home, read)


def set_revision(home: Path, number: str) -> None:
    def write(engine: Engine) -> None:
        with write_transaction(engine) as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :number"), {"number": number})

    opened(home, write)


def test_no_other_command_changes_an_older_schema(
    call: Call, home: Path, database: str, confirmed: tuple[str, ...]
) -> None:
    assert database
    call(0, "db", "downgrade", "--to", BEFORE, *confirmed)
    for words in REFUSED:
        error = call(5, *words)["error"]
        assert error["code"] == "schema-revision", words
        assert BEFORE in error["message"]
        assert HEAD in error["message"]
        assert "benchlock db upgrade" in error["next"]
    assert found_revision(home) == BEFORE
    assert call(0, "db", "current") == {"revision": BEFORE, "needed": HEAD, "said": ""}
    assert call(5, "db", "check")["error"]["code"] == "schema-revision"


def test_a_newer_schema_is_refused_by_all(call: Call, home: Path, database: str, confirmed: tuple[str, ...]) -> None:
    assert database
    set_revision(home, "9999")
    for words in (("list",), ("db", "check"), ("db", "upgrade", *confirmed), ("db", "downgrade", "--to", BEFORE)):
        error = call(5, *words)["error"]
        assert (error["code"], "9999" in error["message"]) == ("schema-revision", True)
        assert "db upgrade" not in error["next"]
    assert found_revision(home) == "9999"


def test_down_and_up_again_keeps_what_was_published(
    call: Call, home: Path, database: str, confirmed: tuple[str, ...]
) -> None:
    call(0, "publish", *tiny.author(home.parent / "manifests"))
    before = call(0, "list")
    call(0, "db", "downgrade", "--to", BEFORE, *confirmed)
    changed = call(0, "db", "upgrade", *confirmed)
    assert (changed["before"], changed["after"]) == (BEFORE, HEAD)
    assert call(0, "list") == before
    assert call(0, "db", "check") == {"revision": HEAD, "differences": [], "said": ""}
    again = call(0, "db", "upgrade")
    assert (again["before"], again["after"], again["backup"]) == (HEAD, HEAD, None)
    copies = sorted(path.name for path in home.glob("registry-*.sqlite"))
    assert [name[:14] for name in copies] == (
        [f"registry-{BEFORE}-", f"registry-{HEAD}-"] if database == "sqlite" else []
    )


def test_the_copy_of_sqlite_is_the_way_back(call: Call, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCHLOCK_DATABASE", raising=False)
    call(0, "publish", *tiny.author(home.parent / "manifests"))
    before = call(0, "list")
    (home / "registry.sqlite").chmod(0o600)
    call(0, "db", "downgrade", "--to", BEFORE, "--backup-made")
    copy = Path(call(0, "db", "upgrade")["backup"])
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (BEFORE,)
    for name in ("registry.sqlite-wal", "registry.sqlite-shm"):
        (home / name).unlink(missing_ok=True)
    copy.replace(home / "registry.sqlite")
    assert call(5, "list")["error"]["code"] == "schema-revision"
    call(0, "db", "upgrade")
    assert call(0, "list") == before


def test_a_server_s_database_wants_its_backup_confirmed(
    call: Call, home: Path, postgresql: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgresql.database() as address:
        monkeypatch.setenv("BENCHLOCK_DATABASE", address.replace("postgres@", "postgres:correct-horse@"))
        call(0, "db", "create")
        error = call(2, "db", "downgrade", "--to", BEFORE)["error"]
        assert "--backup-made" in error["next"]
        assert f"pg_dump --format=custom --file=FILE {address})" in error["next"]
        assert found_revision(home) == HEAD


def test_a_dry_run_prints_the_statements_and_changes_nothing(
    call: Call, home: Path, database: str, confirmed: tuple[str, ...]
) -> None:
    assert database
    call(0, "db", "downgrade", "--to", "0010", *confirmed)
    copies = list(home.glob("registry-*.sqlite"))
    statements = call(0, "db", "upgrade", "--dry-run")["statements"]
    assert any(one.startswith("ALTER TABLE machines ADD COLUMN owner") for one in statements)
    assert f"UPDATE alembic_version SET version_num='{HEAD}'" in statements[-1]
    assert not [one for one in statements if one.startswith(("SELECT", "PRAGMA"))]
    assert found_revision(home) == "0010"
    assert list(home.glob("registry-*.sqlite")) == copies


def test_a_check_names_what_was_changed_by_hand(call: Call, home: Path, database: str) -> None:
    assert database

    def drop(engine: Engine) -> None:
        with write_transaction(engine) as connection:
            connection.execute(text("DROP INDEX ix_jobs_state_seq"))

    opened(home, drop)
    document = call(1, "db", "check")
    assert "ix_jobs_state_seq" in " ".join(document["differences"])


def test_what_is_no_lower_revision_is_refused(call: Call, home: Path, database: str) -> None:
    assert database
    for target in ("0099", "base", "", "../0001", "0002; DROP TABLE versions"):
        error = call(2, "db", "downgrade", "--to", target)["error"]
        assert "0001, 0002" in error["next"], target
        assert found_revision(home) == HEAD, target


def test_where_there_is_no_registry_none_is_made(call: Call, tmp_path: Path) -> None:
    for words in (("current",), ("check",), ("upgrade",), ("upgrade", "--dry-run"), ("downgrade", "--to", BEFORE)):
        assert call(2, "db", *words, registry=tmp_path / "none")["error"]["message"] == "no registry found"
    assert not (tmp_path / "none").exists()
    error = call(2, "db", "upgrade", registry="http://127.0.0.1:1")["error"]
    assert "is a server" in error["message"]


def test_a_process_that_was_there_before_the_change_writes_no_more(
    call: Call, home: Path, database: str, confirmed: tuple[str, ...]
) -> None:
    assert database
    old = open_registry(str(home), print)
    try:
        call(0, "db", "downgrade", "--to", BEFORE, *confirmed)
        with pytest.raises(SchemaRevisionError, match=BEFORE):
            old.catalogue.note("store.collect", "nothing")
        call(0, "db", "upgrade", *confirmed)
        old.catalogue.note("store.collect", "nothing")
    finally:
        old.database.dispose()


def test_an_upgrade_waits_for_a_writer_and_copies_what_it_wrote(
    call: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BENCHLOCK_DATABASE", raising=False)
    call(0, "db", "create")
    call(0, "db", "downgrade", "--to", BEFORE, "--backup-made")
    holds, may_end = threading.Event(), threading.Event()

    def write(engine: Engine) -> None:
        with write_transaction(engine) as connection:
            connection.execute(text("CREATE TABLE last_words (column_of_it TEXT)"))
            holds.set()
            may_end.wait(60)

    writer = threading.Thread(target=opened, args=(home, write))
    writer.start()
    holds.wait(60)
    threading.Timer(0.3, may_end.set).start()
    copy = call(0, "db", "upgrade")["backup"]
    writer.join()
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM last_words").fetchone() == (0,)


def test_a_backup_of_an_older_schema_is_restored_as_it_is(
    call: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BENCHLOCK_DATABASE", raising=False)
    call(0, "publish", *tiny.author(home.parent / "manifests"))
    before = call(0, "list")
    backup, fresh = home.parent / "backup", home.parent / "fresh"
    call(0, "backup", backup)
    call(0, "db", "downgrade", "--to", BEFORE, "--backup-made")
    with (
        closing(sqlite3.connect(home / "registry.sqlite")) as old,
        closing(sqlite3.connect(backup / "database.sqlite")) as new,
    ):
        (backup / "database.sqlite").chmod(0o600)
        old.backup(new)
    restored = call(0, "restore", backup, registry=fresh)
    assert (restored["damaged"], "benchlock db upgrade" in restored["said"]) == ([], True)
    assert call(5, "list", registry=fresh)["error"]["code"] == "schema-revision"
    call(0, "db", "upgrade", registry=fresh)
    assert call(0, "list", registry=fresh) == before
    assert call(0, "verify", registry=fresh)["damaged"] == []


def test_a_doctor_shows_build_and_schema(home: Path) -> None:
    Warm(home).done("db", "create")
    document = Warm(home).done("doctor")
    assert document["schema"] == HEAD
    assert document["benchlock"]
    assert document["commit"]


def test_the_time_of_a_copy_is_in_its_name(call: Call, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchlock.api.local import schema_upgrades  # noqa: PLC0415 - beside what it is about

    monkeypatch.delenv("BENCHLOCK_DATABASE", raising=False)
    call(0, "db", "create")
    noon = datetime(2026, 11, 22, 12, tzinfo=UTC)
    change = schema_upgrades.downgrade_registry(home, BEFORE, lambda: noon, backup_made=False)
    assert change.backup == home / f"registry-{HEAD}-20261122T120000Z.sqlite"


def test_an_empty_chain_has_no_head(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCHLOCK_DATABASE", raising=False)
    call(0, "db", "create")
    verified = call(0, "verify")
    assert (verified["records"], verified["head"]) == (0, None)
