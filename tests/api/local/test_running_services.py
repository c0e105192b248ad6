"""How many services a registry has: one on SQLite; several on PostgreSQL, if they share a folder."""

import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from benchlock.api.local import running_services
from benchlock.api.local.running_services import require_same_folder, running_service
from benchlock.artifacts.errors import RefusedError
from benchlock.registry.database.engine import open_engine, open_server
from tests.support.api.commands import Commands
from tests.support.api.serving import service
from tests.support.api.warm import Warm
from tests.support.servers.postgresql import EMPTY, PostgresServer


@pytest.fixture
def on_server(postgresql: PostgresServer, tmp_path: Path) -> Iterator[Commands]:
    """A registry whose database is on a server."""
    with postgresql.database(EMPTY) as address:
        commands = Warm(tmp_path / "registry", variables={"BENCHLOCK_DATABASE": address})
        commands.done("db", "create")
        yield commands


def copied(commands: Commands) -> Commands:
    """Another folder with the same database."""
    shutil.copytree(commands.registry, commands.registry.with_name("copy"))
    return replace(commands, registry=commands.registry.with_name("copy"))


def test_a_second_service_on_sqlite_is_refused_and_hears_who_has_it(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    commands = Commands(registry)
    with service(registry) as served:
        for words in (("serve", "--open", "--port", "1"), ("db", "upgrade"), ("db", "upgrade", "--dry-run")):
            error = commands.error(1, *words)
            assert f"process {served.process.pid} on {socket.gethostname()}, since 20" in error["message"]
        assert commands.done("list") == {"artifacts": []}  # commands go on beside it
        assert commands.done("gc")["blobs"] == 0
        served.kill()
    with service(registry) as served:
        assert served.end() == 0
    assert commands.done("db", "upgrade")["backup"] is None


def test_a_database_that_two_folders_name_has_one_service(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    database = open_engine(first / "registry.sqlite")
    with running_service(first, database):
        (second / "registry.sqlite").symlink_to(first / "registry.sqlite")
        with pytest.raises(RefusedError, match=f"process {os.getpid()} on"), running_service(second, database):
            pass
    with running_service(second, database):
        pass
    database.dispose()


def test_several_services_of_one_folder_go_together_on_a_server(on_server: Commands) -> None:
    variables = on_server.variables
    with service(on_server.registry, variables=variables) as one, service(on_server.registry, variables=variables):
        assert on_server.done("gc")["blobs"] == 0
        error = on_server.error(1, "db", "upgrade")
        assert f"process {one.process.pid}" in error["message"] or "a service uses this registry" in error["message"]
        one.kill()
        with service(on_server.registry, variables=variables):
            assert on_server.done("gc")["blobs"] == 0
    assert on_server.done("db", "upgrade")["after"]


def test_a_service_and_commands_of_another_folder_are_refused(on_server: Commands) -> None:
    other = copied(on_server)
    with service(on_server.registry, variables=on_server.variables) as served:
        for words in (("serve", "--open", "--port", "1"), ("gc",), ("list",), ("backup", "somewhere")):
            error = other.error(1, *words)
            assert error["message"].startswith("the registry is served from another folder: benchlock serve, ")
            assert f"process {served.process.pid}, since 20" in error["message"]
        served.kill()
    assert other.done("gc")["blobs"] == 0


def test_two_that_start_at_once_from_two_folders_do_not_both_serve(on_server: Commands, tmp_path: Path) -> None:
    engine = open_server(on_server.variables["BENCHLOCK_DATABASE"])
    other = tmp_path / "other"
    other.mkdir()
    with running_service(on_server.registry, engine):
        with pytest.raises(RefusedError, match="another folder"), running_service(other, engine):
            pass
        with running_service(on_server.registry, engine):
            require_same_folder(on_server.registry, engine)
        with pytest.raises(RefusedError, match="another folder"):
            require_same_folder(other, engine)
    require_same_folder(other, engine)
    assert list((on_server.registry / "services").iterdir()) == []
    engine.dispose()


def test_a_service_registers_again_where_the_server_ended_its_session(
    on_server: Commands, postgresql: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(running_services, "LOCK_SECONDS", 0.05)
    engine = open_server(on_server.variables["BENCHLOCK_DATABASE"])
    with running_service(on_server.registry, engine):
        postgresql.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'benchlock serve%'"
        )
        for _ in range(200):
            try:
                require_same_folder(tmp_path / "other", engine)
            except RefusedError:
                break
        else:
            pytest.fail("the service did not register again")
        (file,) = (on_server.registry / "services").iterdir()
        assert json.loads(file.read_bytes())["pid"] == os.getpid()
    engine.dispose()


def test_a_service_ends_where_another_folder_s_has_the_database_by_then(
    on_server: Commands, postgresql: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(running_services, "LOCK_SECONDS", 1.0)
    engine, told = open_server(on_server.variables["BENCHLOCK_DATABASE"]), threading.Event()
    other = tmp_path / "other"
    other.mkdir()
    with running_service(on_server.registry, engine, told.set):
        for _ in range(200):
            with suppress(RefusedError), running_service(other, engine, told.set):
                assert told.wait(60)
                break
            postgresql.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'benchlock serve%'"
            )
        assert told.is_set()
    engine.dispose()
