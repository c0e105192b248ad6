"""What every blob store promises."""

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from benchlock.artifacts.blob_store import BlobNotFoundError, BlobStore, read, verify
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, RefusedError, UnavailableError
from benchlock.artifacts.net.object_client import connect
from benchlock.artifacts.oci.oci_client import RegistryClient
from benchlock.artifacts.resumable_fetch import fetch
from benchlock.artifacts.stores.cached_store import CachedRepository, CachedStore
from benchlock.artifacts.stores.http_store import HttpStore, make_blob_client, open_session, parse_server
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.stores.object_store import ObjectStore
from benchlock.artifacts.stores.oci_store import OciStore
from tests.support.api.serving import Served, service
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.servers.object_server import ObjectServer
from tests.support.servers.registry_server import RegistryServer

HELLO = b"hello blob"
HELLO_DIGEST = Digest("sha256:" + hashlib.sha256(HELLO).hexdigest())
OTHER_DIGEST = Digest("sha256:" + hashlib.sha256(b"other").hexdigest())
SOON = 0.1  # seconds after which what should wait is taken to wait
LATE = 60.0  # seconds after which what should go on is taken to hang


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with service(tmp_path_factory.mktemp("served") / "registry") as found:
        yield found


EMBEDDED = (
    "local",
    "memory",
    "oci",
    "mirrored",
    "objects",
    "objects behind a folder",
    "azure",
    "azure behind a folder",
)
ON_A_SERVER = ("http", "http behind a folder")


@pytest.fixture(params=[*EMBEDDED, *ON_A_SERVER])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlobStore:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return LocalStore(tmp_path / "store")
    if request.param in ON_A_SERVER:
        served: Served = request.getfixturevalue("served")
        empty(kept(served))
        there = HttpStore(make_blob_client(open_session(parse_server(served.url))), tmp_path)
        return there if request.param == "http" else CachedStore(LocalStore(tmp_path / "store"), there)
    if request.param.startswith(("objects", "azure")):
        kind = request.param.split()[0].removesuffix("s")
        bucket: ObjectServer = request.getfixturevalue(f"{kind}_server")
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        objects = ObjectStore(connect(bucket.location(tmp_path.name)), tmp_path / "lock", "conformance")
        objects.claim()
        return objects if "folder" not in request.param else CachedStore(LocalStore(tmp_path / "store"), objects)
    server: RegistryServer = request.getfixturevalue("registry_server")
    repository = server.repository(f"conformance/{tmp_path.name.lower().replace('_', '-')}")
    remote = OciStore(RegistryClient(repository), tmp_path / "lock", "conformance")
    return remote if request.param == "oci" else CachedRepository(LocalStore(tmp_path / "store"), remote)


@pytest.fixture
def keeper(request: pytest.FixtureRequest, store: BlobStore) -> BlobStore:
    """The store as whoever keeps it sees it, and may list, delete and collect: of one on a server, the server's."""
    is_elsewhere = isinstance(getattr(store, "remote", store), HttpStore)
    return kept(request.getfixturevalue("served")) if is_elsewhere else store


def kept(served: Served) -> LocalStore:
    return LocalStore(served.registry / "blobs")


def empty(store: BlobStore) -> None:
    for digest in store.list():
        store.delete(digest)


class BreaksOff(io.RawIOBase):
    """A stream that fails in its middle."""

    def __init__(self) -> None:
        self._left = 3

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override] # what readers hand over
        self._left -= 1
        if not self._left:
            raise ConnectionResetError("broke off")
        return len(buffer)


def content_of(store: BlobStore, digest: Digest) -> bytes:
    with store.open(digest) as stream:
        return stream.read()


@pytest.mark.parametrize("content", [b"", HELLO, os.urandom((1 << 20) + 1)], ids=["empty", "small", "pieces"])
def test_what_is_put_is_there(store: BlobStore, keeper: BlobStore, content: bytes) -> None:
    digest = Digest("sha256:" + hashlib.sha256(content).hexdigest())
    steps: list[int] = []

    found = store.put(io.BytesIO(content), digest, advance=steps.append)

    assert found == Descriptor(digest, len(content)) == store.stat(digest)
    assert sum(steps) == len(content)
    assert store.exists(digest)
    assert list(keeper.list()) == [digest]
    assert content_of(store, digest) == content


def test_what_is_there_can_be_sought(store: BlobStore) -> None:
    with store.open(store.put(io.BytesIO(HELLO)).digest) as stream:
        assert (stream.read(5), stream.seek(0), stream.read()) == (b"hello", 0, HELLO)
        assert (stream.seek(-4, os.SEEK_END), stream.read()) == (6, b"blob")
        assert (stream.seek(2), stream.read(3), stream.tell()) == (2, b"llo", 5)
        assert (stream.seek(1, os.SEEK_CUR), stream.read()) == (6, b"blob")


def test_put_takes_the_rest_of_the_stream(store: BlobStore) -> None:
    stream = io.BytesIO(b"header" + HELLO)
    stream.seek(6)
    assert store.put(stream).digest == HELLO_DIGEST


def test_put_again_changes_nothing(store: BlobStore, keeper: BlobStore) -> None:
    assert store.put(io.BytesIO(HELLO)) == store.put(io.BytesIO(HELLO), HELLO_DIGEST)
    assert list(keeper.list()) == [HELLO_DIGEST]
    assert content_of(store, HELLO_DIGEST) == HELLO


def test_other_bytes_than_expected_never_become_visible(store: BlobStore, keeper: BlobStore) -> None:
    with pytest.raises(IntegrityError) as caught:
        store.put(io.BytesIO(HELLO), OTHER_DIGEST, name="model.onnx")

    for part in ("model.onnx", HELLO_DIGEST, OTHER_DIGEST):
        assert part in str(caught.value)
    assert list(keeper.list()) == []
    assert not store.exists(HELLO_DIGEST)
    assert not store.exists(OTHER_DIGEST)


def test_a_stream_that_breaks_off_leaves_nothing(store: BlobStore, keeper: BlobStore) -> None:
    with pytest.raises(ConnectionResetError, match="broke off"):
        store.put(cast("BinaryIO", io.BufferedReader(BreaksOff())))
    assert list(keeper.list()) == []


def test_put_file(store: BlobStore, tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(HELLO)
    (tmp_path / "link").symlink_to(file)
    steps: list[int] = []

    assert store.put_file(file, HELLO_DIGEST, advance=steps.append) == Descriptor(HELLO_DIGEST, len(HELLO))
    assert store.put_file(tmp_path / "link") == Descriptor(HELLO_DIGEST, len(HELLO))
    assert sum(steps) == len(HELLO)
    file.write_bytes(b"changed later")
    assert content_of(store, HELLO_DIGEST) == HELLO


def test_put_file_of_other_bytes_names_file_and_digests(store: BlobStore, keeper: BlobStore, tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(HELLO)

    with pytest.raises(IntegrityError) as caught:
        store.put_file(file, OTHER_DIGEST)

    for part in (str(file), HELLO_DIGEST, OTHER_DIGEST):
        assert part in str(caught.value)
    with pytest.raises(IntegrityError, match=r"^role weights does not match"):
        store.put_file(file, OTHER_DIGEST, name="role weights")
    assert list(keeper.list()) == []


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "below a file"])
def test_put_file_takes_regular_files_alone(store: BlobStore, keeper: BlobStore, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "source"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)  # opened for reading, it would wait for a writer
    elif kind == "below a file":
        path.write_bytes(HELLO)
        path = path / "deeper"
    with pytest.raises(InvalidInputError, match=r"source.* (not found|is not a regular file)"):
        store.put_file(path)
    assert list(keeper.list()) == []


def test_put_files(store: BlobStore, keeper: BlobStore, tmp_path: Path) -> None:
    contents = [b"one", HELLO, b"", b"one", os.urandom((1 << 20) + 1), *(str(number).encode() for number in range(200))]
    paths = [tmp_path / str(number) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    steps: list[int] = []

    found = store.put_files(paths, advance=steps.append)

    assert [one.size for one in found] == [len(content) for content in contents]
    assert sum(steps) == sum(map(len, contents))
    assert [content_of(store, one.digest) for one in found] == contents
    assert set(keeper.list()) == {one.digest for one in found}
    assert store.put_files(paths) == found
    assert store.put_files([]) == []
    with pytest.raises(InvalidInputError, match="gone not found"):
        store.put_files([*paths, tmp_path / "gone"])


def test_absent(store: BlobStore, keeper: BlobStore) -> None:
    assert not store.exists(HELLO_DIGEST)
    assert list(keeper.list()) == []
    keeper.delete(HELLO_DIGEST)
    looks: list[Callable[[Digest], object]] = [store.open, store.stat]
    for look in looks:
        with pytest.raises(BlobNotFoundError, match=HELLO_DIGEST):
            look(HELLO_DIGEST)


def test_what_is_no_digest_names_nothing(store: BlobStore) -> None:
    for text in ("sha256:../../outside", "sha256:", "md5:00", "../outside", HELLO_DIGEST.upper()):
        with pytest.raises(InvalidInputError):
            store.open(Digest(text))


@pytest.mark.parametrize("store", [*EMBEDDED, "http"], indirect=True)  # a folder keeps what it has
def test_delete_forgets_one(store: BlobStore, keeper: BlobStore) -> None:
    store.put(io.BytesIO(HELLO))
    kept = store.put(io.BytesIO(b"other"))

    keeper.delete(HELLO_DIGEST)

    assert not store.exists(HELLO_DIGEST)
    assert list(keeper.list()) == [kept.digest]
    store.put(io.BytesIO(HELLO))
    assert set(keeper.list()) == {HELLO_DIGEST, kept.digest}


def test_verify(store: BlobStore) -> None:
    store.put(io.BytesIO(HELLO))
    steps: list[int] = []

    found = verify(store, HELLO_DIGEST, name="labels.txt", size=len(HELLO), advance=steps.append)

    assert found == Descriptor(HELLO_DIGEST, len(HELLO))
    assert sum(steps) == len(HELLO)
    with pytest.raises(IntegrityError, match=r"labels\.txt has 10 bytes, but 11 are stated"):
        verify(store, HELLO_DIGEST, name="labels.txt", size=11)
    with pytest.raises(IntegrityError, match=rf"labels\.txt is missing: expected {OTHER_DIGEST}, found nothing"):
        verify(store, OTHER_DIGEST, name="labels.txt")


def test_read(store: BlobStore) -> None:
    store.put(io.BytesIO(HELLO))
    assert read(store, HELLO_DIGEST, name="manifest") == HELLO
    with pytest.raises(IntegrityError, match="manifest is missing"):
        read(store, OTHER_DIGEST, name="manifest")


def test_many_threads_put_the_same_and_others(store: BlobStore, keeper: BlobStore) -> None:
    contents = [bytes([number]) * 100_000 for number in range(8)] * 4

    with ThreadPoolExecutor(8) as pool:
        put = list(pool.map(lambda content: store.put(io.BytesIO(content)), contents))

    assert set(keeper.list()) == {descriptor.digest for descriptor in put}
    assert len(set(put)) == 8
    for descriptor in put:
        verify(store, descriptor.digest, name="blob", size=descriptor.size)


def test_what_is_put_together_is_there_at_the_end(store: BlobStore, keeper: BlobStore) -> None:
    contents = [bytes([number]) * 1000 for number in range(8)]
    with store.together(), ThreadPoolExecutor(4) as pool:
        put = list(pool.map(lambda content: store.put(io.BytesIO(content)), contents))
    assert set(keeper.list()) == {descriptor.digest for descriptor in put}
    for descriptor in put:
        verify(store, descriptor.digest, name="blob", size=descriptor.size)


@pytest.mark.parametrize("store", [*EMBEDDED, "http"], indirect=True)  # a folder keeps what it has
def test_files_that_were_put_at_once_are_forgotten_one_by_one(
    store: BlobStore, keeper: BlobStore, tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in "123"]
    for path in paths:
        path.write_text(path.name)
    one, two, three = (found.digest for found in store.put_files(paths))
    keeper.delete(two)
    assert set(keeper.list()) == {one, three}
    with keeper.collecting():
        assert content_of(store, one) == b"1"
        keeper.delete(one)
    assert list(keeper.list()) == [three]
    assert [store.exists(digest) for digest in (one, two, three)] == [False, False, True]


class Held:
    """A context that another thread enters, and holds until told otherwise."""

    def __init__(self, context: AbstractContextManager[None]) -> None:
        self._entered, self._release = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(context,), daemon=True)
        self._thread.start()

    def _hold(self, context: AbstractContextManager[None]) -> None:
        with context:
            self._entered.set()
            self._release.wait(LATE)

    def entered(self, within: float) -> bool:
        return self._entered.wait(within)

    def release(self) -> None:
        self._release.set()
        self._thread.join(LATE)
        assert not self._thread.is_alive()


def test_many_write_at_once_and_nested(store: BlobStore) -> None:
    with store.writing(), store.writing():
        other = Held(store.writing())
        assert other.entered(LATE)
        assert store.put(io.BytesIO(HELLO)).digest == HELLO_DIGEST
        other.release()


@pytest.mark.parametrize("store", EMBEDDED, indirect=True)
def test_collecting_waits_for_every_writer(store: BlobStore) -> None:
    first, second = Held(store.writing()), Held(store.writing())
    assert first.entered(LATE)
    assert second.entered(LATE)
    collector = Held(store.collecting())
    first.release()
    assert not collector.entered(SOON)
    with store.writing():  # a waiting collector does not stop who writes already
        pass
    second.release()
    assert collector.entered(LATE)
    collector.release()


def test_put_waits_for_the_collector(store: BlobStore, keeper: BlobStore) -> None:
    with ThreadPoolExecutor(1) as pool:
        with keeper.collecting():
            put = pool.submit(store.put, io.BytesIO(HELLO))
            with pytest.raises(TimeoutError):
                put.result(SOON)
            assert list(keeper.list()) == []
        assert put.result(LATE).digest == HELLO_DIGEST
    assert list(keeper.list()) == [HELLO_DIGEST]


def test_locks_are_free_after_an_error(store: BlobStore, keeper: BlobStore) -> None:
    with pytest.raises(ZeroDivisionError), store.writing():
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), keeper.collecting():
        raise ZeroDivisionError
    assert store.put(io.BytesIO(HELLO)).digest == HELLO_DIGEST


def test_what_is_fetched_is_asked_for_once(store: BlobStore) -> None:
    content, offsets = os.urandom(2_500_000), list[int]()
    digest = Digest("sha256:" + hashlib.sha256(content).hexdigest())

    @contextmanager
    def opened(offset: int) -> Iterator[BinaryIO]:
        offsets.append(offset)
        yield io.BytesIO(content[offset:])

    for _ in range(2):
        steps: list[int] = []
        assert fetch(store, digest, opened, name="x", advance=steps.append) == Descriptor(digest, len(content))
        assert sum(steps) == len(content)
    assert offsets == [0]
    assert content_of(store, digest) == content


def test_a_fetch_of_other_bytes_leaves_nothing(store: BlobStore, keeper: BlobStore) -> None:
    with pytest.raises(IntegrityError, match=f"x does not match .* expected {OTHER_DIGEST}, found {HELLO_DIGEST}"):
        fetch(store, OTHER_DIGEST, lambda _: closing(io.BytesIO(HELLO)), name="x")
    assert list(keeper.list()) == []


def test_a_fetch_that_breaks_off_leaves_nothing_and_can_be_repeated(store: BlobStore, keeper: BlobStore) -> None:
    with pytest.raises(UnavailableError, match="broke off"):
        fetch(store, HELLO_DIGEST, breaking_off, name="x")
    assert not store.exists(HELLO_DIGEST)
    assert list(keeper.list()) == []
    assert fetch(store, HELLO_DIGEST, lambda offset: closing(io.BytesIO(HELLO[offset:])), name="x").size == len(HELLO)
    assert content_of(store, HELLO_DIGEST) == HELLO


@contextmanager
def breaking_off(_: int) -> Iterator[BinaryIO]:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() or size is None or size < 0:
                raise UnavailableError("it broke off")
            return super().read(min(size, 4))

    yield Breaking(HELLO)


@pytest.mark.parametrize("store", ON_A_SERVER, indirect=True)
def test_what_is_the_servers_alone_is_refused_to_a_client(store: BlobStore, keeper: BlobStore) -> None:
    digest = store.put(io.BytesIO(HELLO)).digest
    verbs: list[Callable[[], object]] = [
        lambda: list(store.list()),
        lambda: store.delete(digest),
        lambda: store.collecting().__enter__(),
        store.sweep,
    ]
    for verb in verbs:
        with pytest.raises(RefusedError, match="only for its administrator"):
            verb()
    assert keeper.exists(digest)
