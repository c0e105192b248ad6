"""Digests and descriptors of blobs: ``sha256:<64 hex>`` and a size in bytes."""

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Annotated, BinaryIO, Final, NewType

from msgspec import Meta, Struct

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.user_output import Advance, ignore_progress

Digest = NewType("Digest", str)
DIGEST_PATTERN: Final = "^sha256:[0-9a-f]{64}$"
DigestText = Annotated[Digest, Meta(pattern=DIGEST_PATTERN, max_length=len("sha256:") + 64)]
"""A digest in a document. The length refuses a newline at the end, which ``$`` admits in Python."""

CHUNK = 1 << 20
_MAX_WAITING = 4  # chunks that may wait for the hash thread: bounds the memory
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HEX = re.compile(r"[0-9a-f]{64}")


class Descriptor(Struct, frozen=True, forbid_unknown_fields=True):
    """The identity of a blob: its digest and its size in bytes."""

    digest: DigestText
    size: Annotated[int, Meta(ge=0, lt=1 << 62)]


def parse_digest(text: str) -> Digest:
    """Parse a digest.

    Raises:
        InvalidInputError: The text is not ``sha256:`` and 64 lower-case hex digits.
    """
    if not _DIGEST.fullmatch(text):
        raise InvalidInputError(f"invalid digest {text!r}", next_step="write sha256: and 64 lower-case hex digits")
    return Digest(text)


def from_hex(text: str) -> Digest:
    """Parse 64 bare hex digits, the form of every key named ``sha256``.

    Raises:
        InvalidInputError: The text has any other form.
    """
    if not _HEX.fullmatch(text):
        raise InvalidInputError(f"invalid SHA-256 {text!r}", next_step="write 64 lower-case hex digits")
    return Digest(f"sha256:{text}")


def to_hex(digest: Digest) -> str:
    """Return the 64 hex digits of a digest."""
    return digest.removeprefix("sha256:")


def digest_bytes(content: bytes) -> Digest:
    """Compute the digest of bytes in memory."""
    return Digest(f"sha256:{hashlib.sha256(content).hexdigest()}")


def read_chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of ``stream`` in chunks of at most ``CHUNK`` bytes."""
    while chunk := stream.read(CHUNK):
        yield chunk


def describe(stream: BinaryIO, advance: Advance = ignore_progress) -> Descriptor:
    """Compute the digest and size of the rest of ``stream``; call ``advance`` with the bytes of each chunk."""
    state, size = hashlib.sha256(), 0
    for chunk in read_chunks(stream):
        state.update(chunk)
        size += len(chunk)
        advance(len(chunk))
    return Descriptor(Digest(f"sha256:{state.hexdigest()}"), size)


def relay(
    stream: BinaryIO,
    take: Callable[[bytes], object],
    advance: Advance = ignore_progress,
    before: "tuple[hashlib._Hash, int] | None" = None,
) -> Descriptor:
    """Pass the rest of ``stream`` to ``take`` in chunks; return the digest and size of all bytes passed.

    A thread computes the digest of longer streams while ``take`` runs.

    Args:
        stream: The bytes.
        take: Called with each chunk.
        advance: Called with the number of bytes of each chunk.
        before: The state of the hash, and the size in bytes, after earlier bytes of the same blob.
    """
    state, size = before or (hashlib.sha256(), 0)
    waiting = deque[Future[None]]()
    with ThreadPoolExecutor(1) as pool:  # starts no thread before it is needed
        for chunk in read_chunks(stream):
            if size or len(chunk) == CHUNK:
                waiting.append(pool.submit(state.update, chunk))
            else:
                state.update(chunk)
            take(chunk)
            if len(waiting) > _MAX_WAITING:
                waiting.popleft().result()
            size += len(chunk)
            advance(len(chunk))
    return Descriptor(Digest(f"sha256:{state.hexdigest()}"), size)
