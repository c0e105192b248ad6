"""Downloads that a service leaves to the bucket of its registry."""

from pathlib import Path

import httpx
import pytest

from benchlock.artifacts.digest import digest_bytes
from tests.support.api.serving import at, service
from tests.support.api.warm import Warm
from tests.support.registry import tiny
from tests.support.registry.digits import GRAPH
from tests.support.servers.faulty_proxy import proxy_to
from tests.support.servers.object_server import ObjectServer

DIGEST = digest_bytes(GRAPH.read_bytes())


def test_clients_fetch_from_the_bucket_and_check_the_digest(
    object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in object_server.environment.items():
        monkeypatch.setenv(name, value)
    location = str(object_server.location("direct"))
    registry = Warm(tmp_path / "registry", variables={"BENCHLOCK_STORE": location})
    registry.done("publish", *tiny.author(tmp_path / "manifests"))
    with service(tmp_path / "registry", "--open", "--direct-downloads") as served:
        path = f"{served.url}/v1/blobs/{DIGEST}"
        answer = httpx.get(path)
        assert (answer.status_code, answer.headers["cache-control"]) == (307, "no-store")
        assert answer.headers["location"].startswith(f"{object_server.url}/bucket/direct/blobs/sha256/")
        assert httpx.get(answer.headers["location"]).content == GRAPH.read_bytes()
        assert httpx.head(path).headers["content-length"] == str(GRAPH.stat().st_size)
        assert httpx.get(f"{served.url}/v1/blobs/{digest_bytes(b'none')}").status_code == 404

        client = at(served.url, tmp_path / "client")
        error = client.error(2, "get", "model/digits-onnx", "-o", tmp_path / "refused")
        assert "redirects to 127.0.0.1" in error["message"]  # a private address, which nobody has allowed
        allowed = at(served.url, tmp_path / "client", BENCHLOCK_REDIRECT_HOSTS="127.0.0.1")
        allowed.done("get", "model/digits-onnx", "-o", tmp_path / "got")
        assert (tmp_path / "got" / "digits.onnx").read_bytes() == GRAPH.read_bytes()

        key = f"/direct/blobs/sha256/{DIGEST.removeprefix('sha256:')}"
        object_server.ask("PUT", key, b"fewer bytes")  # then the service sends its copy
        at(served.url, tmp_path / "copy").done("get", "model/digits-onnx", "-o", tmp_path / "copied")
        object_server.ask("PUT", key, bytes(GRAPH.stat().st_size))
        damaged = at(served.url, tmp_path / "other", BENCHLOCK_REDIRECT_HOSTS="127.0.0.1")
        error = damaged.error(4, "get", "model/digits-onnx", "-o", tmp_path / "damaged")
        assert DIGEST in error["message"]
        assert not (tmp_path / "damaged" / "digits.onnx").exists()


def test_only_who_may_read_gets_a_url_and_the_bucket_gets_no_token(
    object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in object_server.environment.items():
        monkeypatch.setenv(name, value)
    with proxy_to(int(object_server.url.rpartition(":")[2])) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        location = str(object_server.location("direct-authorized"))
        registry = Warm(tmp_path / "registry", variables={"BENCHLOCK_STORE": location})
        registry.done("publish", *tiny.author(tmp_path / "manifests"))
        token = registry.done("token", "create", "reader", "--scope", "read")["secret"]
        with service(tmp_path / "registry", "--direct-downloads") as served:
            path = f"{served.url}/v1/blobs/{DIGEST}"
            refused = httpx.get(path)
            assert (refused.status_code, refused.headers.get("location")) == (401, None)
            named = httpx.get(f"{path}?name=digits.onnx", headers={"authorization": f"Bearer {token}"})
            assert (named.status_code, named.content) == (200, GRAPH.read_bytes())
            assert 'filename="digits.onnx"' in named.headers["content-disposition"]
            reader = at(served.url, tmp_path / "client", BENCHLOCK_REDIRECT_HOSTS="127.0.0.1", BENCHLOCK_TOKEN=token)
            reader.done("get", "model/digits-onnx", "-o", tmp_path / "got")
        assert b"GET /bucket/direct-authorized/blobs/" in proxy.heard
        assert token.encode() not in proxy.heard


def test_a_registry_without_a_bucket_has_no_direct_downloads(tmp_path: Path) -> None:
    registry = Warm(tmp_path / "registry")
    registry.done("db", "create")
    error = registry.error(2, "serve", "--direct-downloads")
    assert error["where"] == "--direct-downloads"
