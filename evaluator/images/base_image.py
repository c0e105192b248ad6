"""The base file system of an image: Debian by mmdebstrap, or an image of an OCI registry.

Layers are untrusted. No entry is written through a link, whatever lower layers contain, so none is written outside.
"""

import hashlib
import json
import os
import platform
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import CHUNK, Descriptor, Digest, describe, digest_bytes, parse_digest, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.oci.oci_documents import OciDescriptor
from benchlock.artifacts.oci.remote_images import Connect, find_image, find_tag, parse_image
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.images.external_tools import run_tool
from benchlock.evaluator.images.image_layers import decompress_layer
from benchlock.evaluator.images.wheels import Target, check_file, copy, host_target, read_target, running_python
from benchlock.registry.inspection.formats.image_documents import Configuration, parse_configuration

_SUITES = {"3.11": "bookworm", "3.13": "trixie"}
"""The Debian release whose Python has that minor version."""
_EPOCH = "1700000000"
_ALTERNATIVES = "use another base, such as a root file-system tarball, or build without layers, for processes only"
_EXCLUDE_OPTIONS = [f"--exclude={start}{folder}/*" for start in ("", "./") for folder in ("dev", "usr/share", "var")]
"""Folders that no interpreter needs for compiling: devices, which only root can make, and most system files."""
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_PROBE = """
import json, os, platform, sys
print(json.dumps({
    "implementation": sys.implementation.name, "python": "%d.%d" % sys.version_info[:2], "executable": sys.executable,
    "machine": platform.machine(), "libc": os.confstr("CS_GNU_LIBC_VERSION"),
}))
"""


@dataclass(frozen=True, slots=True)
class Base:
    """A root file system: the tars of its layers, lowest first, and the merged result in ``root``.

    ``settings`` are the variables that the base sets for its processes, as ``NAME=value``.
    """

    layers: tuple[tuple[Path, Descriptor], ...]
    root: Path
    target: Target
    python: str
    settings: tuple[str, ...] = ()

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that runs ``arguments`` by the base's Python, with ``root`` as its root folder."""
        return [*_enter(self.root), self.python, *arguments]

    def environment(self) -> Mapping[str, str]:
        """Return the complete environment of a command in the base, without any variable of the host."""
        return _environment(self.settings)


def debian_tarball(tarball: Path, cache: Path, store: BlobStore, progress: Progress) -> None:
    """Write the Debian base to ``tarball``.

    It is built once, then stored in ``store`` under a pointer file in ``cache``.

    Args:
        tarball: The file to write.
        cache: The folder of pointer files.
        store: The store of built bases.
        progress: Receives the progress.

    Raises:
        UnavailableError: mmdebstrap is missing or fails, or no Debian release has the running Python.
    """
    suite = _SUITES.get(running_python())
    if suite is None:
        raise UnavailableError(f"no Debian release has Python {running_python()}", next_step=_ALTERNATIVES)
    recipe = _recipe(suite)
    identity = to_hex(digest_bytes(encode_canonical([*recipe, platform.machine(), _EPOCH])))
    pointer = cache / f"base-{suite}-{identity[:12]}.json"
    digest = _find_stored_base(pointer, store)
    if digest is not None:
        with store.open(digest) as stream:
            copy(stream, tarball)
        check_file(tarball, digest)
        return
    with progress.task(f"creating the Debian {suite} base"):
        _bootstrap([*recipe, str(tarball)])
    with tarball.open("rb") as stream:
        descriptor = store.put(stream)
    cache.mkdir(parents=True, exist_ok=True)
    temporary = cache / f".{pointer.name}.{os.getpid()}"
    temporary.write_bytes(encode_canonical({"digest": descriptor.digest, "size": descriptor.size}))
    temporary.replace(pointer)


def open_base(tarball: Path, folder: Path) -> Base:
    """Unpack ``tarball`` into ``folder`` and query its Python.

    Raises:
        InvalidInputError: The file is not an uncompressed tar.
        UnavailableError: chroot is not allowed, or the base has no suitable CPython.
    """
    _check_tar(tarball)
    folder.mkdir()
    unpack = ["tar", "-xf", str(tarball), "-C", str(folder), "--no-same-owner", "--anchored", *_EXCLUDE_OPTIONS]
    run_tool(unpack, what=f"unpacking {tarball.name}", next_step="use another base")
    with tarball.open("rb") as stream:
        descriptor = describe(stream)
    return enter_base(((tarball, descriptor),), folder)


def enter_base(layers: tuple[tuple[Path, Descriptor], ...], root: Path, settings: tuple[str, ...] = ()) -> Base:
    """Return the base of ``layers``, which are already merged in ``root``, after querying its Python.

    Raises:
        UnavailableError: chroot is not allowed, or the base has no suitable CPython.
    """
    answer = run_tool(
        [*_enter(root), "python3", "-I", "-S", "-c", _PROBE],
        what="running the base's python3 by chroot",
        next_step=f"run as root or allow user namespaces, and use a base with python3 and glibc; or {_ALTERNATIVES}",
        environment=_environment(settings),
    )
    report = json.loads(answer)
    if report["implementation"] != "cpython":
        raise UnavailableError(
            f"python3 of the base is {report['implementation']}, not CPython",
            next_step="use another base, with CPython",
        )
    target = read_target(report["python"], report["machine"], report["libc"])
    return Base(layers, root, target, report["executable"], settings)


def _environment(settings: tuple[str, ...]) -> Mapping[str, str]:
    paths = [value for name, _, value in (setting.partition("=") for setting in settings) if name == "PATH"]
    return _ENVIRONMENT | {"PATH": paths[-1]} if paths else _ENVIRONMENT


def _recipe(suite: str) -> list[str]:
    # Both files are copied from the host and would differ between hosts. So would the owner of two folders of apt,
    # which apt gives to another user only where that user may enter the temporary folder.
    forget = 'rm -f "$1/etc/hostname" "$1/etc/resolv.conf"'
    one_user = 'APT::Sandbox::User "root"'
    options = ["--variant=minbase", "--include=python3", f"--aptopt={one_user}", f"--customize-hook={forget}"]
    return ["mmdebstrap", *options, suite]


def _bootstrap(command: list[str]) -> None:
    run_tool(
        command,
        what="creating the Debian base",
        next_step=f"install mmdebstrap (Debian: apt-get install mmdebstrap), check the network, or {_ALTERNATIVES}",
        environment={**os.environ, "SOURCE_DATE_EPOCH": _EPOCH},
    )


def _find_stored_base(pointer: Path, store: BlobStore) -> Digest | None:
    """Return the digest of the base built earlier; None if it is not in the store."""
    try:
        digest = parse_digest(json.loads(pointer.read_bytes())["digest"])
    except (OSError, ValueError, KeyError, TypeError, InvalidInputError):
        return None
    return digest if store.exists(digest) else None


def _check_tar(tarball: Path) -> None:
    try:
        with tarfile.open(tarball, "r:") as archive:
            archive.next()
    except (tarfile.TarError, OSError) as error:
        raise InvalidInputError(
            f"{tarball} is not an uncompressed tar archive: {error}",
            next_step="give a root file system as an uncompressed tar; it becomes the lowest layer",
        ) from error


def _enter(root: Path) -> list[str]:
    namespaces = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *namespaces, f"--root={root}", "--wd=/"]


_HIDES = ".wh."
"""The prefix of an entry that hides another of the lower layers (OCI image specification 1.1, layer)."""
_HIDES_ALL = ".wh..wh..opq"
_UNUSED = ("dev", "usr/share", "var")
"""Folders without files that an interpreter needs for compiling."""


def apply_layer(layer: Path, root: Path) -> None:
    """Apply the entries of the uncompressed tar ``layer`` to ``root``, as a container engine does.

    Owners, times, devices and extended attributes are dropped; modes become 0755 for executable files, else 0644.

    Raises:
        InvalidInputError: The file is not a tar, or an entry leaves the root.
    """
    unused = tuple(f"{folder}/" for folder in _UNUSED)
    try:
        with tarfile.open(layer, "r:") as archive:
            entries = [(entry, _parts(entry.name)) for entry in archive]
            used = [(entry, parts) for entry, parts in entries if parts and not "/".join(parts).startswith(unused)]
            # Hide entries of lower layers first: a layer may hide a folder and contain one of that name.
            for entry, parts in used:
                _hide(entry, parts, root)
            for entry, parts in used:
                _apply(archive, entry, parts, root)
    except tarfile.TarError as error:
        raise InvalidInputError(f"{layer.name} is not a tar archive: {error}", where=layer.name) from error


def _hide(entry: tarfile.TarInfo, parts: list[str], root: Path) -> None:
    *folders, name = parts
    if name == _HIDES_ALL:
        for path in _folder(root, folders).iterdir():
            _remove(path)
    elif name.startswith(_HIDES):
        _remove(_folder(root, folders) / _part(name.removeprefix(_HIDES), entry.name))


def _apply(archive: tarfile.TarFile, entry: tarfile.TarInfo, parts: list[str], root: Path) -> None:
    *folders, name = parts
    if name.startswith(_HIDES):
        return
    parent = _folder(root, folders)
    if entry.isdir():
        _folder(root, parts)
    elif entry.issym():
        _remove(parent / name)
        (parent / name).symlink_to(entry.linkname)
    elif entry.islnk():
        _link(root, entry, parent / name)
    elif entry.isreg():
        _remove(parent / name)
        _write(archive, entry, parent / name)


def _parts(name: str) -> list[str]:
    return [_part(part, name) for part in PurePosixPath(name).parts if part not in ("/", ".")]


def _part(part: str, name: str) -> str:
    if part in ("", ".", "..") or "/" in part or "\0" in part:
        raise InvalidInputError(f"entry {name!r} of the layer is outside the root file system", where=name)
    return part


def _folder(root: Path, parts: list[str]) -> Path:
    """Create the folder at ``parts``, replacing other entries on the path, including links."""
    folder = root
    for part in parts:
        folder /= part
        if folder.is_symlink() or not folder.is_dir():
            _remove(folder)
            folder.mkdir(mode=0o755)
    return folder


def _link(root: Path, entry: tarfile.TarInfo, path: Path) -> None:
    """Make a hard link to an earlier entry; skip it if that entry was skipped."""
    source = root.joinpath(*_parts(entry.linkname))
    inside = all(not folder.is_symlink() for folder in source.parents if folder.is_relative_to(root) and folder != root)
    if inside and source != path and (source.is_symlink() or source.is_file()):
        _remove(path)
        os.link(source, path, follow_symlinks=False)


def _write(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    stream = archive.extractfile(entry)
    assert stream is not None
    mode = 0o755 if entry.mode & 0o111 else 0o644
    with stream, os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as written:
        os.fchmod(written.fileno(), mode)
        shutil.copyfileobj(stream, written, CHUNK)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


LARGEST: Final = 64 << 30
"""Limit of the unpacked bytes of all layers of a base; a small compressed layer can unpack to any size."""

_LINUX = "linux"


def parse_base(text: str, connect: Connect) -> "Path | RemoteBase":
    """Parse a base: the path of a tarball, or an image in a registry with its digest.

    Raises:
        InvalidInputError: The image is named by a tag; the message has the current digest.
    """
    if "@" in text:
        parse_image(text)
        return RemoteBase(text, connect)
    if "/" not in text or text.startswith((".", "/")) or text.endswith(".tar") or Path(text).exists():
        return Path(text)
    try:
        named = f"use {find_tag(text, connect)}, the current digest of the tag"
    except UnavailableError as error:
        named = f"use HOST/NAME@sha256:… ({error.what})"
    raise InvalidInputError(f"{text} references an image by tag, and tags can change", where=text, next_step=named)


@dataclass(frozen=True, slots=True)
class RemoteBase:
    """The image ``HOST[:PORT]/NAME@sha256:…``, or the entry of its index for this machine.

    ``limit`` bounds the unpacked bytes of its layers.
    """

    reference: str
    connect: Connect
    limit: int = LARGEST

    def fetch(self, workspace: Path, store: BlobStore, progress: Progress) -> Base:
        """Pull the base, its layers as tars in ``workspace``; layers in ``store`` are not downloaded.

        Args:
            workspace: An empty folder.
            store: The local store.
            progress: Receives the progress.

        Raises:
            InvalidInputError: The image does not match this machine, a layer is not a tar, or the layers are too large.
            IntegrityError: Bytes do not match their digest.
            UnavailableError: The registry is unreachable, the base has no suitable CPython, or chroot is not allowed.
        """
        reference, arch = parse_image(self.reference), host_target().arch
        image = find_image(reference, _LINUX, arch, self.connect, store)
        described = parse_configuration(image.config)
        self._check(described, len(image.layers), arch)
        (workspace / "base").mkdir()
        layers: dict[Digest, tuple[Path, Descriptor]] = {}
        with progress.task(f"pulling {self.reference}", sum(layer.size for layer in image.layers)) as advance:
            for packed, diff_id in zip(image.layers, described.layers, strict=True):
                tarball = workspace / "base" / f"{to_hex(diff_id)}.tar"
                if diff_id not in layers:
                    remaining = self.limit - sum(layer.size for _, layer in layers.values())
                    layers[diff_id] = (tarball, self._layer(packed, diff_id, tarball, store, remaining))
                advance(packed.size)
        root = workspace / "root"
        root.mkdir()
        with progress.task("unpacking the base", len(described.layers)) as advance:
            for diff_id in described.layers:
                apply_layer(layers[diff_id][0], root)
                advance(1)
        return enter_base(tuple(layers[diff_id] for diff_id in described.layers), root, described.environment)

    def _check(self, described: Configuration, layers: int, arch: str) -> None:
        if (described.os, described.arch) != (_LINUX, arch):
            raise InvalidInputError(
                f"{self.reference} is built for {described.os}/{described.arch}, but this machine is {_LINUX}/{arch}",
                next_step="choose an image for this machine's platform: the base's Python compiles the byte code",
            )
        if layers != len(described.layers):
            raise InvalidInputError(
                f"{self.reference} has {layers} layers, but its configuration lists {len(described.layers)}",
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
            for chunk in decompress_layer(stream, name, limit):
                state.update(chunk)
                size += len(chunk)
                written.write(chunk)
        if state.hexdigest() != to_hex(diff_id):
            raise IntegrityError(
                f"{name} contains sha256:{state.hexdigest()}, but the image's configuration states {diff_id}",
                where=name,
                next_step="choose another image, and report this one to its author",
            )
        return Descriptor(diff_id, size)
