"""What one asks of a repository, by the OCI distribution specification 1.1."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

import msgspec

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.artifacts.errors import IntegrityError, UnavailableError
from benchlock.artifacts.oci.authorization import LOG_IN, Credentials, authorize
from benchlock.artifacts.oci.documents import DOCKER_INDEX, DOCKER_MANIFEST, INDEX, LARGEST_MANIFEST, MANIFEST
from benchlock.artifacts.oci.reference import Repository
from benchlock.artifacts.readable import readable
from benchlock.artifacts.store import BlobNotFoundError, mismatch
from benchlock.artifacts.transfer.blobs import BlobClient
from benchlock.artifacts.transfer.session import (
    ACCEPTED,
    CREATED,
    NO_CONTENT,
    NOT_ALLOWED,
    NOT_FOUND,
    OK,
    Advice,
    Session,
    pause,
)
from benchlock.artifacts.transfer.uploads import PIECE
from benchlock.artifacts.urls import shown_url

if TYPE_CHECKING:
    from benchlock.artifacts.transfer.network import Client

DAMAGED: Final = (
    "have who runs the registry remove the blob from its storage, then publish it again: a registry does not replace "
    "a blob that it thinks it has"
)
ADVICE: Final = Advice(LOG_IN, DAMAGED)
_ACCEPTED_TYPES: Final = f"{MANIFEST}, {INDEX}, {DOCKER_MANIFEST}, {DOCKER_INDEX}"
_PAGE: Final = 1000
_BAD_REQUEST: Final = 400
_BLOB_UNKNOWN: Final = "MANIFEST_BLOB_UNKNOWN"
_MORE_TRIES: Final = 2


class DeletionRefusedError(UnavailableError):
    """The registry does not let anything of that kind be deleted."""


@readable
class _Tags(msgspec.Struct, frozen=True):
    tags: tuple[str, ...] | None = None


class RegistryClient(BlobClient):
    """A repository of an OCI registry, for many threads; nothing is connected before it is asked."""

    def __init__(
        self,
        repository: Repository,
        credentials: Credentials | None = None,
        *,
        redirect_hosts: frozenset[str] = frozenset(),
        public_only: bool = False,
        piece: int = PIECE,
    ) -> None:
        """``redirect_hosts`` may be redirected to whatever their addresses; other hosts need public ones.

        ``public_only``: the registry itself too, and whoever gives its tokens.
        ``piece`` is how many bytes of a blob one request sends, where the registry does not demand more.
        """
        self._repository = repository
        authorize = partial(_met, repository, credentials)
        session = Session(
            repository, ADVICE, authorize=authorize, redirect_hosts=redirect_hosts, public_only=public_only
        )
        super().__init__(session, piece=piece)

    @property
    def repository(self) -> Repository:
        return self._repository

    def manifest(self, reference: Digest | str) -> bytes:
        """The manifest or index of a digest, verified, or of a tag, of which nobody knows what it should be.

        Raises:
            BlobNotFoundError: there is none.
            IntegrityError: it is not what its digest says, or too large for one.
            UnavailableError: the registry cannot be asked.
        """
        answer = self._session.ask("GET", self._manifest(reference), headers={"Accept": _ACCEPTED_TYPES})
        name = f"manifest {reference} of {self.repository}"
        if answer.status == NOT_FOUND:
            raise BlobNotFoundError(f"{self.repository} has no manifest {reference}", where=str(self.repository))
        if answer.status != OK:
            raise answer.refused(f"{name} cannot be read")
        if len(answer.content) > LARGEST_MANIFEST:
            raise IntegrityError(f"{name} has more than {LARGEST_MANIFEST} bytes", where=name)
        found = Descriptor(digest_bytes(answer.content), len(answer.content))
        if reference.startswith("sha256:") and found.digest != reference:
            raise mismatch(name, Digest(reference), found, next_step=DAMAGED)
        return answer.content

    def put_manifest(self, content: bytes, media_type: str, tag: str | None = None) -> Digest:
        """Keep a manifest, under a tag where one is given; what it names must be there. Its digest.

        Raises:
            UnavailableError: the registry cannot be asked, or refuses.
        """
        digest = digest_bytes(content)
        path, headers = self._manifest(tag or digest), {"Content-Type": media_type}
        answer = self._session.ask("PUT", path, headers=headers, content=content)
        # A registry may write the link to a blob anew when somebody else sends it: for a moment it does not know it.
        for number in range(_MORE_TRIES):
            if _BLOB_UNKNOWN not in answer.faults:
                break
            pause(number)
            answer = self._session.ask("PUT", path, headers=headers, content=content)
        if answer.status not in (OK, CREATED, ACCEPTED):
            raise answer.refused(f"{self.repository} takes no manifest {tag or digest}")
        return digest

    def delete_manifest(self, digest: Digest) -> None:
        """Forget a manifest, its tags too; no error if absent.

        Raises:
            DeletionRefusedError: the registry does not let anything be deleted.
            UnavailableError: it cannot be asked.
        """
        self._delete(self._manifest(digest), f"manifest {digest}")

    def delete_blob(self, digest: Digest) -> None:
        """Forget a blob; no error if absent. Raises as ``delete_manifest``."""
        self._delete(self._blob(digest), f"blob {digest}")

    def tags(self) -> Iterator[str]:
        """Every tag, page by page; none where there is no repository yet.

        Raises:
            UnavailableError: the registry cannot be asked, or sends elsewhere or in a circle for the next page.
        """
        url: str | None = self._session.url(f"tags/list?n={_PAGE}")
        asked = set[str]()
        while url is not None:
            if url in asked or not self._session.is_home(url):
                raise UnavailableError(
                    f"{self.repository} lists no tags: {shown_url(url)} is no next page", where=str(self.repository)
                )
            asked.add(url)
            answer = self._session.ask("GET", url)
            if answer.status == NOT_FOUND:
                return
            if answer.status != OK:
                raise answer.refused(f"the tags of {self.repository} cannot be listed")
            try:
                yield from msgspec.json.decode(answer.content, type=_Tags).tags or ()
            except msgspec.MsgspecError as error:
                raise UnavailableError(
                    f"{self.repository} lists no tags: {error}", where=str(self.repository)
                ) from error
            url = _next_page(answer.headers.get("Link", ""), url)

    def _delete(self, url: str, what: str) -> None:
        answer = self._session.ask("DELETE", url)
        if answer.status == NOT_ALLOWED or (answer.status == _BAD_REQUEST and "UNSUPPORTED" in answer.faults):
            raise DeletionRefusedError(
                f"{self.repository} lets nothing be deleted ({answer.status} {answer.faults})",
                where=str(self.repository),
                next_step="have who runs it allow that: docker-registry's configuration has storage.delete.enabled",
            )
        if answer.status not in (OK, ACCEPTED, NO_CONTENT, NOT_FOUND):
            raise answer.refused(f"{what} of {self.repository} cannot be deleted")

    def _manifest(self, reference: str) -> str:
        return self._session.url(f"manifests/{reference}")


def _met(repository: Repository, credentials: Credentials | None, client: "Client", challenge: str) -> str:
    return authorize(client, challenge, credentials, str(repository), loopback_http=repository.plain)


def _next_page(link: str, url: str) -> str | None:
    """The URL that a ``Link`` header (RFC 8288) gives for what follows."""
    target, _, parameters = link.partition(">")
    return urljoin(url, target.lstrip(" <")) if 'rel="next"' in parameters or "rel=next" in parameters else None
