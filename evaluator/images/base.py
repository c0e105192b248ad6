"""The root file system that an image stands on: made by mmdebstrap, kept as a blob, looked into by chroot."""

import json
import os
import platform
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchlock.artifacts.canonical import canonical
from benchlock.artifacts.digest import Descriptor, Digest, describe, digest_bytes, parse_digest, to_hex
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.progress import Progress
from benchlock.artifacts.store import BlobStore
from benchlock.evaluator.images.commands import run_tool
from benchlock.evaluator.images.target import Target, read_target, running_python
from benchlock.evaluator.images.wheels import check_file, copy

_SUITES = {"3.11": "bookworm", "3.13": "trixie"}
"""The Debian release whose own Python is that minor version."""
_EPOCH = "1700000000"
_ALTERNATIVES = "give a root file-system tarball as --base, or use --no-layers for an image that runs as processes"
_UNUSED = [f"--exclude={start}{folder}/*" for start in ("", "./") for folder in ("dev", "usr/share", "var")]
"""What no interpreter needs to compile: devices, which root alone can make, and most of the files of a system."""
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
    """A root file system: the tars of its layers, the lowest first, and what they make together, in ``root``.

    ``settings`` are the variables that the base sets for its processes, as ``NAME=value``.
    """

    layers: tuple[tuple[Path, Descriptor], ...]
    root: Path
    target: Target
    python: str
    settings: tuple[str, ...] = ()

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs ``arguments`` by the base's Python, with ``root`` as its root folder."""
        return [*_enter(self.root), self.python, *arguments]

    def environment(self) -> Mapping[str, str]:
        """The whole environment of a command in the base: nothing of the host's, so that nothing of it gets in."""
        return _environment(self.settings)


def debian_tarball(tarball: Path, cache: Path, store: BlobStore, progress: Progress) -> None:
    """Write the Debian base to ``tarball``; made once, then kept in ``store`` and found by a file in ``cache``.

    Raises:
        UnavailableError: mmdebstrap is missing or fails, or no Debian release has the running Python.
    """
    suite = _SUITES.get(running_python())
    if suite is None:
        raise UnavailableError(f"no Debian release has Python {running_python()}", next_step=_ALTERNATIVES)
    recipe = _recipe(suite)
    identity = to_hex(digest_bytes(canonical([*recipe, platform.machine(), _EPOCH])))
    pointer = cache / f"base-{suite}-{identity[:12]}.json"
    kept = _kept(pointer, store)
    if kept is not None:
        with store.open(kept) as stream:
            copy(stream, tarball)
        check_file(tarball, kept)
        return
    with progress.task(f"making the Debian {suite} base"):
        _bootstrap([*recipe, str(tarball)])
    with tarball.open("rb") as stream:
        descriptor = store.put(stream)
    cache.mkdir(parents=True, exist_ok=True)
    written = cache / f".{pointer.name}.{os.getpid()}"
    written.write_bytes(canonical({"digest": descriptor.digest, "size": descriptor.size}))
    written.replace(pointer)


def open_base(tarball: Path, folder: Path) -> Base:
    """Unpack ``tarball`` into ``folder`` and ask its Python what it is.

    Raises:
        InvalidInputError: it is no uncompressed tar.
        UnavailableError: chroot is not allowed, or the base has no fitting CPython.
    """
    _check_tar(tarball)
    folder.mkdir()
    unpack = ["tar", "-xf", str(tarball), "-C", str(folder), "--no-same-owner", "--anchored", *_UNUSED]
    run_tool(unpack, what=f"unpacking {tarball.name}", next_step="give another --base")
    with tarball.open("rb") as stream:
        descriptor = describe(stream)
    return enter_base(((tarball, descriptor),), folder)


def enter_base(layers: tuple[tuple[Path, Descriptor], ...], root: Path, settings: tuple[str, ...] = ()) -> Base:
    """The base of ``layers``, which are applied in ``root``, after its Python was asked what it is.

    Raises:
        UnavailableError: chroot is not allowed, or the base has no fitting CPython.
    """
    answer = run_tool(
        [*_enter(root), "python3", "-I", "-S", "-c", _PROBE],
        what="running the base's python3 by chroot",
        next_step=f"run as root or allow user namespaces, with a base that has python3 and glibc; or {_ALTERNATIVES}",
        environment=_environment(settings),
    )
    found = json.loads(answer)
    if found["implementation"] != "cpython":
        raise UnavailableError(
            f"the base's python3 is {found['implementation']}", next_step="give a --base with CPython"
        )
    target = read_target(found["python"], found["machine"], found["libc"])
    return Base(layers, root, target, found["executable"], settings)


def _environment(settings: tuple[str, ...]) -> Mapping[str, str]:
    paths = [value for name, _, value in (one.partition("=") for one in settings) if name == "PATH"]
    return _ENVIRONMENT | {"PATH": paths[-1]} if paths else _ENVIRONMENT


def _recipe(suite: str) -> list[str]:
    # Both files are written from the host's, and would make two hosts' bases differ; so would the owner of two folders
    # of apt's, which it gives to another user only where that one may enter the temporary folder.
    forget = 'rm -f "$1/etc/hostname" "$1/etc/resolv.conf"'
    one_user = 'APT::Sandbox::User "root"'
    options = ["--variant=minbase", "--include=python3", f"--aptopt={one_user}", f"--customize-hook={forget}"]
    return ["mmdebstrap", *options, suite]


def _bootstrap(command: list[str]) -> None:
    run_tool(
        command,
        what="making the Debian base",
        next_step=f"install mmdebstrap (Debian: apt-get install mmdebstrap), check the network, or {_ALTERNATIVES}",
        environment={**os.environ, "SOURCE_DATE_EPOCH": _EPOCH},
    )


def _kept(pointer: Path, store: BlobStore) -> Digest | None:
    """The digest of the base made earlier, unless it is gone from the store since."""
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
            f"{tarball} is no uncompressed tar archive: {error}",
            next_step="give a root file system as an uncompressed tar; its bytes become the lowest layer",
        ) from error


def _enter(root: Path) -> list[str]:
    namespaces = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *namespaces, f"--root={root}", "--wd=/"]
