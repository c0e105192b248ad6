"""What a backup says of damage, what is refused, and backups of registries whose blobs are in an OCI repository."""

import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from benchlock.api.cli.main import run
from benchlock.api.cli.output import append_commands
from benchlock.artifacts.blob_store import read
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.records.evidence_status import RUN_AGAIN
from benchlock.evaluator.records.run_store import Records
from benchlock.registry.catalogue.version_rows import insert_imported_lock
from benchlock.registry.database.engine import open_engine, write_transaction
from benchlock.registry.manifests import plain
from benchlock.registry.manifests.manifest_content import content
from tests.support.api.serving import service
from tests.support.api.warm import Warm
from tests.support.evaluator.recorded import DONE, NOON, recorded
from tests.support.registry import tiny
from tests.support.registry.frameworks import framework
from tests.support.resolution.locked import flip
from tests.support.resolution.locks import request, shelf
from tests.support.servers.postgresql import EMPTY, PostgresServer
from tests.support.servers.registry_server import RegistryServer

Said = Callable[..., dict[str, Any]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Said:
    """Calls a command on the registry ``home``, which must end with ``code``; its document."""

    def call(code: int, home: str, *words: str | Path, **variables: str) -> dict[str, Any]:
        with monkeypatch.context() as patched:
            for name in ("BENCHLOCK_STORE", "BENCHLOCK_DATABASE"):
                patched.delenv(name, raising=False)
            for name, value in variables.items():
                patched.setenv(name, value)
            found = run(["--registry", str(tmp_path / home), "--json", *map(str, words)])
        written = capsys.readouterr()
        assert found == code, (words, written)
        document: dict[str, Any] = json.loads(written.out)
        return document

    return call


def test_damage_at_the_source_is_named_and_the_rest_is_copied(said: Said, tmp_path: Path) -> None:
    said(0, "old", "publish", *tiny.author(tmp_path / "manifests"))
    blobs = sorted((tmp_path / "old" / "blobs" / "sha256").glob("*/*"), key=lambda path: path.stat().st_size)
    lost, changed = blobs[0], blobs[-1]
    lost.unlink()
    flip(changed)
    document = said(4, "old", "backup", tmp_path / "backup")
    assert {one["where"].rpartition(":")[2] for one in document["damaged"]} == {lost.name, changed.name}
    copies = {path.name for path in (tmp_path / "backup" / "blobs" / "sha256").glob("*/*")}
    assert copies == {path.name for path in blobs} - {lost.name, changed.name}


def test_what_a_run_left_is_not_to_be_published_again(said: Said, tmp_path: Path) -> None:
    said(0, "old", "publish", *tiny.author(tmp_path / "manifests"))
    old = tmp_path / "old"
    blob, lost = (LocalStore(old / "blobs").put(io.BytesIO(content)) for content in (b"left", b"lost"))
    end = replace(DONE, packages={"numpy": "1"}, timings={"load": 1.0}, blobs={"predictions": blob, "samples": lost})
    lock = shelf().lock(request())
    database = open_engine(old / "registry.sqlite")
    with write_transaction(database) as connection:
        insert_imported_lock(connection, lock, lock.image.platforms[:1], NOON)
    started = recorded(lock=lock.id).start
    Records(database).start(started)
    Records(database).finish(started.id, end)
    database.dispose()
    paths = [LocalStore(old / "blobs").path(one.digest) for one in (blob, lost)]
    flip(paths[0])
    paths[1].unlink()
    damaged = said(4, "old", "backup", tmp_path / "backup")["damaged"]
    steps = {one["where"].rpartition(":")[2]: one["next"] for one in damaged}
    assert all(append_commands(RUN_AGAIN) == steps[path.name] for path in paths)
    assert "publish the file again" in steps[lock.harness.digest.rpartition(":")[2]]


def test_the_one_fault_of_a_database_is_one_error_without_a_list(said: Said, tmp_path: Path) -> None:
    said(0, "old", "publish", *tiny.author(tmp_path / "manifests"))
    with closing(sqlite3.connect(tmp_path / "old" / "registry.sqlite")) as connection:
        connection.execute("DROP INDEX ix_versions_digest")
    error = said(4, "old", "backup", tmp_path / "backup")["error"]
    assert "ix_versions_digest is missing" in error["message"]
    assert "problems" not in error


def test_what_is_no_backup_and_a_registry_that_is_there_are_refused(said: Said, tmp_path: Path) -> None:
    assert "does not contain a complete backup" in said(2, "new", "restore", tmp_path / "nowhere")["error"]["message"]
    assert not (tmp_path / "new" / "registry.sqlite").exists()
    said(0, "old", "db", "create")
    said(0, "old", "backup", tmp_path / "backup")
    assert "already contains a registry" in said(1, "old", "restore", tmp_path / "backup")["error"]["message"]
    (tmp_path / "file").write_text("in the way")
    assert "cannot be written" in said(5, "old", "backup", tmp_path / "file")["error"]["message"]


def test_a_database_on_a_server_has_its_dump_first(tmp_path: Path, postgresql: PostgresServer) -> None:
    with postgresql.database(EMPTY) as address, postgresql.database(EMPTY) as other:
        old = Warm(tmp_path / "old", variables={"BENCHLOCK_DATABASE": address})
        old.done("db", "create")
        old.done("backup", tmp_path / "backup")
        told = Warm(tmp_path / "new").error(2, "restore", tmp_path / "backup")
        assert "its current address is unknown" in told["message"]
        told = Warm(tmp_path / "new", variables={"BENCHLOCK_DATABASE": other}).error(1, "restore", tmp_path / "backup")
        assert "the database does not belong to the registry" in told["message"]
        Warm(tmp_path / "new", variables={"BENCHLOCK_DATABASE": address}).done("restore", tmp_path / "backup")


@pytest.mark.parametrize("wanted", ["the same repository", "another one", "the folder"])
def test_blobs_of_a_repository_are_restored_to_wherever_they_shall_be(
    said: Said, tmp_path: Path, registry_server: RegistryServer, wanted: str
) -> None:
    name = f"backup-{wanted.replace(' ', '-')}"
    repository, other = (str(registry_server.repository(one)) for one in (name, f"{name}-2"))
    said(0, "old", "publish", *tiny.author(tmp_path / "manifests"), BENCHLOCK_STORE=repository)
    said(0, "old", "gc", "--local")
    copied = said(0, "old", "backup", tmp_path / "backup")
    shutil.rmtree(tmp_path / "old")
    variables = {
        "the same repository": {"BENCHLOCK_STORE": repository},
        "another one": {"BENCHLOCK_STORE": other},
        "the folder": {},
    }[wanted]
    restored = said(0, "new", "restore", tmp_path / "backup", **variables)
    assert (restored["blobs"], restored["damaged"]) == (copied["blobs"], [])
    where = ["--remote"] if variables else []
    found = said(0, "new", "verify", *where)
    assert (found["damaged"], found["blobs"] >= copied["blobs"]) == ([], True)


def test_a_backup_has_the_manifests_that_a_service_published_and_writes_nothing_where_they_are(
    said: Said, tmp_path: Path
) -> None:
    with service(tmp_path / "old") as served:
        published = httpx.post(f"{served.url}/v1/artifacts", json={"manifest": plain(framework("acme/ort", "1.0.0"))})
    digest = Digest(published.json()["digest"])
    assert said(0, "old", "backup", tmp_path / "backup")["damaged"] == []
    assert list(LocalStore(tmp_path / "old" / "blobs").list()) == []
    assert list(LocalStore(tmp_path / "backup" / "blobs").list()) == [digest]
    said(0, "new", "restore", tmp_path / "backup")
    assert read(LocalStore(tmp_path / "new" / "blobs"), digest, name="it") == content(framework("acme/ort", "1.0.0"))
    assert [one["digest"] for one in said(0, "new", "list")["artifacts"]] == [digest]
