"""What asks registries about images that others made: for bases, for locks, and for checks at publishing."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from artifacts.errors import UnavailableError

if TYPE_CHECKING:
    from artifacts.oci.client import RegistryClient
    from artifacts.oci.reference import Repository
    from artifacts.store import BlobStore

LookUp = Callable[[str, str, str], bytes]


def connect(repository: "Repository") -> "RegistryClient":
    """The client of a repository, with the user's credentials for it."""
    from api.credentials import credentials_for, redirect_hosts  # noqa: PLC0415 - registries are rarely asked
    from artifacts.oci.client import RegistryClient  # noqa: PLC0415

    return RegistryClient(repository, credentials_for(repository), redirect_hosts=redirect_hosts())


def look_up(store: "BlobStore") -> LookUp:
    """What gives the configuration of the image that a reference names, for an os and an arch.

    It raises ``InvalidInputError`` where there is none and ``UnavailableError`` where nobody can be asked.
    """
    from artifacts.oci.images import find_image, parse_image  # noqa: PLC0415 - images of others are rare

    def found(reference: str, os: str, arch: str) -> bytes:
        return find_image(parse_image(reference), os, arch, connect, store).config

    return found


def ask(store: "BlobStore", say: Callable[[str], None]) -> Callable[[str, str, str], bytes | None]:
    """As ``look_up``; where nobody can be asked, ``say`` is told, and there is no answer."""

    def found(reference: str, os: str, arch: str) -> bytes | None:
        try:
            return look_up(store)(reference, os, arch)
        except UnavailableError as error:
            say(f"warning: {reference} could not be looked at, and is taken as the manifest says: {error.what}")
            return None

    return found
