"""Every record is in the chain with its digest, and nothing of a record or of the chain changes unseen."""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from alembic import command
from sqlalchemy import JSON, Boolean, Connection, Engine, Table, func, select, text

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import Run
from benchlock.migrations import configure, upgrade
from benchlock.migrations.schema_check import METADATA
from benchlock.registry.artifact_names import parse_reference
from benchlock.registry.auth.audit_log import AuditLog, action_record, record_action
from benchlock.registry.auth.tokens import Tokens
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.database_checks import check_database
from benchlock.registry.database.engine import (
    DamagedDatabaseError,
    open_engine,
    open_server,
    read_transaction,
    write_transaction,
)
from benchlock.registry.database.group_commit import GroupCommit
from benchlock.registry.database.record_chain import Head, insert_records, record_kinds
from benchlock.registry.database.registry_schema import record_chain
from tests.support.registry.filled import Clock, fill
from tests.support.registry.forging import forge, remove_guards
from tests.support.servers.postgresql import TEMPLATE, PostgresServer

CHAINED = [table for table in METADATA.sorted_tables if table.info.get("append_only")]
MODEL = parse_reference("model/digits@1.0.0")
FORGERIES = [
    "UPDATE run_metrics SET value = 1 WHERE run = :run AND name = 'top1'",
    "UPDATE run_batch_metrics SET n = 2 WHERE run = :run",
    "DELETE FROM run_metrics WHERE run = :run AND name = 'top1'",
    "UPDATE run_packages SET version = '0' WHERE run = :run",
    "UPDATE run_ends SET outcome = 'failed' WHERE run = :run",
    "UPDATE run_ends SET ended_at = 'no time' WHERE run = :run",
    "DELETE FROM run_ends WHERE run = :run",
    """UPDATE runs SET host = '{"cpu_model": "another"}' WHERE id = :run""",
    "UPDATE runs SET started_at = :at WHERE id = :run",
    "INSERT INTO imported_runs (run, at) VALUES (:run, :at)",
    "DELETE FROM record_chain WHERE kind = 'run_ends' AND key = :run",
    "UPDATE record_chain SET link = digest WHERE kind = 'run_ends' AND key = :run",
]
Entries = dict[tuple[str, str], str]

pytestmark = pytest.mark.databases


@dataclass(frozen=True)
class Filled:
    """A database to copy, with records of every kind; the runs among them that ended."""

    name: str
    runs: list[Run]


@pytest.fixture(scope="module")
def filled_file(schema: Path, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    path = tmp_path_factory.mktemp("filled") / "registry.db"
    shutil.copy(schema, path)
    engine = open_engine(path)
    runs = fill(engine)
    engine.dispose()
    return Filled(str(path), runs)


@pytest.fixture(scope="module")
def filled_on_server(postgresql: PostgresServer) -> Iterator[Filled]:
    with postgresql.database() as address:
        engine = open_server(address)
        runs = fill(engine)
        engine.dispose()
        yield Filled(address.rpartition("/")[2], runs)


@pytest.fixture
def database(request: pytest.FixtureRequest, schema: Path, tmp_path: Path) -> Iterator[Engine]:
    """A database of the test's own: empty, or filled where it takes the ``runs``."""
    is_filled = "runs" in request.fixturenames
    with ExitStack() as stack:
        if request.param == "sqlite":
            path = tmp_path / "registry.db"
            shutil.copy(request.getfixturevalue("filled_file").name if is_filled else schema, path)
            engine = open_engine(path)
        else:
            template = request.getfixturevalue("filled_on_server").name if is_filled else TEMPLATE
            server: PostgresServer = request.getfixturevalue("postgresql")
            engine = open_server(stack.enter_context(server.database(template)))
        stack.callback(engine.dispose)
        yield engine


@pytest.fixture
def runs(request: pytest.FixtureRequest, database: Engine) -> list[Run]:
    """Records of every kind; the runs among them that ended."""
    name = "filled_file" if database.dialect.name == "sqlite" else "filled_on_server"
    found: Filled = request.getfixturevalue(name)
    return found.runs


def entries(database: Engine) -> Entries:
    with read_transaction(database) as connection:
        return {(row.kind, row.key): row.digest for row in connection.execute(select(record_chain))}


def damage(database: Engine, noted: Head | None = None) -> list[str]:
    return [str(fault) for fault in check_database(database, METADATA, noted).damaged]


def other(value: Any) -> Any:  # noqa: ANN401 - a value of any column
    """A value of the same type that is another one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1000
    if value is None:
        return 1
    digit = re.search(r"\d(?=\D*$)", value)
    if digit is None:
        return value[:-1] + ("x" if value[-1:] != "x" else "y") if value else "x"
    return f"{value[: digit.start()]}{(int(digit[0]) + 1) % 10}{value[digit.end() :]}"


def test_every_record_is_chained(database: Engine, runs: list[Run]) -> None:
    report = check_database(database, METADATA)
    assert report.damaged == ()
    with read_transaction(database) as connection:
        tables = {kind.name: kind.table for kind in record_kinds(METADATA)}
        counts = {one: connection.scalar(select(func.count()).select_from(table)) for one, table in tables.items()}
        for table in CHAINED:
            assert connection.scalar(select(func.count()).select_from(table)), f"nothing fills {table.name}"
    assert report.head is not None
    assert report.head.seq == len(entries(database)) == sum(filter(None, counts.values()))
    assert {run.id for run in Records(database).list()} > {run.id for run in runs}


def test_a_revision_chains_what_is_there(database: Engine, runs: list[Run]) -> None:  # noqa: ARG001 - it fills
    before = {place: digest for place, digest in entries(database).items() if place[0] != "hidings"}  # a later table
    with write_transaction(database) as connection:
        command.downgrade(configure(connection), "0015")
    upgrade(database)
    assert entries(database) == before
    assert damage(database) == []


def test_no_column_of_a_record_changes_unseen(database: Engine, runs: list[Run]) -> None:  # noqa: ARG001 - it fills
    """Neither does one of the chain; what the database checks by itself does not count."""
    remove_guards(database)
    unseen = []
    for table in CHAINED:
        keys = [column.name for column in table.primary_key.columns]
        same = " AND ".join(f'"{key}" = :key_{key}' for key in keys)
        for column in table.columns:
            row = first_row(database, table)
            key = {f"key_{name}": row[name] for name in keys}
            value = '{"other": 1}' if isinstance(column.type, JSON) else other(row[column.name])
            if isinstance(column.type, Boolean):
                value = not row[column.name]
            change = f'UPDATE {table.name} SET "{column.name}" = :value WHERE {same}'
            forge(database, change, value=value, **key)
            if not [one for one in damage(database) if "SQLite's" not in one and "trigger" not in one]:
                unseen.append(f"{table.name}.{column.name}")
            if column.primary_key:
                key[f"key_{column.name}"] = value
            forge(database, change, value=row[column.name], **key)
    assert unseen == []
    assert [one for one in damage(database) if "trigger" not in one] == []


@pytest.mark.parametrize("table", [table.name for table in CHAINED])
def test_no_row_is_removed_unseen(database: Engine, runs: list[Run], table: str) -> None:  # noqa: ARG001 - it fills
    remove_guards(database)
    row = first_row(database, METADATA.tables[table])
    keys = [column.name for column in METADATA.tables[table].primary_key.columns]
    same = " AND ".join(f'"{key}" = :{key}' for key in keys)
    forge(database, f"DELETE FROM {table} WHERE {same}", **{key: row[key] for key in keys})
    assert [one for one in damage(database) if "SQLite's" not in one and "trigger" not in one]


def test_a_chain_that_was_written_anew_is_known_by_a_head_noted_before(database: Engine, runs: list[Run]) -> None:
    noted = check_database(database, METADATA).head
    assert noted is not None
    Catalogue(database, Clock()).yank(MODEL, "another reason")
    assert damage(database, noted) == []
    remove_guards(database)
    forge(database, "UPDATE run_metrics SET value = 1 WHERE run = :run AND name = 'top1'", run=runs[0].id)
    with write_transaction(database) as connection:
        command.downgrade(configure(connection), "0015")
    upgrade(database)
    assert [one for one in damage(database) if "trigger" not in one] == []
    (fault,) = (one for one in damage(database, noted) if "trigger" not in one)
    assert f"entry {noted.seq} of the chain" in fault
    assert noted.link in fault


@pytest.mark.parametrize("statement", FORGERIES)
def test_a_forged_run_is_not_delivered(database: Engine, runs: list[Run], statement: str) -> None:
    records, run = Records(database), runs[0].id
    assert records.get(run) == runs[0]
    remove_guards(database)
    forge(database, statement, **{"run": run} | ({"at": "2026-11-21T12:00:00.000001Z"} if ":at" in statement else {}))
    for read in (lambda: records.get(run), records.list):
        with pytest.raises(DamagedDatabaseError, match=f"{run}|no time"):
            read()
    assert records.get(runs[1].id) == runs[1]


def test_other_forged_records_are_not_delivered(database: Engine, runs: list[Run]) -> None:
    catalogue = Catalogue(database, Clock())
    remove_guards(database)
    forge(database, "UPDATE manifests SET content = replace(content, 'Apache', 'apache')")
    for read in (catalogue.manifest, catalogue.content, catalogue.read):
        with pytest.raises(DamagedDatabaseError, match=str(MODEL)):
            read(MODEL)
    forge(database, "UPDATE locks SET created_at = replace(created_at, '26', '25')")
    with pytest.raises(DamagedDatabaseError, match=runs[0].start.lock):
        catalogue.get_lock(runs[0].start.lock)
    forge(database, "DELETE FROM token_revocations")
    with pytest.raises(DamagedDatabaseError, match="token_revocations"):
        Tokens(database, Clock()).list()
    forge(database, "UPDATE actions SET actor = 'somebody' WHERE action = 'version.yank'")
    with pytest.raises(DamagedDatabaseError, match="actions"):
        AuditLog(database).list()


def test_what_is_rolled_back_leaves_no_gap(database: Engine) -> None:
    """Neither a transaction nor one of several changes that are committed together."""
    at = Clock()()

    def fail(connection: Connection) -> None:
        record_action(connection, "test", "fails", at)
        raise InvalidInputError("it fails")

    together = GroupCommit(database)
    for act in (fail, lambda connection: record_action(connection, "test", "works", at)):
        with suppress(InvalidInputError):
            together.do(act)
    with pytest.raises(InvalidInputError), write_transaction(database) as connection:
        fail(connection)
    report = check_database(database, METADATA)
    assert (report.damaged, report.head and report.head.seq) == ((), 1)


def test_several_records_inserted_at_once_follow_each_other_in_the_chain(database: Engine) -> None:
    actions = [action_record("test", str(number), Clock()()) for number in range(3)]
    with write_transaction(database) as connection:
        insert_records(connection, actions)
    assert list(entries(database)) == [("actions", str(action.values["id"])) for action in actions]
    report = check_database(database, METADATA)
    assert (report.damaged, report.head and report.head.seq) == ((), 3)


def test_writers_at_once_make_one_chain(database: Engine) -> None:
    catalogue, count = Catalogue(database, Clock()), 8
    threads = [Thread(target=catalogue.note, args=("test", str(number))) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report = check_database(database, METADATA)
    assert (report.damaged, report.head and report.head.seq) == ((), count)


def first_row(database: Engine, table: Table) -> Mapping[str, Any]:
    """The first row of a table as texts and numbers; what is JSON as it is stored."""
    columns = (
        f'CAST("{one.name}" AS TEXT) AS "{one.name}"' if isinstance(one.type, JSON) else f'"{one.name}"'
        for one in table.columns
    )
    keys = ", ".join(f'"{column.name}"' for column in table.primary_key.columns)
    with read_transaction(database) as connection:
        row = (
            connection.execute(text(f"SELECT {', '.join(columns)} FROM {table.name} ORDER BY {keys}"))
            .mappings()
            .first()
        )
    assert row is not None
    return {str(column): value for column, value in row.items()}
