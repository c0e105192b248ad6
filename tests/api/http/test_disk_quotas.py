"""Disk space over HTTP: what is refused while the disk is nearly full or a token has too much that nothing names."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from litestar.routes import HTTPRoute
from litestar.testing import TestClient

from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.routes.run_routes import RUN_START_EXAMPLE
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import DISK_RESERVE, UNNAMED_BYTES, LocalRegistry, open_reserve, open_tokens
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.uploads.disk_quotas import DiskReserve, DiskSpace, LowSpaceError
from benchlock.artifacts.uploads.resumable_uploads import Uploads
from benchlock.artifacts.user_output import SILENT
from benchlock.registry.auth.permissions import Scopes
from benchlock.registry.auth.tokens import Authenticator
from tests.api.http.conftest import Client

UPLOADS = "/v1/blobs/uploads"
RESERVE = 1000
DATASET = {
    "schema": 1,
    "kind": "framework",
    "name": "acme/runtime",
    "version": "1.0.0",
    "license": "MIT",
    "predictor": "onnxruntime",
    "distributions": ["onnxruntime"],
}


@pytest.fixture
def tokens(registry: LocalRegistry) -> dict[str, dict[str, str]]:
    """Headers of a publisher and of a worker."""
    made = open_tokens(registry)
    scopes = {"publisher": ["read", "publish:acme"], "worker": ["read", "run"], "other": ["publish:other"]}
    return {
        name: {"authorization": f"Bearer {made.create(name, Scopes.parse(some))[1].text}"}
        for name, some in scopes.items()
    }


@pytest.fixture
def closed(registry: LocalRegistry, tokens: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    del tokens
    monkeypatch.setenv(DISK_RESERVE, str(RESERVE))
    monkeypatch.setenv(UNNAMED_BYTES, "1MiB")
    gate = Authenticator(open_tokens(registry), lambda: datetime.now(UTC))
    with TestClient(create_app(registry, Settings(ready_seconds=0), gate), raise_server_exceptions=False) as client:
        yield client


def leave(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Leave so many bytes free on every disk."""
    monkeypatch.setattr(DiskReserve, "measure", lambda self: DiskSpace(1 << 40, free, self.size or 0))


def send(client: Client, content: bytes, headers: dict[str, str]) -> int:
    answer = client.post(UPLOADS, params={"digest": digest_bytes(content)}, content=content, headers=headers)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code


def test_a_full_disk_is_left_to_reading_and_to_the_ends_of_runs(
    closed: Client, tokens: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher, worker = tokens["publisher"], tokens["worker"]
    kept = b"before"
    assert send(closed, kept, publisher) == 201
    begun = closed.post(UPLOADS, headers=publisher).headers["location"]
    assert closed.get("/v1/ready").json()["status"] == "ok"

    leave(monkeypatch, RESERVE - 1)
    refused = closed.post(UPLOADS, headers=publisher)
    assert (refused.status_code, refused.json()["code"]) == (507, "low-space")
    assert closed.patch(begun, content=b"more", headers=publisher).status_code == 507
    publication = {"manifest": DATASET, "authored": "", "sources": {}}
    assert closed.post("/v1/artifacts", json=publication, headers=publisher).json()["code"] == "low-space"
    assert closed.get("/v1/ready").json()["status"] == "low-space"
    assert closed.get("/v1/health").json()["status"] == "ok"
    assert closed.get(f"/v1/blobs/{digest_bytes(kept)}", headers=publisher).content == kept
    assert closed.delete(begun, headers=publisher).status_code == 204
    assert send(closed, b"samples of a run", worker) == 201

    leave(monkeypatch, RESERVE // 2 - 1)
    assert send(closed, b"more of a run", worker) == 507
    assert closed.post("/v1/runs", json=RUN_START_EXAMPLE, headers=worker).json()["code"] == "low-space"
    leave(monkeypatch, RESERVE * 2)
    assert closed.post("/v1/artifacts", json=publication, headers=publisher).status_code == 201
    assert closed.post("/v1/runs", json=RUN_START_EXAMPLE, headers=worker).json()["code"] == "incomplete-record"
    assert closed.get("/v1/ready").json()["status"] == "ok"


def test_a_token_has_a_bound_on_bytes_that_nothing_names(
    closed: Client, registry: LocalRegistry, tokens: dict[str, dict[str, str]]
) -> None:
    publisher = tokens["publisher"]
    assert send(closed, b"1" * 700_000, publisher) == 201
    over = b"2" * 700_000
    answer = closed.post(UPLOADS, params={"digest": digest_bytes(over)}, content=over, headers=publisher)
    assert (answer.status_code, answer.json()["code"]) == (413, "unnamed-bytes")
    assert "the limit is 1048576 bytes" in answer.json()["detail"]
    begun = closed.post(UPLOADS, headers=publisher).headers["location"]
    assert closed.patch(begun, content=iter([over[:350_000], over[350_000:]]), headers=publisher).status_code == 413
    assert send(closed, over, tokens["other"]) == 201
    EmbeddedRegistry(registry).collect(dry_run=True, local=False)
    assert send(closed, over, publisher) == 413


def test_a_nearly_full_disk_takes_nothing_that_adds_to_the_registry(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routes that change something are refused unless they are named here: these free space, or end what was begun."""
    free = {
        "POST /v1/artifacts",  # it may be a dry run: the route asks for space itself
        "POST /v1/blobs/uploads",  # so do uploads, for the bytes that come
        "PATCH /v1/blobs/uploads/{upload:str}",
        "PUT /v1/blobs/uploads/{upload:str}",
        "POST /v1/collections",
        "POST /v1/verifications",
        "POST /v1/hidings",
        "POST /v1/yanks",
        "POST /yank",
        "POST /jobs/{job_id:str}/cancel",
        "POST /comparisons/{comparison:str}/cancel",
        "POST /matrices/{matrix_id:str}/cancel",
        "POST /v1/matrices/{matrix_id:str}/cancel",
        "POST /tokens/revoke",
        "POST /v1/tokens/{token:str}/rotation",
        "PATCH /v1/queue/shares",
        "PATCH /v1/machines/{name:str}",
        "POST /v1/machines/{name:str}/departure",
        "PATCH /v1/leases/{fence:str}",
        "PUT /v1/leases/{fence:str}/run",
        "POST /v1/leases/{fence:str}/release",
        "PUT /v1/runs/{run_id:str}/end",
        "PUT /v1/runs/{run_id:str}/hold",
    }
    monkeypatch.setenv(DISK_RESERVE, str(RESERVE))
    app = create_app(registry)
    leave(monkeypatch, RESERVE // 2 - 1)
    refused = set[str]()
    with TestClient(app, raise_server_exceptions=False) as client:
        for route in (one for one in app.routes if isinstance(one, HTTPRoute)):
            for handler in route.route_handlers:
                for method in handler.http_methods & {"POST", "PUT", "PATCH"}:
                    name = f"{method} {route.path}"
                    if handler.opt["needs"] in ("public", "read") or name in free:
                        continue
                    path = re.sub(r"{[^}]*}", "7", route.path)
                    answer = client.request(method, path, json={})
                    assert (name, answer.status_code, answer.json()["code"]) == (name, 507, "low-space")
                    refused.add(name)
    expected = {
        "POST /comparisons",
        "POST /jobs",
        "POST /locks",
        "POST /tokens",
        "POST /v1/comparisons/interleaved",
        "POST /v1/jobs",
        "POST /v1/locks",
        "POST /v1/matrices",
        "POST /v1/tokens",
        "POST /v1/bundles",
        "POST /v1/leases",
        "POST /v1/leases/{fence:str}/progress",
        "POST /v1/leases/{fence:str}/run",
        "PUT /v1/machines/{name:str}",
        "POST /v1/runs",
    }
    assert refused == expected


def test_every_blob_counts_a_block_at_least(closed: Client, tokens: dict[str, dict[str, str]]) -> None:
    """1 MiB is 256 blocks: no more blobs of a byte, nor empty uploads, whoever has them."""
    publisher = tokens["publisher"]
    statuses = [send(closed, str(number).encode(), publisher) for number in range(257)]
    assert statuses == [201] * 256 + [413]
    begun = [closed.post(UPLOADS, headers=tokens["other"]).status_code for _ in range(128)]
    assert begun == [202] * 128
    assert closed.post(UPLOADS, headers=publisher).json()["code"] == "unnamed-bytes"


def test_holds_are_forgotten_while_nothing_is_written(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, inside, seen = type(registry.store), list[bool](), list[bool]()
    genuine = kind.collecting

    @contextmanager
    def collecting(store: Any) -> Iterator[None]:  # noqa: ANN401 - whichever store the registry has
        with genuine(store):
            inside.append(True)
            yield
        inside.clear()

    monkeypatch.setattr(kind, "collecting", collecting)
    monkeypatch.setattr(Uploads, "forget_expired", lambda _: seen.append(bool(inside)))
    EmbeddedRegistry(registry).collect(dry_run=True, local=False)
    assert seen == []
    EmbeddedRegistry(registry).collect(dry_run=False, local=False)
    assert seen == [True]


def test_a_bundle_needs_the_space_that_it_takes(
    registry: LocalRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "a.bundle"
    bundle.write_bytes(b"0" * 100)
    monkeypatch.setenv(DISK_RESERVE, "1kB")
    leave(monkeypatch, 1099)
    embedded = EmbeddedRegistry(registry)
    with pytest.raises(LowSpaceError, match="100 needed, 1000 reserved"):
        embedded.import_bundle(bundle, SILENT)
    assert "nearly full" not in str(embedded.describe()["disk"])
    leave(monkeypatch, 1000)
    assert "uploads and imports are refused" in str(embedded.describe()["disk"])


@pytest.mark.parametrize(("text", "size"), [("8GiB", 8 << 30), ("123", 123), ("", None)])
def test_the_reserve_is_a_setting(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch, text: str, size: int | None
) -> None:
    monkeypatch.setenv(DISK_RESERVE, text)
    assert open_reserve(registry).size == size


def test_a_reserve_that_is_no_amount_is_refused(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DISK_RESERVE, "a lot")
    with pytest.raises(InvalidInputError, match="invalid BENCHLOCK_DISK_RESERVE 'a lot'"):
        open_reserve(registry)
