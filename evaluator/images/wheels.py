"""The wheels for a target platform: resolution and download by pip."""

import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, NormalizedName, canonicalize_name, parse_wheel_filename

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Digest, describe, from_hex, read_chunks, to_hex
from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError, UnavailableError
from benchlock.evaluator.images.external_tools import last_lines, run_group

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LEGACY_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""Older names of the tags ``manylinux_2_17``, ``_2_12`` and ``_2_5`` (PEP 600)."""
_OLDEST_GLIBC = 5


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a build.

    ``python`` is ``MAJOR.MINOR``, ``machine`` the output of ``uname -m``, and ``glibc`` the minor version of glibc 2.
    """

    python: str
    machine: str
    glibc: int

    @property
    def arch(self) -> str:
        """The architecture by its name in images: amd64, arm64."""
        return _ARCHITECTURES[self.machine]

    def platforms(self) -> Iterator[str]:
        """Yield the supported platform tags, the most specific first (PEP 600)."""
        for minor in range(self.glibc, _OLDEST_GLIBC - 1, -1):
            yield f"manylinux_2_{minor}_{self.machine}"
            if minor in _LEGACY_NAMES:
                yield f"{_LEGACY_NAMES[minor]}_{self.machine}"
        yield f"linux_{self.machine}"

    def tags(self) -> frozenset[Tag]:
        """Return every supported wheel tag."""
        major, minor = (int(part) for part in self.python.split("."))
        version, interpreter = (major, minor), f"cp{major}{minor}"
        abis = (interpreter,)
        return frozenset(cpython_tags(version, abis, self.platforms())) | frozenset(
            compatible_tags(version, interpreter, self.platforms())
        )


def read_target(python: str, machine: str, libc: str) -> Target:
    """Return the target of an interpreter, from what it reports.

    Args:
        python: ``MAJOR.MINOR``.
        machine: The output of ``uname -m``.
        libc: The C library, as ``glibc 2.36``.

    Raises:
        UnavailableError: The machine or C library is not supported.
    """
    name, _, version = libc.partition(" ")
    major, _, minor = version.partition(".")
    if machine not in _ARCHITECTURES or name != "glibc" or major != "2" or not minor.isdecimal():
        raise UnavailableError(
            f"cannot build an image for machine {machine!r} with C library {libc!r}",
            next_step=f"use glibc 2 on one of {', '.join(_ARCHITECTURES)}",
        )
    return Target(python, machine, int(minor))


def running_python() -> str:
    """Return ``MAJOR.MINOR`` of the running interpreter."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def host_target() -> Target:
    """Return the target of the running interpreter.

    Raises:
        UnavailableError: The machine or C library is not supported.
    """
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        raise UnavailableError(
            f"building images needs CPython on Linux, not {sys.implementation.name} on {sys.platform}"
        )
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None
    return read_target(running_python(), platform.machine(), libc or "unknown")


_OFFLINE_SIGN = "Retrying (Retry("
_MISMATCH_SIGN = "DO NOT MATCH THE HASHES"
_UNSOLVABLE_SIGNS = ("No matching distribution found", "ResolutionImpossible")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel of a resolution; ``filename`` has its version and tags (PEP 427)."""

    name: NormalizedName
    version: str
    filename: str
    digest: Digest


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """Sources of wheels beyond the user's pip configuration."""

    find_links: tuple[str, ...] = ()
    index_url: str | None = None

    def arguments(self) -> list[str]:
        """Return the arguments for pip."""
        links = [f"--find-links={folder}" for folder in self.find_links]
        return links if self.index_url is None else [*links, f"--index-url={self.index_url}"]


def resolve(
    requirements: Sequence[str], target: Target, index: IndexOptions, scratch: Path | None = None
) -> tuple[Wheel, ...]:
    """Resolve wheels that satisfy all ``requirements`` together on ``target``, sorted by name.

    Args:
        requirements: The requirements.
        target: The platform.
        index: The sources of wheels.
        scratch: The folder for pip's report; None for the system's temporary folder.

    Raises:
        InvalidInputError: No set of wheels satisfies the requirements.
        UnavailableError: pip or the index failed; or pip runs on another minor version of Python, for which it would
            evaluate environment markers.
    """
    if running_python() != target.python:
        raise UnavailableError(
            f"cannot resolve wheels for Python {target.python} with Python {running_python()}: "
            "pip evaluates environment markers for the interpreter that runs it",
            next_step=f"install benchlock with Python {target.python}, or use another base, with Python "
            f"{running_python()}",
        )
    with tempfile.TemporaryDirectory(prefix="resolution-", dir=scratch) as folder:
        report = Path(folder) / "report.json"
        chosen = ["--dry-run", "--ignore-installed", f"--report={report}", *_target_arguments(target)]
        _pip(["install", *chosen, *index.arguments(), *requirements])
        entries = json.loads(report.read_bytes())["install"]
    wheels = [_read_entry(entry, target) for entry in entries]
    return tuple(sorted(wheels, key=lambda wheel: wheel.name))


def fetch(
    wheels: Iterable[Wheel], folder: Path, target: Target, index: IndexOptions, store: BlobStore
) -> Mapping[Digest, int]:
    """Put exactly ``wheels`` into ``folder``, from ``store`` or else the index; return the sizes by digest.

    Args:
        wheels: The wheels of the resolution.
        folder: The folder to fill.
        target: The platform.
        index: The sources of wheels.
        store: The local store.

    Raises:
        IntegrityError: The bytes of a file do not match the digest in the resolution.
        UnavailableError: pip or the index failed, or downloaded a wheel under another name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chosen = list(wheels)
    missing = [wheel for wheel in chosen if not store.exists(wheel.digest)]
    for wheel in chosen:
        if wheel not in missing:
            with store.open(wheel.digest) as stream:
                copy(stream, folder / wheel.filename)
    if missing:
        pins = folder.parent / "wheels.txt"
        lines = (f"{wheel.name}=={wheel.version} --hash=sha256:{to_hex(wheel.digest)}\n" for wheel in missing)
        pins.write_text("".join(lines), encoding="utf-8")
        options = ["--no-deps", "--require-hashes", f"--requirement={pins}", f"--dest={folder}"]
        _pip(["download", *options, *_target_arguments(target), *index.arguments()])
    for wheel in chosen:
        if not (folder / wheel.filename).is_file():
            raise UnavailableError(
                f"pip resolved {wheel.filename}, but fetched no file with that name",
                where=wheel.name,
                next_step="build again; if the error persists, the index lists the file under another name",
            )
    return {wheel.digest: check_file(folder / wheel.filename, wheel.digest) for wheel in chosen}


def copy(stream: BinaryIO, path: Path) -> None:
    """Write the rest of ``stream`` to ``path``."""
    with path.open("wb") as written:
        for chunk in read_chunks(stream):
            written.write(chunk)


def _target_arguments(target: Target) -> list[str]:
    platforms = [f"--platform={platform}" for platform in target.platforms()]
    return ["--only-binary=:all:", "--implementation=cp", f"--python-version={target.python}", *platforms]


def _pip(arguments: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", "--no-input", *arguments]
    completed = run_group(command)
    if completed.returncode:
        raise _pip_error(completed.stderr.decode(errors="replace"), completed.returncode)


def _pip_error(messages: str, status: int) -> BenchlockError:
    excerpt = last_lines("\n".join(line for line in messages.splitlines() if "WARNING" not in line), status)
    if _MISMATCH_SIGN in messages:
        return IntegrityError(
            f"a fetched wheel differs from the resolved one:\n{excerpt}",
            next_step="build again; if the error persists, report it to the index",
        )
    if any(sign in messages for sign in _UNSOLVABLE_SIGNS) and _OFFLINE_SIGN not in messages:
        return InvalidInputError(
            f"pip found no wheels that satisfy the requirements:\n{excerpt}",
            next_step="choose a version for which the index has wheels, or another source of wheels",
        )
    return UnavailableError(f"pip failed:\n{excerpt}", next_step="check the network and `pip config list`")


def _read_entry(entry: Mapping[str, Any], target: Target) -> Wheel:
    """Read an entry of pip's installation report (format version 1)."""
    metadata, source = entry["metadata"], entry["download_info"]
    filename = unquote(urlsplit(source["url"]).path.rsplit("/", 1)[-1])
    name, version = canonicalize_name(metadata["name"]), metadata["version"]
    digest = source.get("archive_info", {}).get("hashes", {}).get("sha256")
    if digest is None:
        raise UnavailableError(
            f"the package index has no SHA-256 for {filename}", next_step="use an index or a folder that has it"
        )
    try:
        tags = parse_wheel_filename(filename)[3]
    except InvalidWheelFilename as error:
        raise UnavailableError(f"pip chose {filename} for {name}, which is not a wheel") from error
    if tags.isdisjoint(target.tags()):
        raise UnavailableError(f"pip chose {filename}, which does not run on {target}")
    return Wheel(name, version, filename, from_hex(digest))


def check_file(path: Path, expected: Digest) -> int:
    """Return the size of the file at ``path``.

    Raises:
        IntegrityError: The file has another digest.
    """
    with path.open("rb") as stream:
        descriptor = describe(stream)
    if descriptor.digest != expected:
        raise IntegrityError(
            f"digest mismatch of {path.name}: expected {expected}, found {descriptor.digest}",
            where=path.name,
            next_step="if the error persists, the package index or the store is damaged: verify the registry",
        )
    return descriptor.size
