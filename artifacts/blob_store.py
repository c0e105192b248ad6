"""The ``BlobStore`` protocol, and verified reading and copying of blobs from any store."""

import builtins
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, runtime_checkable

from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.digest import Descriptor, Digest, describe, digest_bytes, relay
from benchlock.artifacts.display import Advance, ignore_progress, serialize_advance
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError, UnknownNameError

if TYPE_CHECKING:
    from benchlock.artifacts.atomic_files import RemovedFiles

PARALLEL_TRANSFERS = 4
LARGEST_DOCUMENT: Final = 16 << 20
"""Bytes of a document that is read into memory whole: a manifest, a configuration."""
REPAIR_ADVICE = (
    "in the registry's own folder, with `--registry DIR`, publish the file again, or do again the `bundle import` or "
    "`image build` that brought it: the right bytes replace the damaged ones; a service is not sent what it has"
)


class BlobNotFoundError(UnknownNameError):
    """The store has no blob of that digest."""

    code = "blob-not-found"


class BlobReader(Protocol):
    """What reads blobs; a part of every ``BlobStore``."""

    def open(self, digest: Digest) -> BinaryIO:
        """Open a blob. As ``BlobStore.open``."""
        ...

    def stat(self, digest: Digest) -> Descriptor:
        """Return digest and size as stored. ``BlobNotFoundError`` if absent."""
        ...

    def exists(self, digest: Digest) -> bool: ...


class BlobStore(Protocol):
    """Immutable bytes by digest. A blob is visible only after its digest was verified, and read-only from then on.

    Every verb raises ``UnavailableError`` when what lies beneath fails (a full disk, a folder without permission); what
    was stored before stays stored. Memory is bounded whatever the size of a blob.
    """

    def put(
        self,
        stream: BinaryIO,
        expected: Digest | None = None,
        *,
        name: str = "the content",
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        """Keep the rest of ``stream``; idempotent.

        A damaged blob of the same digest is repaired; where that is not in the store's power, damage that it notices
        is an error.

        ``name`` is what errors call it; ``advance`` is told the bytes read.

        Raises:
            IntegrityError: its digest is not ``expected``; nothing became visible. Names both.
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
        """As ``put``, of a local file; ``name`` defaults to its path.

        Raises:
            InvalidInputError: there is no regular file.
        """
        ...

    def put_files(self, paths: Iterable[Path], *, advance: Advance = ignore_progress) -> builtins.list[Descriptor]:
        """As ``put_file`` of each, and the faster for being said at once; when one fails, others may be there.

        ``advance`` is called by one thread at a time.
        """
        ...

    def open(self, digest: Digest) -> BinaryIO:
        """The bytes, which can be sought; unverified, or with ``IntegrityError`` at their end.

        Raises:
            BlobNotFoundError: absent.
        """
        ...

    def stat(self, digest: Digest) -> Descriptor:
        """Digest and size as stored. ``BlobNotFoundError`` if absent."""
        ...

    def exists(self, digest: Digest) -> bool: ...

    def delete(self, digest: Digest) -> None:
        """Forget the blob; no error if absent."""
        ...

    def list(self) -> Iterator[Digest]:
        """Every blob, in no promised order."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """While held, nothing that was put is collected as garbage. Many may hold it at once, nested too."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """As ``writing``, for many blobs that nobody needs before the context is left without an error.

        Only then is each of them promised to stay, which spares some stores much work.
        """
        ...

    def collecting(self) -> AbstractContextManager[None]:
        """Exclusive against ``writing`` and ``put``, which wait; for garbage collection alone. It changes nothing."""
        ...

    def sweep(self, *, dry_run: bool = False) -> "RemovedFiles":
        """Free what killed writers and interrupted fetches left; only within ``collecting``.

        Returns:
            How many files that were, or with a dry run would be, and their bytes.
        """
        ...


class FileStore(BlobStore, Protocol):
    """A blob store whose blobs are files of this machine, or become ones when they are needed."""

    def path(self, digest: Digest) -> Path:
        """Where the blob lies, for hard links and read-only mounts. ``BlobNotFoundError`` if absent."""
        ...


@runtime_checkable
class BringingStore(Protocol):
    """A store that has blobs elsewhere, and can bring several at once."""

    def bring(self, blobs: Iterable[Descriptor]) -> None:
        """Have them at hand. What is missing or damaged stays away: whoever reads it is told, and knows its name."""
        ...


def bring(store: BlobStore, blobs: Iterable[Descriptor]) -> None:
    """Say which blobs will be read soon, all of them: a store that has them elsewhere is the faster for it.

    Raises:
        UnavailableError: elsewhere does not answer.
    """
    if isinstance(store, BringingStore):
        store.bring(blobs)


def put_each(store: BlobStore, paths: Iterable[Path], advance: Advance) -> list[Descriptor]:
    """``put_files`` by ``put_file`` of several at a time, for stores whose work is waiting."""
    advance = serialize_advance(advance)
    with ThreadPoolExecutor(PARALLEL_TRANSFERS) as pool:
        blobs = [pool.submit(store.put_file, path, advance=advance) for path in paths]
        try:
            return [blob.result() for blob in blobs]
        finally:
            pool.shutdown(cancel_futures=True)


def make_mismatch_error(name: str, expected: Digest, found: Descriptor, *, next_step: str) -> IntegrityError:
    """The error of bytes that are not what their digest says: names the file and both digests."""
    return IntegrityError(
        f"{name} is not what its digest says: expected {expected}, found {found.digest} ({found.size} bytes)",
        where=name,
        next_step=next_step,
    )


def check_digest(name: str, expected: Digest | None, found: Descriptor) -> None:
    """Nothing, where ``found`` is what was ``expected``, or nothing was.

    Raises:
        IntegrityError: it is something else; for bytes on their way into a store.
    """
    if expected is not None and found.digest != expected:
        raise make_mismatch_error(
            name, expected, found, next_step="correct the file, or the digest that was written down for it"
        )


def verify(
    store: BlobReader, digest: Digest, *, name: str, size: int | None = None, advance: Advance = ignore_progress
) -> Descriptor:
    """Read the whole blob and compare digest and size; ``advance`` is told the bytes read.

    Raises:
        IntegrityError: absent, or other bytes; names ``name`` and both digests.
        UnavailableError: the bytes cannot be read.
    """
    with _opened(store, digest, name) as stream:
        try:
            found = describe(stream, advance)
        except OSError as error:
            raise _unreadable(name, digest, error) from error
    if found.digest != digest:
        raise make_mismatch_error(name, digest, found, next_step=_repair(store))
    if size is not None and found.size != size:
        raise IntegrityError(
            f"{name} has {found.size} bytes, and {size} are written down for it, under the same digest {digest}",
            where=name,
            next_step="correct the size where it is written down",
        )
    return found


def read(store: BlobReader, digest: Digest, *, name: str, most: int = LARGEST_DOCUMENT) -> bytes:
    """Read the verified bytes of a blob into memory.

    Args:
        store: Has the blob.
        digest: The blob.
        name: What messages call it.
        most: Bytes that it may have; whoever names a digest may name that of any blob.

    Raises:
        InvalidInputError: It has more than ``most`` bytes.
        IntegrityError: absent, or other bytes; names ``name`` and both digests.
        UnavailableError: the bytes cannot be read.
    """
    with _opened(store, digest, name) as stream:
        try:
            content = _read_up_to(stream, most + 1)
        except OSError as error:
            raise _unreadable(name, digest, error) from error
    if len(content) > most:
        raise InvalidInputError(
            f"{name} has more than {most} bytes, the most that are read of it",
            where=name,
            next_step=f"check what names the digest {digest}",
        )
    found = Descriptor(digest_bytes(content), len(content))
    if found.digest != digest:
        raise make_mismatch_error(name, digest, found, next_step=_repair(store))
    return content


def _read_up_to(stream: BinaryIO, most: int) -> bytes:
    """Read the rest of a stream, or its first ``most`` bytes; a stream may give fewer at a time than were asked for."""
    content = stream.read(most)
    while content and len(content) < most and (piece := stream.read(most - len(content))):
        content += piece
    return content


def stream_blob(
    store: BlobStore,
    blob: Descriptor,
    take: Callable[[bytes], object],
    *,
    name: str,
    advance: Advance = ignore_progress,
) -> None:
    """Hand the bytes of a blob to ``take``, piece by piece; they are verified once this has returned.

    Raises:
        IntegrityError: absent, or other bytes; names ``name`` and both digests.
    """
    with _opened(store, blob.digest, name) as stream:
        found = relay(stream, take, advance)
    if found != blob:
        raise make_mismatch_error(name, blob.digest, found, next_step=_repair(store))


def copy_blob(
    store: BlobStore, blob: Descriptor, target: Path, *, name: str, advance: Advance = ignore_progress
) -> None:
    """Write the verified bytes of a blob to the file ``target``, which appears whole or not at all.

    Raises:
        IntegrityError: absent, or other bytes; names ``name`` and both digests.
        UnavailableError: the bytes cannot be read, or the file not written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with create_file(target) as file:
            stream_blob(store, blob, file.write, name=name, advance=advance)
    except OSError as error:
        raise UnavailableError(
            f"{name} cannot be written: {error.strerror or error}",
            where=str(target),
            next_step="name a folder that you may write in, on a disk with space",
        ) from error


@contextmanager
def _opened(store: BlobReader, digest: Digest, name: str) -> Iterator[BinaryIO]:
    """The bytes; what the store itself notices about them is said of ``name``."""
    try:
        with store.open(digest) as stream:
            yield stream
    except BlobNotFoundError as error:
        raise IntegrityError(
            f"{name} is missing: expected {digest}, found nothing", where=name, next_step=REPAIR_ADVICE
        ) from error
    except IntegrityError as error:
        raise IntegrityError(f"{name}: {error.what}", where=name, next_step=error.next_step) from error


def _repair(store: BlobReader) -> str:
    """What to do about a damaged blob of ``store``: one that lies elsewhere too may be intact there."""
    if isinstance(store, BringingStore):
        return f"free the copy here, with `benchlock gc --local`, if the repository's is intact; else {REPAIR_ADVICE}"
    return REPAIR_ADVICE


def _unreadable(name: str, digest: Digest, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"{name} ({digest}) cannot be read: {error.strerror or error}",
        where=name,
        next_step="look at the disk that holds the store",
    )
