"""Blobs between a client and a real service, either of which is killed, over connections that break."""

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from benchlock.artifacts.blob_store import verify
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.errors import IntegrityError, UnavailableError
from benchlock.artifacts.stores.cached_store import CachedStore
from benchlock.artifacts.stores.http_store import HttpStore, make_blob_client, open_session, parse_server
from benchlock.artifacts.stores.local_store import LocalStore
from tests.support.api.serving import Served, service
from tests.support.servers.faulty_proxy import Fault, FaultyProxy, proxy_to

MIB = 1 << 20
CONTENT = os.urandom(8 * MIB + 7)
BLOB = Descriptor(digest_bytes(CONTENT), len(CONTENT))
UPLOADS = "/v1/blobs/uploads"
LATE = 30.0  # seconds after which what should come is taken to hang

# Sends its standard input in pieces of a MiB, keeping notes, and is killed when it has sent what it is told.
SENDS = """
import io, os, signal, sys
from pathlib import Path
from benchlock.artifacts.stores.http_store import HttpStore, make_blob_client, open_session, parse_server

sent = 0
def advance(step):
    global sent
    sent += step
    if sent >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

client = make_blob_client(open_session(parse_server(sys.argv[1])), Path(sys.argv[2]), piece=1 << 20)
HttpStore(client).put(io.BytesIO(sys.stdin.buffer.read()), advance=advance)
"""

# Fetches a blob into a folder, and is killed when it has received what it is told.
FETCHES = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
from benchlock.artifacts.stores.http_store import HttpStore, make_blob_client, open_session, parse_server
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.stores.cached_store import CachedStore

class Killing:
    @contextmanager
    def task(self, label, total=None):
        received = 0
        def advance(step):
            nonlocal received
            received += step
            if received >= int(sys.argv[4]):
                os.kill(os.getpid(), signal.SIGKILL)
        yield advance

there = HttpStore(make_blob_client(open_session(parse_server(sys.argv[1]))))
CachedStore(LocalStore(Path(sys.argv[2])), there, Killing()).path(sys.argv[3])
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with service(tmp_path_factory.mktemp("served") / "registry") as found:
        yield found


@pytest.fixture
def proxy(served: Served) -> Iterator[FaultyProxy]:
    with proxy_to(served.port) as proxy:
        yield proxy


@pytest.fixture
def kept(served: Served) -> LocalStore:
    """What the service keeps, emptied."""
    store = LocalStore(served.registry / "blobs")
    for digest in store.list():
        store.delete(digest)
    return store


def store_at(port: int, notes: Path | None = None) -> HttpStore:
    return HttpStore(make_blob_client(open_session(parse_server(f"http://127.0.0.1:{port}")), notes, piece=MIB))


def killed(script: str, *arguments: object) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, input=CONTENT, env=environment, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL


class Interrupted(io.BytesIO):
    """Bytes of which the reader is interrupted once, when he has come so far; where he reads afterwards is kept."""

    def __init__(self, content: bytes, at: int, interrupt: Callable[[], None]) -> None:
        super().__init__(content)
        self._at, self._interrupt = at, interrupt
        self.interrupted = False
        self.read_later: list[int] = []

    def read(self, size: int | None = -1, /) -> bytes:
        if self.interrupted:
            self.read_later.append(self.tell())
        elif self.tell() >= self._at:
            self.interrupted = True
            self._interrupt()
        return super().read(size)


def test_an_upload_goes_on_after_the_server_was_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(service(tmp_path / "registry"))

        def replace_it() -> None:
            first.kill()
            stack.enter_context(service(tmp_path / "registry", port=first.port))

        source = Interrupted(CONTENT, 5 * MIB, replace_it)
        store_at(first.port).send(source, BLOB, name="weights")
        assert source.interrupted
        assert min(source.read_later[1:]) >= 4 * MIB  # the first is the rest of the piece that broke off
    verify(LocalStore(tmp_path / "registry" / "blobs"), BLOB.digest, name="weights")


def test_a_download_goes_on_after_the_server_was_killed(tmp_path: Path) -> None:
    content = CONTENT * 8  # more than lies in the buffers of two sockets
    with ExitStack() as stack:
        first = stack.enter_context(service(tmp_path / "registry"))
        digest = LocalStore(tmp_path / "registry" / "blobs").put(io.BytesIO(content)).digest
        with store_at(first.port).open(digest) as stream:
            begun = stream.read(MIB)
            first.kill()
            stack.enter_context(service(tmp_path / "registry", port=first.port))
            assert begun + stream.read() == content


def test_an_upload_goes_on_after_the_client_was_killed(
    served: Served, proxy: FaultyProxy, kept: LocalStore, tmp_path: Path
) -> None:
    killed(SENDS, served.url, tmp_path / "notes", 5 * MIB + 1)
    assert not kept.exists(BLOB.digest)
    (note,) = (tmp_path / "notes").iterdir()
    note.write_text(note.read_text().replace(f":{served.port}/", f":{proxy.port}/"))

    store_at(proxy.port, tmp_path / "notes").put(io.BytesIO(CONTENT))

    verify(kept, BLOB.digest, name="weights")
    assert proxy.passed["up"] < BLOB.size - 4 * MIB  # of which nothing was sent again
    assert not any((tmp_path / "notes").iterdir())


def test_what_was_sent_of_other_bytes_before_a_kill_is_sent_anew(
    served: Served, kept: LocalStore, tmp_path: Path
) -> None:
    url = f"{served.url}{begun(served)}"
    httpx.patch(url, content=bytes(3 * MIB))
    (tmp_path / BLOB.digest.removeprefix("sha256:")).write_text(url)
    store_at(served.port, tmp_path).put(io.BytesIO(CONTENT))
    verify(kept, BLOB.digest, name="weights")


def test_a_note_of_an_upload_that_is_gone_does_no_harm(served: Served, kept: LocalStore, tmp_path: Path) -> None:
    (tmp_path / BLOB.digest.removeprefix("sha256:")).write_text(f"{served.url}{UPLOADS}/{'0' * 32}")
    store_at(served.port, tmp_path).put(io.BytesIO(CONTENT))
    verify(kept, BLOB.digest, name="weights")


def test_a_download_goes_on_after_the_client_was_killed(
    served: Served, proxy: FaultyProxy, kept: LocalStore, tmp_path: Path
) -> None:
    kept.put(io.BytesIO(CONTENT))
    killed(FETCHES, served.url, tmp_path / "here", BLOB.digest, 5 * MIB)
    here = LocalStore(tmp_path / "here")
    assert not here.exists(BLOB.digest)

    CachedStore(here, store_at(proxy.port)).path(BLOB.digest)

    verify(here, BLOB.digest, name="weights")
    assert proxy.passed["down"] < BLOB.size - 4 * MIB


def test_connections_that_break_are_gone_on_with(proxy: FaultyProxy, kept: LocalStore) -> None:
    proxy.faults += [Fault("up", at=100), Fault("up", at=1_500_000), Fault("up", at=3_000_000)]
    store = store_at(proxy.port)
    store.put(io.BytesIO(CONTENT))
    verify(kept, BLOB.digest, name="weights")
    before = proxy.passed["down"]
    proxy.faults += [Fault("down", at=1_000_000), Fault("down", at=100), Fault("down", at=2_000_000)]
    verify(store, BLOB.digest, name="weights")
    assert not proxy.faults
    assert proxy.passed["down"] - before < BLOB.size + MIB


def test_bits_that_flip_are_noticed_at_both_ends(proxy: FaultyProxy, kept: LocalStore) -> None:
    store = store_at(proxy.port)
    proxy.faults.append(Fault("up", at=3 * MIB, flip=True))
    with pytest.raises(IntegrityError, match="arrived with different bytes"):
        store.put(io.BytesIO(CONTENT))
    assert list(kept.list()) == []
    kept.put(io.BytesIO(CONTENT))
    proxy.faults.append(Fault("down", at=3 * MIB, flip=True))
    with pytest.raises(IntegrityError, match=f"expected {BLOB.digest}"):
        verify(store, BLOB.digest, name="weights")


def test_a_server_that_is_not_there_is_given_up(proxy: FaultyProxy) -> None:
    proxy.faults += [Fault("down", at=0)] * 5
    with pytest.raises(UnavailableError, match=r"^the connection to http.* broke: "):
        store_at(proxy.port).exists(BLOB.digest)


def begun(served: Served) -> str:
    location: str = httpx.post(f"{served.url}{UPLOADS}").headers["location"]
    return location


def sending(served: Served, location: str, headers: str, body: bytes) -> socket.socket:
    """A connection on which a piece was begun."""
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=LATE)
    connection.sendall(f"PATCH {location} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n\r\n".encode() + body)
    return connection


def until(wanted: Callable[[], bool]) -> None:
    end = time.monotonic() + LATE
    while not wanted():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ("Content-Length: 1000", bytes(400)),
        ("Content-Length: 1000\r\nContent-Range: 0-999", bytes(400)),
        ("Transfer-Encoding: chunked", b"190\r\n" + bytes(400) + b"\r\n"),
        ("Transfer-Encoding: chunked", b"190\r\n" + bytes(400) + b"\r\n500\r\n"),
        ("Transfer-Encoding: chunked", b"190\r\n" + bytes(400) + b"\r\nnonsense\r\n"),
    ],
    ids=["length", "length and range", "no end", "no chunk", "nonsense"],
)
def test_what_came_of_a_piece_that_breaks_off_is_kept(served: Served, headers: str, body: bytes) -> None:
    location = begun(served)
    with sending(served, location, headers, body) as connection:
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b" 20" not in answer.partition(b"\r\n")[0]
    until(lambda: httpx.get(f"{served.url}{location}").headers.get("range") == "0-399")
    url = f"{served.url}{location}"
    until(lambda: httpx.patch(url, content=b"more", headers={"content-range": "400-403"}).status_code == 202)


def test_one_sends_at_a_time(served: Served) -> None:
    location = begun(served)
    url, headers = f"{served.url}{location}", {"content-range": "400-403"}

    def status() -> int:
        return httpx.patch(url, content=b"more", headers=headers).status_code

    with sending(served, location, "Content-Length: 1000", bytes(400)):
        until(lambda: status() == 409)
    until(lambda: status() == 202)


def test_memory_is_bounded_whatever_is_sent_or_read(served: Served, kept: LocalStore) -> None:
    def most() -> int:
        """KiB that the service has had at most."""
        line = next(
            line for line in Path(f"/proc/{served.process.pid}/status").read_text().splitlines() if "VmHWM" in line
        )
        return int(line.split()[1])

    size, piece = 96 * MIB, bytes(MIB)
    before = most()
    location = begun(served)
    sent = httpx.patch(f"{served.url}{location}", content=(piece for _ in range(96)), timeout=LATE)
    assert sent.headers["range"] == f"0-{size - 1}"
    digest = digest_bytes(bytes(size))
    assert httpx.put(f"{served.url}{location}", params={"digest": digest}, timeout=LATE).status_code == 201
    for headers in ({}, {"range": "bytes=1-"}):
        with httpx.stream("GET", f"{served.url}/v1/blobs/{digest}", headers=headers) as answer:
            time.sleep(0.5)  # the reader is slow: the server must not run ahead of it
            assert sum(map(len, answer.iter_raw())) == size - len(headers)
    assert most() - before < 48 << 10
    kept.delete(digest)
