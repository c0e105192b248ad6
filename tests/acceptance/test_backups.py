"""A registry is backed up while it is served and published to, and made again: rows, blobs, locks, runs, verdicts."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchlock.api.local.local_registry import open_registry
from benchlock.artifacts.digest import digest_bytes, to_hex
from benchlock.artifacts.stores.local_store import LocalStore
from tests.support.api.commands import Commands
from tests.support.api.serving import Served, service
from tests.support.api.warm import Warm
from tests.support.evaluator.stub_harness import stubbed
from tests.support.registry import tiny
from tests.support.registry.digits import GRAPH, locked, model, request
from tests.support.servers.postgresql import EMPTY, PostgresServer

DATABASES = ("sqlite", "postgresql")


@dataclass(frozen=True)
class Site:
    """A registry, and where the database of the next one would be; both are files where ``dump`` is ``None``."""

    commands: Commands
    restored: Commands
    server: PostgresServer | None
    dump: Path

    def back_up(self, folder: Path) -> dict[str, Any]:
        """As docs/how-to/deployment.md says: the database first."""
        if self.server is not None:
            address = self.commands.variables["BENCHLOCK_DATABASE"]
            self._program("pg_dump", "--format=custom", f"--file={self.dump}", address)
        document: dict[str, Any] = self.commands.done("backup", folder)
        return document

    def restore(self, folder: Path) -> dict[str, Any]:
        if self.server is not None:
            address = self.restored.variables["BENCHLOCK_DATABASE"]
            self._program("pg_restore", "--exit-on-error", "--no-owner", f"--dbname={address}", self.dump)
        document: dict[str, Any] = self.restored.done("restore", folder)
        return document

    def _program(self, *words: str | Path) -> None:
        assert self.server is not None
        name, *rest = map(str, words)
        subprocess.run([self.server.programs / name, *rest], check=True, capture_output=True)


@pytest.fixture(params=DATABASES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    old, new = Warm(tmp_path / "old"), Warm(tmp_path / "new")
    if request.param == "sqlite":
        yield Site(old, new, None, tmp_path / "none")
        return
    server: PostgresServer = request.getfixturevalue("postgresql")
    with server.database(EMPTY) as first, server.database(EMPTY) as second:
        yield Site(
            replace(old, variables={"BENCHLOCK_DATABASE": first}),
            replace(new, variables={"BENCHLOCK_DATABASE": second}),
            server,
            tmp_path / "database.dump",
        )


@dataclass
class Publisher:
    """Publishes one version after another over HTTP, each with a blob of its own, until it is stopped."""

    served: Served
    done: list[str] = field(default_factory=list)
    ends: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        try:
            with httpx.Client(base_url=f"{self.served.url}/v1", timeout=60) as client:
                graph = self._sent(client, "digits.onnx", GRAPH.read_bytes(), "graph")
                while not self.ends.is_set():
                    self._publish(client, f"1.0.{len(self.done)}", graph)
        finally:
            self.ends.set()  # whoever waits for more is told that there will be none

    def _publish(self, client: httpx.Client, version: str, graph: dict[str, Any]) -> None:
        card = self._sent(client, "README.md", f"version {version}\n".encode(), "card")
        manifest = model("busy") | {"version": version, "files": [graph, card]}
        client.post("/artifacts", json={"manifest": manifest}).raise_for_status()
        self.done.append(version)

    def _sent(self, client: httpx.Client, path: str, content: bytes, role: str) -> dict[str, Any]:
        digest = digest_bytes(content)
        octets = {"content-type": "application/octet-stream"}
        client.post("/blobs/uploads", params={"digest": digest}, content=content, headers=octets).raise_for_status()
        return {"path": path, "role": role, "sha256": to_hex(digest), "size": len(content)}

    def wait_for(self, count: int) -> None:
        while len(self.done) < count and not self.ends.wait(0.01):
            pass


def stub_lock(commands: Commands, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a lock that can be run in no time, kept in the registry."""
    for name, value in commands.variables.items():
        monkeypatch.setenv(name, value)
    registry = open_registry(str(commands.registry), print)
    try:
        assert isinstance(registry.store, LocalStore)
        folder.mkdir()
        lock = stubbed(registry.store, folder).lock(metrics=())
        registry.catalogue.put_lock(lock)
        return lock.id
    finally:
        registry.database.dispose()


def test_a_registry_that_is_written_to_is_backed_up_and_made_again(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = site.commands, site.restored
    old.done("publish", *tiny.author(tmp_path / "manifests"))
    lock = locked(old, tmp_path, request("digits-onnx")).read_text()
    runnable = stub_lock(old, tmp_path / "stub", monkeypatch)
    run = old.done("run", runnable, "--isolation", "process")
    assert run["end"]["outcome"] == "done"

    with service(old.registry, variables=old.variables) as served:
        publisher = Publisher(served)
        thread = threading.Thread(target=publisher)
        thread.start()
        try:
            publisher.wait_for(3)
            first = site.back_up(tmp_path / "backup")
            publisher.wait_for(len(publisher.done) + 3)
            before = set(publisher.done)
            second = site.back_up(tmp_path / "backup")
            old.done("gc")
        finally:
            publisher.ends.set()
            thread.join()
    assert first["damaged"] == second["damaged"] == []
    assert first["copied"] == first["blobs"]
    assert second["copied"] < second["blobs"]
    shutil.rmtree(old.registry)  # the disk is lost

    restored = site.restore(tmp_path / "backup")
    assert (restored["damaged"], restored["copied"]) == ([], restored["blobs"])
    listed = {one["version"] for one in new.done("list", "model")["artifacts"] if one["name"] == "busy"}
    assert before <= listed <= set(publisher.done)
    assert new.done("verify")["damaged"] == []
    assert locked(new, tmp_path, request("digits-onnx")).read_text() == lock
    assert new.done("show", run["run"])["end"]["metrics"] == run["end"]["metrics"]
    again = new.call("rerun", runnable, "--against", run["run"], "--isolation", "process").document
    assert again["original"] == run["run"]
    assert again["verdict"] == "undecided", again
    assert "is not a released harness, " in again["reasons"][0], again
    assert len(new.done("runs", "--lock", runnable)["runs"]) == 2
