"""What one asks of a repository, by the OCI distribution specification 1.1."""

import io
from collections.abc import Iterator
from typing import BinaryIO, Final, cast
from urllib.parse import urljoin

import msgspec

from artifacts.digest import CHUNK, Descriptor, Digest, digest_bytes, parse_digest
from artifacts.errors import IntegrityError, UnavailableError
from artifacts.oci.authorization import Credentials
from artifacts.oci.documents import DOCKER_INDEX, DOCKER_MANIFEST, INDEX, LARGEST_MANIFEST, MANIFEST
from artifacts.oci.reference import Repository
from artifacts.oci.session import ACCEPTED, CREATED, NO_CONTENT, NOT_ALLOWED, NOT_FOUND, OK, Session, pause
from artifacts.oci.streams import DAMAGED, BlobStream
from artifacts.oci.uploads import PIECE, Upload
from artifacts.progress import Advance, unnoticed
from artifacts.store import BlobNotFoundError, mismatch
from artifacts.urls import shown_url

_ACCEPTED_TYPES: Final = f"{MANIFEST}, {INDEX}, {DOCKER_MANIFEST}, {DOCKER_INDEX}"
_PAGE: Final = 1000
_BAD_REQUEST: Final = 400
_BLOB_UNKNOWN: Final = "MANIFEST_BLOB_UNKNOWN"
_MORE_TRIES: Final = 2


class DeletionRefusedError(UnavailableError):
    """The registry does not let anything of that kind be deleted."""


class _Tags(msgspec.Struct, frozen=True):
    tags: tuple[str, ...] | None = None


class RegistryClient:
    """A repository of an OCI registry, for many threads; nothing is connected before it is asked."""

    def __init__(
        self,
        repository: Repository,
        credentials: Credentials | None = None,
        *,
        redirect_hosts: frozenset[str] = frozenset(),
        piece: int = PIECE,
    ) -> None:
        """``redirect_hosts`` may be redirected to whatever their addresses; other hosts need public ones.

        ``piece`` is how many bytes of a blob one request sends, where the registry does not demand more.
        """
        self._session = Session(repository, credentials, redirect_hosts)
        self._piece = piece

    @property
    def repository(self) -> Repository:
        return self._session.repository

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

    def open_blob(self, blob: Descriptor) -> BinaryIO:
        """The bytes of a blob, streamed and to be closed; a broken connection is resumed where it broke.

        Raises:
            BlobNotFoundError: there is none.
            UnavailableError: the registry cannot be asked; while reading too.
            IntegrityError: on reading the end, of bytes that are not what ``blob`` says. Names it and both digests.
        """
        return _buffered(BlobStream(self._session, parse_digest(blob.digest), blob.size))

    def open_digest(self, digest: Digest) -> BinaryIO:
        """As ``open_blob``, where the size is not known."""
        return _buffered(BlobStream(self._session, parse_digest(digest), None))

    def receive(self, digest: Digest) -> tuple[BinaryIO, int | None]:
        """As ``open_digest``, for a reader who digests the bytes himself; and the size, where the registry says it."""
        raw = BlobStream(self._session, parse_digest(digest), None, verified=False)
        return _buffered(raw), raw.size

    def stat_blob(self, digest: Digest) -> Descriptor | None:
        """Digest and size as the registry says, ``None`` where it has no such blob.

        Raises:
            UnavailableError: the registry cannot be asked.
        """
        answer = self._session.ask("HEAD", self._blob(digest))
        if answer.status == NOT_FOUND:
            return None
        size = answer.headers.get("Content-Length", "")
        if answer.status != OK or not size.isdecimal():
            raise answer.refused(f"blob {digest} of {self.repository} cannot be looked at")
        return Descriptor(digest, int(size))

    def put_blob(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = unnoticed) -> None:
        """Send the bytes of ``source``, which can be sought and begins at 0; the registry verifies them.

        ``advance`` is told the bytes sent, each once.

        Raises:
            IntegrityError: ``source`` has other bytes; names ``name`` and both digests.
            UnavailableError: the registry cannot be asked, or refuses.
        """
        Upload(self._session, source, blob, name, advance, self._piece).run()

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

    def _blob(self, digest: Digest) -> str:
        return self._session.url(f"blobs/{parse_digest(digest)}")

    def _manifest(self, reference: str) -> str:
        return self._session.url(f"manifests/{reference}")


def _buffered(raw: BlobStream) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(raw, CHUNK))


def _next_page(link: str, url: str) -> str | None:
    """The URL that a ``Link`` header (RFC 8288) gives for what follows."""
    target, _, parameters = link.partition(">")
    return urljoin(url, target.lstrip(" <")) if 'rel="next"' in parameters or "rel=next" in parameters else None
