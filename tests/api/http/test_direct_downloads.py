"""Downloads that a service leaves to the bucket of its registry."""

from pathlib import Path
from urllib.parse import urlsplit

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


@pytest.fixture(params=["object_server", "azure_server"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    server: ObjectServer = request.getfixturevalue(request.param)
    use(server, monkeypatch)
    return server


def use(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


def test_clients_fetch_from_the_bucket_and_check_the_digest(bucket: ObjectServer, tmp_path: Path) -> None:
    location = str(bucket.location("direct"))
    registry = Warm(tmp_path / "registry", variables={"BENCHLOCK_STORE": location})
    registry.done("publish", *tiny.author(tmp_path / "manifests"))
    with service(tmp_path / "registry", "--open", "--direct-downloads") as served:
        path = f"{served.url}/v1/blobs/{DIGEST}"
        answer = httpx.get(path)
        assert (answer.status_code, answer.headers["cache-control"]) == (307, "no-store")
        assert answer.headers["location"].startswith(f"{bucket.objects_url}/direct/blobs/sha256/")
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
        bucket.ask("PUT", key, b"fewer bytes")  # then the service sends its copy
        at(served.url, tmp_path / "copy").done("get", "model/digits-onnx", "-o", tmp_path / "copied")
        bucket.ask("PUT", key, bytes(GRAPH.stat().st_size))
        damaged = at(served.url, tmp_path / "other", BENCHLOCK_REDIRECT_HOSTS="127.0.0.1")
        error = damaged.error(4, "get", "model/digits-onnx", "-o", tmp_path / "damaged")
        assert DIGEST in error["message"]
        assert not (tmp_path / "damaged" / "digits.onnx").exists()


def test_only_who_may_read_gets_a_url_and_the_bucket_gets_no_token(
    bucket: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy_to(bucket.port) as proxy:
        use(bucket.behind(proxy.port), monkeypatch)
        location = str(bucket.location("direct-authorized"))
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
        assert f"GET {urlsplit(bucket.objects_url).path}/direct-authorized/blobs/".encode() in proxy.heard
        assert token.encode() not in proxy.heard


def test_a_registry_without_a_bucket_has_no_direct_downloads(tmp_path: Path) -> None:
    registry = Warm(tmp_path / "registry")
    registry.done("db", "create")
    error = registry.error(2, "serve", "--direct-downloads")
    assert error["where"] == "--direct-downloads"
