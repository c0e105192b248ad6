"""Access to OCI registries: the logins saved by ``docker login``, the network policy, and lookup of foreign images."""

import base64
import binascii
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchlock.api.settings import read_setting
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.net.network_policy import NetworkPolicy
from benchlock.artifacts.net.urls import split_url
from benchlock.artifacts.oci.oci_client import Credentials, RegistryClient
from benchlock.artifacts.oci.oci_reference import Repository
from benchlock.artifacts.oci.remote_images import find_image, parse_image

if TYPE_CHECKING:
    from benchlock.artifacts.blob_store import BlobStore


class _DockerLogin(msgspec.Struct, frozen=True):
    auth: str = ""
    username: str = ""
    password: str = ""


class _DockerConfig(msgspec.Struct, frozen=True):
    auths: dict[str, _DockerLogin] = {}


def credentials_for(repository: Repository) -> Credentials | None:
    """Return the user and password for the repository's host from Docker's ``config.json``, None if it has none.

    The file is in the folder ``DOCKER_CONFIG``, by default ``~/.docker``. Credential helpers are not supported.

    Raises:
        InvalidInputError: The file is not a valid Docker configuration.
    """
    path = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    try:
        logins = msgspec.json.decode(path.read_bytes(), type=_DockerConfig).auths
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
            f"{path} is not a Docker configuration: {error}",
            where=str(path),
            next_step="log in again with `docker login`",
        ) from error
    return Credentials(username, password)


def read_network_policy() -> NetworkPolicy:
    """Return the network policy of the environment and of the configuration files.

    The setting ``redirect_hosts`` lists the hosts to which redirects may lead whatever their addresses. HTTPS_PROXY,
    NO_PROXY and the like have their usual meaning.
    """
    value = read_setting("redirect_hosts")
    hosts = [] if value is None else value.text.replace(",", " ").lower().split()
    return NetworkPolicy(
        redirect_hosts=frozenset(hosts), host_advice="add the host to BENCHLOCK_REDIRECT_HOSTS, if you know it"
    )


def connect_repository(repository: Repository) -> RegistryClient:
    """Return a client for a repository, with the user's credentials for it."""
    return RegistryClient(repository, credentials_for(repository), read_network_policy())


def look_up_image(
    store: "BlobStore",
    reference: str,
    os: str,
    arch: str,
    connect: Callable[[Repository], RegistryClient] = connect_repository,
) -> bytes:
    """Return the configuration of an image.

    Args:
        store: The store whose blobs need not be fetched.
        reference: The reference of the image.
        os: The operating system.
        arch: The architecture.
        connect: Returns a client for the image's repository.

    Raises:
        InvalidInputError: The image does not exist.
        UnavailableError: Its registry is unreachable.
    """
    return find_image(parse_image(reference), os, arch, connect, store).config


def look_up_leniently(
    store: "BlobStore", say: Callable[[str], None], reference: str, os: str, arch: str
) -> bytes | None:
    """Look up an image; print a warning and return None if its registry is unavailable."""
    try:
        return look_up_image(store, reference, os, arch)
    except UnavailableError as error:
        say(f"warning: {reference} could not be looked up; its manifest is trusted: {error.what}")
        return None


def connect_in_public(repository: Repository) -> RegistryClient:
    """Return a client for clients of a service, which contacts public registries only and sends no credentials.

    Otherwise a client could reach the service's private network, or images that only its operator may read. Hosts in
    BENCHLOCK_REDIRECT_HOSTS are exempt from both restrictions.
    """
    policy = read_network_policy()
    if (split_url(repository.url).hostname or "") in policy.redirect_hosts:
        return connect_repository(repository)
    advice = (
        "create the lock on a machine of that network, or have the operator of this service add the host to "
        "BENCHLOCK_REDIRECT_HOSTS"
    )
    return RegistryClient(repository, None, replace(policy, public_only=True, host_advice=advice))
