"""Fetching: nothing is asked for what is there, and what broke off is gone on with, by another process too."""

import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from benchlock.artifacts.blob_store import BlobStore, verify
from benchlock.artifacts.digest import digest_bytes, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.resumable_fetch import OpenAtOffset, fetch
from benchlock.artifacts.stores.local_store import LocalStore
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.servers.web import CERTIFICATE, File, serving

CONTENT = random.Random(5).randbytes(3_000_000)
DIGEST = digest_bytes(CONTENT)


def giving(content: bytes, offsets: list[int] | None = None, breaks_at: int | None = None) -> OpenAtOffset:
    """A source of ``content`` that notes the offsets it is opened at, and may break off."""

    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if breaks_at is not None and self.tell() >= breaks_at:
                raise UnavailableError("broke off")
            return super().read(size)

    @contextmanager
    def opened(offset: int) -> Iterator[BinaryIO]:
        if offsets is not None:
            offsets.append(offset)
        stream = Breaking(content)
        stream.seek(offset)
        yield stream

    return opened


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def incoming(tmp_path: Path) -> dict[str, int]:
    folder = tmp_path / "store" / "incoming"
    return {path.name: path.stat().st_size for path in folder.iterdir()} if folder.exists() else {}


@pytest.mark.parametrize("kind", [LocalStore, MemoryStore])
def test_a_blob_that_is_there_is_not_asked_for(kind: type, tmp_path: Path) -> None:
    store: BlobStore = LocalStore(tmp_path) if kind is LocalStore else MemoryStore()
    offsets: list[int] = []
    for _ in range(2):
        assert fetch(store, DIGEST, giving(CONTENT, offsets), name="x").size == len(CONTENT)
    assert offsets == [0]


def test_a_damaged_blob_is_repaired_from_the_source(store: LocalStore) -> None:
    fetch(store, DIGEST, giving(CONTENT), name="x")
    place = store.path(DIGEST)
    for damage in (b"short", CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])):
        place.chmod(0o644)
        place.write_bytes(damage)
        fetch(store, DIGEST, giving(CONTENT), name="x")
        verify(store, DIGEST, name="x")


def test_what_broke_off_is_gone_on_with(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="broke off"):
        fetch(store, DIGEST, giving(CONTENT, breaks_at=2 << 20), name="x")
    assert incoming(tmp_path) == {f"{to_hex(DIGEST)}.part": 2 << 20}
    assert not store.exists(DIGEST)
    offsets: list[int] = []
    steps: list[int] = []
    fetch(store, DIGEST, giving(CONTENT, offsets), name="x", advance=steps.append)
    assert (offsets, sum(steps)) == ([2 << 20], len(CONTENT))
    verify(store, DIGEST, name="x")
    assert incoming(tmp_path) == {}


def test_what_was_kept_of_other_bytes_is_dropped(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        fetch(store, DIGEST, giving(CONTENT[::-1], breaks_at=2 << 20), name="x")
    offsets: list[int] = []
    steps: list[int] = []
    fetch(store, DIGEST, giving(CONTENT, offsets), name="x", advance=steps.append)
    assert (offsets, sum(steps)) == ([2 << 20, 0], len(CONTENT))
    verify(store, DIGEST, name="x")
    assert incoming(tmp_path) == {}


def test_other_bytes_become_nothing(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=f"model.onnx .*{DIGEST}.*{digest_bytes(CONTENT[1:])}"):
        fetch(store, DIGEST, giving(CONTENT[1:]), name="model.onnx")
    assert (list(store.list()), sum(incoming(tmp_path).values())) == ([], 0)


def test_what_is_refused_while_it_comes_is_not_kept(store: LocalStore, tmp_path: Path) -> None:
    @contextmanager
    def refusing(_: int) -> Iterator[BinaryIO]:
        class Endless(io.RawIOBase):
            left = 3

            def read(self, size: int = -1, /) -> bytes:
                self.left -= 1
                if not self.left:
                    raise InvalidInputError("is larger")
                return bytes(size)

        yield Endless()  # type: ignore[misc]

    with pytest.raises(InvalidInputError, match="is larger"):
        fetch(store, DIGEST, refusing, name="x")
    assert not incoming(tmp_path)


def test_a_collection_frees_what_was_kept(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        fetch(store, DIGEST, giving(CONTENT, breaks_at=2 << 20), name="x")
    with store.collecting():
        store.sweep()
        assert incoming(tmp_path) == {}


def test_two_at_once_fetch_once(store: LocalStore, tmp_path: Path) -> None:
    offsets: list[int] = []
    barrier = threading.Barrier(2)

    @contextmanager
    def slowly(offset: int) -> Iterator[BinaryIO]:
        offsets.append(offset)
        time.sleep(0.2)
        with giving(CONTENT)(offset) as stream:
            yield stream

    def one(_: int) -> int:
        barrier.wait()
        return fetch(LocalStore(tmp_path / "store"), DIGEST, slowly, name="x").size

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, range(2))) == [len(CONTENT)] * 2
    assert offsets == [0]
    verify(store, DIGEST, name="x")
    assert incoming(tmp_path) == {}


TARGETS = (3_000_000, 6_000_000, 9_000_000)
FETCH = """
import sys
from pathlib import Path
from benchlock.artifacts.digest import from_hex
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.sources import HttpsSource, fetch_file
fetch_file(HttpsSource(sys.argv[1]), from_hex(sys.argv[2]), LocalStore(Path(sys.argv[3])), name="x")
"""


def test_a_killed_download_is_gone_on_with_by_the_next_process(tmp_path: Path, store: LocalStore) -> None:
    content = random.Random(6).randbytes(12_000_000)
    digest = digest_bytes(content)
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "SSL_CERT_FILE": str(CERTIFICATE),
        "NO_PROXY": "localhost",
    }
    with serving() as web:
        web.pages["/file"] = File(content, pause=0.02)
        command = [sys.executable, "-c", FETCH, f"{web.origin}/file", to_hex(digest), str(tmp_path / "store")]
        for target in TARGETS:
            process = subprocess.Popen(command, env=environment)
            while sum(incoming(tmp_path).values()) < target:
                assert process.poll() is None
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert not store.exists(digest)
        subprocess.run(command, env=environment, check=True)
        starts = [int(one.headers.get("Range", "bytes=0-")[6:-1]) for one in web.asked]
        assert web.asked[-1].sent == len(content) - starts[-1]
    verify(store, digest, name="x")
    assert starts[0] == 0
    assert all(start >= target for start, target in zip(starts[1:], TARGETS, strict=True))
