"""Whether a lock says of its artifacts what their manifests say; its id proves only that the lock was not changed."""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import UNSET

from benchlock.artifacts.digest import to_hex
from benchlock.artifacts.errors import IntegrityError
from benchlock.evaluator.harness_releases import check_version
from benchlock.registry.lockfile import Lock, LockedArtifact, LockedPlatform
from benchlock.registry.manifests import Dataset, Image, Manifest, Platform, files_of
from benchlock.registry.names import Kind

Named = set[tuple[str, str]]
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


def _files(manifest: Manifest) -> Named:
    return {(file.path, str(file.sha256)) for file in files_of(manifest)}


def _disagreement(what: str, fault: str) -> IntegrityError:
    return IntegrityError(
        f"the lock and the manifest of {what} disagree: the manifest has {fault}",
        where=what,
        next_step="lock the request again; this lock was made by hand",
    )
