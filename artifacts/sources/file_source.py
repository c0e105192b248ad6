"""Sources on this machine: a file or a folder, by path or by ``file:`` URL."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from benchlock.artifacts.atomic_files import make_unreadable_error
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.net.urls import redact_password, split_url


@dataclass(frozen=True, slots=True)
class FileSource:
    """A regular file that exists."""

    path: Path


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A folder that exists."""

    path: Path


def parse_local_source(path: Path, source: str) -> FileSource | FolderSource:
    """Find the file or folder at ``path``, which the manifest spells as ``source``.

    Raises:
        InvalidInputError: The path does not exist, or is neither a regular file nor a folder.
        UnavailableError: The path cannot be examined.
    """
    if "\0" in source or not source:
        raise InvalidInputError(f"{source!r} is not a path", where=repr(source), next_step="write a path or a URL")
    try:
        if path.is_dir():
            return FolderSource(path)
        if path.is_file():
            return FileSource(path)
        exists = path.exists()
    except OSError as error:
        raise make_unreadable_error(path, error) from error
    raise InvalidInputError(
        f"{source} is neither a regular file nor a folder" if exists else f"{source} not found",
        where=str(path),
        next_step="choose an existing file or folder; a relative path starts at the manifest's folder",
    )


def parse_file_url(source: str) -> Path:
    """Parse a ``file:`` URL (RFC 8089) into an absolute path on this machine.

    Raises:
        InvalidInputError: The URL has another host, a relative path, a query or a fragment.
    """
    url = split_url(source)
    if url.netloc not in {"", "localhost"} or not url.path.startswith("/") or url.query or url.fragment:
        shown = redact_password(source)
        raise InvalidInputError(
            f"{shown} is not a file of this machine", where=shown, next_step="write file:///absolute/path, or a path"
        )
    return Path(unquote(url.path, errors="surrogateescape"))
