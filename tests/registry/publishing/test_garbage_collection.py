"""What something names is kept, whoever names it; the rest goes."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from benchlock.artifacts.blob_store import verify
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import IntegrityError, UnavailableError
from benchlock.artifacts.resumable_fetch import fetch
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.uploads.gc_holds import HOLD_SECONDS
from benchlock.artifacts.uploads.resumable_uploads import Uploads
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.publishing.garbage_collection import collect_garbage
from benchlock.registry.publishing.publication import Draft, publish

Author = Callable[..., Draft]

DATASET = """\
schema: 1
kind: dataset
name: pictures
version: 1.0.0
license: MIT
format: image-index
splits: {test: {index: all/index.csv, samples: 1}}
files: [{path: all/, source: all}]
"""
FILES = {"all/index.csv": b"path,label\na.png,1\n", "all/a.png": b"a picture"}


def test_what_is_published_stays_and_the_rest_goes(author: Author, store: LocalStore, catalogue: Catalogue) -> None:
    publish(author(DATASET, FILES), store, catalogue)
    kept = set(store.list())
    garbage = {store.put(io.BytesIO(text)).digest for text in (b"left by a kill", b"forgotten")}
    of_a_run = store.put(io.BytesIO(b"predictions")).digest
    rehearsed = collect_garbage(store, catalogue, lambda: [of_a_run], dry_run=True)
    assert set(store.list()) == kept | garbage | {of_a_run}
    collected = collect_garbage(store, catalogue, lambda: [of_a_run])
    assert rehearsed == collected
    assert (set(collected.digests), collected.size) == (garbage, 23)
    assert set(store.list()) == kept | {of_a_run}
    for digest in kept:
        verify(store, digest, name=digest)


def test_a_dry_run_leaves_what_an_interrupted_fetch_goes_on_with(store: LocalStore, catalogue: Catalogue) -> None:
    content, offsets = bytes(3 << 20), list[int]()

    @contextmanager
    def breaking_off(offset: int) -> Iterator[BinaryIO]:
        offsets.append(offset)
        yield BreaksOff(content)

    for dry_run in (True, False):
        with pytest.raises(UnavailableError, match="broke off"):
            fetch(store, digest_bytes(content), breaking_off, name="weights")
        collect_garbage(store, catalogue, list, dry_run=dry_run)
    with pytest.raises(UnavailableError, match="broke off"):
        fetch(store, digest_bytes(content), breaking_off, name="weights")
    assert offsets == [0, 1 << 20, 0]


class BreaksOff(io.BytesIO):
    """A stream that fails after its first MiB."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise UnavailableError("it broke off")
        return super().read(size)


def test_a_draft_that_is_being_written_is_not_collected(
    author: Author, store: LocalStore, catalogue: Catalogue
) -> None:
    with store.writing():
        blob = store.put(io.BytesIO(b"of a draft")).digest
        collection = threading.Thread(target=collect_garbage, args=(store, catalogue, list))
        collection.start()
        collection.join(0.2)
        assert collection.is_alive()
        assert store.exists(blob)
        publish(author(DATASET, FILES), store, catalogue)
    collection.join()
    assert not store.exists(blob)
    assert store.exists(digest_bytes(b"a picture"))


def test_what_a_client_sent_stays_until_it_has_had_the_time_to_publish(
    store: LocalStore, catalogue: Catalogue, tmp_path: Path
) -> None:
    now = time.time()
    uploads = Uploads(tmp_path / "uploads", store, clock=lambda: now)
    upload = uploads.begin("client")
    with closing(uploads.open("client", upload)) as piece:
        piece.write(b"weights")
        sent = uploads.finish(piece, digest_bytes(b"weights")).digest
    asked_for, garbage = (store.put(io.BytesIO(text)).digest for text in (b"asked for", b"garbage"))
    assert uploads.has(asked_for)

    assert set(collect_garbage(store, catalogue, uploads.held).digests) == {garbage}
    now += HOLD_SECONDS + 60
    assert set(collect_garbage(store, catalogue, uploads.held).digests) == {sent, asked_for}


def test_a_damaged_listing_stops_the_collection(author: Author, store: LocalStore, catalogue: Catalogue) -> None:
    publish(author(DATASET, FILES), store, catalogue)
    (tree,) = catalogue.live_trees()
    place = store.path(tree)
    place.chmod(0o644)
    place.write_bytes(b"[]")
    before = set(store.list())
    with pytest.raises(IntegrityError, match=tree):
        collect_garbage(store, catalogue, list)
    assert set(store.list()) == before
