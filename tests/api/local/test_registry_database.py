"""Registries whose database is on a server, by commands as users give them."""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from benchlock.registry.database.engine import open_server, read_transaction
from tests.support.api.commands import Commands
from tests.support.api.warm import Warm
from tests.support.registry import tiny
from tests.support.registry.digits import request, written
from tests.support.servers.postgresql import EMPTY, PostgresServer
from tests.support.servers.registry_server import free_port

SECRET = "correct-horse"


@pytest.fixture
def address(postgresql: PostgresServer) -> Iterator[str]:
    """A database in which there is nothing."""
    with postgresql.database(EMPTY) as address:
        yield address


@pytest.fixture
def published(address: str, tmp_path: Path) -> Commands:
    """A registry made with the variable set, and a password that nothing asks for; the commands come without."""
    variable = address.replace("postgres@", f"postgres:{SECRET}@")
    made = Warm(tmp_path / "registry", variables={"BENCHLOCK_DATABASE": variable})
    made.done("publish", *tiny.author(tmp_path / "manifests"))
    return replace(made, variables={})


def test_the_decision_holds_without_the_variable(published: Commands, address: str, tmp_path: Path) -> None:
    assert not (published.registry / "registry.sqlite").exists()
    assert [one["name"] for one in published.done("list", "model")["artifacts"]] == ["digits-onnx"]
    assert address in published.done("doctor")["database"]
    asked = written(tmp_path / "request.yaml", request("digits-onnx"))
    lock = published.done("lock", asked, "-o", tmp_path / "it.lock")
    assert published.done("verify", lock["lock"])["damaged"] == []
    database = open_server(address)
    with read_transaction(database) as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM locks").scalar() == 1
    database.dispose()
    same = replace(published, variables={"BENCHLOCK_DATABASE": address})
    assert same.done("gc")["blobs"] == 0


def test_a_password_is_neither_written_down_nor_shown(published: Commands, address: str) -> None:
    files = [path for path in published.registry.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert json.loads((published.registry / "database.json").read_bytes())["database"] == address
    shown = replace(published, variables={"BENCHLOCK_DATABASE": address.replace("@", f":{SECRET}@")})
    for words in (("doctor",), ("list",), ("show", "model/none")):
        done = subprocess.run(
            shown.command(*words), env=shown.environment(), capture_output=True, text=True, check=False
        )
        assert SECRET not in done.stdout + done.stderr


def test_another_database_than_the_decided_is_refused(published: Commands, address: str, tmp_path: Path) -> None:
    other = replace(published, variables={"BENCHLOCK_DATABASE": f"{address}_other"})
    assert other.error(2, "list")["message"].endswith(f"has {address}")
    local = Warm(tmp_path / "local")
    local.done("db", "create")
    error = replace(local, variables={"BENCHLOCK_DATABASE": address}).error(2, "list")
    assert error["message"].endswith("has its own folder")
    assert not (tmp_path / "local" / "database.json").exists()


def test_a_database_is_one_registry_s(published: Commands, address: str, tmp_path: Path) -> None:
    other = Warm(tmp_path / "other", variables={"BENCHLOCK_DATABASE": address})
    assert other.error(1, "db", "create")["message"] == "the database belongs to another registry of benchlock"
    undecided = replace(other, variables={})
    assert undecided.error(2, "list")["message"] == "no registry found"
    undecided.done("db", "create")  # nothing was decided
    assert undecided.done("list") == {"artifacts": []}
    assert (other.registry / "registry.sqlite").exists()
    assert len(published.done("list")["artifacts"]) == 4


def test_commands_that_make_the_registry_at_once(address: str, tmp_path: Path) -> None:
    commands = Warm(tmp_path / "registry", variables={"BENCHLOCK_DATABASE": address})
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda _: commands.call("db", "create"), range(3)))
    assert [answer.code for answer in answers] == [0] * 3, answers
    assert sorted(answer.stderr for answer in answers) == ["", "", f"created the registry in {commands.registry}\n"]
    assert commands.done("list") == {"artifacts": []}


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ("mysql://root:correct-horse@localhost/x", 2, "invalid PostgreSQL URL"),
        ("postgresql://postgres:correct-horse@localhost", 2, "invalid PostgreSQL URL"),
        ("postgresql://localhost/x?password=correct-horse", 2, "invalid PostgreSQL URL"),
        ("postgresql://postgres:correct-horse@127.0.0.1:{closed}/x", 5, "refused"),
        ("postgresql://postgres:correct-horse@127.0.0.1:{port}/missing", 5, 'database "missing" does not exist'),
        ("postgresql://nobody:correct-horse@127.0.0.1:{port}/postgres", 5, 'role "nobody" does not exist'),
    ],
)
def test_what_cannot_be_opened_is_said_and_nothing_is_decided(
    postgresql: PostgresServer, tmp_path: Path, given: str, code: int, said: str
) -> None:
    variable = given.format(port=postgresql.port, closed=free_port())
    commands = Warm(tmp_path / "registry", variables={"BENCHLOCK_DATABASE": variable})
    error = commands.error(code, "db", "create")
    assert said in error["message"]
    assert error["next"]
    assert SECRET not in json.dumps(error)
    assert not (tmp_path / "registry" / "database.json").exists()


def test_what_is_lent_only_to_others_is_said(address: str, postgresql: PostgresServer, tmp_path: Path) -> None:
    with ExitStack() as stack:
        postgresql.run("CREATE ROLE reader LOGIN")
        stack.callback(postgresql.run, "DROP ROLE reader")
        commands = Warm(
            tmp_path / "registry", variables={"BENCHLOCK_DATABASE": address.replace("postgres@", "reader@")}
        )
        error = commands.error(5, "db", "create")
        assert "permission denied" in error["message"]
        assert "OWNER" in error["next"]
