"""Verification of a lock before a run: blob digests, and agreement with the manifests."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from threading import Lock as Mutex
from typing import Final

from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobReader, BlobStore, read, verify
from benchlock.artifacts.digest import Descriptor, Digest, to_hex
from benchlock.artifacts.display import Advance, Progress
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.trees import TreeEntry, read_tree
from benchlock.evaluator.harness_releases import check_version
from benchlock.registry.lock.lockfile import (
    BlobReference,
    Lock,
    LockedArtifact,
    LockedPlatform,
    list_blob_references,
    title,
)
from benchlock.registry.manifests import Dataset, Image, Manifest, Platform, files_of, parse_published
from benchlock.registry.names import Kind

Trees = Mapping[Digest, tuple[TreeEntry, ...]]
"""The entries of each tree that a lock names, by the tree's digest."""


@dataclass(frozen=True, slots=True)
class VerifiedFiles:
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


def verify_lock(lock: Lock, platform: LockedPlatform, store: BlobStore, progress: Progress) -> VerifiedFiles:
    """Compare everything that the lock names for ``platform``.

    That is: manifests, files and trees of model and dataset, the lock of the wheels, wheels, configuration, layers,
    harness.

    Raises:
        IntegrityError: a file is missing or has other bytes; names the file and both digests.
        InvalidInputError: a manifest or a tree's listing is of a format that this version does not read.
    """
    start = time.perf_counter()
    manifests = read_manifests(lock, store)
    needed = [one for one in list_blob_references(lock) if one.sort != "manifest" and one.platform in (None, platform)]
    trees = {one.digest: _entries(store, one) for one in needed if one.sort == "tree"}
    blobs = _distinct([*chain.from_iterable(_blobs(one, trees) for one in needed)])
    size = sum(blob.size or 0 for blob in blobs)
    with progress.task("verifying what the lock names", size) as advance:
        _compare(blobs, store, advance)
    return VerifiedFiles(manifests, trees, len(blobs), size, time.perf_counter() - start)


def _compare(blobs: Sequence[BlobReference], store: BlobStore, advance: Advance) -> None:
    """Several at a time, since digests are computed without the interpreter's lock. Raises the first fault in order."""
    mutex = Mutex()

    def step(size: int) -> None:
        with mutex:
            advance(size)

    def compare(one: BlobReference) -> None:
        verify(store, one.digest, name=one.name, size=one.size, advance=step)

    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    try:
        for done in [pool.submit(compare, one) for one in blobs]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _entries(store: BlobStore, tree: BlobReference) -> tuple[TreeEntry, ...]:
    try:
        return read_tree(store, Descriptor(tree.digest, tree.size or 0), name=tree.name)
    except InvalidInputError as error:  # its digest is as locked, so it never was a listing
        what = f"{tree.name} is no tree: {error.what}"
        raise IntegrityError(what, where=tree.name, next_step=error.next_step) from error


def _blobs(one: BlobReference, trees: Trees) -> Iterator[BlobReference]:
    """The blob itself; of a tree the files, since its listing was read already."""
    if one.sort != "tree":
        yield one
        return
    for entry in trees[one.digest]:
        yield BlobReference("file", f"{one.name}{entry.path}", entry.digest, entry.size)


def _distinct(blobs: Sequence[BlobReference]) -> list[BlobReference]:
    """Each digest with each size that is said of it once, under its first name."""
    return list({(one.digest, one.size): one for one in reversed(blobs)}.values())[::-1]


NamedFiles = set[tuple[str, str]]
"""Paths of files, each with its SHA-256."""
_LISTED: Final = ("model", "dataset")
"""The kinds of which a lock lists every file."""


def check_agreement(lock: Lock, platform: LockedPlatform, manifests: Mapping[Kind, Manifest]) -> None:
    """Nothing, where names, versions, files, split and environment are those of the manifests that the lock names.

    Raises:
        IntegrityError: the lock gives an artifact's name to something else, or a released harness a false version.
    """
    check_version(lock.harness)
    for kind, artifact in lock.artifacts().items():
        for fault in _faults(artifact, manifests[kind]):
            raise _disagreement(f"{kind}/{artifact.name}@{artifact.version}", fault)
    dataset, image = manifests["dataset"], manifests["image"]
    assert isinstance(dataset, Dataset)
    assert isinstance(image, Image)
    if lock.dataset.split not in dataset.splits:
        raise _disagreement(f"dataset/{lock.dataset.name}@{lock.dataset.version}", f"no split {lock.dataset.split!r}")
    for fault in _environment_faults(platform, image):
        raise _disagreement(f"image/{lock.image.name}@{lock.image.version} ({platform})", fault)


def _faults(artifact: LockedArtifact, manifest: Manifest) -> Iterator[str]:
    if (artifact.name, artifact.version) != (manifest.name, manifest.version):
        yield f"the name {manifest.name}@{manifest.version}"
    if manifest.kind in _LISTED or (artifact.files and not isinstance(manifest, Image)):
        locked = {(file.path, file.sha256) for file in artifact.files}
        for path, sha256 in sorted(locked ^ _files(manifest)):
            yield f"{'no' if (path, sha256) in locked else 'another'} {path} with the digest sha256:{sha256}"


def _environment_faults(platform: LockedPlatform, image: Image) -> Iterator[str]:
    if _place(platform) not in map(_place, image.platforms):
        yield f"no such platform with Python {platform.python}"
    yield from _finished(platform, image) if platform.finished else _foreign(platform, image)


def _place(platform: LockedPlatform | Platform) -> tuple[str, str, str, str]:
    return platform.os, platform.arch, platform.device, platform.python


def _finished(platform: LockedPlatform, image: Image) -> Iterator[str]:
    for one in image.platforms:
        if _place(one) == _place(platform) and one.reference != platform.reference:
            yield f"{'no reference' if one.reference is UNSET else one.reference} for this platform"


def _foreign(platform: LockedPlatform, image: Image) -> Iterator[str]:
    """What the lock takes for a part of the environment, and the image does not have."""
    files = _files(image)
    digests = {sha256 for _, sha256 in files}
    for file in (platform.wheels_lock, *platform.wheels):
        if file is not UNSET and (file.path, file.sha256) not in files:
            yield f"no {file.path} with the digest sha256:{file.sha256}"
    config = () if platform.image_id is UNSET else (platform.image_id,)
    layers = () if platform.layers is UNSET else tuple(layer.digest for layer in platform.layers)
    for digest in (*config, *layers):
        if to_hex(digest) not in digests:
            yield f"no layer or configuration {digest}"


def _files(manifest: Manifest) -> NamedFiles:
    return {(file.path, str(file.sha256)) for file in files_of(manifest)}


def _disagreement(what: str, fault: str) -> IntegrityError:
    return IntegrityError(
        f"the lock and the manifest of {what} disagree: the manifest has {fault}",
        where=what,
        next_step="lock the request again; this lock was made by hand",
    )
