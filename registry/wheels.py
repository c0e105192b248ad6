"""The lock of an image's wheels (PEP 751) held against the image's files. No input or output here."""

import posixpath
import tomllib
from collections.abc import Iterator, Mapping

from artifacts.errors import InvalidInputError
from registry.lockfile import LockedFile


def locked_wheels(text: bytes, path: str, files: Mapping[str, LockedFile]) -> tuple[LockedFile, ...]:
    """Those of an image's ``files`` that the lock at ``path``, whose bytes are ``text``, lists; sorted by path.

    Raises:
        InvalidInputError: it is no such lock, lists what the image has not, or a package without a wheel.
    """
    found = {file.path: file for file in _wheels(text, path, files)}
    return tuple(found[inside] for inside in sorted(found))


def _wheels(text: bytes, path: str, files: Mapping[str, LockedFile]) -> Iterator[LockedFile]:
    from packaging.pylock import Pylock, PylockValidationError  # noqa: PLC0415 - only making a lock reads one

    try:
        packages = Pylock.from_dict(tomllib.loads(text.decode())).packages
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, PylockValidationError) as error:
        raise InvalidInputError(f"{path} is no lock of wheels (PEP 751): {error}", where=path) from error
    for package in packages:
        if not package.wheels:
            raise InvalidInputError(
                f"{path} lists {package.name} without a wheel, and an environment is made of wheels alone",
                where=path,
                next_step="publish an image whose lock has a wheel of it, by path and SHA-256",
            )
        for wheel in package.wheels:
            if wheel.path is None:
                raise InvalidInputError(
                    f"{path} lists a wheel of {package.name} by URL, not by a path of the image's files",
                    where=path,
                    next_step="publish an image that carries its wheels",
                )
            inside = posixpath.normpath(posixpath.join(posixpath.dirname(path), wheel.path))
            yield _listed(inside, wheel.hashes, path, files)


def _listed(inside: str, hashes: Mapping[str, str], path: str, files: Mapping[str, LockedFile]) -> LockedFile:
    if inside not in files:
        raise InvalidInputError(
            f"{path} lists {inside!r}, which is none of the image's files",
            where=path,
            next_step="publish an image that has it",
        )
    if hashes.get("sha256") != files[inside].sha256:
        raise InvalidInputError(f"{path} and the image disagree about the digest of {inside}", where=path)
    return files[inside]
