"""What a store in a folder promises beyond every store: durability, repair, and errors that lose nothing."""

import errno
import io
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from benchlock.artifacts.blob_store import BlobNotFoundError, verify
from benchlock.artifacts.digest import Digest, digest_bytes, to_hex
from benchlock.artifacts.errors import IntegrityError, UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore

CONTENT = b"the right bytes"
DIGEST = digest_bytes(CONTENT)
NOBODY = 65534


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "registry" / "blobs"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


class Zeros(io.RawIOBase):
    """So many bytes, from no memory."""

    def __init__(self, size: int) -> None:
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override] # what readers hand over
        size = min(self._left, len(buffer))
        buffer[:size] = bytes(size)
        self._left -= size
        return size


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Without root's right to write anywhere."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Every write beyond ``size`` bytes of a file fails, as on a disk that fills up."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def put(store: LocalStore, content: bytes) -> Digest:
    return store.put(io.BytesIO(content)).digest


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_nothing_is_made_before_something_is_written(root: Path, store: LocalStore) -> None:
    assert list(store.list()) == []
    assert not store.exists(DIGEST)
    store.delete(DIGEST)
    assert not root.parent.exists()


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_layout_and_modes_whatever_the_umask(root: Path, mask: int) -> None:
    root.parent.mkdir()
    with umask(mask):
        put(LocalStore(root), CONTENT)
        put(LocalStore(root), b"another")

    place = root / "sha256" / to_hex(DIGEST)[:2] / to_hex(DIGEST)
    assert place.read_bytes() == CONTENT
    assert mode(place) == 0o444
    assert mode(root / "lock") == 0o644
    assert {mode(folder) for folder in (root, root / "incoming", root / "sha256", place.parent)} == {0o755}
    other = to_hex(digest_bytes(b"another"))
    assert files(root) == {"lock", f"sha256/{place.parent.name}/{place.name}", f"sha256/{other[:2]}/{other}"}


def test_wider_modes_of_existing_folders_stay(root: Path, store: LocalStore) -> None:
    root.mkdir(parents=True)
    root.chmod(0o700)
    (root / "incoming").mkdir()
    (root / "incoming").chmod(0o2775)
    put(store, CONTENT)
    assert (mode(root), mode(root / "incoming")) == (0o700, 0o2775)


def test_path(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(BlobNotFoundError):
        store.path(DIGEST)
    put(store, CONTENT)
    linked = tmp_path / "linked"
    linked.hardlink_to(store.path(DIGEST))
    assert linked.read_bytes() == CONTENT


def test_an_intact_blob_is_not_written_again(store: LocalStore, tmp_path: Path) -> None:
    put(store, CONTENT)
    linked, file = tmp_path / "linked", tmp_path / "file"
    linked.hardlink_to(store.path(DIGEST))
    file.write_bytes(CONTENT)
    put(store, CONTENT)
    store.put_file(file)
    assert linked.samefile(store.path(DIGEST))


DAMAGED = {
    "flipped byte": bytes([CONTENT[0] ^ 1]) + CONTENT[1:],
    "cut short": CONTENT[:-1],
    "grown": CONTENT + b"\0",
    "empty": b"",
    "writable": CONTENT,
    "a link": CONTENT,
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("way", ["put", "put_file"])
def test_the_right_bytes_repair_a_damaged_blob(root: Path, store: LocalStore, damage: str, way: str) -> None:
    put(store, CONTENT)
    place = store.path(DIGEST)
    place.chmod(0o644)
    place.write_bytes(DAMAGED[damage])
    place.chmod(0o666 if damage == "writable" else 0o444)
    if damage == "a link":
        place.symlink_to(place.rename(root / "elsewhere"))
    if DAMAGED[damage] != CONTENT:
        with pytest.raises(IntegrityError):
            verify(store, DIGEST, name="weights")

    if way == "put":
        put(store, CONTENT)
    else:
        file = root.parent / "file"
        file.write_bytes(CONTENT)
        store.put_file(file)

    verify(store, DIGEST, name="weights", size=len(CONTENT))
    assert not place.is_symlink()
    assert mode(place) == 0o444
    assert list((root / "incoming").iterdir()) == []


def test_verify_names_file_and_both_digests(store: LocalStore) -> None:
    put(store, CONTENT)
    place, damaged = store.path(DIGEST), b"x" + CONTENT[1:]
    place.chmod(0o644)
    place.write_bytes(damaged)
    with pytest.raises(IntegrityError) as caught:
        verify(store, DIGEST, name="weights.bin")
    for part in ("weights.bin", DIGEST, digest_bytes(damaged), "import of the bundle", "build of the image"):
        assert part in str(caught.value)


def test_what_was_refused_leaves_no_file(root: Path, store: LocalStore) -> None:
    with pytest.raises(IntegrityError):
        store.put(io.BytesIO(CONTENT), digest_bytes(b"other"))
    assert files(root) == {"lock"}


def test_sweeping_removes_what_was_left_behind(root: Path, store: LocalStore) -> None:
    put(store, CONTENT)
    (root / "incoming" / "0123").write_bytes(b"half a bl")
    with store.collecting():
        assert len(list((root / "incoming").iterdir())) == 1
        store.sweep()
        assert list((root / "incoming").iterdir()) == []
        assert list(store.list()) == [DIGEST]


def test_list_knows_blobs_from_strays(root: Path, store: LocalStore) -> None:
    put(store, CONTENT)
    put(store, b"another")
    (root / "sha256" / "README").write_text("hello")
    (root / "sha256" / "00").mkdir(exist_ok=True)
    (root / "sha256" / "00" / to_hex(DIGEST)).write_bytes(CONTENT)  # in a folder that is not its own
    (root / "sha256" / "00" / ".swp").write_bytes(b"")
    assert list(store.list()) == sorted([DIGEST, digest_bytes(b"another")])


def test_memory_stays_bounded(store: LocalStore, tmp_path: Path) -> None:
    size = 48 << 20
    tracemalloc.start()
    try:
        with io.BufferedReader(Zeros(size)) as stream:
            found = store.put(cast("BinaryIO", stream))
        file = tmp_path / "large"
        with file.open("wb") as sparse:
            sparse.truncate(size)
        assert store.put_file(file) == found
        verify(store, found.digest, name="large", size=size)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("way", ["put", "put_file"])
def test_a_disk_that_fills_up_loses_nothing(root: Path, store: LocalStore, way: str) -> None:
    put(store, CONTENT)
    large = os.urandom(1 << 20)
    file = root.parent / "large"
    file.write_bytes(large)
    take: Callable[[], object] = partial(put, store, large) if way == "put" else partial(store.put_file, file)

    with largest_file(300_000), pytest.raises(UnavailableError, match=os.strerror(errno.EFBIG)) as caught:
        take()

    assert str(root) in str(caught.value)
    assert list(store.list()) == [DIGEST]
    assert list((root / "incoming").iterdir()) == []
    verify(store, DIGEST, name="weights")
    assert store.put_file(file).size == len(large)


def test_a_folder_without_permission_loses_nothing() -> None:
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    try:
        folder.chmod(0o755)
        store = LocalStore(folder / "blobs")
        put(store, CONTENT)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(mode(path) & ~0o222)

        with unprivileged():
            for other in (store, LocalStore(folder / "blobs"), LocalStore(folder / "new")):
                with pytest.raises(UnavailableError, match="Permission denied") as caught:
                    put(other, b"more")
                assert "choose a readable and writable folder" in str(caught.value)
            with pytest.raises(UnavailableError, match="Permission denied"):
                store.delete(DIGEST)
            with pytest.raises(UnavailableError, match="Permission denied"), store.collecting():
                pass
            verify(store, DIGEST, name="weights")
            assert list(store.list()) == [DIGEST]
        store.path(DIGEST).chmod(0)
        with unprivileged(), pytest.raises(UnavailableError, match="Permission denied"):
            store.open(DIGEST)
    finally:
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755)
        shutil.rmtree(folder)


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = LocalStore(tmp_path / "file")
    with pytest.raises(UnavailableError):
        put(store, CONTENT)
    with pytest.raises(UnavailableError):
        list(store.list())
    with pytest.raises(UnavailableError):
        store.stat(DIGEST)


def test_bytes_are_on_disk_before_their_name_is(root: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Power loss shows no half blob and loses no finished one: file, rename, folder, in this order."""
    place = root / "sha256" / to_hex(DIGEST)[:2] / to_hex(DIGEST)
    order: list[str] = []
    real = os.fsync

    def watched(descriptor: int) -> None:
        real(descriptor)
        synced = Path(f"/proc/self/fd/{descriptor}").readlink()
        name = "draft" if synced.parent == root / "incoming" else str(synced.relative_to(root.parent.parent))
        order.append(f"{name}{' with blob' if place.exists() else ''}")

    monkeypatch.setattr(os, "fsync", watched)
    put(store, CONTENT)

    assert order == [
        "registry",
        "registry/blobs",
        "registry/blobs",
        "registry/blobs/sha256",
        "draft",
        f"registry/blobs/sha256/{place.parent.name} with blob",
    ]


HOLD = """
import sys
from pathlib import Path
from benchlock.artifacts.stores.local_store import LocalStore
with LocalStore(Path(sys.argv[1])).writing():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_process_that_writes_holds_back_the_collector_until_it_dies(root: Path, store: LocalStore) -> None:
    put(store, CONTENT)
    collected = threading.Event()

    def collect() -> None:
        with store.collecting():
            collected.set()

    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", HOLD, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == b"held\n"
        collector = threading.Thread(target=collect, daemon=True)
        collector.start()
        assert not collected.wait(0.2)
        writer.kill()
    assert collected.wait(20)
    collector.join()
