"""Trees: a folder identified by one digest, that of the canonical listing of its files.

A listing is the JSON array ``[[path, sha256, size], …]`` in RFC 8785 form, sorted by the UTF-8 bytes of the paths. It
has regular files only, no modes, links or empty folders. The listing is a blob itself; the size of a tree is the sum of
the sizes of its files.
"""

import io
import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from os.path import commonprefix
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from benchlock.artifacts.atomic_files import make_unreadable_error
from benchlock.artifacts.blob_store import BlobReader, BlobStore, read, verify
from benchlock.artifacts.digest import Descriptor, Digest, from_hex, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.user_output import SILENT, Progress

_LONGEST_NAME: Final = 255
"""Bytes of one part of a path: the limit of Linux file systems."""
LONGEST_PATH: Final = 1024
"""Bytes of a path."""
DEEPEST_PATH: Final = 64
"""Parts of a path."""
_SHOWN: Final = 60
_FIRST: Final = "\0"
LARGEST_LISTING: Final = 256 << 20
"""Bytes of the listing of a tree."""
_ROW: Final = re.compile(rb'\["((?:[^"\\]|\\.)*+)","([0-9a-f]{64})",(0|[1-9][0-9]{0,15})\]([,\]])', re.DOTALL)
_LONGEST_ROW: Final = 8 * LONGEST_PATH
_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file of a tree: its path in the tree, its SHA-256 in hex digits, its size in bytes."""

    path: str
    sha256: str
    size: int

    @property
    def digest(self) -> Digest:
        """The digest of the file."""
        return from_hex(self.sha256)


def check_path(path: str) -> str:
    """Return ``path`` if it is a relative POSIX path that means one file on every file system.

    Raises:
        InvalidInputError: The path is absolute or empty; has an empty part (also by a trailing slash), ``.``, ``..``, a
            backslash, a control character or a part over 255 bytes; is not Unicode; or has more than 64 parts or 1024
            bytes.
    """
    _check_size(path)
    parts = path.split("/")
    if path.startswith("/"):
        reason = "is absolute"
    elif "" in parts:
        reason = "has an empty part"
    elif "." in parts or ".." in parts:
        reason = "has a part . or .."
    elif "\\" in path:
        reason = "has a backslash"
    elif any(unicodedata.category(character) == "Cc" for character in path):
        reason = "has a control character"
    elif any(unicodedata.category(character) == "Cs" for character in path):  # a lone surrogate: undecodable bytes
        reason = "is not UTF-8"
    elif any(len(part.encode()) > _LONGEST_NAME for part in parts):
        reason = f"has a part of more than {_LONGEST_NAME} bytes"
    else:
        return path
    raise InvalidInputError(
        f"the path {path!a} {reason}",
        where=ascii(path),
        next_step="rename it: folder/file, relative, with slashes",
    )


def _check_size(path: str) -> None:
    """Reject a path that is too long or too deep, before any other check."""
    if len(path) > LONGEST_PATH or len(path.encode(errors="surrogatepass")) > LONGEST_PATH:
        reason = f"has more than {LONGEST_PATH} bytes"
    elif path.count("/") >= DEEPEST_PATH:
        reason = f"has more than {DEEPEST_PATH} parts"
    else:
        return
    shown = f"{path[:_SHOWN]}…"
    raise InvalidInputError(f"the path {shown!a} {reason}", where=ascii(shown), next_step="shorten it")


def check_collisions(paths: Iterable[str]) -> None:
    """Raise unless the paths can coexist in one folder on every file system.

    Sorted by their folded form, paths with a common beginning are neighbours, so comparing neighbours is enough: time
    and memory are linear in the length of the paths, sorting apart.

    Raises:
        InvalidInputError: Two files or folders differ only by case or by Unicode normal form, or one path is both a
            file and a folder.
    """
    ordered = sorted((_fold(path), index, path) for index, path in enumerate(paths))
    for (first, first_index, first_path), (second, second_index, second_path) in pairwise(ordered):
        shared = len(commonprefix([first.split(_FIRST), second.split(_FIRST)]))  # noqa: RUF071 - of lists
        if not shared:
            continue
        spellings = [_spelling(first_path, shared), _spelling(second_path, shared)]
        if spellings[0] != spellings[1]:
            earlier, later = spellings if first_index < second_index else reversed(spellings)
            raise InvalidInputError(
                f"{earlier!a} and {later!a} are the same name on some file systems",
                where=ascii(later),
                next_step="rename one of them",
            )


def _fold(path: str) -> str:
    """Return a key that is equal for colliding paths; slashes sort before all other characters."""
    # The canonical caseless match of the Unicode standard (definition D145).
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())
    return folded.replace("/", _FIRST)


def _spelling(path: str, parts: int) -> str:
    """Return the first parts of a path, with a trailing slash if they are a folder."""
    at = -1
    for _ in range(parts):
        at = path.find("/", at + 1)
        if at < 0:
            return path
    return path[: at + 1]


def walk_tree(folder: Path, *, exclude: Path | None = None) -> tuple[tuple[str, Path], ...]:
    """List the files of ``folder`` without ``exclude``: tree path and file path, sorted by UTF-8 bytes.

    Raises:
        InvalidInputError: The folder has a link, a special file, an invalid or colliding path, or no file.
        UnavailableError: The folder cannot be read.
    """
    excluded = exclude.resolve() if exclude else None
    root = folder.resolve()
    files = [(path, place) for path, place in _walk_files(root, "") if place != excluded]
    if not files:
        raise InvalidInputError(
            f"{folder} contains no files", where=str(folder), next_step="choose a folder with files"
        )
    check_collisions(path for path, _ in files)
    return tuple(sorted(files, key=lambda pair: pair[0].encode()))


def _walk_files(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    try:
        with os.scandir(folder) as iterator:
            entries = sorted(iterator, key=lambda entry: entry.name)
            modes = [entry.stat(follow_symlinks=False).st_mode for entry in entries]
    except OSError as error:
        raise make_unreadable_error(folder, error) from error
    for entry, mode in zip(entries, modes, strict=True):
        path, place = check_path(prefix + entry.name), folder / entry.name
        if stat.S_ISDIR(mode):
            yield from _walk_files(place, f"{path}/")
        elif stat.S_ISREG(mode):
            yield path, place
        else:
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "a special file"
            raise InvalidInputError(
                f"{place} is {kind}: a tree can contain only regular files",
                where=str(place),
                next_step="replace it by the file itself, or remove it",
            )


def encode_listing(entries: Iterable[TreeEntry]) -> bytes:
    """Encode the listing of a tree, whose digest is that of the tree."""
    rows = sorted(entries, key=lambda entry: entry.path.encode())
    return encode_canonical([[entry.path, entry.sha256, entry.size] for entry in rows])


def parse_listing(content: bytes, name: str) -> tuple[TreeEntry, ...]:
    """Parse the entries of a listing, in its order; ``name`` is the name of the tree in error messages.

    Raises:
        InvalidInputError: The content is not the canonical listing of files that can coexist in one folder.
    """
    try:
        _check_listing_size(len(content), name)
        rows = msgspec.json.decode(content, type=list[tuple[str, str, int]])
        entries = tuple(TreeEntry(check_path(path), to_hex(from_hex(sha256)), size) for path, sha256, size in rows)
        check_collisions(entry.path for entry in entries)
        rewritten = encode_listing(entries)
    except (msgspec.MsgspecError, InvalidInputError, UnicodeDecodeError) as error:
        raise _make_listing_error(name, str(error).splitlines()[0]) from error
    if rewritten != content:
        raise _make_listing_error(name, "it is not sorted, or not canonical JSON")
    if len({entry.path for entry in entries}) != len(entries):
        raise _make_listing_error(name, "duplicate path")
    if any(entry.size < 0 for entry in entries):
        raise _make_listing_error(name, "a size is negative")
    return entries


def _check_listing_size(size: int, name: str) -> None:
    if size > LARGEST_LISTING:
        raise _make_listing_error(name, f"it has {size} bytes, more than {LARGEST_LISTING}")


def _make_listing_error(name: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"the listing of the tree {name} is malformed: {reason}", where=name, next_step="publish the folder again"
    )


def put_tree(
    store: BlobStore, folder: Path, *, exclude: Path | None = None, progress: Progress = SILENT
) -> tuple[Descriptor, tuple[TreeEntry, ...]]:
    """Store every file of ``folder`` and their listing; return the tree's digest, size and entries.

    Args:
        store: The store.
        folder: The folder.
        exclude: A file that is left out.
        progress: Shows the bytes stored.

    Raises:
        InvalidInputError: As ``walk_tree``.
        UnavailableError: A file cannot be read, or the store cannot be written.
    """
    files = walk_tree(folder, exclude=exclude)
    with store.writing(), progress.task(f"storing {folder.name}/", _sum_sizes(files)) as advance:
        blobs = store.put_files((place for _, place in files), advance=advance)
        entries = tuple(
            TreeEntry(path, to_hex(blob.digest), blob.size) for (path, _), blob in zip(files, blobs, strict=True)
        )
        listing = store.put(io.BytesIO(encode_listing(entries)))
    return Descriptor(listing.digest, sum(entry.size for entry in entries)), entries


def _sum_sizes(files: Iterable[tuple[str, Path]]) -> int:
    total = 0
    for _, place in files:
        try:
            total += place.stat().st_size
        except OSError as error:
            raise make_unreadable_error(place, error) from error
    return total


def iterate_tree(store: BlobReader, tree: Descriptor, *, name: str) -> Iterator[TreeEntry]:
    """Yield the entries of a tree from its verified listing, in bounded memory.

    Each entry is checked alone; colliding paths are found by ``read_tree``, and so by publishing, not here.

    Args:
        store: The store of the listing.
        tree: The digest of the tree, and the sum of the sizes of its files.
        name: The name of the tree in error messages.

    Raises:
        IntegrityError: The listing is absent, has other bytes or another sum of sizes.
        InvalidInputError: The blob is not a listing, or is too large.
    """
    size = 0
    for entry in iterate_listing(store, tree.digest, name=name):
        size += entry.size
        yield entry
    _check_sum(size, tree, name)


def iterate_listing(store: BlobReader, tree: Digest, *, name: str) -> Iterator[TreeEntry]:
    """Yield the entries of a tree of unknown size, as ``iterate_tree`` does."""
    if store.exists(tree):
        _check_listing_size(store.stat(tree).size, name)
    verify(store, tree, name=f"the listing of {name}")
    with store.open(tree) as stream:
        for path, sha256, size in _parse_rows(stream, name):
            yield TreeEntry(_decode_path(path, name), sha256.decode(), int(size))


def _parse_rows(stream: BinaryIO, name: str) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield path, digest and size of each row, as written."""
    buffer, more = stream.read(_PIECE), True
    if buffer == b"[]":
        return
    if not buffer.startswith(b"["):
        raise _make_listing_error(name, "it is not a list")
    position, last = 1, False
    while more or position < len(buffer):
        row = None if last else _ROW.match(buffer, position)
        if row is not None:
            yield row[1], row[2], row[3]
            position, last = row.end(), row[4] == b"]"
        elif more and len(buffer) - position <= _LONGEST_ROW:
            chunk = stream.read(_PIECE)
            buffer, position, more = buffer[position:] + chunk, 0, bool(chunk)
        else:
            raise _make_listing_error(name, "a row is not a path, a SHA-256 and a size")
    if not last:
        raise _make_listing_error(name, "it is incomplete")


def _decode_path(path: bytes, name: str) -> str:
    try:
        return check_path(msgspec.json.decode(b'"' + path + b'"', type=str))
    except (msgspec.MsgspecError, InvalidInputError, UnicodeDecodeError) as error:
        raise _make_listing_error(name, str(error).splitlines()[0]) from error


def _check_sum(size: int, tree: Descriptor, name: str) -> None:
    if size != tree.size:
        raise IntegrityError(
            f"the files of {name} have {size} bytes, but {tree.size} are stated for its digest {tree.digest}",
            where=name,
            next_step="correct the stated size",
        )


def read_tree(store: BlobReader, tree: Descriptor, *, name: str) -> tuple[TreeEntry, ...]:
    """Read the entries of a tree from its verified listing, without its files.

    Raises:
        IntegrityError: The listing is absent, has other bytes or another sum of sizes.
        InvalidInputError: The blob is not a listing.
    """
    if store.exists(tree.digest):
        _check_listing_size(store.stat(tree.digest).size, name)
    entries = parse_listing(read(store, tree.digest, name=f"the listing of {name}", most=LARGEST_LISTING), name)
    _check_sum(sum(entry.size for entry in entries), tree, name)
    return entries


def verify_tree(store: BlobStore, tree: Descriptor, *, name: str, progress: Progress = SILENT) -> tuple[TreeEntry, ...]:
    """Verify every file of a tree against its digest, and return the entries.

    Raises:
        IntegrityError: The listing or a file is absent or has other bytes. The message has the file as ``name/path``.
        InvalidInputError: The blob of that digest is not a listing.
    """
    entries = read_tree(store, tree, name=name)
    with progress.task(f"verifying {name}", tree.size) as advance:
        for entry in entries:
            file = f"{name.rstrip('/')}/{entry.path}"
            verify(store, entry.digest, name=file, size=entry.size, advance=advance)
    return entries
