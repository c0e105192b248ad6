"""Everything that a lock names, listed once: verification, garbage collection and copies all ask here."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from msgspec import UNSET

from benchlock.artifacts.digest import Digest, from_hex
from benchlock.registry.lockfile import Lock, LockedArtifact, LockedPlatform
from benchlock.registry.names import Kind

Sort = Literal["manifest", "file", "tree", "wheels lock", "wheel", "configuration", "layer", "harness"]


@dataclass(frozen=True, slots=True)
class Named:
    """A blob of a lock, under the ``name`` that messages use.

    ``size`` is in bytes, ``None`` where the lock does not say: manifests. The digest of a ``tree`` is that of its
    listing, which names further blobs, and its size is theirs together. ``platform`` is that whose environment needs
    the blob; every run needs those without one.
    """

    sort: Sort
    name: str
    digest: Digest
    size: int | None
    platform: LockedPlatform | None = None


def title(kind: Kind, artifact: LockedArtifact) -> str:
    """What messages call an artifact of a lock: ``model/x@1.0.0``."""
    return f"{kind}/{artifact.name}@{artifact.version}"


def named(lock: Lock) -> Iterator[Named]:
    """Every blob that ``lock`` names: manifests, files, each platform's environment, harness.

    A digest that stands there twice comes twice.
    """
    for kind, artifact in lock.artifacts().items():
        yield Named("manifest", f"the manifest of {title(kind, artifact)}", artifact.digest, None)
        for file in artifact.files:
            sort: Sort = "tree" if file.path.endswith("/") else "file"
            yield Named(sort, f"{title(kind, artifact)} {file.path}", from_hex(file.sha256), file.size)
    for platform in lock.image.platforms:
        yield from _environment(lock, platform)
    yield Named("harness", f"harness {lock.harness.version}", lock.harness.digest, lock.harness.size)


def _environment(lock: Lock, platform: LockedPlatform) -> Iterator[Named]:
    where = f"{title('image', lock.image)} ({platform})"
    listed = platform.wheels_lock
    if listed is not UNSET:
        yield Named("wheels lock", f"{where} {listed.path}", from_hex(listed.sha256), listed.size, platform)
    for wheel in platform.wheels:
        yield Named("wheel", f"{where} {wheel.path}", from_hex(wheel.sha256), wheel.size, platform)
    if platform.image_id is not UNSET:
        size = None if platform.config_size is UNSET else platform.config_size
        yield Named("configuration", f"{where} configuration", platform.image_id, size, platform)
    for index, layer in enumerate(() if platform.layers is UNSET else platform.layers):
        yield Named("layer", f"{where} layers[{index}] {layer.digest}", layer.digest, layer.size, platform)
