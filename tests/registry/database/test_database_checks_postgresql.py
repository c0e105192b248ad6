"""PostgreSQL's own checks: what amcheck finds is damage, and where it cannot look, `doctor` says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from benchlock.registry.database.database_checks import describe_checks, find_storage_damage
from benchlock.registry.database.engine import open_server
from tests.support.api.warm import Warm
from tests.support.registry.filled import fill
from tests.support.servers.postgresql import PostgresServer, programs_with, serving

NOT_INSTALLED = "not checked by amcheck: it is not installed (as a superuser: CREATE EXTENSION amcheck)"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server with the extension, and with page checksums."""
    with serving(programs_with("amcheck"), ["--data-checksums"]) as server:
        yield server


@pytest.fixture
def address(server: PostgresServer) -> Iterator[str]:
    with server.database() as address:
        yield address


@pytest.fixture
def checked(address: str) -> Iterator[Engine]:
    """A database with records and the extension."""
    engine = open_server(address)
    fill(engine)
    change(engine, "CREATE EXTENSION amcheck")
    yield engine
    engine.dispose()


def change(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def faults(engine: Engine) -> list[str]:
    return [fault.what for fault in find_storage_damage(engine)]


def test_amcheck_finds_nothing_in_a_whole_database(checked: Engine) -> None:
    assert faults(checked) == []
    assert describe_checks(checked) == ("page checksums are on", "checked by amcheck")


def test_amcheck_finds_damage_of_a_table_that_no_search_finds(checked: Engine) -> None:
    """As if the table's oldest transaction were newer than the rows: they may vanish at any time."""
    frozen = "relfrozenxid = (pg_current_xact_id()::text::bigint - 1)::text::xid"
    change(checked, f"UPDATE pg_class SET {frozen} WHERE relname = 'runs'")
    assert [fault for fault in faults(checked) if "amcheck of runs: xmin" in fault]
    change(checked, "DROP EXTENSION amcheck")
    assert faults(checked) == []


def test_amcheck_finds_a_row_that_an_index_lacks(checked: Engine) -> None:
    ready = "UPDATE pg_index SET indisready = {} WHERE indexrelid = 'pk_held_runs'::regclass"
    change(checked, ready.format("false"))
    row = "INSERT INTO held_runs (run, owner, until) SELECT id, 'nobody', 0 FROM runs LIMIT 1"
    change(checked, row)
    change(checked, ready.format("true"))
    found = faults(checked)
    assert [fault for fault in found if "lacks matching index tuple" in fault], found


def test_a_user_who_is_no_superuser_is_told_that_amcheck_did_not_look(checked: Engine, address: str) -> None:
    change(checked, "CREATE ROLE plain LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain")
    engine = open_server(address.replace("postgres@", "plain@"))
    try:
        assert faults(engine) == []
        assert describe_checks(engine)[1] == "not checked by amcheck: the user is not a superuser"
    finally:
        engine.dispose()
        change(checked, "DROP OWNED BY plain", "DROP ROLE plain")


def test_doctor_says_what_is_not_checked(postgresql: PostgresServer, tmp_path: Path) -> None:
    """The server of the suite has neither the extension nor page checksums."""
    with postgresql.database() as address:
        commands = Warm(tmp_path / "registry", variables={"BENCHLOCK_DATABASE": address})
        commands.done("db", "create")
        integrity = commands.done("doctor")["integrity"]
    assert integrity.startswith("no errors in pages and indexes; page checksums are off: ")
    assert f"; {NOT_INSTALLED}; records and blobs not checked (run `benchlock verify`)" in integrity
