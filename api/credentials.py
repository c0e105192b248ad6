"""Who asks OCI registries: what `docker login` wrote down for their hosts; and where servers may send us on to."""

import base64
import binascii
import os
from pathlib import Path

import msgspec

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.oci.authorization import Credentials
from benchlock.artifacts.oci.reference import Repository


class _Login(msgspec.Struct, frozen=True):
    auth: str = ""
    username: str = ""
    password: str = ""


class _Configuration(msgspec.Struct, frozen=True):
    auths: dict[str, _Login] = {}


def credentials_for(repository: Repository) -> Credentials | None:
    """The user and password for the repository's host in Docker's ``config.json``; none where it has none.

    ``DOCKER_CONFIG`` names the folder of that file, else it is ``~/.docker``. Helpers that keep passwords elsewhere
    are not asked.

    Raises:
        InvalidInputError: the file is not what Docker writes.
    """
    path = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    try:
        logins = msgspec.json.decode(path.read_bytes(), type=_Configuration).auths
        login = logins.get(repository.host) or logins.get(f"https://{repository.host}")
        if login is None:
            return None
        if not login.auth:
            return Credentials(login.username, login.password) if login.username else None
        username, _, password = base64.b64decode(login.auth, validate=True).decode().partition(":")
    except OSError:
        return None
    except (msgspec.MsgspecError, binascii.Error, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path} is not what Docker writes: {error}", where=str(path), next_step="log in again with `docker login`"
        ) from error
    return Credentials(username, password)


def redirect_hosts() -> frozenset[str]:
    """The hosts that BENCHLOCK_REDIRECT_HOSTS lists: redirects may lead there whatever their addresses."""
    return frozenset(os.environ.get("BENCHLOCK_REDIRECT_HOSTS", "").replace(",", " ").lower().split())
