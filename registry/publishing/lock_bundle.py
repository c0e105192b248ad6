"""The parts of a lock in a bundle, for all of its platforms or some, and their import."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection

from benchlock.artifacts.blob_store import BlobStore, verify
from benchlock.artifacts.bundles.bundle_format import BundleError, BundlePart
from benchlock.artifacts.digest import Descriptor, Digest, from_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.trees import LARGEST_LISTING, iterate_tree
from benchlock.registry.catalogue.catalogue_protocol import Provenance, PublishResult, VersionTakenError
from benchlock.registry.catalogue.version_rows import insert_version, is_published
from benchlock.registry.lock.lockfile import Lock, LockedPlatform, list_blob_references
from benchlock.registry.manifests import Manifest, files_of
from benchlock.registry.manifests.manifest_content import reference_of
from benchlock.registry.names import Kind, Reference
from benchlock.registry.publishing.remote_publication import find_objection

LOCK_TYPE: Final = "application/vnd.benchlock.lock.v1+toml"

_LARGEST = {"manifest": 16 << 20, "tree": LARGEST_LISTING}
"""Bytes of what is read into memory, by sort."""
_AGAIN = "copy or download the bundle again, or have it made again"


@dataclass(frozen=True, slots=True)
class ArtifactImport:
    """What of a bundle's artifacts is in the catalogue now, and why the others are not."""

    published: tuple[PublishResult, ...]
    kept_out: Mapping[Reference, str]


def choose_platforms(lock: Lock, text: str) -> tuple[LockedPlatform, ...]:
    """The platforms of ``lock`` that ``text`` spells as OS/ARCH/DEVICE; all of them where it is empty.

    Raises:
        InvalidInputError: the lock has none of that name.
    """
    found = tuple(one for one in lock.image.platforms if text in ("", str(one)))
    if not found:
        raise InvalidInputError(
            f"the lock has no platform {text}",
            where=f"--platform {text}",
            next_step=f"it has {', '.join(map(str, lock.image.platforms))}",
        )
    return found


def list_lock_parts(lock: Lock, platforms: Collection[LockedPlatform], store: BlobStore) -> tuple[BundlePart, ...]:
    """Every blob that ``lock`` names and that its ``platforms`` need, those inside trees too, each once.

    Raises:
        IntegrityError: a manifest or the listing of a tree is missing or damaged, or the lock gives a blob two sizes.
        InvalidInputError: what the lock calls a tree is none.
    """
    parts: dict[Digest, BundlePart] = {}
    for part in iterate_parts(lock, platforms, store):
        known = parts.setdefault(part.blob.digest, part)
        if known.blob != part.blob:
            raise IntegrityError(
                f"the lock says that {known.name} has {known.blob.size} bytes, and {part.name}, under the same digest "
                f"{known.blob.digest}, {part.blob.size}",
                where=part.name,
                next_step="lock the request again",
            )
    return tuple(parts.values())


def iterate_parts(lock: Lock, platforms: Collection[LockedPlatform], store: BlobStore) -> Iterator[BundlePart]:
    """Yield what ``list_lock_parts`` returns, blobs that are named twice also twice. Raise as it does."""
    for one in list_blob_references(lock):
        if one.platform is not None and one.platform not in platforms:
            continue
        if one.sort == "tree":
            for entry in iterate_tree(store, Descriptor(one.digest, one.size or 0), name=one.name):
                yield BundlePart(Descriptor(entry.digest, entry.size), f"{one.name}{entry.path}")
            yield BundlePart(store.stat(one.digest), f"the listing of {one.name}")
        elif one.size is None:
            yield BundlePart(Descriptor(one.digest, verify(store, one.digest, name=one.name).size), one.name)
        else:
            yield BundlePart(Descriptor(one.digest, one.size), one.name)


def find_platforms(lock: Lock, listed: Mapping[Digest, int]) -> tuple[LockedPlatform, ...]:
    """The platforms of ``lock`` that a bundle brings, which lists blobs by digest with their sizes.

    Nothing is read for it but the lock: what lies inside trees is not looked at.

    Raises:
        IntegrityError: a blob that every run needs is not listed, no platform is whole, or one is there in part.
        BundleError: a manifest or the listing of a tree is too large to be one.
    """
    blobs = tuple(list_blob_references(lock))
    for one in blobs:
        if listed.get(one.digest, 0) > _LARGEST.get(one.sort, listed.get(one.digest, 0)):
            raise BundleError(f"{one.name} has {listed[one.digest]} bytes, too many for a {one.sort}", where=one.name)
    missing = [one for one in blobs if one.digest not in listed]
    whole = tuple(one for one in lock.image.platforms if not any(other.platform == one for other in missing))
    needed = {one.digest for one in blobs if one.platform is None or one.platform in whole}
    partial = {one.platform for one in blobs if one.digest in listed and one.digest not in needed}
    for one in missing:
        if one.platform is None or one.platform in partial or not whole:
            raise _missing(one.name, one.digest)
    return whole


def check_parts(parts: Iterable[BundlePart], listed: Mapping[Digest, int]) -> None:
    """Raise unless a bundle lists ``parts`` and nothing else, in their sizes. Holds what is listed, not the parts.

    Raises:
        IntegrityError: a part is missing, or listed with another size.
        BundleError: more is listed.
    """
    left = set(listed)
    for part in parts:
        size = listed.get(part.blob.digest)
        if size is None:
            raise _missing(part.name, part.blob.digest)
        if size != part.blob.size:
            raise IntegrityError(
                f"{part.name} has {size} bytes, and the lock says {part.blob.size}", where=part.name, next_step=_AGAIN
            )
        left.discard(part.blob.digest)
    for digest in sorted(left):
        raise BundleError(f"the bundle brings {digest}, which nothing in it names", where=digest, next_step=_AGAIN)


def find_objections(
    manifests: Mapping[Kind, Manifest], listed: Mapping[Digest, int], store: BlobStore
) -> Mapping[Kind, str]:
    """Why artifacts of a bundle that lists these blobs, which ``store`` has now, do not belong into a catalogue."""
    found: dict[Kind, str] = {}
    for kind, manifest in manifests.items():
        files = [(file, listed.get(from_hex(str(file.sha256)))) for file in files_of(manifest)]
        absent = [file.path for file, size in files if size is None]
        wrong = [file.path for file, size in files if size != file.size and not file.path.endswith("/")]
        if absent:
            more = f" and {len(absent) - 1} more of its files" if len(absent) > 1 else ""
            found[kind] = f"the bundle does not bring {absent[0]}{more}"
        elif wrong:
            found[kind] = f"its manifest gives {wrong[0]} another size than it has"
        elif (reason := find_objection(manifest, store)) is not None:
            found[kind] = reason
    return found


def admit(
    connection: Connection,
    manifests: Mapping[Kind, Manifest],
    lock: Lock,
    objections: Mapping[Kind, str],
    at: datetime,
) -> ArtifactImport:
    """Publish the artifacts of a lock that came in a bundle; no version changes that is there already.

    One that has files which did not come, that publishing would refuse, or whose version has other content here, stays
    out of the catalogue: the lock runs all the same. ``objections`` are those of publishing, by kind.
    """
    published, kept_out = [], {}
    for kind, manifest in manifests.items():
        reference, digest = reference_of(manifest), lock.artifacts()[kind].digest
        provenance = Provenance("", {file.path: f"bundle:{lock.id}" for file in files_of(manifest)})
        try:
            if kind in objections and not is_published(connection, reference, digest):
                kept_out[reference] = objections[kind]
            else:
                published.append(insert_version(connection, manifest, provenance, at))
        except VersionTakenError as error:
            kept_out[reference] = error.what
    return ArtifactImport(tuple(published), kept_out)


def describe_absent_parts(platforms: Collection[LockedPlatform]) -> tuple[str, ...]:
    """What a bundle of these platforms cannot bring, in words: the layers of finished images, which engines pull."""
    return tuple(
        f"{one} runs the finished image {one.reference}, which no bundle brings: the engine must have it, or pull it"
        for one in platforms
        if one.finished
    )


def _missing(name: str, digest: Digest) -> IntegrityError:
    return IntegrityError(f"the bundle lacks {name}: expected {digest}, found nothing", where=name, next_step=_AGAIN)
