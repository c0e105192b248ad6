"""The ``BlobStore`` protocol, and verified reading and copying of blobs from any store."""

import builtins
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, runtime_checkable

from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.digest import Descriptor, Digest, describe, digest_bytes, relay
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError, UnknownNameError
from benchlock.artifacts.user_output import Advance, ignore_progress, serialize_advance

if TYPE_CHECKING:
    from benchlock.artifacts.atomic_files import RemovedFiles

PARALLEL_TRANSFERS = 4
LARGEST_DOCUMENT: Final = 16 << 20
"""Largest document, in bytes, that is read into memory whole: a manifest or a configuration."""
REPAIR_ADVICE = (
    "in the registry's own folder, not over HTTP, publish the file again, or repeat the import of the bundle or the "
    "build of the image that stored it: the correct bytes replace the damaged ones; a service is not sent what it has"
)


class BlobNotFoundError(UnknownNameError):
    """The store has no blob with that digest."""

    code = "blob-not-found"


class BlobReader(Protocol):
    """The reading part of every ``BlobStore``."""

    def open(self, digest: Digest) -> BinaryIO:
        """Open a blob, as ``BlobStore.open`` does."""
        ...

    def stat(self, digest: Digest) -> Descriptor:
        """Return the digest and the stored size; raise ``BlobNotFoundError`` if the blob is absent."""
        ...

    def exists(self, digest: Digest) -> bool:
        """Return whether the store has the blob."""
        ...


class BlobStore(Protocol):
    """Immutable blobs, addressed by digest.

    A blob becomes visible only after its digest is verified, and is read-only from then on. Every method raises
    ``UnavailableError`` if the storage fails (a full disk, a folder without permission); stored blobs stay intact.
    Memory is bounded whatever the size of a blob.
    """

    def put(
        self,
        stream: BinaryIO,
        expected: Digest | None = None,
        *,
        name: str = "the content",
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        """Store the rest of ``stream``; storing a blob twice is harmless.

        A damaged blob of the same digest is repaired. A store that cannot repair it raises an error for damage that it
        notices.

        Args:
            stream: The bytes.
            expected: The digest that they must have; ``None`` admits any.
            name: The name of the bytes in error messages.
            advance: Called with the number of bytes of each chunk read.

        Raises:
            IntegrityError: The digest is not ``expected``; no blob became visible. The message has both digests.
        """
        ...

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        """Store a local file, as ``put`` does; ``name`` defaults to its path.

        Raises:
            InvalidInputError: The path is not a regular file.
            IntegrityError: The digest is not ``expected``.
        """
        ...

    def put_files(self, paths: Iterable[Path], *, advance: Advance = ignore_progress) -> builtins.list[Descriptor]:
        """Store several files, faster than one ``put_file`` each; if one fails, others may be stored.

        ``advance`` is called by one thread at a time.
        """
        ...

    def open(self, digest: Digest) -> BinaryIO:
        """Open a blob as a seekable stream, unverified or with an ``IntegrityError`` at its end.

        Raises:
            BlobNotFoundError: The blob is absent.
        """
        ...

    def stat(self, digest: Digest) -> Descriptor:
        """Return the digest and the stored size; raise ``BlobNotFoundError`` if the blob is absent."""
        ...

    def exists(self, digest: Digest) -> bool:
        """Return whether the store has the blob."""
        ...

    def delete(self, digest: Digest) -> None:
        """Delete the blob, if it exists."""
        ...

    def list(self) -> Iterator[Digest]:
        """Yield the digest of every blob, in any order."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """Protect all blobs put within the context from garbage collection. Contexts may overlap and nest."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Protect many blobs, as ``writing`` does, that no reader needs before the context ends.

        The store promises to keep them only when the context ends without an error, which saves some stores much work.
        """
        ...

    def collecting(self) -> AbstractContextManager[None]:
        """Hold the store exclusively for garbage collection: ``writing`` and ``put`` wait. Nothing is deleted."""
        ...

    def sweep(self, *, dry_run: bool = False) -> "RemovedFiles":
        """Remove the files of killed writers and interrupted fetches; only within ``collecting``.

        Returns:
            The number and total bytes of the files that were removed, or that a dry run would remove.
        """
        ...


class FileStore(BlobStore, Protocol):
    """A blob store whose blobs are files of this machine, or become files when they are read."""

    def path(self, digest: Digest) -> Path:
        """Return the path of the blob, for hard links and read-only mounts; ``BlobNotFoundError`` if absent."""
        ...


@runtime_checkable
class SigningStore(BlobReader, Protocol):
    """A store whose blobs can be downloaded from the server behind it."""

    def sign_url(self, blob: Descriptor, seconds: int) -> str | None:
        """Return a URL by which anyone can download a blob for ``seconds``, without other credentials.

        None if the server behind the store does not have the whole blob.

        Raises:
            UnavailableError: The server does not answer, or such URLs cannot be had.
        """
        ...


@runtime_checkable
class PrefetchingStore(Protocol):
    """A store in front of a remote one, which fetches several blobs at once."""

    def prefetch(self, blobs: Iterable[Descriptor]) -> None:
        """Fetch the blobs that are not local. Skip missing and damaged ones: their readers get the error."""
        ...


def prefetch(store: BlobStore, blobs: Iterable[Descriptor]) -> None:
    """Announce all blobs that will be read soon, so that a store with remote blobs fetches them together.

    Raises:
        UnavailableError: The remote store does not answer.
    """
    if isinstance(store, PrefetchingStore):
        store.prefetch(blobs)


def put_each(store: BlobStore, paths: Iterable[Path], advance: Advance) -> list[Descriptor]:
    """Store several files in parallel with ``put_file``, for stores that wait for a network."""
    advance = serialize_advance(advance)
    with ThreadPoolExecutor(PARALLEL_TRANSFERS) as pool:
        blobs = [pool.submit(store.put_file, path, advance=advance) for path in paths]
        try:
            return [blob.result() for blob in blobs]
        finally:
            pool.shutdown(cancel_futures=True)


def make_mismatch_error(name: str, expected: Digest, actual: Descriptor, *, next_step: str) -> IntegrityError:
    """Make the error of bytes with another digest; it names the file and both digests."""
    return IntegrityError(
        f"{name} does not match its digest: expected {expected}, found {actual.digest} ({actual.size} bytes)",
        where=name,
        next_step=next_step,
    )


def check_digest(name: str, expected: Digest | None, actual: Descriptor) -> None:
    """Raise unless ``actual`` has the digest ``expected``, or ``expected`` is ``None``.

    Raises:
        IntegrityError: The digest differs. The message suits bytes on their way into a store.
    """
    if expected is not None and actual.digest != expected:
        raise make_mismatch_error(name, expected, actual, next_step="correct the file or its digest")


def verify(
    store: BlobReader, digest: Digest, *, name: str, size: int | None = None, advance: Advance = ignore_progress
) -> Descriptor:
    """Read a whole blob and compare its digest, and its size if given.

    Args:
        store: The store of the blob.
        digest: The expected digest.
        name: The name of the blob in error messages.
        size: The expected size in bytes; ``None`` admits any.
        advance: Called with the number of bytes of each chunk read.

    Raises:
        IntegrityError: The blob is absent or has other bytes. The message has ``name`` and both digests.
        UnavailableError: The bytes cannot be read.
    """
    with _open_blob(store, digest, name) as stream:
        try:
            actual = describe(stream, advance)
        except OSError as error:
            raise _make_read_error(name, digest, error) from error
    if actual.digest != digest:
        raise make_mismatch_error(name, digest, actual, next_step=_find_repair_advice(store))
    if size is not None and actual.size != size:
        raise IntegrityError(
            f"{name} has {actual.size} bytes, but {size} are stated for it with the same digest {digest}",
            where=name,
            next_step="correct the stated size",
        )
    return actual


def read(store: BlobReader, digest: Digest, *, name: str, most: int = LARGEST_DOCUMENT) -> bytes:
    """Read the verified bytes of a blob into memory.

    Args:
        store: The store of the blob.
        digest: The digest of the blob.
        name: The name of the blob in error messages.
        most: The largest size in bytes; an untrusted digest may be that of any blob.

    Raises:
        InvalidInputError: The blob has more than ``most`` bytes.
        IntegrityError: The blob is absent or has other bytes. The message has ``name`` and both digests.
        UnavailableError: The bytes cannot be read.
    """
    with _open_blob(store, digest, name) as stream:
        try:
            content = _read_up_to(stream, most + 1)
        except OSError as error:
            raise _make_read_error(name, digest, error) from error
    if len(content) > most:
        raise InvalidInputError(
            f"{name} has more than {most} bytes, the permitted maximum",
            where=name,
            next_step=f"check the document that references {digest}",
        )
    actual = Descriptor(digest_bytes(content), len(content))
    if actual.digest != digest:
        raise make_mismatch_error(name, digest, actual, next_step=_find_repair_advice(store))
    return content


def _read_up_to(stream: BinaryIO, limit: int) -> bytes:
    """Read at most ``limit`` bytes, repeatedly, since one ``read`` may return fewer bytes than requested."""
    content = stream.read(limit)
    while content and len(content) < limit and (chunk := stream.read(limit - len(content))):
        content += chunk
    return content


def stream_blob(
    store: BlobStore,
    blob: Descriptor,
    take: Callable[[bytes], object],
    *,
    name: str,
    advance: Advance = ignore_progress,
) -> None:
    """Pass the bytes of a blob to ``take`` in chunks; they are verified once this function returns.

    Args:
        store: The store of the blob.
        blob: The digest and size of the blob.
        take: Called with each chunk.
        name: The name of the blob in error messages.
        advance: Called with the number of bytes of each chunk.

    Raises:
        IntegrityError: The blob is absent or has other bytes. The message has ``name`` and both digests.
    """
    with _open_blob(store, blob.digest, name) as stream:
        actual = relay(stream, take, advance)
    if actual != blob:
        raise make_mismatch_error(name, blob.digest, actual, next_step=_find_repair_advice(store))


def copy_blob(
    store: BlobStore, blob: Descriptor, target: Path, *, name: str, advance: Advance = ignore_progress
) -> None:
    """Write the verified bytes of a blob to the file ``target``, atomically.

    Args:
        store: The store of the blob.
        blob: The digest and size of the blob.
        target: The path of the new file; its folder is created.
        name: The name of the blob in error messages.
        advance: Called with the number of bytes of each chunk.

    Raises:
        IntegrityError: The blob is absent or has other bytes. The message has ``name`` and both digests.
        UnavailableError: The bytes cannot be read, or the file cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with create_file(target) as file:
            stream_blob(store, blob, file.write, name=name, advance=advance)
    except OSError as error:
        raise UnavailableError(
            f"{name} cannot be written: {error.strerror or error}",
            where=str(target),
            next_step="choose a writable folder on a disk with free space",
        ) from error


@contextmanager
def _open_blob(store: BlobReader, digest: Digest, name: str) -> Iterator[BinaryIO]:
    """Open a blob; convert the store's errors about it into errors that name ``name``."""
    try:
        with store.open(digest) as stream:
            yield stream
    except BlobNotFoundError as error:
        raise IntegrityError(
            f"{name} is missing: expected {digest}, found nothing", where=name, next_step=REPAIR_ADVICE
        ) from error
    except IntegrityError as error:
        raise IntegrityError(f"{name}: {error.what}", where=name, next_step=error.next_step) from error


def _find_repair_advice(store: BlobReader) -> str:
    """Return the advice for a damaged blob of ``store``; the remote copy of a cached store may be intact."""
    if advice := getattr(store, "damaged", None):  # of a remote store
        return str(advice)
    if isinstance(store, PrefetchingStore):
        return f"if the remote copy is intact, free the local copy; else {REPAIR_ADVICE}"
    return REPAIR_ADVICE


def _make_read_error(name: str, digest: Digest, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"{name} ({digest}) cannot be read: {error.strerror or error}",
        where=name,
        next_step="check the disk of the store",
    )
