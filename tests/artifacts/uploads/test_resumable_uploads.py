"""Blobs that come in pieces: what is on the disk counts, one writes, and nothing grows without bound."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from benchlock.artifacts.blob_store import BlobStore, verify
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.uploads.gc_holds import HOLD_SECONDS, FolderHolds
from benchlock.artifacts.uploads.resumable_uploads import (
    TooManyUploadsError,
    UploadBusyError,
    UploadLimits,
    UploadNotFoundError,
    UploadOffsetError,
    Uploads,
)
from benchlock.artifacts.uploads.upload_file import TooLargeError
from tests.support.artifacts.memory_store import MemoryStore

CONTENT = os.urandom(3_000_000)
BLOB = Descriptor(digest_bytes(CONTENT), len(CONTENT))
OTHER = Digest("sha256:" + "0" * 64)
ME, YOU = "me", "you"

# Takes half of what is on its standard input, says so, and is killed before the rest.
TAKES_HALF = """
import os, signal, sys
from pathlib import Path
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.uploads.resumable_uploads import Uploads

uploads = Uploads(Path(sys.argv[1]) / "uploads", LocalStore(Path(sys.argv[1])))
upload = uploads.begin("me")
piece = uploads.open("me", upload, 0)
piece.write(sys.stdin.buffer.read(int(sys.argv[2])))
print(upload, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


@pytest.fixture
def uploads(tmp_path: Path, store: LocalStore) -> Uploads:
    return Uploads(tmp_path / "uploads", store)


def append(uploads: Uploads, upload: str, content: bytes, at: int | None = None) -> None:
    piece = uploads.open(ME, upload, at)
    try:
        piece.write(content)
    finally:
        uploads.close(piece)


def finish(uploads: Uploads, upload: str, digest: Digest) -> Descriptor:
    piece = uploads.open(ME, upload)
    try:
        return uploads.finish(piece, digest)
    finally:
        uploads.close(piece)


@pytest.mark.parametrize("make", [LocalStore, lambda _: MemoryStore()], ids=["adopted", "put"])
def test_what_came_in_pieces_is_a_blob_at_its_end(tmp_path: Path, make: Callable[[Path], BlobStore]) -> None:
    store = make(tmp_path)
    uploads = Uploads(tmp_path / "uploads", store)
    upload = uploads.begin(ME)
    for start in range(0, BLOB.size, 1 << 20):
        append(uploads, upload, CONTENT[start : start + (1 << 20)], start)
    assert not store.exists(BLOB.digest)
    assert finish(uploads, upload, BLOB.digest) == BLOB
    assert verify(store, BLOB.digest, name="blob") == BLOB
    with pytest.raises(UploadNotFoundError):
        uploads.offset(ME, upload)
    assert not any((tmp_path / "uploads" / "open").iterdir())


def test_the_file_itself_becomes_the_blob_of_a_folder(uploads: Uploads, store: LocalStore, tmp_path: Path) -> None:
    upload = uploads.begin(ME)
    append(uploads, upload, CONTENT)
    (file,) = (tmp_path / "uploads" / "open").iterdir()
    inode = file.stat().st_ino
    finish(uploads, upload, BLOB.digest)
    found = store.path(BLOB.digest).stat()
    assert (found.st_ino, found.st_mode & 0o777) == (inode, 0o444)


def test_a_blob_that_is_there_is_taken_again(uploads: Uploads, store: LocalStore, tmp_path: Path) -> None:
    store.put(io.BytesIO(CONTENT))
    upload = uploads.begin(ME)
    append(uploads, upload, CONTENT)
    assert finish(uploads, upload, BLOB.digest) == BLOB
    assert list(store.list()) == [BLOB.digest]
    assert not any((tmp_path / "uploads" / "open").iterdir())


def test_an_upload_goes_on_after_its_server_was_killed(tmp_path: Path, store: LocalStore) -> None:
    half = BLOB.size // 2
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", TAKES_HALF, tmp_path, str(half)],
        input=CONTENT,
        stdout=subprocess.PIPE,
        env=environment,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    uploads, upload = Uploads(tmp_path / "uploads", store), done.stdout.decode().strip()

    assert uploads.offset(ME, upload) == half
    append(uploads, upload, CONTENT[half:], half)
    assert finish(uploads, upload, BLOB.digest) == BLOB
    verify(store, BLOB.digest, name="blob")


def test_what_the_store_could_not_take_at_its_end_is_kept(uploads: Uploads, tmp_path: Path) -> None:
    upload = uploads.begin(ME)
    append(uploads, upload, CONTENT)
    (file,) = (tmp_path / "uploads" / "open").iterdir()
    file.chmod(0o444)  # as a process leaves it that is killed before the file has its new name
    assert uploads.offset(ME, upload) == BLOB.size
    assert finish(uploads, upload, BLOB.digest) == BLOB


def test_other_bytes_never_become_visible_and_are_gone(uploads: Uploads, store: LocalStore) -> None:
    upload = uploads.begin(ME)
    append(uploads, upload, CONTENT)
    with pytest.raises(IntegrityError, match=f"expected {OTHER}, found {BLOB.digest}"):
        finish(uploads, upload, OTHER)
    assert list(store.list()) == []
    with pytest.raises(UploadNotFoundError):
        uploads.offset(ME, upload)


def test_one_writes_at_a_time(uploads: Uploads) -> None:
    upload = uploads.begin(ME)
    piece = uploads.open(ME, upload)
    with pytest.raises(UploadBusyError, match="another request is already sending to the upload"):
        uploads.open(ME, upload)
    uploads.close(piece)
    append(uploads, upload, b"then another")


@pytest.mark.parametrize("at", [0, 4, 6])
def test_what_does_not_begin_at_the_end_is_refused(uploads: Uploads, at: int) -> None:
    upload = uploads.begin(ME)
    append(uploads, upload, b"12345")
    with pytest.raises(UploadOffsetError) as caught:
        uploads.open(ME, upload, at)
    assert caught.value.offset == 5
    append(uploads, upload, b"6", 5)
    assert finish(uploads, upload, digest_bytes(b"123456")).size == 6


@pytest.mark.parametrize("upload", ["", "..", "../../etc/passwd", "x" * 32, "0" * 31, "0" * 32])
def test_what_is_no_upload_is_not_found(uploads: Uploads, upload: str) -> None:
    uploads.begin(ME)
    asked: list[Callable[[str, str], object]] = [uploads.offset, uploads.open]
    for ask in asked:
        with pytest.raises(UploadNotFoundError):
            ask(ME, upload)


def test_an_upload_is_nobody_elses(uploads: Uploads) -> None:
    upload = uploads.begin(ME)
    with pytest.raises(UploadNotFoundError):
        uploads.offset(YOU, upload)


@pytest.mark.parametrize("bounds", [UploadLimits(uploads=2), UploadLimits(of_one=2)], ids=["of all", "of one owner"])
def test_so_many_may_be_open(tmp_path: Path, store: LocalStore, bounds: UploadLimits) -> None:
    uploads = Uploads(tmp_path / "uploads", store, bounds)
    first = uploads.begin(ME)
    uploads.begin(ME)
    with pytest.raises(TooManyUploadsError, match="2 uploads are open"):
        uploads.begin(ME)
    append(uploads, first, b"")
    finish(uploads, first, digest_bytes(b""))
    uploads.begin(ME)


@pytest.mark.parametrize("bounds", [UploadLimits(blob=10), UploadLimits(together=10), UploadLimits(together=5)])
def test_so_many_bytes_may_come(tmp_path: Path, store: LocalStore, bounds: UploadLimits) -> None:
    uploads = Uploads(tmp_path / "uploads", store, bounds)
    upload = uploads.begin(ME)
    append(uploads, upload, b"12345")
    with pytest.raises(TooLargeError):
        append(uploads, upload, b"678901")
    assert uploads.offset(ME, upload) == 5
    assert finish(uploads, upload, digest_bytes(b"12345")).size == 5


@pytest.mark.parametrize("bounds", [UploadLimits(idle=60), UploadLimits(age=60)], ids=["idle", "old"])
def test_what_nobody_goes_on_with_is_given_up(tmp_path: Path, store: LocalStore, bounds: UploadLimits) -> None:
    now = time.time()
    uploads = Uploads(tmp_path / "uploads", store, bounds, lambda: now)
    given_up, written = uploads.begin(ME), uploads.begin(ME)
    with closing(uploads.open(ME, written)):
        now += 100
        uploads.sweep()
    assert uploads.offset(ME, written) == 0  # somebody is there
    with pytest.raises(UploadNotFoundError):
        uploads.offset(ME, given_up)
    uploads.begin(ME)
    with pytest.raises(UploadNotFoundError):
        uploads.offset(ME, written)


def test_what_was_sent_or_asked_for_is_held_for_a_while(tmp_path: Path, uploads: Uploads, store: LocalStore) -> None:
    asked_for = store.put(io.BytesIO(b"asked for")).digest
    store.put(io.BytesIO(b"neither"))
    upload = uploads.begin(ME)
    append(uploads, upload, CONTENT)
    finish(uploads, upload, BLOB.digest)
    assert uploads.has(asked_for)
    assert not uploads.has(OTHER)

    held = tmp_path / "uploads" / "held"
    assert set(FolderHolds(held).held()) == {BLOB.digest, asked_for}
    later = FolderHolds(held, clock=lambda: time.time() + HOLD_SECONDS + 1)
    assert set(later.held()) == set()
    later.forget_expired()
    assert not any(held.iterdir())
