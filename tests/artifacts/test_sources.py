"""Sources, from real files and a real server with TLS on this machine."""

import gzip
import hashlib
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from artifacts import sources
from artifacts.digest import Digest, digest_bytes
from artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from artifacts.local import LocalStore
from artifacts.sources import FileSource, FolderSource, HttpsSource, open_source

TLS = Path(__file__).parents[1] / "cases" / "tls"
CONTENT = bytes(range(256)) * 20_000
PACKED = gzip.compress(CONTENT)


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    elsewhere = ""  # the origin of the other server
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        name, _, rest = self.path[1:].partition("?")
        getattr(self, f"answer_{name}", self.answer_missing)(rest)

    def reply(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for key, value in ({"Content_Length": str(len(content))} | headers).items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def answer_file(self, _: str) -> None:
        assert self.headers["Accept-Encoding"] == "identity"
        self.reply(200, CONTENT)

    def answer_missing(self, _: str) -> None:
        self.reply(404, b"no such file")

    def answer_partial(self, _: str) -> None:
        self.reply(206, CONTENT[:10])

    def answer_packed(self, _: str) -> None:
        self.reply(200, PACKED, Content_Encoding="gzip")

    def answer_redirect(self, location: str) -> None:
        self.reply(302, Location=location.replace("ELSEWHERE", self.elsewhere))

    def answer_loop(self, _: str) -> None:
        self.reply(307, Location="/loop")

    def answer_short(self, _: str) -> None:
        self.reply(200, CONTENT[:1000], Content_Length=str(len(CONTENT)))
        self.close_connection = True

    def answer_endless(self, _: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"10000\r\n" + bytes(65536) + b"\r\n")
        except OSError:  # the reader had enough
            self.close_connection = True

    def answer_silent(self, _: str) -> None:
        self.reply(200, CONTENT[:1000], Content_Length=str(len(CONTENT)))
        self.rfile.read(1)  # until the reader gives up

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for them: no socket outlives a test

    def handle_error(self, *_: object) -> None:
        """A client that refuses the certificate is what some tests are about."""


@contextmanager
def serving(*, tls: bool) -> Iterator[tuple[str, type[Answers]]]:
    answers = type("AnswersOfThisTest", (Answers,), {"asked": []})
    server = Server(("127.0.0.1", 0), answers)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://localhost:{server.server_port}", answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def untrusted(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The origin of a server with TLS whose certificate nobody trusts; it redirects ELSEWHERE to one without TLS."""
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with serving(tls=False) as (plain, plain_answers), serving(tls=True) as (origin, answers):
        answers.elsewhere, plain_answers.elsewhere = plain, origin
        yield origin
        assert plain_answers.asked == []  # nothing ever goes where it is no https: URL


@pytest.fixture
def origin(untrusted: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same server, trusted."""
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "localhost.pem"))
    return untrusted


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The origin of a server without TLS."""
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    with serving(tls=False) as (origin, answers):
        answers.elsewhere = "http://example.com"
        yield origin


def remote(url: str, *, loopback_http: bool = False) -> HttpsSource:
    source = open_source(url, Path("/nowhere"), loopback_http=loopback_http)
    assert isinstance(source, HttpsSource)
    return source


def fetch(source: HttpsSource, limit: int = 1 << 30) -> bytes:
    with source.open(limit=limit) as stream:
        return stream.read()


def test_paths_start_at_the_folder_of_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "a b.bin").write_bytes(b"")
    (tmp_path / "link").symlink_to("a b.bin")
    (tmp_path / "odd:name").write_bytes(b"")
    base = tmp_path / "images"
    assert open_source("../a b.bin", base) == FileSource(base / "../a b.bin")
    assert open_source("./link", tmp_path) == FileSource(tmp_path / "link")
    assert open_source("./odd:name", tmp_path) == FileSource(tmp_path / "odd:name")
    assert open_source("./images/", tmp_path) == FolderSource(tmp_path / "images")
    assert open_source(".", base) == FolderSource(base)
    assert open_source(str(tmp_path / "images"), Path("/nowhere")) == FolderSource(base)


def test_file_urls(tmp_path: Path) -> None:
    file = tmp_path / "a b%é.bin"
    file.write_bytes(b"")
    for url in (
        file.as_uri(),
        file.as_uri().replace("file:///", "FILE:/"),
        file.as_uri().replace("///", "//localhost/"),
    ):
        assert open_source(url, Path("/nowhere")) == FileSource(file)
    assert open_source(tmp_path.as_uri() + "/", Path("/nowhere")) == FolderSource(tmp_path)


@pytest.mark.parametrize(
    "source", ["file:a", "file://host/a", "file:///a?x", "file:///a#x", "file:", "file://[", "file:///nul%00"]
)
def test_file_urls_that_name_no_file(source: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_source(source, tmp_path)
    assert source in str(caught.value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("missing.onnx", "missing.onnx does not exist"),
        ("./pipe", "neither a regular file nor a folder"),
        ("", "is no path"),
        ("a\0b", "is no path"),
        ("hf://org/repo@0123/labels.txt", "hf: sources are not built yet"),
        ("dvc://repo/model.onnx", "dvc: sources are not built yet"),
        ("s3://bucket/key", "no source is called s3:"),
        ("odd:name", r"write a path \(./odd:name if it is one\)"),
        ("http://localhost/file", "is no https: URL"),
        ("http://example.com/file", "is no https: URL"),
        ("https://", "names no host"),
        ("https:///file", "names no host"),
        ("https://host:port/file", "is no URL"),
        ("https://[::1/file", "is no URL"),
    ],
)
def test_what_is_no_source(source: str, reason: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInputError, match=reason):
        open_source(source, tmp_path)


def test_credentials_and_queries_are_not_shown(origin: str) -> None:
    with pytest.raises(InvalidInputError, match="holds a user name or password") as caught:
        open_source("https://user:secret@host/file?token=secret", Path("/nowhere"))
    assert "secret" not in str(caught.value)
    with pytest.raises(UnavailableError) as failed:
        fetch(remote(f"{origin}/missing?token=secret"))
    assert "secret" not in str(failed.value)


def test_download_into_a_store(origin: str, tmp_path: Path) -> None:
    store, digest = LocalStore(tmp_path), digest_bytes(CONTENT)
    source = remote(f"{origin}/file")
    with source.open() as stream:
        assert store.put(stream, digest).size == len(CONTENT)
    other = Digest("sha256:" + hashlib.sha256(b"other").hexdigest())
    with source.open() as stream, pytest.raises(IntegrityError, match=other):
        store.put(stream, other, name="model.onnx")


def test_read_in_pieces(origin: str) -> None:
    with remote(f"{origin}/file").open() as stream:
        pieces = iter(lambda: stream.read(100_001), b"")
        assert b"".join(pieces) == CONTENT


def test_bytes_come_as_the_server_sends_them(origin: str) -> None:
    assert fetch(remote(f"{origin}/packed")) == PACKED


def test_redirects_within_tls(origin: str) -> None:
    assert fetch(remote(f"{origin}/redirect?/redirect?{origin}/file")) == CONTENT


@pytest.mark.parametrize(
    "location", ["ELSEWHERE/file", "https://user:secret@localhost/file", "ftp://localhost/file", "https://["]
)
def test_redirects_that_are_refused(origin: str, location: str) -> None:
    with pytest.raises(InvalidInputError):
        fetch(remote(f"{origin}/redirect?{location}"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "answers 404"),
        ("partial", "answers 206"),
        ("loop", "redirects more than 10 times"),
        ("short", "without sending complete message body"),
    ],
)
def test_answers_that_are_no_file(origin: str, name: str, reason: str) -> None:
    with pytest.raises(UnavailableError, match=reason) as caught:
        fetch(remote(f"{origin}/{name}"))
    assert f"{origin}/{name}" in str(caught.value)


def test_a_download_that_breaks_off_leaves_nothing(origin: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    with remote(f"{origin}/short").open() as stream, pytest.raises(UnavailableError):
        store.put(stream, digest_bytes(CONTENT))
    assert list(store.list()) == []


def test_the_limit(origin: str) -> None:
    assert fetch(remote(f"{origin}/file"), limit=len(CONTENT)) == CONTENT
    with pytest.raises(InvalidInputError, match=f"is larger than {len(CONTENT) - 1} bytes"):
        fetch(remote(f"{origin}/file"), limit=len(CONTENT) - 1)
    with pytest.raises(InvalidInputError, match="is larger than 1000000 bytes"):
        fetch(remote(f"{origin}/endless"), limit=1_000_000)


def test_a_server_that_falls_silent(origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_SILENCE_SECONDS", 0.2)
    with pytest.raises(UnavailableError, match=r"cannot be read: .*timed out"):
        fetch(remote(f"{origin}/silent"))


def test_a_certificate_that_nobody_trusts(untrusted: str) -> None:
    with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(remote(f"{untrusted}/file"))


def test_no_server() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{unused.getsockname()[1]}/file"
        with pytest.raises(UnavailableError, match="cannot be read"):
            fetch(remote(url))


def test_plain_http_on_this_machine_alone_and_only_when_told(plain: str, tmp_path: Path) -> None:
    assert fetch(remote(f"{plain}/file", loopback_http=True)) == CONTENT
    assert fetch(remote(plain.replace("localhost", "127.0.0.1") + "/redirect?/file", loopback_http=True)) == CONTENT
    for url in ("http://example.com/file", "http://10.0.0.1/file", "http://localhost.example.com/"):
        with pytest.raises(InvalidInputError, match="is no https: URL"):
            open_source(url, tmp_path, loopback_http=True)
    with pytest.raises(InvalidInputError, match="is no https: URL"):
        fetch(remote(f"{plain}/redirect?ELSEWHERE/file", loopback_http=True))
    with pytest.raises(InvalidInputError, match="is no https: URL"):
        fetch(HttpsSource(f"{plain}/file"))


def test_httpx_is_loaded_by_remote_sources_alone() -> None:
    script = "import sys, artifacts.sources, artifacts.local, artifacts.trees; sys.exit('httpx' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
