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
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.file_trees import TreeEntry, read_tree
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.user_output import Advance, Progress
from benchlock.evaluator.harness_releases import check_version
from benchlock.registry.artifact_names import Kind
from benchlock.registry.lock.lockfile import (
    BlobReference,
    Lock,
    LockedArtifact,
    LockedPlatform,
    list_blob_references,
    title,
)
from benchlock.registry.lock.training_settings import make_environment, resolve_settings
from benchlock.registry.manifests import (
    Dataset,
    Evaluated,
    Image,
    Manifest,
    Platform,
    Recipe,
    files_of,
    parse_published,
)

Trees = Mapping[Digest, tuple[TreeEntry, ...]]
"""The entries of each tree of a lock, by the tree's digest."""


@dataclass(frozen=True, slots=True)
class VerifiedFiles:
    """The verified content of a lock.

    Attributes:
        manifests: The manifests.
        trees: The entries of the trees.
        files: The number of verified blobs.
        size: The bytes that were read.
        seconds: The time that this took.
    """

    manifests: Mapping[Kind, Manifest]
    trees: Trees
    files: int
    size: int
    seconds: float


def read_manifests(lock: Lock, store: BlobReader) -> Mapping[Kind, Manifest]:
    """Read, verify and parse the manifests of the lock.

    Raises:
        IntegrityError: A manifest is missing, does not match its digest, or has another kind.
        InvalidInputError: This version cannot read the format of a manifest.
    """
    manifests = {}
    for kind, artifact in lock.artifacts().items():
        name = f"the manifest of {title(kind, artifact)}"
        manifests[kind] = parse_published(read(store, artifact.digest, name=name))
        if manifests[kind].kind != kind:
            raise IntegrityError(
                f"{name} has kind {manifests[kind].kind}, expected {kind}",
                where=name,
                next_step="lock the request again; this lock was edited by hand",
            )
    return manifests


def find_evaluated(manifests: Mapping[Kind, Manifest]) -> Evaluated:
    """Return the manifest of the model, operator or recipe that a lock evaluates."""
    evaluated = manifests.get("operator") or manifests.get("recipe") or manifests["model"]
    assert isinstance(evaluated, Evaluated)
    return evaluated


def verify_lock(lock: Lock, platform: LockedPlatform, store: BlobStore, progress: Progress) -> VerifiedFiles:
    """Verify every blob that the lock needs for ``platform``.

    These are manifests, files and trees of model and dataset, the lock of the wheels, wheels, configuration, layers and
    the harness.

    Raises:
        IntegrityError: A file is missing or has other bytes; the message names the file and both digests.
        InvalidInputError: This version cannot read the format of a manifest or of a tree's listing.
    """
    start = time.perf_counter()
    manifests = read_manifests(lock, store)
    needed = [
        reference
        for reference in list_blob_references(lock)
        if reference.sort != "manifest" and reference.platform in (None, platform)
    ]
    trees = {reference.digest: _entries(store, reference) for reference in needed if reference.sort == "tree"}
    blobs = _distinct([*chain.from_iterable(_blobs(reference, trees) for reference in needed)])
    size = sum(blob.size or 0 for blob in blobs)
    with progress.task("verifying digests of the lock", size) as advance:
        _compare(blobs, store, advance)
    return VerifiedFiles(manifests, trees, len(blobs), size, time.perf_counter() - start)


def _compare(blobs: Sequence[BlobReference], store: BlobStore, advance: Advance) -> None:
    """Verify blobs in parallel, because hashing releases the interpreter's lock. Raise the first error in order."""
    mutex = Mutex()

    def step(size: int) -> None:
        with mutex:
            advance(size)

    def compare(blob: BlobReference) -> None:
        verify(store, blob.digest, name=blob.name, size=blob.size, advance=step)

    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    try:
        for done in [pool.submit(compare, blob) for blob in blobs]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _entries(store: BlobStore, tree: BlobReference) -> tuple[TreeEntry, ...]:
    try:
        return read_tree(store, Descriptor(tree.digest, tree.size or 0), name=tree.name)
    except InvalidInputError as error:  # the digest is right, so the locked blob never was a listing
        message = f"{tree.name} is not a valid tree: {error.what}"
        raise IntegrityError(message, where=tree.name, next_step=error.next_step) from error


def _blobs(reference: BlobReference, trees: Trees) -> Iterator[BlobReference]:
    """Yield the blob; for a tree yield its files, because its listing was already read."""
    if reference.sort != "tree":
        yield reference
        return
    for entry in trees[reference.digest]:
        yield BlobReference("file", f"{reference.name}{entry.path}", entry.digest, entry.size)


def _distinct(blobs: Sequence[BlobReference]) -> list[BlobReference]:
    """Return each pair of digest and size once, under its first name."""
    return list({(reference.digest, reference.size): reference for reference in reversed(blobs)}.values())[::-1]


NamedFiles = set[tuple[str, str]]
"""Pairs of a file's path and its SHA-256."""
_LISTED: Final = ("model", "operator", "recipe", "dataset")
"""The kinds whose files a lock lists completely."""


def check_agreement(lock: Lock, platform: LockedPlatform, manifests: Mapping[Kind, Manifest]) -> None:
    """Raise unless names, versions, files, split and environment of the lock are those of its manifests.

    The settings of a training must be those of its recipe with the changes of the request.

    Raises:
        IntegrityError: The lock contradicts a manifest, or names a released harness under another version.
    """
    check_version(lock.harness)
    for kind, artifact in lock.artifacts().items():
        for fault in _faults(artifact, manifests[kind]):
            raise _disagreement(f"{kind}/{artifact.name}@{artifact.version}", fault)
    dataset, image = manifests.get("dataset"), manifests["image"]
    assert isinstance(image, Image)
    if isinstance(dataset, Dataset) and lock.dataset is not UNSET and lock.dataset.split not in dataset.splits:
        raise _disagreement(f"dataset/{lock.dataset.name}@{lock.dataset.version}", f"no split {lock.dataset.split!r}")
    if isinstance(dataset, Dataset) and lock.target is not UNSET and lock.target.split not in dataset.splits:
        raise _disagreement(f"dataset/{dataset.name}@{dataset.version}", f"no split {lock.target.split!r}")
    recipe = manifests.get("recipe")
    if isinstance(recipe, Recipe):
        _check_training(lock, recipe)
    for fault in _environment_faults(platform, image):
        raise _disagreement(f"image/{lock.image.name}@{lock.image.version} ({platform})", fault)


def _check_training(lock: Lock, recipe: Recipe) -> None:
    """Require the settings and the environment that a lock of this request has."""
    part, changes = f"recipe/{recipe.name}@{recipe.version}", lock.request.get("settings", {})
    if not isinstance(changes, Mapping):
        raise _disagreement(part, "settings by path, but the request has none of this form")
    try:
        settings = resolve_settings(recipe, changes)
    except InvalidInputError as error:
        raise _disagreement(part, f"other settings ({error.what})") from error
    if encode_canonical(lock.settings) != encode_canonical(settings):  # in Python, True == 1
        raise _disagreement(part, "other settings")
    threads = lock.limits.cpus if lock.distribution is UNSET else lock.distribution.threads
    if lock.environment != make_environment(threads, deterministic=lock.scenario.get("deterministic") is True):
        raise IntegrityError(
            "the environment of the lock contradicts its threads or its scenario.deterministic",
            where="environment",
            next_step="lock the request again; this lock was edited by hand",
        )


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
    yield from _check_reference(platform, image) if platform.finished else _list_missing_parts(platform, image)


def _place(platform: LockedPlatform | Platform) -> tuple[str, str, str, str]:
    return platform.os, platform.arch, platform.device, platform.python


def _check_reference(platform: LockedPlatform, image: Image) -> Iterator[str]:
    for candidate in image.platforms:
        if _place(candidate) == _place(platform) and candidate.reference != platform.reference:
            yield f"{'no reference' if candidate.reference is UNSET else candidate.reference} for this platform"


def _list_missing_parts(platform: LockedPlatform, image: Image) -> Iterator[str]:
    """Yield parts of the locked environment that the image does not have."""
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


def _disagreement(part: str, fault: str) -> IntegrityError:
    return IntegrityError(
        f"the lock contradicts the manifest of {part}: the manifest has {fault}",
        where=part,
        next_step="lock the request again; this lock was edited by hand",
    )
