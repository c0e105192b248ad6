"""Documents of an image: the OCI configuration, and the lock of its wheels (PEP 751)."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from benchlock.artifacts.digest import Digest, parse_digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.registry.text import toml


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of an OCI image.

    ``layers`` has the diff ids, the lowest first. ``environment`` has the variables of its processes as ``NAME=value``.
    """

    os: str
    arch: str
    layers: tuple[Digest, ...]
    environment: tuple[str, ...]


class _RootFs(msgspec.Struct):
    diff_ids: tuple[str, ...]


class _Settings(msgspec.Struct, rename="pascal"):
    env: tuple[str, ...] | None = None


@prepare_decoder
class _ImageConfig(msgspec.Struct):
    os: str
    architecture: str
    rootfs: _RootFs
    config: _Settings | None = None


def parse_configuration(text: bytes) -> Configuration:
    """Parse the configuration of an OCI image.

    Raises:
        InvalidInputError: The text is not such a configuration.
    """
    try:
        document = msgspec.json.decode(text, type=_ImageConfig)
        layers = tuple(parse_digest(layer) for layer in document.rootfs.diff_ids)
    except (msgspec.MsgspecError, InvalidInputError) as error:
        raise InvalidInputError(f"invalid image configuration: {error}") from error
    environment = () if document.config is None else document.config.env or ()
    return Configuration(document.os, document.architecture, layers, environment)


@dataclass(frozen=True, slots=True)
class ListedWheel:
    """A wheel in a lock of wheels.

    Attributes:
        path: The path among the image's files.
        sha256: The digest as hex digits; empty if the lock has none.
        size: The size in bytes; None if the lock has none.
        distribution: The name of the distribution.
        version: The PEP 440 version; empty if the lock has none.
    """

    path: str
    sha256: str
    size: int | None
    distribution: str
    version: str

    @property
    def filename(self) -> str:
        """The name of the file."""
        return posixpath.basename(self.path)


def read_wheels(text: bytes, path: str) -> tuple[ListedWheel, ...]:
    """Return the wheels in the lock at ``path``, in its order.

    Raises:
        InvalidInputError: The text is not a lock of wheels, or has a package without a wheel or with one by URL only.
    """
    return tuple(_wheels(text, path))


def _wheels(text: bytes, path: str) -> Iterator[ListedWheel]:
    """Yield the wheels in a lock. Raises as ``read_wheels``."""
    from packaging.pylock import Pylock, PylockValidationError  # noqa: PLC0415 - only making a lock reads one

    try:
        packages = Pylock.from_dict(toml.loads(text.decode())).packages
    except (ValueError, PylockValidationError) as error:
        raise InvalidInputError(f"{path} is not a valid wheels lock (PEP 751): {error}", where=path) from error
    for package in packages:
        if not package.wheels:
            raise InvalidInputError(
                f"{path} lists {package.name} without a wheel; an environment can contain only wheels",
                where=path,
                next_step="publish an image whose wheels lock has a wheel of it, by path and SHA-256",
            )
        for wheel in package.wheels:
            if wheel.path is None:
                raise InvalidInputError(
                    f"{path} lists a wheel of {package.name} by URL, not by a path of the image's files",
                    where=path,
                    next_step="publish an image that contains its wheels",
                )
            wheel_path = posixpath.normpath(posixpath.join(posixpath.dirname(path), wheel.path))
            version = "" if package.version is None else str(package.version)
            yield ListedWheel(wheel_path, wheel.hashes.get("sha256", ""), wheel.size, str(package.name), version)
