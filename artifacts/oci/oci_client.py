"""A client of one OCI repository (distribution specification 1.1), with login by token or password.

Authorization is ``Basic`` (RFC 7617), or ``Bearer`` as registries use it: the client requests a token from the realm
and for the scope in the challenge, with the user's name and password if there are any.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from urllib.parse import urlencode, urljoin

import msgspec

from benchlock.artifacts.blob_store import BlobNotFoundError, make_mismatch_error
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.artifacts.net.blob_client import BlobClient
from benchlock.artifacts.net.blob_upload import UPLOAD_CHUNK
from benchlock.artifacts.net.http_session import (
    ACCEPTED,
    CREATED,
    NO_CONTENT,
    NOT_ALLOWED,
    NOT_FOUND,
    OK,
    SERVER_ERROR,
    ErrorPolicy,
    Session,
    TransientError,
    pause,
)
from benchlock.artifacts.net.network_policy import NetworkPolicy
from benchlock.artifacts.net.urls import check_url, redact_url
from benchlock.artifacts.oci.oci_documents import DOCKER_INDEX, DOCKER_MANIFEST, INDEX, LARGEST_MANIFEST, MANIFEST
from benchlock.artifacts.oci.oci_reference import Repository

_SCHEME = re.compile(r"(?:^|,\s*)(Bearer|Basic)\s+", re.IGNORECASE)
_PARAMETER = re.compile(r'([A-Za-z_]+)="([^"]*)"')
LOGIN_ADVICE = "log in with `docker login` as a user with access, or ask the operator of the registry"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's name and password for one registry; the password may be a token that the registry issued."""

    username: str
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        """The value of an ``Authorization`` header."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


@prepare_decoder
class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


def authorize(credentials: Credentials | None, session: Session, challenge: str) -> str:
    """Return the ``Authorization`` header that answers the challenge in ``WWW-Authenticate``.

    Args:
        credentials: The user's credentials, if any.
        session: The session with the registry.
        challenge: The value of ``WWW-Authenticate``.

    Raises:
        InvalidInputError: The realm is a URL that no password may be sent to.
        UnavailableError: Credentials are missing or rejected, or the challenge is of another kind.
    """
    challenges = _parse_challenges(challenge)
    if "bearer" in challenges:
        return f"Bearer {_request_token(credentials, session, challenges['bearer'])}"
    if "basic" in challenges and credentials is not None:
        return credentials.basic
    reason = "it requires a user name and password" if "basic" in challenges else "it does not name a token server"
    raise _make_denied_error(session.name, reason)


def _make_denied_error(where: str, reason: str) -> UnavailableError:
    """Make the error of a registry that denies access."""
    return UnavailableError(f"{where} denies access: {reason}", where=where, next_step=LOGIN_ADVICE)


def _parse_challenges(header: str) -> Mapping[str, Mapping[str, str]]:
    """Parse the parameters of each challenge, by its scheme in lower case."""
    parts = _SCHEME.split(header)
    return {
        scheme.lower(): dict(_PARAMETER.findall(parameters))
        for scheme, parameters in zip(parts[1::2], parts[2::2], strict=True)
    }


def _request_token(credentials: Credentials | None, session: Session, challenge: Mapping[str, str]) -> str:
    realm, where = challenge.get("realm", ""), session.name
    try:
        check_url(realm, loopback_http=session.policy.loopback_http)
    except InvalidInputError as error:
        raise InvalidInputError(f"{where} names an unusable token server: {error.what}", where=where) from error
    query = urlencode([(key, challenge[key]) for key in ("service", "scope") if key in challenge])
    headers = {} if credentials is None else {"Authorization": credentials.basic}
    response = session.ask_token_service(f"{realm}{'&' if '?' in realm else '?'}{query}", headers)
    if response.status >= SERVER_ERROR:
        raise TransientError(f"{redact_url(realm)} answers {response.status}", where=where, next_step="try again later")
    if response.status != OK:
        raise _make_denied_error(where, f"its token server {redact_url(realm)} answers {response.status}")
    try:
        document = msgspec.json.decode(response.content, type=_Token)
    except msgspec.MsgspecError as error:
        raise UnavailableError(f"{redact_url(realm)} returned no token: {error}", where=where) from error
    return document.token or document.access_token


DAMAGE_ADVICE: Final = (
    "ask the operator of the registry to remove the blob from its storage, then publish it again: a registry does not "
    "replace a blob that it has"
)
REGISTRY_ERROR_POLICY: Final = ErrorPolicy(LOGIN_ADVICE, DAMAGE_ADVICE)
_ACCEPTED_TYPES: Final = f"{MANIFEST}, {INDEX}, {DOCKER_MANIFEST}, {DOCKER_INDEX}"
_PAGE: Final = 1000
_BAD_REQUEST: Final = 400
_BLOB_UNKNOWN: Final = "MANIFEST_BLOB_UNKNOWN"
_MORE_TRIES: Final = 2


class DeletionRefusedError(UnavailableError):
    """The registry does not allow deletions of that kind."""


@prepare_decoder
class _Tags(msgspec.Struct, frozen=True):
    tags: tuple[str, ...] | None = None


class RegistryClient(BlobClient):
    """A repository of an OCI registry, for many threads; the first request opens a connection."""

    def __init__(
        self,
        repository: Repository,
        credentials: Credentials | None = None,
        policy: NetworkPolicy | None = None,
        *,
        piece: int = UPLOAD_CHUNK,
    ) -> None:
        """Prepare the session.

        Args:
            repository: The repository.
            credentials: The user's credentials, if any.
            policy: The network policy; the repository decides whether the connection is encrypted.
            piece: Bytes of a blob that one request sends, unless the registry demands more.
        """
        self._repository = repository
        policy = replace(policy or NetworkPolicy(), loopback_http=repository.plain)
        answer = partial(authorize, credentials)
        session = Session(repository.url, str(repository), REGISTRY_ERROR_POLICY, policy, authorize=answer)
        super().__init__(session, piece=piece)

    @property
    def repository(self) -> Repository:
        """The repository."""
        return self._repository

    def manifest(self, reference: Digest | str) -> bytes:
        """Return the manifest or index with a digest, verified, or with a tag, unverified.

        Raises:
            BlobNotFoundError: There is no such manifest.
            IntegrityError: The manifest does not have its digest, or is too large.
            UnavailableError: The registry does not answer.
        """
        response = self._session.ask("GET", self._manifest(reference), headers={"Accept": _ACCEPTED_TYPES})
        name = f"manifest {reference} of {self.repository}"
        if response.status == NOT_FOUND:
            raise BlobNotFoundError(f"{self.repository} has no manifest {reference}", where=str(self.repository))
        if response.status != OK:
            raise response.make_error(f"{name} cannot be read")
        if len(response.content) > LARGEST_MANIFEST:
            raise IntegrityError(f"{name} has more than {LARGEST_MANIFEST} bytes", where=name)
        actual = Descriptor(digest_bytes(response.content), len(response.content))
        if reference.startswith("sha256:") and actual.digest != reference:
            raise make_mismatch_error(name, Digest(reference), actual, next_step=DAMAGE_ADVICE)
        return response.content

    def put_manifest(self, content: bytes, media_type: str, tag: str | None = None) -> Digest:
        """Upload a manifest, with a tag if given, and return its digest; its blobs must exist already.

        Raises:
            UnavailableError: The registry does not answer, or rejects the manifest.
        """
        digest = digest_bytes(content)
        path, headers = self._manifest(tag or digest), {"Content-Type": media_type}
        response = self._session.ask("PUT", path, headers=headers, content=content)
        # While another client sends the same blob, a registry may rewrite its link and report it unknown for a moment.
        for number in range(_MORE_TRIES):
            if _BLOB_UNKNOWN not in response.faults:
                break
            pause(number)
            response = self._session.ask("PUT", path, headers=headers, content=content)
        if response.status not in (OK, CREATED, ACCEPTED):
            raise response.make_error(f"{self.repository} rejects the manifest {tag or digest}")
        return digest

    def delete_manifest(self, digest: Digest) -> None:
        """Delete a manifest and its tags, if it exists.

        Raises:
            DeletionRefusedError: The registry does not allow deletions.
            UnavailableError: The registry does not answer.
        """
        self._delete(self._manifest(digest), f"manifest {digest}")

    def delete_blob(self, digest: Digest) -> None:
        """Delete a blob, if it exists; errors as ``delete_manifest``."""
        self._delete(self._blob(digest), f"blob {digest}")

    def tags(self) -> Iterator[str]:
        """Yield every tag, page by page; none if the repository does not exist yet.

        Raises:
            UnavailableError: The registry does not answer, or its link to the next page is repeated or leads elsewhere.
        """
        url: str | None = self._session.url(f"tags/list?n={_PAGE}")
        visited = set[str]()
        while url is not None:
            if url in visited or not self._session.is_home(url):
                raise UnavailableError(
                    f"{self.repository} cannot list tags: {redact_url(url)} is not a next page",
                    where=str(self.repository),
                )
            visited.add(url)
            response = self._session.ask("GET", url)
            if response.status == NOT_FOUND:
                return
            if response.status != OK:
                raise response.make_error(f"the tags of {self.repository} cannot be listed")
            try:
                yield from msgspec.json.decode(response.content, type=_Tags).tags or ()
            except msgspec.MsgspecError as error:
                raise UnavailableError(
                    f"{self.repository} cannot list tags: {error}", where=str(self.repository)
                ) from error
            url = _next_page(response.headers.get("Link", ""), url)

    def _delete(self, url: str, subject: str) -> None:
        response = self._session.ask("DELETE", url)
        if response.status == NOT_ALLOWED or (response.status == _BAD_REQUEST and "UNSUPPORTED" in response.faults):
            raise DeletionRefusedError(
                f"{self.repository} does not permit deletion ({response.status} {response.faults})",
                where=str(self.repository),
                next_step="ask its operator to permit it; in docker-registry: storage.delete.enabled",
            )
        if response.status not in (OK, ACCEPTED, NO_CONTENT, NOT_FOUND):
            raise response.make_error(f"{subject} of {self.repository} cannot be deleted")

    def _manifest(self, reference: str) -> str:
        return self._session.url(f"manifests/{reference}")


def _next_page(link: str, url: str) -> str | None:
    """Return the URL of the next page in a ``Link`` header (RFC 8288)."""
    target, _, parameters = link.partition(">")
    return urljoin(url, target.lstrip(" <")) if 'rel="next"' in parameters or "rel=next" in parameters else None
