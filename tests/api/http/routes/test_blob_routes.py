"""Blobs over HTTP: read by digest, whole and in part; uploaded in pieces; what is wrong with either is told."""

import io
import json
import logging
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest
from litestar.testing import TestClient

from benchlock.api.http.routes.app import create_app
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.service_log import JsonLines
from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.stores.http_store import HttpStore, make_blob_client, open_session, parse_server
from benchlock.registry.auth.permissions import EVERYTHING, Actor
from tests.api.http.conftest import Client
from tests.support.servers import web

CONTENT = random.Random(7).randbytes(2_500_000)
DIGEST = digest_bytes(CONTENT)
OTHER = Digest("sha256:" + "0" * 64)
UPLOADS = "/v1/blobs/uploads"
WHOLE = "private, max-age=31536000, immutable"


def begun(client: Client) -> str:
    answer = client.post(UPLOADS)
    assert (answer.status_code, answer.headers.get("range"), answer.content) == (202, None, b"")
    return answer.headers["location"]


def sent(client: Client, content: bytes = CONTENT) -> Digest:
    digest = digest_bytes(content)
    answer = client.post(UPLOADS, params={"digest": digest}, content=content)
    assert (answer.status_code, answer.headers["location"]) == (201, f"/v1/blobs/{digest}")
    return digest


def pieces(content: bytes) -> Iterator[bytes]:
    """A body of which nobody says how long it is."""
    yield from (content[at : at + 10_000] for at in range(0, len(content), 10_000))


def test_a_blob_that_was_sent_in_pieces_is_read(client: Client, registry: LocalRegistry) -> None:
    location = begun(client)
    for start in range(0, len(CONTENT), 1_000_000):
        piece = CONTENT[start : start + 1_000_000]
        told = f"{start}-{start + len(piece) - 1}"
        answer = client.patch(location, content=piece, headers={"content-range": told})
        assert (answer.status_code, answer.headers["range"]) == (202, f"0-{start + len(piece) - 1}")
    assert not registry.store.exists(DIGEST)
    assert client.get(location).headers["range"] == f"0-{len(CONTENT) - 1}"
    answer = client.put(location, params={"digest": DIGEST})
    assert (answer.status_code, answer.headers["docker-content-digest"]) == (201, DIGEST)
    assert client.get(answer.headers["location"]).content == CONTENT
    assert client.get(location).status_code == 404


@pytest.mark.parametrize("body", [CONTENT, b"", b"small"], ids=["large", "empty", "small"])
def test_the_last_piece_may_come_with_the_digest_and_be_of_unknown_length(client: Client, body: bytes) -> None:
    location, digest = begun(client), digest_bytes(b"begin" + body)
    client.patch(location, content=b"begin")
    answer = client.put(location, params={"digest": digest}, content=pieces(body))
    assert answer.status_code == 201
    assert client.get(f"/v1/blobs/{digest}").content == b"begin" + body


def test_what_is_there_is_not_sent_again(client: Client) -> None:
    assert client.post(UPLOADS, params={"mount": DIGEST}).status_code == 202
    sent(client)
    answer = client.post(UPLOADS, params={"mount": DIGEST})
    assert (answer.status_code, answer.headers["location"]) == (201, f"/v1/blobs/{DIGEST}")


def test_what_is_read_may_be_kept_for_ever_by_one_reader(client: Client) -> None:
    path = f"/v1/blobs/{sent(client)}"
    whole, head = client.get(path), client.head(path)
    for answer in (whole, head):
        assert answer.status_code == 200
        assert answer.headers["content-length"] == str(len(CONTENT))
        assert answer.headers["cache-control"] == WHOLE
        assert answer.headers["etag"] == f'"{DIGEST}"'
        assert answer.headers["docker-content-digest"] == DIGEST
        assert answer.headers["content-disposition"] == "attachment"
        assert answer.headers["accept-ranges"] == "bytes"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert (whole.content, head.content) == (CONTENT, b"")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("predictions-01.safetensors", 'attachment; filename="predictions-01.safetensors"'),
        ('a"\r\nset-cookie: b', 'attachment; filename="a___set-cookie__b"'),
        ("../../etc/é", 'attachment; filename="_.._etc__"'),
        ("...", "attachment"),
    ],
)
def test_a_download_has_a_name_that_cannot_break_the_header(client: Client, name: str, told: str) -> None:
    answer = client.get(f"/v1/blobs/{sent(client)}", params={"name": name})
    assert (answer.status_code, answer.headers["content-disposition"]) == (200, told)
    assert "set-cookie" not in answer.headers


def test_a_name_of_a_download_has_a_limit(client: Client) -> None:
    assert client.get(f"/v1/blobs/{sent(client)}", params={"name": "a" * 256}).status_code == 400


@pytest.mark.parametrize("known", [f'"{DIGEST}"', f'W/"{DIGEST}"', f'"x", "{DIGEST}"', "*"])
def test_what_the_reader_has_is_not_sent(client: Client, known: str) -> None:
    answer = client.get(f"/v1/blobs/{sent(client)}", headers={"if-none-match": known})
    assert (answer.status_code, answer.content, answer.headers["cache-control"]) == (304, b"", WHOLE)
    assert client.get(f"/v1/blobs/{OTHER}", headers={"if-none-match": f'"{OTHER}"'}).status_code == 404


@pytest.mark.parametrize(
    ("header", "part", "told"),
    [
        ("bytes=0-0", slice(0, 1), "bytes 0-0/2500000"),
        ("bytes=1000000-", slice(1_000_000, None), "bytes 1000000-2499999/2500000"),
        ("bytes=-5", slice(-5, None), "bytes 2499995-2499999/2500000"),
        ("bytes=10-99999999", slice(10, None), "bytes 10-2499999/2500000"),
    ],
)
def test_a_part_is_read(client: Client, header: str, part: slice, told: str) -> None:
    answer = client.get(f"/v1/blobs/{sent(client)}", headers={"range": header})
    assert (answer.status_code, answer.headers["content-range"]) == (206, told)
    assert answer.content == CONTENT[part]


@pytest.mark.parametrize("headers", [{"range": "bytes=1-2,5-6"}, {"range": "lines=1-2"}, {"range": "bytes=5-2"}])
def test_what_is_no_single_range_is_answered_with_all(client: Client, headers: dict[str, str]) -> None:
    answer = client.get(f"/v1/blobs/{sent(client)}", headers=headers)
    assert (answer.status_code, answer.content) == (200, CONTENT)


def test_a_range_of_something_else_than_the_reader_thinks_is_answered_with_all(client: Client) -> None:
    path = f"/v1/blobs/{sent(client)}"
    ranged = {"range": "bytes=0-9"}
    assert client.get(path, headers={**ranged, "if-range": f'"{DIGEST}"'}).content == CONTENT[:10]
    assert client.get(path, headers={**ranged, "if-range": f'"{OTHER}"'}).content == CONTENT


def test_what_lies_beyond_the_end_is_refused_with_the_size(client: Client) -> None:
    answer = client.get(f"/v1/blobs/{sent(client, b'12345')}", headers={"range": "bytes=5-"})
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */5")
    assert answer.json()["code"] == "range-not-satisfiable"


def test_a_piece_that_does_not_fit_is_refused_with_the_offset(client: Client) -> None:
    location = begun(client)
    client.patch(location, content=b"12345", headers={"content-range": "0-4"})
    for verb, url in (("PATCH", location), ("PUT", f"{location}?digest={DIGEST}")):
        answer = client.request(verb, url, content=b"89", headers={"content-range": "7-8"})
        assert (answer.status_code, answer.headers["range"], answer.headers["location"]) == (416, "0-4", location)
    assert client.get(location).headers["range"] == "0-4"


def test_other_bytes_are_refused_and_nothing_is_visible(client: Client, registry: LocalRegistry) -> None:
    location = begun(client)
    for answer in (
        client.put(location, params={"digest": OTHER}, content=CONTENT),
        client.post(UPLOADS, params={"digest": OTHER}, content=CONTENT),
    ):
        assert (answer.status_code, answer.json()["code"]) == (422, "integrity")
        assert OTHER in answer.json()["detail"]
        assert DIGEST in answer.json()["detail"]
    assert client.get(location).status_code == 404
    assert list(registry.store.list()) == []
    assert not any((registry.home / "blobs" / "uploads" / "open").iterdir())


@pytest.mark.parametrize(
    ("verb", "path", "headers", "status"),
    [
        ("GET", "/v1/blobs/sha256:..%2f..%2fregistry.sqlite", {}, 404),
        ("GET", "/v1/blobs/..%2f..%2fregistry.sqlite", {}, 404),
        ("GET", f"/v1/blobs/{DIGEST.upper()}", {}, 400),
        ("GET", f"/v1/blobs/{OTHER}", {}, 404),
        ("HEAD", f"/v1/blobs/{OTHER}", {}, 404),
        ("DELETE", f"/v1/blobs/{OTHER}", {}, 405),
        ("GET", UPLOADS, {}, 405),
        ("POST", f"{UPLOADS}?digest=sha256:../x", {}, 400),
        ("POST", f"{UPLOADS}?mount=../x", {}, 400),
        ("GET", f"{UPLOADS}/..%2fheld", {}, 404),
        ("GET", f"{UPLOADS}/{'0' * 32}", {}, 404),
        ("PATCH", f"{UPLOADS}/{'0' * 32}", {}, 404),
        ("PUT", f"{UPLOADS}/{'0' * 32}?digest={OTHER}", {}, 404),
        ("PUT", f"{UPLOADS}/BEGUN", {}, 400),
        ("PUT", f"{UPLOADS}/BEGUN?digest=md5:00", {}, 400),
        ("PATCH", f"{UPLOADS}/BEGUN", {"content-range": "here"}, 400),
        ("PATCH", f"{UPLOADS}/BEGUN", {"content-range": "9-0"}, 400),
        ("PATCH", f"{UPLOADS}/BEGUN", {"content-range": "0-99"}, 400),
        ("PATCH", f"{UPLOADS}/BEGUN", {"content-range": f"0-{'9' * 100}"}, 400),
        ("DELETE", f"{UPLOADS}/{'0' * 32}", {}, 404),
    ],
)
def test_what_is_wrong_is_told(
    client: Client, registry: LocalRegistry, verb: str, path: str, headers: dict[str, str], status: int
) -> None:
    path = path.replace(f"{UPLOADS}/BEGUN", begun(client)) if "BEGUN" in path else path
    answer = client.request(verb, path, headers=headers, content=b"five!" if verb in ("PATCH", "PUT") else None)
    assert answer.status_code == status, answer.text
    if verb != "HEAD":
        assert answer.headers["content-type"].startswith("application/problem+json")
    assert list(registry.store.list()) == []


def test_what_is_given_up_is_gone(client: Client) -> None:
    location = begun(client)
    client.patch(location, content=b"12345")
    assert client.delete(location).status_code == 204
    assert client.get(location).status_code == client.delete(location).status_code == 404


class Authority:
    """Knows everybody by what they say they are."""

    def known(self, authorization: str | None, request: str | None) -> Actor:
        return Actor(authorization or "", EVERYTHING, request)

    admit = known

    def forget(self) -> None: ...


def test_an_upload_is_its_callers_alone(registry: LocalRegistry) -> None:
    def asked(client: Client, verb: str, url: str, name: str) -> httpx.Response:
        return client.request(verb, url, headers={"authorization": f"Bearer {name}"})

    with TestClient(create_app(registry, authority=Authority()), raise_server_exceptions=False) as client:
        location = asked(client, "POST", UPLOADS, "one").headers["location"]
        for verb, url in (("GET", location), ("PATCH", location), ("DELETE", location)):
            assert asked(client, verb, url, "other").status_code == 404
        assert asked(client, "GET", location, "one").status_code == 204


@contextmanager
def behind(client: Client, prefix: str, *, rewrites: bool) -> Iterator[HttpStore]:
    """The blobs of a service behind a proxy that puts ``prefix`` before paths, in Location too if it ``rewrites``."""

    def passed_on(handler: web.Handler) -> None:
        handler.close_connection = True
        body = handler.rfile.read(int(handler.headers["Content-Length"] or 0))
        sent = {name: handler.headers[name] for name in ("Content-Range", "Content-Type") if name in handler.headers}
        if not handler.path.startswith(f"{prefix}/"):
            return handler.reply(404)
        answer = client.request(handler.command, handler.path.removeprefix(prefix), content=body, headers=sent)
        told = {name: answer.headers[name] for name in ("Location", "Range") if name in answer.headers}
        if rewrites and "Location" in told:
            told["Location"] = prefix + told["Location"]
        return handler.answer(answer.status_code, answer.content, told, int(answer.headers.get("content-length", 0)))

    with web.serving(tls=False) as proxy:
        proxy.otherwise = passed_on
        server = parse_server(f"{proxy.origin}{prefix}")
        yield HttpStore(make_blob_client(open_session(server), piece=1_000_000))


@pytest.mark.parametrize("prefix", ["/team/registry", "/v1", ""])
@pytest.mark.parametrize("rewrites", [False, True])
def test_blobs_come_in_behind_a_proxy_with_a_prefix(
    client: Client, registry: LocalRegistry, prefix: str, rewrites: bool
) -> None:
    with behind(client, prefix, rewrites=rewrites) as store:
        assert store.put(io.BytesIO(CONTENT)).digest == DIGEST
        with store.open(DIGEST) as stream:
            assert stream.read() == CONTENT
    assert registry.store.exists(DIGEST)


def test_an_answer_that_is_cut_says_so_in_the_log(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    digest = sent(client)
    read = os.pread
    monkeypatch.setattr("os.pread", lambda file, size, at: b"" if at else read(file, size, at))
    with caplog.at_level(logging.INFO), suppress(Exception):
        client.get(f"/v1/blobs/{digest}")
    lines = [json.loads(JsonLines().format(one)) for one in caplog.records if one.name == "benchlock"]
    (answered,) = [one for one in lines if one["message"] == "answered" and one["method"] == "GET"]
    assert answered["reason"].startswith("cut: ")
    assert "before its end" in answered["reason"]
    (fault,) = [one for one in lines if one["level"] == "error"]
    assert "EOFError" in fault["error"]
