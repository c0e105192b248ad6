"""Digests and descriptors of blobs: ``sha256:<64 hex>`` and a size in bytes."""

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO, NewType

from benchlock.artifacts.display import Advance, ignore_progress
from benchlock.artifacts.errors import InvalidInputError

Digest = NewType("Digest", str)

CHUNK = 1 << 20
_AHEAD = 4  # pieces that may wait for being digested: they bound the memory
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What identifies a blob: its digest, and its size in bytes."""

    digest: Digest
    size: int


def parse_digest(text: str) -> Digest:
    """The digest that ``text`` spells.

    Raises:
        InvalidInputError: it is not ``sha256:`` and 64 lower-case hex digits.
    """
    if not _DIGEST.fullmatch(text):
        raise InvalidInputError(f"{text!r} is no digest", next_step="write sha256: and 64 lower-case hex digits")
    return Digest(text)


def from_hex(text: str) -> Digest:
    """The digest of 64 bare hex digits, the form of every key named ``sha256``.

    Raises:
        InvalidInputError: it is anything else.
    """
    if not _HEX.fullmatch(text):
        raise InvalidInputError(f"{text!r} is no SHA-256", next_step="write 64 lower-case hex digits")
    return Digest(f"sha256:{text}")


def to_hex(digest: Digest) -> str:
    return digest.removeprefix("sha256:")


def digest_bytes(content: bytes) -> Digest:
    return Digest(f"sha256:{hashlib.sha256(content).hexdigest()}")


def read_chunks(stream: BinaryIO) -> Iterator[bytes]:
    """The rest of ``stream``, in pieces that bound the memory."""
    while chunk := stream.read(CHUNK):
        yield chunk


def describe(stream: BinaryIO, advance: Advance = ignore_progress) -> Descriptor:
    """Digest and size of the rest of ``stream``; ``advance`` is told the bytes read."""
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
    """Hand the rest of ``stream`` to ``take``, piece by piece; digest and size of what was handed over.

    What is longer than a piece is digested meanwhile, in a thread: whichever of the two takes longer is what it takes.
    ``before`` is the state of the digest, and the size, of what was handed over earlier.
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
            if len(waiting) > _AHEAD:
                waiting.popleft().result()
            size += len(chunk)
            advance(len(chunk))
    return Descriptor(Digest(f"sha256:{state.hexdigest()}"), size)
