"""A base from a registry: an image by digest, each layer verified packed and unpacked, and laid into one root."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchlock.artifacts.digest import Descriptor, Digest, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.oci.documents import OciDescriptor
from benchlock.artifacts.oci.images import Connect, find_image, find_tag, parse_image
from benchlock.artifacts.oci.layers import uncompressed
from benchlock.artifacts.progress import Progress
from benchlock.artifacts.store import BlobStore
from benchlock.evaluator.images.base import Base, enter_base
from benchlock.evaluator.images.rootfs import apply_layer
from benchlock.evaluator.images.target import host_target
from benchlock.evaluator.images.wheels import check_file, copy
from benchlock.registry.configuration import Configuration, parse_configuration

LARGEST: Final = 64 << 30
"""Bytes of all layers of a base, unpacked: few packed ones can hold any number."""

_LINUX = "linux"


def parse_base(text: str, connect: Connect) -> "Path | RemoteBase":
    """The base that ``text`` names: a tarball by its path, or an image in a registry by its digest.

    Raises:
        InvalidInputError: an image by a tag; says the digest that it names now.
    """
    if "@" in text:
        parse_image(text)
        return RemoteBase(text, connect)
    if "/" not in text or text.startswith((".", "/")) or text.endswith(".tar") or Path(text).exists():
        return Path(text)
    try:
        named = f"write {find_tag(text, connect)}, which is what it names now"
    except UnavailableError as error:
        named = f"write HOST/NAME@sha256:… ({error.what})"
    raise InvalidInputError(f"{text} names an image by tag, and tags move", where="--base", next_step=named)


@dataclass(frozen=True, slots=True)
class RemoteBase:
    """The image ``HOST[:PORT]/NAME@sha256:…``, or the one of its index that runs on this machine.

    ``limit`` is the bytes of its layers, unpacked.
    """

    reference: str
    connect: Connect
    limit: int = LARGEST

    def fetch(self, workspace: Path, store: BlobStore, progress: Progress) -> Base:
        """The base, its layers as tars in ``workspace``; those that ``store`` has are taken from there.

        Raises:
            InvalidInputError: it is no image for this machine, a layer is no tar, or they are too large.
            IntegrityError: bytes are not what their digest says.
            UnavailableError: the registry cannot be asked, the base has no fitting CPython, or chroot is not allowed.
        """
        reference, arch = parse_image(self.reference), host_target().arch
        image = find_image(reference, _LINUX, arch, self.connect, store)
        described = parse_configuration(image.config)
        self._check(described, len(image.layers), arch)
        (workspace / "base").mkdir()
        found: dict[Digest, tuple[Path, Descriptor]] = {}
        with progress.task(f"pulling {self.reference}", sum(layer.size for layer in image.layers)) as advance:
            for packed, diff_id in zip(image.layers, described.layers, strict=True):
                tarball = workspace / "base" / f"{to_hex(diff_id)}.tar"
                if diff_id not in found:
                    left = self.limit - sum(layer.size for _, layer in found.values())
                    found[diff_id] = (tarball, self._layer(packed, diff_id, tarball, store, left))
                advance(packed.size)
        root = workspace / "root"
        root.mkdir()
        with progress.task("unpacking the base", len(described.layers)) as advance:
            for diff_id in described.layers:
                apply_layer(found[diff_id][0], root)
                advance(1)
        return enter_base(tuple(found[diff_id] for diff_id in described.layers), root, described.environment)

    def _check(self, described: Configuration, layers: int, arch: str) -> None:
        if (described.os, described.arch) != (_LINUX, arch):
            raise InvalidInputError(
                f"{self.reference} is made for {described.os}/{described.arch}, and this machine is {_LINUX}/{arch}",
                next_step="choose an image of this machine's platform: byte code is compiled by the base's own Python",
            )
        if layers != len(described.layers):
            raise InvalidInputError(
                f"{self.reference} has {layers} layers, and {len(described.layers)} by its configuration",
                next_step="choose another image",
            )

    def _layer(self, packed: OciDescriptor, diff_id: Digest, tarball: Path, store: BlobStore, limit: int) -> Descriptor:
        """Write the layer's tar, of at most ``limit`` bytes, and compare it with its diff id."""
        if store.exists(diff_id):
            with store.open(diff_id) as stream:
                copy(stream, tarball)
            return Descriptor(diff_id, check_file(tarball, diff_id))
        name = f"layer {packed.digest} of {self.reference}"
        state, size = hashlib.sha256(), 0
        client = self.connect(parse_image(self.reference).repository)
        with client.open_blob(Descriptor(packed.digest, packed.size)) as stream, tarball.open("wb") as written:
            for piece in uncompressed(stream, name, limit):
                state.update(piece)
                size += len(piece)
                written.write(piece)
        if state.hexdigest() != to_hex(diff_id):
            raise IntegrityError(
                f"{name} holds sha256:{state.hexdigest()}, and its image's configuration says {diff_id}",
                where=name,
                next_step="choose another image, and tell its maker: the image contradicts itself",
            )
        return Descriptor(diff_id, size)
