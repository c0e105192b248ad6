"""Bits of a database that flip: none changes a figure that is delivered, and `verify` finds each that says anything.

A flip that `verify` does not find must be in bytes that say nothing (free pages, space between rows). That is proven,
not assumed: every column of every record is what it was, and every index gives the same entries in the same order.
`--flips N` tries N bits of each database; `make bit-flips` tries 100.
"""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select, text

from benchlock.api.cli.main import run as run_command
from benchlock.api.local import registry_database
from benchlock.artifacts.errors import IntegrityError, UnavailableError, UnknownNameError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.records.run_document import summarize
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import Run, RunEnd, RunId
from benchlock.migrations import upgrade
from benchlock.migrations.schema_check import METADATA
from benchlock.registry.auth.audit_log import AuditLog
from benchlock.registry.database.engine import open_engine, open_server, read_transaction
from tests.support.registry.filled import fill, store_blobs
from tests.support.servers.postgresql import TEMPLATE, PostgresServer, serving

SEED = 20261122
PAGE = 8192
RECORDS = [table for table in METADATA.sorted_tables if table.info.get("append_only")]
Content = dict[str, list[dict[str, Any]]]
INDEXES = text("""
SELECT indexes.relname AS name, relations.relname AS table, pg_get_expr(indpred, indrelid) AS condition,
  ARRAY(SELECT attname::text FROM unnest(indkey) WITH ORDINALITY AS keys (number, place)
    JOIN pg_attribute ON attrelid = indrelid AND attnum = keys.number ORDER BY place) AS columns
FROM pg_index
JOIN pg_class AS relations ON relations.oid = indrelid
JOIN pg_class AS indexes ON indexes.oid = indexrelid
WHERE relations.relnamespace = current_schema()::regnamespace AND relations.relname = ANY(:tables) ORDER BY 1
""")
Outcome = str
Command = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def flips(request: pytest.FixtureRequest) -> int:
    count: int = request.config.getoption("--flips")
    return count


def content(database: Engine) -> Content:
    """Every record, row by row, in the order of its key."""
    with read_transaction(database) as connection:
        tables = {table.name: select(table).order_by(*table.primary_key.columns) for table in RECORDS}
        return {name: [row._asdict() for row in connection.execute(query)] for name, query in tables.items()}


def entries(database: Engine) -> Content:
    """Every entry of every index of the records, as a scan of that index alone gives them.

    SQLite's own ``integrity_check`` compares each index with its table, entry by entry.
    """
    if database.dialect.name == "sqlite":
        return {}
    found: Content = {}
    with read_transaction(database) as connection:
        for kind in ("seqscan", "bitmapscan", "sort", "incremental_sort"):
            connection.exec_driver_sql(f"SET LOCAL enable_{kind} = off")
        for index in connection.execute(INDEXES, {"tables": [table.name for table in RECORDS]}).all():
            columns = ", ".join(f'"{column}"' for column in index.columns)
            condition = "" if index.condition is None else f"WHERE {index.condition}"
            query = f'SELECT ctid::text, {columns} FROM "{index.table}" {condition} ORDER BY {columns}'
            plan = "\n".join(connection.exec_driver_sql(f"EXPLAIN {query.replace('%', '%%')}").scalars())
            assert index.name in plan, plan
            assert "Sort" not in plan, plan
            rows = connection.exec_driver_sql(query.replace("%", "%%"))
            found[index.name] = [row._asdict() for row in rows]
    return found


def find_open(database: Engine) -> RunId:
    (run,) = Records(database).unfinished()
    return run.id


def flip(path: Path, chance: random.Random) -> str:
    """Flip one bit of a file; say which."""
    place, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))
    return f"{path.name}, bit {bit} of byte {place}"


def assess(database: Engine, before: Content, indexed: Content, runs: Mapping[RunId, Run]) -> Outcome:
    """Fail where a record that was changed is delivered; say what became of the flip."""
    records = Records(database)
    for run, recorded in runs.items():
        with suppress(IntegrityError, UnavailableError, UnknownNameError):
            assert records.get(run) == recorded
    with suppress(IntegrityError, UnavailableError):
        assert all(found == summarize(runs[found.id]) for found in records.list())
    with suppress(IntegrityError, UnavailableError):
        AuditLog(database).list(limit=1000)
    try:
        report = registry_database.check_database(database)
    except (IntegrityError, UnavailableError):
        return "unreadable"
    if report.damaged:
        return "found"
    assert content(database) == before
    assert entries(database) == indexed
    return "says nothing"


def tell(capsys: pytest.CaptureFixture[str], name: str, outcomes: Counter[Outcome]) -> None:
    with capsys.disabled():
        print(f"\n{name}, seed {SEED}: {outcomes.total()} flips, {dict(outcomes)}")  # noqa: T201


# SQLite


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry with records of every kind, and all blobs that they name."""
    home = tmp_path_factory.mktemp("registry")
    database = open_engine(home / registry_database.DATABASE_FILE)
    upgrade(database)
    runs = fill(database, versions=12, runs=24)
    Records(database).finish(find_open(database), RunEnd(outcome="abandoned", ended_at=runs[0].start.started_at))
    database.dispose()
    store_blobs(LocalStore(home / "blobs"))
    return home


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command on a registry, in this process: its exit code and its document."""

    def call(home: Path, *words: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setenv("BENCHLOCK_REGISTRY", str(home))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/no-engine.sock")
        capsys.readouterr()
        code = run_command(["--json", *words])
        document = json.loads(capsys.readouterr().out)
        assert code in (0, 4, 5), document
        assert "fault in benchlock" not in str(document.get("error")), document
        return code, document

    return call


def assert_delivered(run: dict[str, Any], whole: dict[str, Any], what: str) -> None:
    """What the run says is what it said; without its lock it says less, and that its evidence is damaged."""
    assert run["evidence"] == whole["evidence"] or run["evidence"]["damaged"], what
    assert run | {"evidence": None} == {name: whole[name] for name in run} | {"evidence": None}, what


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a process would close it by its end
def test_no_flipped_bit_of_sqlite_is_delivered(
    home: Path, flips: int, tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands themselves are asked."""
    chance, outcomes = random.Random(SEED), Counter[Outcome]()
    database = open_engine(copied(home, tmp_path / "whole") / registry_database.DATABASE_FILE)
    before, runs = content(database), {run.id: Records(database).get(run.id) for run in Records(database).list()}
    database.dispose()
    _, verified = command(tmp_path / "whole", "verify")  # whose contradictions are those of figures without evidence
    assert verified["damaged"] == [], "before any flip"
    listed = {run["run"]: run for run in command(tmp_path / "whole", "runs")[1]["runs"]}
    for number in range(flips):
        flipped = copied(home, tmp_path / str(number))
        what = flip(flipped / registry_database.DATABASE_FILE, chance)
        database = open_engine(flipped / registry_database.DATABASE_FILE)
        found = assess(database, before, {}, runs)
        database.dispose()
        code, document = command(flipped, "runs")
        for run in document.get("runs", ()):
            assert_delivered(run, listed[run["run"]], what)
        code, document = command(flipped, "verify")
        assert (document.get("damaged") == []) == (found == "says nothing"), (what, found, document)
        assert code == 4 or found == "unreadable", (what, found, document)
        outcomes[found] += 1
    tell(capsys, "SQLite", outcomes)


def copied(home: Path, copy: Path) -> Path:
    """A registry of its own with the same database, and the same blobs."""
    copy.mkdir()
    shutil.copy(home / registry_database.DATABASE_FILE, copy)
    (copy / "blobs").symlink_to(home / "blobs")
    return copy


# PostgreSQL


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of these tests' own, for they stop it."""
    with serving() as server:
        yield server


def test_no_flipped_bit_of_postgresql_is_delivered(
    server: PostgresServer, flips: int, capsys: pytest.CaptureFixture[str]
) -> None:
    server.run(f"CREATE DATABASE flipped TEMPLATE {TEMPLATE}")
    database = open_server(server.address("flipped"))
    fill(database, versions=12, runs=24)
    before, runs = content(database), {run.id: Records(database).get(run.id) for run in Records(database).list()}
    indexed = entries(database)
    assert registry_database.check_database(database).damaged == ()
    with read_transaction(database) as connection:
        query = text("""SELECT pg_relation_filepath(oid) FROM pg_class WHERE relkind IN ('r', 'i', 't')
        AND relnamespace IN (current_schema()::regnamespace, 'pg_toast'::regnamespace)
        AND pg_relation_filepath(oid) LIKE 'base/%' AND pg_relation_size(oid) > 0 AND oid >= 16384""")
        names = connection.execute(query).scalars().all()
    database.dispose()
    server.admin.dispose()
    server.postmaster.end()
    data = Path(server.postmaster.command[server.postmaster.command.index("-D") + 1])
    files = [data / name for name in names]
    pages = [file for file in files for _ in range(file.stat().st_size // PAGE)]
    whole = {file: file.read_bytes() for file in files}
    chance, outcomes = random.Random(SEED), Counter[Outcome]()
    for _ in range(flips):
        what = flip(chance.choice(pages), chance)
        with server.started():
            database = open_server(server.address("flipped"))
            try:
                outcomes[assess(database, before, indexed, runs)] += 1
            except Exception as error:
                raise AssertionError(what) from error
            finally:
                database.dispose()
        for file, held in whole.items():  # in place, so that they stay the server's
            file.write_bytes(held)
    with server.started():
        database = open_server(server.address("flipped"))
        after = registry_database.check_database(database).damaged
        database.dispose()
    server.postmaster.start()
    assert after == (), "what was restored after each flip"
    tell(capsys, "PostgreSQL", outcomes)
