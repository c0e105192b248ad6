"""The client of a registry's blobs on a server: how one is written, who is told the token, what a refusal says."""

import io
from pathlib import Path

import pytest

from benchlock.artifacts.blob_store import BlobNotFoundError
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.net.network_policy import PAUSES, NetworkPolicy
from benchlock.artifacts.stores.http_store import HttpStore, Server, make_blob_client, open_session, parse_server
from tests.support.servers import web

CONTENT = b"weights"
DIGEST = digest_bytes(CONTENT)
BLOB = f"/v1/blobs/{DIGEST}"


def store_of(
    server: web.Web, token: str | None = None, notes: Path | None = None, policy: NetworkPolicy | None = None
) -> HttpStore:
    return HttpStore(make_blob_client(open_session(parse_server(server.origin), token, policy=policy), notes))


@pytest.mark.parametrize(
    ("text", "server", "url"),
    [
        ("https://host", Server("https://host"), "https://host/v1"),
        ("https://host:8443/team/", Server("https://host:8443/team"), "https://host:8443/team/v1"),
        ("http://127.0.0.1:8080", Server("http://127.0.0.1:8080", plain=True), "http://127.0.0.1:8080/v1"),
    ],
)
def test_a_server_is_written_as_its_url(text: str, server: Server, url: str) -> None:
    assert (parse_server(text), server.url) == (server, url)
    assert str(server) == server.base


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://host", "is not an https: URL"),
        ("ftp://host", "is not an https: URL"),
        ("https://", "has no host"),
        ("https://me:secret@host", "contains a user name or password"),
        ("https://host?token=secret", "unexpected text after"),
    ],
)
def test_what_is_no_server_is_refused_and_says_no_secret(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        parse_server(text)
    assert "secret" not in str(caught.value)


def test_the_token_is_told_to_the_server_and_nobody_else() -> None:
    with web.serving(tls=False) as server, web.serving(tls=False) as elsewhere:
        server.pages[BLOB] = web.File(CONTENT)
        with store_of(server, "bl_secret").open(DIGEST) as stream:
            assert stream.read() == CONTENT
        server.pages[BLOB] = web.redirect(f"{elsewhere.origin}/stolen")
        with pytest.raises(InvalidInputError, match="is not public"):
            store_of(server, "bl_secret").open(DIGEST)
    assert [one.headers["Authorization"] for one in server.asked] == ["Bearer bl_secret"] * 2
    assert not elsewhere.asked


def test_an_upload_that_is_to_go_on_elsewhere_is_begun_anew(tmp_path: Path) -> None:
    content = bytes(2 << 20)
    digest = digest_bytes(content)
    (tmp_path / digest.removeprefix("sha256:")).write_text("https://elsewhere.example/v1/blobs/uploads/1")
    with web.serving(tls=False) as server:
        server.otherwise = web.status(401)
        with pytest.raises(InvalidInputError):
            store_of(server, "bl_secret", tmp_path).put(io.BytesIO(content))
    assert [one.path for one in server.asked] == [f"/v1/blobs/uploads/?mount={digest.replace(':', '%3A')}"]


@pytest.mark.parametrize("code", [401, 403])
def test_a_refusal_says_what_lets_one_in(code: int) -> None:
    with web.serving(tls=False) as server:
        server.otherwise = web.status(code)
        with pytest.raises(InvalidInputError, match="denies access") as caught:
            store_of(server).stat(DIGEST)
    assert "use a token" in str(caught.value.next_step)


def test_what_is_not_there_is_said_of_the_server() -> None:
    with web.serving(tls=False) as server:
        server.otherwise = web.status(404)
        with pytest.raises(BlobNotFoundError, match=f"{server.origin} has no blob {DIGEST}"):
            store_of(server).stat(DIGEST)


def test_a_blob_is_resumed_whatever_its_etag() -> None:
    with web.serving(tls=False) as server:
        server.pages[BLOB] = web.in_turn(web.File(CONTENT, breaks=[3]), web.File(CONTENT, etag='"two"'))
        with store_of(server).open(DIGEST) as stream:
            assert stream.read() == CONTENT
    assert [(one.headers["Range"], one.headers["If-Range"]) for one in server.asked] == [
        (None, None),
        ("bytes=3-", None),
    ]


def test_a_blob_says_that_its_download_resumes_only_if_its_reader_keeps_the_bytes() -> None:
    content = bytes(1_000_000)
    digest = digest_bytes(content)
    with web.serving(tls=False) as server:
        store = store_of(server, policy=NetworkPolicy(pauses=(0.0,) * len(PAUSES)))
        for read, advice in ((store.open, "try again"), (store.receive, "try again: the download resumes")):
            server.pages[f"/v1/blobs/{digest}"] = web.File(content, breaks=[1] * 20)
            with pytest.raises(UnavailableError, match="20 attempts") as caught, read(digest) as stream:
                stream.read()
            assert caught.value.next_step == f"check the server and {advice}"
