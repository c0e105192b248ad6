"""The parts of a lock in a bundle, for all of its platforms or some, and the import of its artifacts."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection

from benchlock.artifacts.blob_store import BlobStore, verify
from benchlock.artifacts.bundles.bundle_format import BundleError, BundlePart
from benchlock.artifacts.digest import Descriptor, Digest, from_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.file_trees import LARGEST_LISTING, iterate_tree
from benchlock.registry.artifact_names import Kind, Reference
from benchlock.registry.catalogue.catalogue_protocol import Provenance, PublishResult, VersionTakenError
from benchlock.registry.catalogue.version_rows import insert_version, is_published
from benchlock.registry.lock.lockfile import Lock, LockedPlatform, list_blob_references
from benchlock.registry.manifests import Manifest, files_of
from benchlock.registry.manifests.manifest_content import reference_of
from benchlock.registry.publishing.remote_publication import find_objection

LOCK_TYPE: Final = "application/vnd.benchlock.lock.v1+toml"

_LARGEST = {"manifest": 16 << 20, "tree": LARGEST_LISTING}
"""Size limits in bytes for the parts that are read into memory, by sort."""
_AGAIN = "copy or download the bundle again, or create it again"


@dataclass(frozen=True, slots=True)
class ArtifactImport:
    """The artifacts of a bundle that are in the catalogue now, and the reasons why others are not."""

    published: tuple[PublishResult, ...]
    kept_out: Mapping[Reference, str]


def choose_platforms(lock: Lock, text: str) -> tuple[LockedPlatform, ...]:
    """Return the platforms of ``lock`` with the name ``text`` (OS/ARCH/DEVICE), or all if it is empty.

    Raises:
        InvalidInputError: The lock has no platform with this name.
    """
    matching = tuple(platform for platform in lock.image.platforms if text in ("", str(platform)))
    if not matching:
        raise InvalidInputError(
            f"the lock has no platform {text}",
            where=f"platform {text}",
            next_step=f"it has {', '.join(map(str, lock.image.platforms))}",
        )
    return matching


def list_lock_parts(lock: Lock, platforms: Collection[LockedPlatform], store: BlobStore) -> tuple[BundlePart, ...]:
    """Return every blob that a lock needs on ``platforms``, blobs inside trees included, each once.

    Raises:
        IntegrityError: A manifest or tree listing is missing or damaged, or the lock gives a blob two sizes.
        InvalidInputError: A blob that the lock calls a tree is not a tree listing.
    """
    parts: dict[Digest, BundlePart] = {}
    for part in iterate_parts(lock, platforms, store):
        first = parts.setdefault(part.blob.digest, part)
        if first.blob != part.blob:
            raise IntegrityError(
                f"the lock states {first.blob.size} bytes for {first.name}, but for {part.name}, with the same digest "
                f"{first.blob.digest}, {part.blob.size}",
                where=part.name,
                next_step="lock the request again",
            )
    return tuple(parts.values())


def iterate_parts(lock: Lock, platforms: Collection[LockedPlatform], store: BlobStore) -> Iterator[BundlePart]:
    """Yield the parts of ``list_lock_parts``, with repetitions. Raise as ``list_lock_parts``."""
    for blob in list_blob_references(lock):
        if blob.platform is not None and blob.platform not in platforms:
            continue
        if blob.sort == "tree":
            for entry in iterate_tree(store, Descriptor(blob.digest, blob.size or 0), name=blob.name):
                yield BundlePart(Descriptor(entry.digest, entry.size), f"{blob.name}{entry.path}")
            yield BundlePart(store.stat(blob.digest), f"the listing of {blob.name}")
        elif blob.size is None:
            yield BundlePart(Descriptor(blob.digest, verify(store, blob.digest, name=blob.name).size), blob.name)
        else:
            yield BundlePart(Descriptor(blob.digest, blob.size), blob.name)


def find_platforms(lock: Lock, listed: Mapping[Digest, int]) -> tuple[LockedPlatform, ...]:
    """Return the platforms of ``lock`` whose blobs a bundle lists completely.

    Only the lock is read: blobs inside trees are not checked.

    Args:
        lock: The lock in the bundle.
        listed: The blobs that the bundle lists, with their sizes in bytes.

    Raises:
        IntegrityError: A blob that every run needs is missing, no platform is complete, or one is there in part.
        BundleError: A manifest or a tree listing is too large.
    """
    blobs = tuple(list_blob_references(lock))
    for blob in blobs:
        if listed.get(blob.digest, 0) > _LARGEST.get(blob.sort, listed.get(blob.digest, 0)):
            raise BundleError(
                f"{blob.name} has {listed[blob.digest]} bytes, too many for a {blob.sort}", where=blob.name
            )
    missing_blobs = [blob for blob in blobs if blob.digest not in listed]
    complete_platforms = tuple(
        platform for platform in lock.image.platforms if not any(blob.platform == platform for blob in missing_blobs)
    )
    needed_digests = {blob.digest for blob in blobs if blob.platform is None or blob.platform in complete_platforms}
    partial_platforms = {blob.platform for blob in blobs if blob.digest in listed and blob.digest not in needed_digests}
    for blob in missing_blobs:
        if blob.platform is None or blob.platform in partial_platforms or not complete_platforms:
            raise _missing_error(blob.name, blob.digest)
    return complete_platforms


def check_parts(parts: Iterable[BundlePart], listed: Mapping[Digest, int]) -> None:
    """Require that a bundle lists exactly ``parts`` with their sizes. Memory use grows with ``listed`` only.

    Raises:
        IntegrityError: A part is missing, or listed with another size.
        BundleError: The bundle lists further blobs.
    """
    unmatched = set(listed)
    for part in parts:
        size = listed.get(part.blob.digest)
        if size is None:
            raise _missing_error(part.name, part.blob.digest)
        if size != part.blob.size:
            raise IntegrityError(
                f"{part.name} has {size} bytes, but the lock states {part.blob.size}", where=part.name, next_step=_AGAIN
            )
        unmatched.discard(part.blob.digest)
    for digest in sorted(unmatched):
        raise BundleError(
            f"the bundle contains {digest}, which nothing in it references", where=digest, next_step=_AGAIN
        )


def find_objections(
    manifests: Mapping[Kind, Manifest], listed: Mapping[Digest, int], store: BlobStore
) -> Mapping[Kind, str]:
    """Return the reasons why artifacts of a bundle must not be published, by kind.

    Args:
        manifests: The manifests of the artifacts.
        listed: The blobs that the bundle lists, with their sizes in bytes.
        store: The store, which has these blobs.
    """
    objections: dict[Kind, str] = {}
    for kind, manifest in manifests.items():
        files = [(file, listed.get(from_hex(str(file.sha256)))) for file in files_of(manifest)]
        absent_paths = [file.path for file, size in files if size is None]
        wrong_paths = [file.path for file, size in files if size != file.size and not file.path.endswith("/")]
        if absent_paths:
            suffix = f" and {len(absent_paths) - 1} more of its files" if len(absent_paths) > 1 else ""
            objections[kind] = f"the bundle does not contain {absent_paths[0]}{suffix}"
        elif wrong_paths:
            objections[kind] = f"its manifest states a wrong size of {wrong_paths[0]}"
        elif (reason := find_objection(manifest, store)) is not None:
            objections[kind] = reason
    return objections


def admit(
    connection: Connection,
    manifests: Mapping[Kind, Manifest],
    lock: Lock,
    objections: Mapping[Kind, str],
    at: datetime,
) -> ArtifactImport:
    """Publish the artifacts of a lock from a bundle; existing versions stay unchanged.

    An artifact is not published if some of its files are absent, if publishing would refuse it, or if its version
    exists with other content. The lock can run nevertheless.

    Args:
        connection: A connection in a write transaction.
        manifests: The manifests of the artifacts.
        lock: The lock.
        objections: The reasons of ``find_objections`` not to publish an artifact.
        at: The time of the import.
    """
    results, reasons = [], {}
    for kind, manifest in manifests.items():
        reference, digest = reference_of(manifest), lock.artifacts()[kind].digest
        provenance = Provenance("", {file.path: f"bundle:{lock.id}" for file in files_of(manifest)})
        try:
            if kind in objections and not is_published(connection, reference, digest):
                reasons[reference] = objections[kind]
            else:
                results.append(insert_version(connection, manifest, provenance, at))
        except VersionTakenError as error:
            reasons[reference] = error.what
    return ArtifactImport(tuple(results), reasons)


def describe_absent_parts(platforms: Collection[LockedPlatform]) -> tuple[str, ...]:
    """Describe the parts that a bundle of these platforms cannot contain: finished images, which engines pull."""
    return tuple(
        f"{platform} runs the finished image {platform.reference}, which bundles do not contain: the engine must have "
        "it or pull it"
        for platform in platforms
        if platform.finished
    )


def _missing_error(name: str, digest: Digest) -> IntegrityError:
    return IntegrityError(f"the bundle lacks {name}: expected {digest}, found nothing", where=name, next_step=_AGAIN)
