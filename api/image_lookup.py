"""What asks registries about images that others made: for bases, for locks, and for checks at publishing."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchlock.artifacts.errors import InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from benchlock.artifacts.oci.client import RegistryClient
    from benchlock.artifacts.oci.reference import Repository
    from benchlock.artifacts.store import BlobStore

LookUp = Callable[[str, str, str], bytes]


def connect(repository: "Repository") -> "RegistryClient":
    """The client of a repository, with the user's credentials for it."""
    from benchlock.api.credentials import credentials_for, redirect_hosts  # noqa: PLC0415 - registries are rarely asked
    from benchlock.artifacts.oci.client import RegistryClient  # noqa: PLC0415

    return RegistryClient(repository, credentials_for(repository), redirect_hosts=redirect_hosts())


def look_up(store: "BlobStore") -> LookUp:
    """What gives the configuration of the image that a reference names, for an os and an arch.

    It raises ``InvalidInputError`` where there is none and ``UnavailableError`` where nobody can be asked.
    """
    from benchlock.artifacts.oci.images import find_image, parse_image  # noqa: PLC0415 - images of others are rare

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


def public_look_up(store: "BlobStore") -> LookUp:
    """As ``look_up``, for whoever asks a service: it asks no registry of a network that is the service's own.

    Nor does it ask in the name of who runs the service: what their credentials open is not for strangers.
    BENCHLOCK_REDIRECT_HOSTS lists hosts that may be asked whatever their addresses, with credentials.
    """
    from benchlock.artifacts.oci.images import find_image, parse_image  # noqa: PLC0415 - images of others are rare

    def found(reference: str, os: str, arch: str) -> bytes:
        return find_image(parse_image(reference), os, arch, _connect_in_public, store).config

    return found


def _connect_in_public(repository: "Repository") -> "RegistryClient":
    from benchlock.api.credentials import redirect_hosts  # noqa: PLC0415 - as above
    from benchlock.artifacts.oci.client import RegistryClient  # noqa: PLC0415
    from benchlock.artifacts.urls import addresses, is_public, split_url  # noqa: PLC0415

    split = split_url(repository.url)
    host = split.hostname or ""
    admitted = redirect_hosts()
    if host.lower() not in admitted:
        try:
            private = [one for one in addresses(host, split.port or 443) if not is_public(one)]
        except OSError as error:
            raise UnavailableError(f"{host} has no address: {error}", where=str(repository)) from error
        if private:
            raise InvalidInputError(
                f"{repository} is at {private[0]}, which is not public: this service does not ask there",
                where=str(repository),
                next_step="make the lock on a machine of that network, or have its operator admit the host: "
                "BENCHLOCK_REDIRECT_HOSTS",
            )
        return RegistryClient(repository, None, redirect_hosts=admitted, public_only=True)
    return connect(repository)
