"""The configuration of an image, as OCI and Docker write it: what it is made for, and its layers."""

from dataclasses import dataclass

import msgspec

from benchlock.artifacts.digest import Digest, parse_digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.readable import readable


@dataclass(frozen=True, slots=True)
class Configuration:
    """``layers`` are the diff ids, the lowest first; ``environment`` is what its processes get, as ``NAME=value``."""

    os: str
    arch: str
    layers: tuple[Digest, ...]
    environment: tuple[str, ...]


class _RootFs(msgspec.Struct):
    diff_ids: tuple[str, ...]


class _Settings(msgspec.Struct, rename="pascal"):
    env: tuple[str, ...] | None = None


@readable
class _Written(msgspec.Struct):
    os: str
    architecture: str
    rootfs: _RootFs
    config: _Settings | None = None


def parse_configuration(text: bytes) -> Configuration:
    """The configuration that ``text`` is.

    Raises:
        InvalidInputError: it is that of no image.
    """
    try:
        found = msgspec.json.decode(text, type=_Written)
        layers = tuple(parse_digest(layer) for layer in found.rootfs.diff_ids)
    except (msgspec.MsgspecError, InvalidInputError) as error:
        raise InvalidInputError(f"the configuration is that of no image: {error}") from error
    environment = () if found.config is None else found.config.env or ()
    return Configuration(found.os, found.architecture, layers, environment)
