"""Free space that uploads leave alone, and bytes that one owner may have without naming them."""

import io
from collections.abc import Collection
from pathlib import Path

import pytest

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.uploads import disk_quotas
from benchlock.artifacts.uploads.disk_quotas import (
    DiskReserve,
    DiskSpace,
    LowSpaceError,
    UnreferencedBytesError,
    UnreferencedQuota,
    default_reserve,
)
from benchlock.artifacts.uploads.gc_holds import BLOCK_BYTES, FolderHolds
from benchlock.artifacts.uploads.resumable_uploads import UploadLimits, Uploads

ME, YOU = "token/me", "token/you"
GIB = 1 << 30


def filled(monkeypatch: pytest.MonkeyPatch, free: int, size: int = 100 << 20) -> None:
    """Make every file system one with so many free bytes."""
    monkeypatch.setattr(DiskReserve, "measure", lambda self: DiskSpace(size, free, self.size or 0))


def upload(uploads: Uploads, content: bytes, owner: str = ME, *, share: float = 1.0, announced: int = 0) -> Digest:
    name = uploads.begin(owner, share)
    piece = uploads.open(owner, name, size=announced, share=share)
    try:
        piece.write(content)
        return uploads.finish(piece, digest_bytes(content)).digest
    finally:
        uploads.close(piece)


@pytest.mark.parametrize(
    ("size", "reserve"),
    [(2 * GIB, 2 * GIB // 10), (15 * GIB, GIB), (60 * GIB, 3 * GIB), (4000 * GIB, 8 * GIB)],
)
def test_the_reserve_follows_the_size_of_the_disk(size: int, reserve: int) -> None:
    assert default_reserve(size) == reserve


def test_space_is_measured_before_the_folder_is_there(tmp_path: Path) -> None:
    found = DiskReserve(tmp_path / "blobs" / "uploads").measure()
    assert 0 < found.free <= found.size
    assert found.reserve == default_reserve(found.size)
    assert disk_quotas.DiskSpace(100, 5, 5).is_low


def test_uploads_leave_the_reserve_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = Uploads(tmp_path / "uploads", LocalStore(tmp_path), reserve=DiskReserve(tmp_path, 1000))
    filled(monkeypatch, 1010)
    kept = upload(uploads, b"ten bytes.")
    with pytest.raises(LowSpaceError, match="1010 bytes free, 11 needed"):
        upload(uploads, b"ten bytes..")
    with pytest.raises(LowSpaceError):
        upload(uploads, b"", announced=11)
    filled(monkeypatch, 999)
    with pytest.raises(LowSpaceError):
        uploads.begin(ME)
    assert upload(uploads, b"the end of a run", share=0.5)
    assert uploads.has(kept, ME)
    filled(monkeypatch, 499)
    with pytest.raises(LowSpaceError):
        uploads.begin(ME, share=0.5)


def test_unnamed_blobs_count_until_they_are_named(tmp_path: Path) -> None:
    named: set[Digest] = set()
    uploads = Uploads(
        tmp_path / "uploads",
        LocalStore(tmp_path),
        UploadLimits(unnamed=100 * BLOCK_BYTES),
        find_referenced=named.intersection,
    )
    first = upload(uploads, b"1" * 60 * BLOCK_BYTES)
    with pytest.raises(UnreferencedBytesError, match=r"249856 bytes of your quota .* limit is 409600 bytes"):
        upload(uploads, b"2" * 60 * BLOCK_BYTES)
    assert upload(uploads, b"2" * 60 * BLOCK_BYTES, YOU)
    named.add(first)
    uploads = Uploads(
        tmp_path / "uploads",
        LocalStore(tmp_path),
        UploadLimits(unnamed=100 * BLOCK_BYTES),
        find_referenced=named.intersection,
    )
    assert upload(uploads, b"3" * 60 * BLOCK_BYTES)
    assert first not in set(uploads.held())


def test_unfinished_uploads_and_blobs_that_were_asked_for_count(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    there = store.put(io.BytesIO(b"0" * 90 * BLOCK_BYTES)).digest
    uploads = Uploads(tmp_path / "uploads", store, UploadLimits(unnamed=100 * BLOCK_BYTES))
    first, second = uploads.begin(ME), uploads.begin(ME)
    one, two = uploads.open(ME, first), uploads.open(ME, second)
    one.write(b"1" * 60 * BLOCK_BYTES)
    with pytest.raises(UnreferencedBytesError):
        two.write(b"2" * 60 * BLOCK_BYTES)
    two.write(b"2" * 40 * BLOCK_BYTES)
    uploads.close(one)
    uploads.close(two)
    uploads.delete(ME, first)
    assert uploads.has(there, ME)
    uploads = Uploads(tmp_path / "uploads", store, UploadLimits(unnamed=100 * BLOCK_BYTES))
    with pytest.raises(UnreferencedBytesError):
        uploads.has(there, ME)


def test_another_attempt_to_store_blobs_is_charged_for_new_ones_alone(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "uploads", LocalStore(tmp_path), UploadLimits(unnamed=100 * BLOCK_BYTES))
    blobs = {digest_bytes(b"one"): 60 * BLOCK_BYTES}
    uploads.charge(ME, blobs)
    uploads.charge(ME, blobs | {digest_bytes(b"two"): 30 * BLOCK_BYTES})
    with pytest.raises(UnreferencedBytesError):
        uploads.charge(ME, {digest_bytes(b"three"): 20 * BLOCK_BYTES})


def test_blobs_count_after_their_hold_until_they_are_collected(tmp_path: Path) -> None:
    holds = FolderHolds(tmp_path / "held", seconds=-1)
    holds.hold(digest_bytes(b"one"), ME, 3)
    assert list(holds.held()) == []
    assert holds.count_bytes(ME) == BLOCK_BYTES
    FolderHolds(tmp_path / "held", seconds=-1).forget_expired()  # as another process does it
    assert list(holds.owned(ME)) == []
    assert holds.count_bytes(ME) == 0


def test_a_hold_of_an_older_version_holds_and_is_nobodys(tmp_path: Path) -> None:
    digest = digest_bytes(b"one")
    (tmp_path / digest.removeprefix("sha256:")).touch()
    (tmp_path / "stray").touch()
    holds = FolderHolds(tmp_path)
    assert list(holds.held()) == [digest]
    assert holds.count_bytes(ME) == 0


def test_named_blobs_are_searched_for_seldom_when_it_is_in_vain(tmp_path: Path) -> None:
    now, searches = 0.0, list[Collection[Digest]]()

    def find(digests: Collection[Digest]) -> Collection[Digest]:
        searches.append(digests)
        return ()

    holds = FolderHolds(tmp_path / "held")
    holds.hold(digest_bytes(b"one"), ME, 10)
    quota = UnreferencedQuota(10, holds, lambda _: 0, find, lambda: now)
    for _ in range(5):
        with pytest.raises(UnreferencedBytesError):
            quota.charge(ME, 1)
    assert len(searches) == 1
    now = 11.0
    with pytest.raises(UnreferencedBytesError):
        quota.charge(ME, 1)
    assert len(searches) == 2
