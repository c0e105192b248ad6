"""Every byte that a lock names for one platform, read again and compared before anything starts."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock as Mutex

from msgspec import UNSET

from artifacts.digest import Descriptor, Digest, from_hex
from artifacts.errors import IntegrityError, InvalidInputError
from artifacts.progress import Advance, Progress
from artifacts.store import BlobStore, read, verify
from artifacts.trees import TreeEntry, read_tree
from registry.lockfile import Lock, LockedArtifact, LockedFile, LockedPlatform
from registry.manifests import Manifest, parse_published
from registry.names import Kind

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


@dataclass(frozen=True, slots=True)
class _Named:
    """A blob as errors name it. ``size`` None: the lock does not say."""

    name: str
    digest: Digest
    size: int | None


def read_manifests(lock: Lock, store: BlobStore) -> Mapping[Kind, Manifest]:
    """The manifests that the lock names, verified and parsed.

    Raises:
        IntegrityError: one is missing, or not what its digest says.
        InvalidInputError: one is of a format that this version does not read.
    """
    return {
        kind: parse_published(read(store, artifact.digest, name=f"the manifest of {_title(kind, artifact)}"))
        for kind, artifact in lock.artifacts().items()
    }


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
    trees = _trees(lock, store)
    named = _distinct([*_artifact_files(lock, trees), *_environment(lock, platform)])
    size = sum(one.size or 0 for one in named)
    with progress.task("verifying what the lock names", size) as advance:
        _compare(named, store, advance)
    return Verified(manifests, trees, len(named), size, time.perf_counter() - start)


def _compare(named: Sequence[_Named], store: BlobStore, advance: Advance) -> None:
    """Several at a time, since digests are computed without the interpreter's lock. Raises the first fault in order."""
    mutex = Mutex()

    def step(size: int) -> None:
        with mutex:
            advance(size)

    def compare(one: _Named) -> None:
        verify(store, one.digest, name=one.name, size=one.size, advance=step)

    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    try:
        for done in [pool.submit(compare, one) for one in named]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _trees(lock: Lock, store: BlobStore) -> Trees:
    found = {}
    for kind, artifact in lock.artifacts().items():
        for file in artifact.files:
            if file.path.endswith("/"):
                digest = from_hex(file.sha256)
                name = f"{_title(kind, artifact)} {file.path}"
                found[digest] = _entries(store, Descriptor(digest, file.size), name)
    return found


def _entries(store: BlobStore, tree: Descriptor, name: str) -> tuple[TreeEntry, ...]:
    try:
        return read_tree(store, tree, name=name)
    except InvalidInputError as error:  # its digest is as locked, so it never was a listing
        raise IntegrityError(f"{name} is no tree: {error.what}", where=name, next_step=error.next_step) from error


def _artifact_files(lock: Lock, trees: Trees) -> Iterator[_Named]:
    for kind, artifact in lock.artifacts().items():
        title = _title(kind, artifact)
        for file in artifact.files:
            digest = from_hex(file.sha256)
            if digest in trees and file.path.endswith("/"):
                for entry in trees[digest]:
                    yield _Named(f"{title} {file.path}{entry.path}", entry.digest, entry.size)
            else:
                yield _Named(f"{title} {file.path}", digest, file.size)


def _environment(lock: Lock, platform: LockedPlatform) -> Iterator[_Named]:
    title = f"{_title('image', lock.image)} ({platform})"
    wheels: tuple[LockedFile, ...] = (platform.wheels_lock, *platform.wheels)
    for file in wheels:
        yield _Named(f"{title} {file.path}", from_hex(file.sha256), file.size)
    if platform.image_id is not UNSET:
        size = None if platform.config_size is UNSET else platform.config_size
        yield _Named(f"{title} configuration", platform.image_id, size)
    for index, layer in enumerate(() if platform.layers is UNSET else platform.layers):
        yield _Named(f"{title} layers[{index}] {layer.digest.removeprefix('sha256:')}.tar", layer.digest, layer.size)
    yield _Named(f"harness {lock.harness.version}", lock.harness.digest, lock.harness.size)


def _distinct(named: Sequence[_Named]) -> list[_Named]:
    """Each digest with each size that is said of it once, under its first name."""
    return list({(one.digest, one.size): one for one in reversed(named)}.values())[::-1]


def _title(kind: Kind, artifact: LockedArtifact) -> str:
    return f"{kind}/{artifact.name}@{artifact.version}"
