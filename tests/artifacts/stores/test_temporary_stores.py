"""A rehearsal: local files stay where they are, what is there counts, what comes from elsewhere comes once."""

import fcntl
import io
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from benchlock.artifacts.blob_store import BlobNotFoundError, read
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.file_trees import put_tree, verify_tree
from benchlock.artifacts.resumable_fetch import fetch
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.stores.temporary_stores import open_dry_run

REMOTE = b"from elsewhere"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_bytes(b"a" * 1000)
    (folder / "sub" / "b").write_bytes(b"b")
    return folder


def test_local_files_stay_where_they_are(store: LocalStore, folder: Path) -> None:
    with open_dry_run(store) as rehearsal:
        tree, entries = put_tree(rehearsal, folder)
        assert verify_tree(rehearsal, tree, name="folder/") == entries
        assert rehearsal.stat(entries[0].digest).size == 1000
        assert {entry.digest for entry in entries} | {tree.digest} == set(rehearsal.list())
        with pytest.raises(IntegrityError, match="folder"):
            rehearsal.put_file(folder / "a", entries[1].digest)
        kept = rehearsal._scratch
        assert list(kept.list()) == [tree.digest]
    assert list(store.list()) == []
    assert not kept._root.exists()


def test_what_is_there_counts(store: LocalStore) -> None:
    digest = store.put(io.BytesIO(b"there")).digest
    with open_dry_run(store) as rehearsal:
        assert rehearsal.exists(digest)
        assert read(rehearsal, digest, name="x") == b"there"
        rehearsal.delete(digest)
        with pytest.raises(BlobNotFoundError):
            rehearsal.open(digest_bytes(b"nowhere"))
    assert store.exists(digest)


def test_what_comes_from_elsewhere_comes_once(store: LocalStore) -> None:
    offsets: list[int] = []

    @contextmanager
    def opened(offset: int) -> Iterator[BinaryIO]:
        offsets.append(offset)
        yield io.BytesIO(REMOTE[offset:])

    digest = digest_bytes(REMOTE)
    for _ in range(2):
        with open_dry_run(store) as rehearsal, rehearsal.writing():
            fetch(rehearsal, digest, opened, name="x")
            assert read(rehearsal, digest, name="x") == REMOTE
    fetch(store, digest, opened, name="x")
    assert offsets == [0]


def test_nothing_is_collected_while_it_is_looked_at(store: LocalStore, tmp_path: Path) -> None:
    def collectable() -> bool:
        with (tmp_path / "store" / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    with open_dry_run(store):
        assert not collectable()
    assert collectable()


def test_without_a_store_nothing_is_kept() -> None:
    digest = digest_bytes(REMOTE)
    with open_dry_run() as rehearsal:
        fetch(rehearsal, digest, lambda offset: closing(io.BytesIO(REMOTE[offset:])), name="x")
        assert read(rehearsal, digest, name="x") == REMOTE
