"""References to OCI repositories and manifests: ``oci://HOST[:PORT]/REPOSITORY[@sha256:…]``.

``oci://`` (optional) means TLS; ``oci+http://`` is unencrypted, for this machine only. Names of repositories follow the
OCI distribution specification 1.1. Tags are rejected, because they move.
"""

import re
from dataclasses import dataclass
from typing import Final

from benchlock.artifacts.digest import Digest, parse_digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.net.urls import is_loopback, redact_url, split_url

_COMPONENT = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(/{_COMPONENT})*")
_LONGEST = 255  # characters of host and path together; the limit of registries
_SCHEMES: Final = {"oci": False, "oci+http": True}
_FORM = "write oci://HOST/REPOSITORY, with @sha256:… for one manifest"


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository: ``host`` with its port, and ``path``. ``plain`` means without TLS, on this machine."""

    host: str
    path: str
    plain: bool = False

    def __str__(self) -> str:
        """Return the reference as users write it."""
        return f"{'oci+http' if self.plain else 'oci'}://{self.host}/{self.path}"

    @property
    def url(self) -> str:
        """The URL below which the distribution protocol serves this repository."""
        return f"{'http' if self.plain else 'https'}://{self.host}/v2/{self.path}"


@dataclass(frozen=True, slots=True)
class Reference:
    """A manifest in a repository, by its digest; without a digest, the repository."""

    repository: Repository
    digest: Digest | None = None

    def __str__(self) -> str:
        """Return the reference as users write it."""
        return f"{self.repository}@{self.digest}" if self.digest else str(self.repository)


def parse_repository(text: str) -> Repository:
    """Parse the reference of a repository; errors as ``parse_reference``, and for a digest."""
    reference = parse_reference(text)
    if reference.digest is not None:
        raise InvalidInputError(f"{text} is a manifest, not a repository", where=text, next_step="remove @sha256")
    return reference.repository


def parse_reference(text: str) -> Reference:
    """Parse the reference of a repository or manifest.

    Raises:
        InvalidInputError: The text is malformed, has a tag or credentials, or has an unencrypted host that is not this
            machine.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "oci", text
    if scheme not in _SCHEMES:
        shown = redact_url(text)
        raise InvalidInputError(f"invalid OCI reference {shown}", where=shown, next_step=_FORM)
    rest, at, digest = rest.partition("@")
    host, slash, path = rest.partition("/")
    if at and not digest.startswith("sha256:"):
        shown = digest.rpartition("@")[2]  # what is before it may be a password
        raise InvalidInputError(f"invalid digest {shown!r}", where=shown, next_step=_FORM)
    if not slash or not _is_host(host):
        raise InvalidInputError(f"{text} does not begin with a registry host", where=text, next_step=_FORM)
    if ":" in path:
        raise InvalidInputError(f"{text} has a tag, and tags move", where=text, next_step=_FORM)
    if path != path.lower():
        raise InvalidInputError(
            f"invalid repository of {host} in {text}: use lower case",
            where=text,
            next_step=f"write {path.lower()}",
        )
    if not _PATH.fullmatch(path) or len(rest) > _LONGEST:
        raise InvalidInputError(f"invalid repository of {host} in {text}", where=text, next_step=_FORM)
    repository = Repository(host, path, plain=_SCHEMES[scheme])
    if repository.plain and not is_loopback(split_url(repository.url).hostname or ""):
        raise InvalidInputError(
            f"{text} is not encrypted, but {host} is not this machine",
            where=text,
            next_step="write oci://, which uses TLS",
        )
    return Reference(repository, parse_digest(digest) if at else None)


def _is_host(host: str) -> bool:
    """Return whether the text is certainly a host: with a dot or a port, an address, or localhost."""
    try:
        name = split_url(f"https://{host}").hostname
    except InvalidInputError:
        return False
    return (
        bool(re.fullmatch(r"[A-Za-z0-9.:\[\]-]+", host))
        and bool(name)
        and (name == "localhost" or "." in host or ":" in host)
    )
