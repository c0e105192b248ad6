"""Files that are written for a user: whole under their name or not there, whoever else writes them."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.blob_store import copy_blob
from benchlock.artifacts.bundles.bundle_format import BundlePart, BundleRoot, write_bundle
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.user_output import SILENT, Advance
from tests.support.artifacts.memory_store import MemoryStore

ONE, OTHER = os.urandom(2_500_000), os.urandom(1_500_000)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


class Meanwhile:
    """Progress that lets another one write, start to end, at the first step of the first task."""

    def __init__(self, target: Path, other: BundleRoot, store: MemoryStore) -> None:
        self._target, self._other, self._store = target, other, store
        self.written: list[Descriptor] = []

    @contextmanager
    def task(self, _label: str, _total: int | None = None) -> Iterator[Advance]:
        yield self._step

    def _step(self, _size: int) -> None:
        if not self.written:
            self.written.append(write_bundle(self._target, [self._other], self._store, SILENT))
            assert digest_bytes(self._target.read_bytes()) == self.written[0].digest


def test_two_that_copy_to_one_path_do_not_mix(store: MemoryStore, tmp_path: Path) -> None:
    one, other = (store.put(io.BytesIO(content)) for content in (ONE, OTHER))
    target, seen = tmp_path / "weights", list[bytes]()

    def meanwhile(_size: int) -> None:
        if not seen:
            copy_blob(store, other, target, name="other")
            seen.append(target.read_bytes())

    copy_blob(store, one, target, name="one", advance=meanwhile)

    assert (seen == [OTHER], target.read_bytes() == ONE) == (True, True)
    assert list(tmp_path.iterdir()) == [target]


def test_two_that_write_one_bundle_do_not_mix(store: MemoryStore, tmp_path: Path) -> None:
    one, other = (
        BundleRoot("application/x-test", content[:9], (BundlePart(store.put(io.BytesIO(content)), "blob"),))
        for content in (ONE, OTHER)
    )
    target = tmp_path / "bundle.tar"
    written = write_bundle(target, [one], store, Meanwhile(target, other, store))
    assert digest_bytes(target.read_bytes()) == written.digest
    assert list(tmp_path.iterdir()) == [target]


def test_no_link_is_followed(store: MemoryStore, tmp_path: Path) -> None:
    victim, target = tmp_path / "victim", tmp_path / "out"
    victim.write_bytes(b"precious")
    for link in (target, tmp_path / ".out.part"):
        link.symlink_to(victim)
    copy_blob(store, store.put(io.BytesIO(ONE)), target, name="one")
    assert (victim.read_bytes(), target.is_symlink(), target.read_bytes() == ONE) == (b"precious", False, True)


@pytest.mark.parametrize("durably", [False, True])
def test_the_longest_name_is_taken_with_the_mode_of_every_new_file(tmp_path: Path, *, durably: bool) -> None:
    (tmp_path / "usual").touch()
    target = tmp_path / ("x" * 255)
    with pytest.raises(ZeroDivisionError), create_file(target, durably=durably):
        raise ZeroDivisionError
    assert not target.exists()
    with create_file(target, durably=durably) as file:
        file.write(ONE)
    assert target.read_bytes() == ONE
    assert target.stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert len(list(tmp_path.iterdir())) == 2
