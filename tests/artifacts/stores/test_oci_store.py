"""What a store over an OCI repository promises beyond every store: protection, claims, bounded memory."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from benchlock.artifacts.blob_store import BlobNotFoundError, prefetch, verify
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import IntegrityError, RefusedError, UnavailableError
from benchlock.artifacts.file_trees import put_tree, verify_tree
from benchlock.artifacts.oci.oci_client import RegistryClient
from benchlock.artifacts.oci.oci_documents import MANIFEST, OciManifest, decode, encode
from benchlock.artifacts.stores.cached_store import CachedRepository
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.stores.oci_store import OWNER_TAG, OciStore
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.publishing.garbage_collection import collect_garbage
from tests.support.servers.faulty_proxy import FaultyProxy, proxy_to
from tests.support.servers.registry_server import RegistryServer, serving

CONTENT = os.urandom(300_000)
DAMAGED = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
DIGEST = digest_bytes(CONTENT)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RegistryServer]:
    """A registry of the test's own."""
    folder = tmp_path / "server"
    folder.mkdir()
    with serving(folder) as server:
        yield server


@pytest.fixture
def proxy(server: RegistryServer) -> Iterator[FaultyProxy]:
    with proxy_to(server.port) as proxy:
        yield proxy


def remote(server: RegistryServer, home: Path, *, owner: str | None = None, port: int | None = None) -> OciStore:
    return OciStore(RegistryClient(server.repository("blobs", port=port)), home / "lock", owner)


def mirrored(server: RegistryServer, home: Path, *, port: int | None = None) -> CachedRepository:
    home.mkdir(exist_ok=True)
    return CachedRepository(LocalStore(home / "blobs"), remote(server, home, port=port))


def test_the_registry_collects_what_is_named_no_more_and_nothing_else(server: RegistryServer, tmp_path: Path) -> None:
    store = remote(server, tmp_path)
    with store.together():
        kept, gone, also_kept = (store.put(io.BytesIO(content)).digest for content in (CONTENT, b"gone", b"kept"))
    single = store.put(io.BytesIO(b"single")).digest
    with store.collecting():
        store.delete(gone)

    server.collect_garbage()

    assert set(store.list()) == {kept, also_kept, single}
    for digest in (kept, also_kept, single):
        verify(store, digest, name="kept")
    assert not server.blob(gone).exists()
    store.put(io.BytesIO(b"gone"))
    verify(store, gone, name="came again")


def test_what_broke_off_in_a_batch_is_left_to_the_registry(server: RegistryServer, tmp_path: Path) -> None:
    store = remote(server, tmp_path)
    with pytest.raises(ZeroDivisionError), store.together():
        _ = store.put(io.BytesIO(CONTENT)).size / 0
    assert list(store.list()) == []
    server.collect_garbage()
    assert not server.blob(DIGEST).exists()


def test_what_the_registry_lost_holds_no_collection_back(
    server: RegistryServer, tmp_path: Path, database: Engine
) -> None:
    catalogue, store = Catalogue(database, lambda: datetime.now(UTC)), remote(server, tmp_path)
    with store.together():
        kept, needed, gone, lost = (store.put(io.BytesIO(content)).digest for content in (CONTENT, b"a", b"bc", b"def"))
    for digest in (needed, lost):
        server.blob(digest).unlink()

    rehearsed = collect_garbage(store, catalogue, lambda: [kept, needed], dry_run=True)

    assert (set(rehearsed.digests), rehearsed.size) == ({gone, lost}, 2)
    assert collect_garbage(store, catalogue, lambda: [kept, needed]) == rehearsed
    assert set(store.list()) == {kept}
    assert collect_garbage(store, catalogue, lambda: [kept, needed]).digests == ()
    store.put(io.BytesIO(b"a"))  # as publishing again does
    server.collect_garbage()
    for digest in (kept, needed):
        verify(store, digest, name="needed")


def test_a_blob_that_is_there_is_not_sent_again(server: RegistryServer, proxy: FaultyProxy, tmp_path: Path) -> None:
    store = remote(server, tmp_path, port=proxy.port)
    store.put(io.BytesIO(CONTENT))
    sent = proxy.passed["up"]
    steps: list[int] = []
    store.put(io.BytesIO(CONTENT), advance=steps.append)
    assert proxy.passed["up"] - sent < 10_000
    assert sum(steps) == len(CONTENT)


def test_damage_in_the_registry_is_named(server: RegistryServer, tmp_path: Path) -> None:
    store = remote(server, tmp_path)
    store.put(io.BytesIO(CONTENT))
    server.blob(DIGEST).write_bytes(DAMAGED)
    with pytest.raises(IntegrityError, match=rf"weights: .*expected {DIGEST}, found sha256:"):
        verify(store, DIGEST, name="weights")
    server.blob(DIGEST).write_bytes(CONTENT[:-1])
    with pytest.raises(IntegrityError, match=rf"has 299999 bytes of weights, not 300000: {DIGEST}"):
        store.put(io.BytesIO(CONTENT), name="weights")
    server.blob(DIGEST).unlink()
    store.put(io.BytesIO(CONTENT))
    verify(store, DIGEST, name="weights")


def test_garbage_is_collected_for_the_owner_alone(server: RegistryServer, tmp_path: Path) -> None:
    mine, other = remote(server, tmp_path, owner="mine"), remote(server, tmp_path, owner="other")
    blob = other.put(io.BytesIO(CONTENT)).digest
    with other.collecting():  # which a dry run does, too
        pass
    mine.claim()
    mine.claim()
    with pytest.raises(RefusedError, match="belongs to another"), other.collecting():
        other.delete(blob)
    assert list(mine.list()) == [blob]
    with pytest.raises(RefusedError, match=r"belongs to another registry of benchlock \(mine\)"):
        other.claim()
    with pytest.raises(RefusedError, match="belongs to another"), other.collecting():
        pass
    with mine.collecting():
        pass


def test_a_claim_has_an_artifact_type_and_counts_without_one(server: RegistryServer, tmp_path: Path) -> None:
    mine, other = remote(server, tmp_path, owner="mine"), remote(server, tmp_path, owner="other")
    mine.claim()
    client = RegistryClient(mine.repository)
    claim = decode(client.manifest(OWNER_TAG), OciManifest, OWNER_TAG)
    assert claim.artifact_type == "application/vnd.benchlock.registry.v1+json"
    older = OciManifest(config=claim.config, layers=claim.layers, annotations=claim.annotations)
    client.put_manifest(encode(older), MANIFEST, OWNER_TAG)
    mine.claim()
    with pytest.raises(RefusedError, match="belongs to another"):
        other.claim()


def test_a_registry_that_lets_nothing_be_deleted_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, deletes=False) as server:
        store = remote(server, tmp_path)
        store.put(io.BytesIO(CONTENT))
        with pytest.raises(UnavailableError, match=r"storage\.delete\.enabled"):
            store.delete(DIGEST)
        verify(store, DIGEST, name="kept")


def test_a_tree_is_on_one_shelf(server: RegistryServer, tmp_path: Path) -> None:
    folder, store = tmp_path / "tree", remote(server, tmp_path)
    (folder / "deep").mkdir(parents=True)
    for number in range(40):
        (folder / "deep" / f"{number}.bin").write_bytes(bytes([number]) * 1000)
    tree, entries = put_tree(store, folder)
    assert len(entries) == 40
    assert verify_tree(store, tree, name="tree/") == entries
    assert len(list(RegistryClient(server.repository("blobs")).tags())) == 2  # the files, and their listing
    assert len(list(store.list())) == 41


def test_what_was_read_once_needs_no_network(server: RegistryServer, tmp_path: Path) -> None:
    mirrored(server, tmp_path / "one").put(io.BytesIO(CONTENT))
    with proxy_to(server.port) as proxy:
        store = mirrored(server, tmp_path / "two", port=proxy.port)
        assert store.exists(DIGEST)
        assert store.stat(DIGEST).size == len(CONTENT)
        assert store.path(DIGEST).read_bytes() == CONTENT
    assert store.path(DIGEST).stat().st_mode & 0o777 == 0o444
    with store.writing():
        verify(store, DIGEST, name="weights", size=len(CONTENT))
    assert store.exists(DIGEST)
    with pytest.raises(UnavailableError):
        store.exists(digest_bytes(b"other"))


def test_what_the_folder_lost_comes_again(server: RegistryServer, tmp_path: Path) -> None:
    store = mirrored(server, tmp_path / "home")
    store.put(io.BytesIO(CONTENT))
    store.path(DIGEST).unlink()
    verify(store, DIGEST, name="weights")
    store.path(DIGEST).unlink()
    with store.collecting():  # when nothing may be written
        verify(store, DIGEST, name="weights")


def test_damage_elsewhere_never_comes_into_the_folder(server: RegistryServer, tmp_path: Path) -> None:
    mirrored(server, tmp_path / "one").put(io.BytesIO(CONTENT))
    server.blob(DIGEST).write_bytes(DAMAGED)
    store = mirrored(server, tmp_path / "two")
    with pytest.raises(IntegrityError, match=rf"weights: .*expected {DIGEST}, found sha256:"):
        verify(store, DIGEST, name="weights")
    with pytest.raises(IntegrityError, match=DIGEST):
        store.path(DIGEST)
    assert [path.name for path in (tmp_path / "two").rglob("*") if path.is_file()] == ["lock"]


def test_what_did_not_arrive_elsewhere_is_not_visible_here(server: RegistryServer, tmp_path: Path) -> None:
    with proxy_to(server.port) as proxy:
        store = mirrored(server, tmp_path / "home", port=proxy.port)
    with pytest.raises(UnavailableError):
        store.put(io.BytesIO(CONTENT))
    assert list(LocalStore(tmp_path / "home" / "blobs").list()) == []


def test_both_forget(server: RegistryServer, tmp_path: Path) -> None:
    store = mirrored(server, tmp_path / "home")
    store.put(io.BytesIO(CONTENT))
    with store.collecting():
        store.delete(DIGEST)
    assert not store.exists(DIGEST)
    with pytest.raises(BlobNotFoundError):
        store.open(DIGEST)


def test_the_last_good_copy_is_not_evicted(server: RegistryServer, tmp_path: Path) -> None:
    store = mirrored(server, tmp_path / "home")
    kept, rotten, lost = (store.put(io.BytesIO(content)) for content in (CONTENT, b"precious", b"needed"))
    server.blob(rotten.digest).write_bytes(b"Precious")
    server.blob(lost.digest).unlink()
    for dry_run in (True, False):
        evicted = store.evict(dry_run=dry_run)
        assert (evicted.gone, set(evicted.kept)) == ((kept,), {rotten.digest, lost.digest})
    assert set(LocalStore(tmp_path / "home" / "blobs").list()) == {rotten.digest, lost.digest}
    for blob in (kept, rotten, lost):
        verify(store, blob.digest, name="needed", size=blob.size)


def test_a_copy_that_is_damaged_here_alone_is_evicted_and_comes_again(server: RegistryServer, tmp_path: Path) -> None:
    store = mirrored(server, tmp_path / "home")
    store.put(io.BytesIO(CONTENT))
    copy = store.path(DIGEST)
    copy.unlink()
    copy.write_bytes(b"damaged")
    with pytest.raises(IntegrityError) as caught:
        verify(store, DIGEST, name="weights")
    assert "free the local copy" in str(caught.value)
    store.evict()
    verify(store, DIGEST, name="weights")


def test_nothing_is_evicted_where_the_registry_does_not_answer(server: RegistryServer, tmp_path: Path) -> None:
    with proxy_to(server.port) as proxy:
        store = mirrored(server, tmp_path / "home", port=proxy.port)
        store.put(io.BytesIO(CONTENT))
    with pytest.raises(UnavailableError):
        store.evict()
    assert store.path(DIGEST).read_bytes() == CONTENT


def test_many_threads_have_one_blob_fetched(server: RegistryServer, tmp_path: Path) -> None:
    contents = [bytes([number]) * 100_000 for number in range(12)]
    store = mirrored(server, tmp_path / "one")
    digests = [store.put(io.BytesIO(content)).digest for content in contents]
    store = mirrored(server, tmp_path / "two")
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda digest: verify(store, digest, name=digest), digests * 3):
            assert found.size == 100_000


def test_what_is_brought_is_at_hand_and_what_cannot_be_is_named_by_who_reads_it(
    server: RegistryServer, tmp_path: Path
) -> None:
    there = mirrored(server, tmp_path / "one")
    blobs = [there.put(io.BytesIO(bytes([number]) * 1000)) for number in range(20)]
    server.blob(blobs[0].digest).write_bytes(b"other")
    server.blob(blobs[1].digest).unlink()
    with proxy_to(server.port) as proxy:
        store = mirrored(server, tmp_path / "two", port=proxy.port)
        prefetch(store, blobs * 2)
        with pytest.raises(IntegrityError, match=rf"weights: .*expected {blobs[0].digest}, found sha256:"):
            verify(store, blobs[0].digest, name="weights")
        with pytest.raises(IntegrityError, match="labels is missing"):
            verify(store, blobs[1].digest, name="labels")
    for blob in blobs[2:]:
        verify(store, blob.digest, name="there", size=1000)


LARGE = """
import resource, sys
from pathlib import Path
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.stores.cached_store import CachedRepository
from benchlock.artifacts.oci.oci_client import RegistryClient
from benchlock.artifacts.oci.oci_reference import parse_repository
from benchlock.artifacts.stores.oci_store import OciStore
from benchlock.artifacts.blob_store import verify

repository, home = parse_repository(sys.argv[1]), Path(sys.argv[2])
remote = OciStore(RegistryClient(repository), home / "lock")
warm = remote.put_file(home / "small")
verify(remote, warm.digest, name="small")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = remote.put_file(home / "large")
verify(remote, found.digest, name="large", size=found.size)
store = CachedRepository(LocalStore(home / "blobs"), remote)
with store.open(found.digest) as stream:
    assert stream.read(5) == bytes(5)
assert store.evict().gone == (found,)
print(found.size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_stays_bounded(server: RegistryServer, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"small")
    with (tmp_path / "large").open("wb") as sparse:
        sparse.truncate(256 << 20)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", LARGE, str(server.repository("large")), str(tmp_path)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300)
    size, grown = map(int, done.stdout.split())
    assert size == 256 << 20
    assert grown < 16 << 10  # KiB
