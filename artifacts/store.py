"""Where blobs live: a noun with few verbs. One conformance suite runs over every implementation."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

from artifacts.digest import Descriptor, Digest, describe
from artifacts.errors import IntegrityError, UnknownNameError


class BlobNotFoundError(UnknownNameError):
    """The store has no blob of that digest."""

    code = "blob-not-found"


class BlobStore(Protocol):
    """Immutable bytes by digest. A blob is visible only after its digest was verified, and read-only from then on."""

    def put(self, stream: BinaryIO, expected: Digest | None = None) -> Descriptor:
        """Keep the rest of ``stream``; idempotent. ``IntegrityError`` if ``expected`` differs: nothing is visible."""
        ...

    def open(self, digest: Digest) -> BinaryIO:
        """The bytes, unverified. ``BlobNotFoundError`` if absent."""
        ...

    def stat(self, digest: Digest) -> Descriptor:
        """Digest and size as stored. ``BlobNotFoundError`` if absent."""
        ...

    def exists(self, digest: Digest) -> bool: ...

    def delete(self, digest: Digest) -> None:
        """Forget the blob; no error if absent."""
        ...

    def list(self) -> Iterator[Digest]: ...

    def writing(self) -> AbstractContextManager[None]:
        """While held, nothing that was put is collected as garbage."""
        ...

    def collecting(self) -> AbstractContextManager[None]:
        """Exclusive against ``writing``, for garbage collection alone."""
        ...


def verify(store: BlobStore, digest: Digest, *, name: str, size: int | None = None) -> Descriptor:
    """Read the whole blob and compare digest and size.

    Raises:
        IntegrityError: absent, or other bytes; names ``name`` and both digests.
    """
    try:
        with store.open(digest) as stream:
            found = describe(stream)
    except BlobNotFoundError as error:
        raise IntegrityError(
            f"{name} is missing: {digest}", where=name, next_step="publish it again, or import a bundle that holds it"
        ) from error
    if found.digest != digest or (size is not None and found.size != size):
        raise IntegrityError(
            f"{name} is not what its digest says: expected {digest}, found {found.digest} ({found.size} bytes)",
            where=name,
            next_step="delete the damaged blob with `benchlock gc --damaged` and publish the file again",
        )
    return found
