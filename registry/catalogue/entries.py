"""What the catalogue says of a version, and of a publication."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.names import Reference


class VersionTakenError(InvalidInputError):
    """The version is published already, with other content; it keeps that content for ever."""

    code = "version-taken"


@dataclass(frozen=True, slots=True)
class Entry:
    """A published version. ``yanked`` is the reason, where it is yanked."""

    reference: Reference
    digest: Digest
    published_at: datetime
    yanked: str | None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a version came from: the author's own text, and each file's source as written. Outside the digest."""

    authored: str
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Published:
    """What publishing did: ``changed`` is false where the same content was there already."""

    reference: Reference
    digest: Digest
    changed: bool


def taken(reference: Reference, version: str, there: str, wanted: str) -> VersionTakenError:
    """The error of a reference that is published, as ``version``, with the digest ``there``, not the one ``wanted``."""
    return VersionTakenError(
        f"{reference.kind}/{reference.name}@{version} is published with other content: {there}, not {wanted}",
        where=str(reference),
        next_step="give the new content a new version",
    )
