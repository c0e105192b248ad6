"""Bundles, verification and garbage over HTTP: as the registry in a folder does them."""

import io
from pathlib import Path

import msgspec
import pytest
from litestar.testing import TestClient

from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.http.routes.app import create_app
from benchlock.api.local.local_registry import UNNAMED_BYTES, LocalRegistry, now, open_tokens
from benchlock.api.schemas.maintenance_schemas import GcReport, ImportedRun, ImportReport, VerificationReport
from benchlock.artifacts.atomic_files import RemovedFiles
from benchlock.artifacts.bundles.bundle_reader import open_bundle
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.registry.auth.permissions import Scopes
from benchlock.registry.auth.tokens import Authenticator
from tests.api.http.conftest import Client
from tests.support.artifacts.bundled import Bundled, bundled

NOTHING = digest_bytes(b"nothing")


@pytest.fixture
def original(tmp_path: Path, schema: Path) -> Bundled:
    folder = tmp_path / "original"
    folder.mkdir()
    return bundled(LocalStore(folder / "blobs"), folder, schema)


@pytest.fixture
def bundle(original: Bundled, tmp_path: Path) -> Path:
    return original.create(tmp_path / "a.bundle")


def test_a_bundle_comes_in_once_and_for_all(
    client: Client, registry: LocalRegistry, original: Bundled, bundle: Path
) -> None:
    blob = {"blob": digest_bytes(bundle.read_bytes())}
    refused = client.post("/v1/bundles", json=blob)
    assert (refused.status_code, refused.json()["blobs"]) == (409, [blob["blob"]])
    registry.store.put_file(bundle)
    answer = client.post("/v1/bundles", json=blob)
    assert answer.status_code == 200, answer.text
    told = msgspec.json.decode(answer.content, type=ImportReport)
    assert (told.lock, told.changed, told.runs) == (
        original.lock.id,
        True,
        (ImportedRun(run=original.run.id, changed=True),),
    )
    again = msgspec.json.decode(client.post("/v1/bundles", json=blob).content, type=ImportReport)
    assert again == EmbeddedRegistry(registry).import_bundle(bundle, SILENT)
    assert not again.changed
    assert client.get(f"/v1/runs/{original.run.id.removeprefix('run/')}").json()["imported_at"]


@pytest.mark.parametrize(
    ("scopes", "status"),
    [
        (["publish:*"], 403),
        (["run"], 403),
        (["run", "publish:acme"], 403),
        (["run", "publish:*"], 200),
        (["admin"], 200),
    ],
)
def test_who_brings_runs_and_artifacts_may_do_both(
    registry: LocalRegistry, bundle: Path, scopes: list[str], status: int
) -> None:
    blob = {"blob": registry.store.put_file(bundle).digest}
    tokens = open_tokens(registry)
    _, secret = tokens.create("some", Scopes.parse(scopes))
    app = create_app(registry, authority=Authenticator(tokens, now))
    with TestClient(app, raise_server_exceptions=False) as client:
        client.headers["authorization"] = f"Bearer {secret.text}"
        answer = client.post("/v1/bundles", json=blob)
        assert answer.status_code == status, answer.text
        runs, versions = client.get("/v1/runs").json()["runs"], client.get("/v1/artifacts").json()["artifacts"]
    assert bool(runs) == bool(versions) == (status == 200)


def test_what_is_no_bundle_is_a_problem(client: Client, registry: LocalRegistry) -> None:
    found = registry.store.put(io.BytesIO(b"no bundle"))
    answer = client.post("/v1/bundles", json={"blob": found.digest})
    assert answer.status_code == 422
    assert str(registry.home) not in answer.text


def test_bytes_are_read_again(client: Client, registry: LocalRegistry, bundle: Path, original: Bundled) -> None:
    registry.store.put_file(bundle)
    client.post("/v1/bundles", json={"blob": digest_bytes(bundle.read_bytes())})
    targets = ["model/digits", original.run.id, original.lock.id, original.lock.id[:20]]
    for some in (targets, []):
        answer = client.post("/v1/verifications", json={"targets": some})
        found = msgspec.json.decode(answer.content, type=VerificationReport)
        assert found.blobs
        assert found.damaged == ()
    registry.store.delete(original.lock.harness.digest)
    (fault,) = client.post("/v1/verifications", json={"targets": targets}).json()["damaged"]
    assert (
        "in the registry's own folder" in fault["next"]
    )  # over HTTP nothing is sent that is there, and nothing would be repaired
    assert fault["code"] == "integrity"
    for target, status in (("model/nobody", 404), ("run/1", 422), (NOTHING, 404), ("x", 422), ("a\nb", 422)):
        assert client.post("/v1/verifications", json={"targets": [target]}).status_code == status, target
    assert client.post("/v1/verifications", json={"remote": True}).status_code == 422


def test_garbage_is_freed(client: Client, registry: LocalRegistry) -> None:
    registry.store.put(io.BytesIO(b"nothing"))
    half = registry.home / "blobs" / "incoming" / "0123"
    half.write_bytes(b"half")
    for dry_run in (True, False):
        answer = client.post("/v1/collections", json={"dry_run": dry_run})
        told = msgspec.json.decode(answer.content, type=GcReport)
        assert (told.blobs, told.bytes, told.dry_run) == (1, 7, dry_run)
        assert (told.leftovers, half.exists()) == (RemovedFiles(1, 4), dry_run)
        assert registry.store.exists(NOTHING) == dry_run
    assert client.post("/v1/collections", json={"local": True}).status_code == 422


def test_blobs_of_a_refused_bundle_count_as_their_senders(
    registry: LocalRegistry, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = {"blob": registry.store.put_file(bundle).digest}
    tokens = open_tokens(registry)
    _, secret = tokens.create("some", Scopes.parse(["run", "publish:acme"]))

    def send(limit: str) -> tuple[int, str, int, int]:
        monkeypatch.setenv(UNNAMED_BYTES, limit)
        app = create_app(registry, authority=Authenticator(tokens, now))
        with TestClient(app, raise_server_exceptions=False) as client:
            client.headers["authorization"] = f"Bearer {secret.text}"
            answer = client.post("/v1/bundles", json=blob)
            begun = client.post("/v1/blobs/uploads").status_code
            holds = app.state.service.uploads.held()
            return answer.status_code, answer.json()["code"], len(list(holds)), begun

    with open_bundle(bundle) as opened:
        sizes = opened.blob_sizes()
    assert send("4096") == (413, "unnamed-bytes", 0, 202)
    assert not any(registry.store.exists(digest) for digest in sizes)
    assert send("1GiB") == (403, "forbidden", len(sizes), 202)
    assert all(registry.store.exists(digest) for digest in sizes)
    assert send(str(len(sizes) * 4096)) == (413, "unnamed-bytes", len(sizes), 413)
