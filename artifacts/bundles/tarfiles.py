"""The entries of a tar that holds nothing but the files of an OCI image layout; whatever else it holds is refused.

Headers are read one by one and compared with what the layout allows: no name leads anywhere, since names are never
used as paths. Extensions of tar (long names, pax headers, sparse files) change what the next header means, so there are
none.
"""

import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from benchlock.artifacts.bundles.contents import BundleError
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.tars import BLOCK, END

_BEGIN = b"oci-layout"
"""The first bytes of every bundle: the name of its first file."""
_NAMES = re.compile(r"oci-layout|index\.json|blobs/sha256/[0-9a-f]{64}")
_MOST_ENTRIES = 1 << 21  # what is remembered of each stays below the size of its header
_LONGEST_END = 1 << 16  # programs that write tars fill up a last record, customarily of 10 KiB
_KINDS = {
    tarfile.DIRTYPE: "a folder",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """Where the content of a file begins in the tar, and its size, in bytes."""

    start: int
    size: int


def entries(descriptor: int, most: int | None = None) -> dict[str, Entry]:
    """Return every file of the open tar by its name, in order.

    Args:
        descriptor: The open tar.
        most: The largest number of files, where that is not the format's own.

    Raises:
        BundleError: it is no tar, holds more than plain files of the layout, each once, or more than ``most``.
        IntegrityError: it is cut short, or damaged behind its first file.
    """
    total = os.fstat(descriptor).st_size
    found: dict[str, Entry] = {}
    place = 0
    while (block := _block(descriptor, place, total)) != END[:BLOCK]:
        name, size = _parse(block, place, is_first=not found)
        if name in found:
            raise _refused(f"it holds {name} twice", name)
        if len(found) == _MOST_ENTRIES:
            raise _refused(f"it holds more than {_MOST_ENTRIES} files", name)
        if len(found) == most:
            raise BundleError(
                f"the bundle has more than {most} files",
                where=name,
                next_step="import it with `benchlock bundle import` on the machine that has the registry's folder",
            )
        start = place + BLOCK
        place = start + size + -size % BLOCK
        if place > total:
            raise cut_short(name)
        if any(os.pread(descriptor, place - start - size, start + size)):
            raise _refused(f"there are bytes between the end of {name} and the next header", name)
        found[name] = Entry(start, size)
    _check_end(descriptor, place, total)
    return found


def cut_short(where: str) -> IntegrityError:
    return IntegrityError(
        "the bundle is cut short", where=where, next_step="copy or download it again, and compare its size"
    )


def pieces_of(descriptor: int, start: int, end: int, largest: int) -> Iterator[bytes]:
    """The bytes of the file from ``start`` to ``end``.

    Raises:
        IntegrityError: it ends before.
    """
    while start < end:
        piece = os.pread(descriptor, min(largest, end - start), start)
        if not piece:
            raise cut_short(f"byte {start}")
        start += len(piece)
        yield piece


def _block(descriptor: int, place: int, total: int) -> bytes:
    if place == 0 and total < BLOCK:
        begin = os.pread(descriptor, BLOCK, 0)
        if not begin.startswith(_BEGIN):
            raise _refused("it is empty" if not begin else "it is shorter than the header of a tar", "byte 0")
    if place == total:  # without the blocks that end a tar, something may be missing
        raise cut_short(f"byte {place}")
    return b"".join(pieces_of(descriptor, place, place + BLOCK, BLOCK))


def _parse(block: bytes, place: int, *, is_first: bool) -> tuple[str, int]:
    try:
        entry = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, ValueError) as error:
        reason = f"there is no header of a tar at byte {place} ({error})"
        if is_first:
            raise _refused(reason, f"byte {place}") from error
        raise IntegrityError(  # it began as a bundle
            f"the bundle is damaged: {reason}",
            where=f"byte {place}",
            next_step="copy or download it again, and compare its SHA-256",
        ) from error
    name = ascii(entry.name)
    if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise _refused(f"it holds {_KINDS.get(entry.type, 'an extension of tar')}: {name}", name)
    if not _NAMES.fullmatch(entry.name):
        raise _refused(f"it holds a file that is no part of an image layout: {name}", name)
    if entry.size < 0:
        raise _refused(f"the size of {name} is negative", name)
    return entry.name, entry.size


def _check_end(descriptor: int, place: int, total: int) -> None:
    if total - place > _LONGEST_END:
        raise _refused(f"{total - place} bytes follow after its end", f"byte {place}")
    if any(any(piece) for piece in pieces_of(descriptor, place, total, _LONGEST_END)):
        raise _refused("something follows after its end", f"byte {place}")
    if total - place < len(END) or total % BLOCK:
        raise cut_short(f"byte {total}")


def _refused(reason: str, where: str) -> BundleError:
    return BundleError(
        f"this is no bundle: {reason}", where=where, next_step="name a file that `benchlock bundle create` wrote"
    )
