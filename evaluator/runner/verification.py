"""Every byte that a lock names for one platform, read again and compared before anything starts."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from threading import Lock as Mutex

from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.progress import Advance, Progress
from benchlock.artifacts.store import BlobReader, BlobStore, read, verify
from benchlock.artifacts.trees import TreeEntry, read_tree
from benchlock.registry.lockfile import Lock, LockedPlatform
from benchlock.registry.manifests import Manifest, parse_published
from benchlock.registry.named import Named, named, title
from benchlock.registry.names import Kind

Trees = Mapping[Digest, tuple[TreeEntry, ...]]
"""The entries of each tree that a lock names, by the tree's digest."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found to be as locked. ``size`` is the bytes that were read in ``seconds``."""

    manifests: Mapping[Kind, Manifest]
    trees: Trees
    files: int
    size: int
    seconds: float


def read_manifests(lock: Lock, store: BlobReader) -> Mapping[Kind, Manifest]:
    """The manifests that the lock names, verified and parsed.

    Raises:
        IntegrityError: one is missing, not what its digest says, or of another kind than the lock says.
        InvalidInputError: one is of a format that this version does not read.
    """
    found = {}
    for kind, artifact in lock.artifacts().items():
        name = f"the manifest of {title(kind, artifact)}"
        found[kind] = parse_published(read(store, artifact.digest, name=name))
        if found[kind].kind != kind:
            raise IntegrityError(
                f"{name} is that of a {found[kind].kind}",
                where=name,
                next_step="lock the request again; this lock was made by hand",
            )
    return found


def verify_lock(lock: Lock, platform: LockedPlatform, store: BlobStore, progress: Progress) -> Verified:
    """Compare everything that the lock names for ``platform``.

    That is: manifests, files and trees of model and dataset, the lock of the wheels, wheels, configuration, layers,
    harness.

    Raises:
        IntegrityError: a file is missing or has other bytes; names the file and both digests.
        InvalidInputError: a manifest or a tree's listing is of a format that this version does not read.
    """
    start = time.perf_counter()
    manifests = read_manifests(lock, store)
    needed = [one for one in named(lock) if one.sort != "manifest" and one.platform in (None, platform)]
    trees = {one.digest: _entries(store, one) for one in needed if one.sort == "tree"}
    blobs = _distinct([*chain.from_iterable(_blobs(one, trees) for one in needed)])
    size = sum(blob.size or 0 for blob in blobs)
    with progress.task("verifying what the lock names", size) as advance:
        _compare(blobs, store, advance)
    return Verified(manifests, trees, len(blobs), size, time.perf_counter() - start)


def _compare(blobs: Sequence[Named], store: BlobStore, advance: Advance) -> None:
    """Several at a time, since digests are computed without the interpreter's lock. Raises the first fault in order."""
    mutex = Mutex()

    def step(size: int) -> None:
        with mutex:
            advance(size)

    def compare(one: Named) -> None:
        verify(store, one.digest, name=one.name, size=one.size, advance=step)

    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    try:
        for done in [pool.submit(compare, one) for one in blobs]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _entries(store: BlobStore, tree: Named) -> tuple[TreeEntry, ...]:
    try:
        return read_tree(store, Descriptor(tree.digest, tree.size or 0), name=tree.name)
    except InvalidInputError as error:  # its digest is as locked, so it never was a listing
        what = f"{tree.name} is no tree: {error.what}"
        raise IntegrityError(what, where=tree.name, next_step=error.next_step) from error


def _blobs(one: Named, trees: Trees) -> Iterator[Named]:
    """The blob itself; of a tree the files, since its listing was read already."""
    if one.sort != "tree":
        yield one
        return
    for entry in trees[one.digest]:
        yield Named("file", f"{one.name}{entry.path}", entry.digest, entry.size)


def _distinct(blobs: Sequence[Named]) -> list[Named]:
    """Each digest with each size that is said of it once, under its first name."""
    return list({(one.digest, one.size): one for one in reversed(blobs)}.values())[::-1]
