"""What killed writers leave in a store is removed by the next writer; what living ones write stays."""

import fcntl
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from benchlock.artifacts.atomic_files import RemovedFiles, create_unfinished_file, remove_dead_files
from benchlock.artifacts.stores.local_store import LocalStore

KILLED = """
import io, os, signal, sys
from pathlib import Path
from benchlock.artifacts.stores.local_store import LocalStore

class Endless(io.RawIOBase):
    left = 5
    def readable(self): return True
    def readinto(self, buffer):
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return len(buffer)

store = LocalStore(Path(sys.argv[1]))
with store.together():
    store.put(io.BufferedReader(Endless(), 1 << 16))
"""


def killed_writer(root: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", KILLED, str(root)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL


def sizes(root: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (root / "incoming").iterdir()}


def test_the_next_writer_removes_what_killed_ones_left(tmp_path: Path) -> None:
    for _ in range(3):
        killed_writer(tmp_path)
        assert len(sizes(tmp_path)) == 1, "each writer removes what the one before left"
    LocalStore(tmp_path).put(io.BytesIO(b"content"))
    assert sizes(tmp_path) == {}


def test_the_next_import_of_a_living_process_removes_it_too(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put(io.BytesIO(b"first"))
    killed_writer(tmp_path)
    store.put(io.BytesIO(b"second"))
    assert len(sizes(tmp_path)) == 1, "looked for once, not at every blob"
    with store.together():
        store.put(io.BytesIO(b"third"))
    assert sizes(tmp_path) == {}


class Meanwhile(io.RawIOBase):
    """A stream while whose bytes come another process begins to write."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._left = [b"a" * 100, b"b" * 100]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        if not self._left:
            return 0
        if len(self._left) == 1:
            LocalStore(self._root).put(io.BytesIO(b"other"))
        part = self._left.pop(0)
        buffer[: len(part)] = part
        return len(part)


def test_a_living_writer_keeps_its_draft(tmp_path: Path) -> None:
    found = LocalStore(tmp_path).put(cast("BinaryIO", Meanwhile(tmp_path)))
    assert found.size == 200
    assert LocalStore(tmp_path).exists(found.digest)


def test_an_interrupted_fetch_stays_to_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / f"{'0' * 64}.part").write_bytes(b"half")
    LocalStore(tmp_path).put(io.BytesIO(b"content"))
    assert list(sizes(tmp_path).values()) == [4]


def test_a_draft_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, taken = fcntl.flock, list[RemovedFiles]()

    def slow(file: int, how: int) -> None:
        if not taken:
            taken.append(RemovedFiles(0, 0))
            monkeypatch.setattr(fcntl, "flock", lock)
            taken[0] = remove_dead_files(tmp_path)
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    draft = create_unfinished_file(tmp_path)
    assert taken == [RemovedFiles(1, 0)]
    assert len(list(tmp_path.iterdir())) == 1
    assert remove_dead_files(tmp_path) == RemovedFiles(0, 0)
    draft.close()


def test_a_collection_counts_what_it_removes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "0123").write_bytes(b"half a bl")
    (tmp_path / "incoming" / f"{'0' * 64}.part").write_bytes(b"half")
    with store.collecting():
        assert store.sweep(dry_run=True) == RemovedFiles(2, 13)
        assert len(sizes(tmp_path)) == 2
        assert store.sweep() == RemovedFiles(2, 13)
        assert sizes(tmp_path) == {}
