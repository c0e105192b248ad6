"""Sources over TLS, from real servers on this machine."""

import gzip
import hashlib
import random
import socket
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.sources import HttpsSource, NetworkPolicy, SourceAccess, open_source
from benchlock.artifacts.stores.local_store import LocalStore
from tests.support.servers.web import File, Handler, Web, in_turn, redirect, status

CONTENT = random.Random(4).randbytes(5_000_000)
SWIFT = NetworkPolicy(pauses=(0.01,) * 3)


def remote(url: str, network: NetworkPolicy = SWIFT) -> HttpsSource:
    source = open_source(url, Path("/nowhere"), SourceAccess(network))
    assert isinstance(source, HttpsSource)
    return source


def fetch(source: HttpsSource, offset: int = 0, limit: int = 1 << 30) -> bytes:
    with source.open(offset, limit=limit) as stream:
        return stream.read()


def test_credentials_and_queries_are_not_shown(web: Web) -> None:
    with pytest.raises(InvalidInputError, match="contains a user name or password") as caught:
        open_source("https://user:secret@host/file?token=secret", Path("/nowhere"))
    assert "secret" not in str(caught.value)
    with pytest.raises(UnavailableError) as failed:
        fetch(remote(f"{web.origin}/missing?token=secret"))
    assert "secret" not in str(failed.value)


def test_the_whole_file_and_the_rest_of_it(web: Web) -> None:
    web.pages["/file"] = File(CONTENT)
    source = remote(f"{web.origin}/file?version=1")
    assert fetch(source) == CONTENT
    assert fetch(source, 1_234_567) == CONTENT[1_234_567:]
    assert web.sent == 2 * len(CONTENT) - 1_234_567
    assert [(one.path, one.headers.get("Range")) for one in web.asked] == [
        ("/file?version=1", None),
        ("/file?version=1", "bytes=1234567-"),
    ]
    with source.open() as stream:
        assert b"".join(iter(lambda: stream.read(100_001), b"")) == CONTENT


def test_bytes_come_as_the_server_sends_them(web: Web) -> None:
    packed = gzip.compress(CONTENT[:1000])
    web.pages["/packed"] = File(packed, headers={"Content-Encoding": "gzip"})
    assert fetch(remote(f"{web.origin}/packed")) == packed
    assert web.asked[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("ranges", [True, False])
def test_an_answer_that_breaks_off_at_random_is_gone_on_with(web: Web, *, ranges: bool) -> None:
    breaks = [random.Random(seed).randrange(1, 400_000) for seed in range(12)]
    web.pages["/file"] = File(CONTENT, ranges=ranges, breaks=sorted(breaks))
    assert hashlib.sha256(fetch(remote(f"{web.origin}/file"))).digest() == hashlib.sha256(CONTENT).digest()
    assert [one.headers.get("If-Range") for one in web.asked] == [None] + ['"one"'] * 12
    assert web.sent == (len(CONTENT) if ranges else len(CONTENT) + sum(breaks))


def test_attempts_without_anything_new_are_bounded(web: Web) -> None:
    web.pages["/file"] = File(CONTENT, breaks=[1000] + [0] * 20)
    with pytest.raises(UnavailableError, match="without sending complete message body") as caught:
        fetch(remote(f"{web.origin}/file"))
    assert len(web.asked) == 1 + len(SWIFT.pauses)
    assert caught.value.what.startswith(f"{web.origin}/file cannot be read: peer closed connection")


def test_a_server_that_is_busy_is_asked_again(web: Web) -> None:
    web.pages["/file"] = in_turn(status(503), status(429), File(CONTENT))
    assert fetch(remote(f"{web.origin}/file")) == CONTENT
    web.pages["/busy"] = status(503)
    with pytest.raises(UnavailableError, match="answers 503"):
        fetch(remote(f"{web.origin}/busy"))


def test_a_connection_that_breaks_before_the_answer(web: Web) -> None:
    def leaving(handler: Handler) -> None:
        handler.close_connection = True

    web.pages["/file"] = in_turn(leaving, leaving, File(CONTENT))
    assert fetch(remote(f"{web.origin}/file")) == CONTENT
    assert len(web.asked) == 3


def test_what_changes_while_it_is_read_is_noticed(web: Web) -> None:
    other = File(CONTENT[::-1], etag='"two"')
    web.pages["/file"] = in_turn(File(CONTENT, breaks=[1000]), other)
    with pytest.raises(UnavailableError, match="changed while it was read"):
        fetch(remote(f"{web.origin}/file"))


def test_a_range_that_is_not_the_one_asked_for(web: Web) -> None:
    web.pages["/file"] = lambda handler: handler.reply(206, CONTENT[:10], Content_Range="bytes 0-9/5000000")
    with pytest.raises(UnavailableError, match="answers 206"):
        fetch(remote(f"{web.origin}/file"), 100)


def test_nothing_is_left_of_a_file_that_is_there_already(web: Web) -> None:
    web.pages["/file"] = File(CONTENT)
    assert fetch(remote(f"{web.origin}/file"), len(CONTENT)) == b""


def endless(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"10000\r\n" + bytes(65536) + b"\r\n")
    except OSError:  # the reader had enough
        handler.close_connection = True


def test_the_limit(web: Web) -> None:
    web.pages |= {"/file": File(CONTENT), "/endless": endless}
    assert fetch(remote(f"{web.origin}/file"), limit=len(CONTENT)) == CONTENT
    for offset in (0, 1000):
        with pytest.raises(InvalidInputError, match=f"is larger than {len(CONTENT) - 1} bytes"):
            fetch(remote(f"{web.origin}/file"), offset, limit=len(CONTENT) - 1)
    with pytest.raises(InvalidInputError, match="is larger than 1000000 bytes"):
        fetch(remote(f"{web.origin}/endless"), limit=1_000_000)


@pytest.mark.parametrize("said", [-1000, 1000])
def test_a_lying_length_is_found_out(web: Web, tmp_path: Path, said: int) -> None:
    def lying(handler: Handler) -> None:
        handler.close_connection = True
        handler.answer(200, CONTENT, {}, len(CONTENT) + said)

    web.pages["/file"] = lying
    with pytest.raises((UnavailableError, IntegrityError)):
        LocalStore(tmp_path).fetch(digest_bytes(CONTENT), remote(f"{web.origin}/file").open, name="file")
    assert list(LocalStore(tmp_path).list()) == []


def test_a_download_into_a_store(web: Web, tmp_path: Path) -> None:
    store, digest = LocalStore(tmp_path), digest_bytes(CONTENT)
    web.pages["/file"] = File(CONTENT)
    source = remote(f"{web.origin}/file")
    with source.open() as stream:
        assert store.put(stream, digest).size == len(CONTENT)
    other = Digest("sha256:" + hashlib.sha256(b"other").hexdigest())
    with source.open() as stream, pytest.raises(IntegrityError, match=other):
        store.put(stream, other, name="model.onnx")


def test_the_server_that_was_named_may_redirect_within_itself(web: Web) -> None:
    web.pages |= {"/a": redirect("/b"), "/b": redirect(f"{web.origin}/c?x=1", 307), "/c": File(CONTENT)}
    assert fetch(remote(f"{web.origin}/a")) == CONTENT


def test_a_redirect_to_a_host_that_is_admitted(web: Web, elsewhere: Web) -> None:
    elsewhere.pages["/file"] = File(CONTENT, breaks=[1000])
    web.pages["/a"] = redirect(f"{elsewhere.origin}/file")
    admitting = replace(SWIFT, redirect_hosts=frozenset({"localhost"}))
    assert fetch(remote(f"{web.origin}/a", admitting)) == CONTENT


def test_redirects_without_end(web: Web) -> None:
    web.pages["/a"] = redirect("/a", 307)
    with pytest.raises(UnavailableError, match="redirects more than 10 times"):
        fetch(remote(f"{web.origin}/a"))


def test_a_server_that_falls_silent(web: Web) -> None:
    done = threading.Event()

    def silent(handler: Handler) -> None:
        handler.close_connection = True
        handler.answer(200, CONTENT[:1000], {}, len(CONTENT))
        done.wait(10)

    web.pages["/silent"] = silent
    with pytest.raises(UnavailableError, match=r"cannot be read: .*timed out"):
        fetch(remote(f"{web.origin}/silent", NetworkPolicy(silence=0.2, pauses=())))
    done.set()


def test_a_server_that_cuts_after_some_bytes_each_time_is_asked_so_often(web: Web) -> None:
    web.pages["/cut"] = File(CONTENT, breaks=[1000, 1000, 60_000] + [1000] * 500)
    network = replace(SWIFT, attempts=5)
    with pytest.raises(UnavailableError, match=r"fails repeatedly \(5 attempts with little progress\): peer") as caught:
        fetch(remote(f"{web.origin}/cut", network))
    assert len(web.asked) == 3 + 5
    assert caught.value.next_step == "check the server and try again: the download resumes"


def test_a_server_that_cuts_after_a_thirtieth_each_time_is_asked_for_all(web: Web) -> None:
    web.pages["/cut"] = File(CONTENT, breaks=[len(CONTENT) // 30] * 29)
    assert fetch(remote(f"{web.origin}/cut", replace(SWIFT, attempts=5))) == CONTENT
    assert len(web.asked) == 30


def test_a_download_takes_so_long_and_no_longer(web: Web) -> None:
    done = threading.Event()

    def dripping(handler: Handler) -> None:
        handler.close_connection = True
        handler.answer(200, CONTENT[:1], {}, len(CONTENT))
        while not done.wait(0.05):
            handler.wfile.write(b"x")

    web.pages["/drip"] = dripping
    with pytest.raises(UnavailableError, match=r"takes more than 0\.5 seconds"):
        fetch(remote(f"{web.origin}/drip", replace(SWIFT, longest=0.5)))
    done.set()


def test_a_certificate_that_nobody_trusts(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(remote(f"{web.origin}/file"))
    assert web.asked == []


def test_a_certificate_of_another_name(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(_: str, port: int, *__: object, **___: object) -> object:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", here)
    with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(remote(web.origin.replace("localhost", "other.test") + "/file"))
    assert web.asked == []


def test_no_server() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{unused.getsockname()[1]}/file"
        with pytest.raises(UnavailableError, match="cannot be read"):
            fetch(remote(url, NetworkPolicy()))


def test_a_proxy_is_asked_for_what_the_network_says(plain: Web) -> None:
    network = NetworkPolicy(proxies={"https": plain.origin, "no": "near.test"}, pauses=())
    with pytest.raises(UnavailableError, match=r"501 Unsupported method .'CONNECT'"):
        fetch(remote("https://far.test/file", network))
    assert network.find_proxy(urlsplit("https://near.test/file")) is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_no_proxy_is_asked_for_this_machine(web: Web, plain: Web, host: str) -> None:
    network = NetworkPolicy(loopback_http=True, proxies={"https": "http://127.0.0.1:9", "http": "http://127.0.0.1:9"})
    for server in (web, plain):
        server.pages["/file"] = File(CONTENT)
        assert fetch(remote(f"{server.origin}/file".replace("localhost", host), network)) == CONTENT


def test_plain_http_on_this_machine_alone_and_only_when_told(plain: Web, tmp_path: Path) -> None:
    plain.pages |= {"/file": File(CONTENT), "/out": redirect("http://example.com/file")}
    told = replace(SWIFT, loopback_http=True)
    assert fetch(remote(f"{plain.origin}/file", told)) == CONTENT
    for url in ("http://example.com/file", "http://10.0.0.1/file", "http://localhost.example.com/"):
        with pytest.raises(InvalidInputError, match="is not an https: URL"):
            open_source(url, tmp_path, SourceAccess(told))
    with pytest.raises(InvalidInputError, match="is not an https: URL"):
        fetch(remote(f"{plain.origin}/out", told))
    with pytest.raises(InvalidInputError, match="is not an https: URL"):
        fetch(HttpsSource(f"{plain.origin}/file"))
    assert plain.asked[-1].path == "/out"
