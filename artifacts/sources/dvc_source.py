"""Sources in a DVC repository: ``dvc://URL@REVISION/PATH``, a file or a folder.

Everything is read through DVC's own file system, at one commit. DVC finds the bytes by their MD5; the SHA-256 verifies
them.
"""

import atexit
import functools
import io
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast
from urllib.parse import quote, unquote

from benchlock.artifacts.digest import CHUNK, Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.artifacts.file_trees import check_path
from benchlock.artifacts.net.network_policy import LARGEST_DOWNLOAD
from benchlock.artifacts.net.urls import check_url, split_url
from benchlock.artifacts.sources.file_source import parse_file_url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Opener = Callable[[int], AbstractContextManager[BinaryIO]]
CommitCache = dict[tuple[str, str], str]
"""The commit of each repository and revision."""

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_URL: Final = (
    r"(?:https|ssh|file)://[^/]*/[^@]+|\.{0,2}/[^@]+|[\w.-]+(?::\d+)?/[^@]+"  # an @ in the authority belongs to the URL
)
_SOURCE: Final = re.compile(rf"dvc://({_URL})@([^/@]+)/(.+)", re.DOTALL)
_SECRET: Final = re.compile(r"(?<=//)[^/\s@]*@|\?\S*")


class NoRepositoryError(InvalidInputError):
    """The path of a repository does not exist: it is misspelt, or the repository was moved."""


@dataclass(frozen=True, slots=True)
class DvcSource:
    """A file or folder of a repository at a revision: a commit, branch or tag.

    Attributes:
        url: The URL of the repository as written in the manifest.
        repository: The URL or the path of a folder that is passed to DVC.
        revision: A commit, or a branch or tag, which ``resolve`` replaces by its commit.
        path: The path in the repository; a folder ends with a slash.
        commits: A cache that resolves each revision once, so that all files of a publication have the same commit.
    """

    url: str
    repository: str
    revision: str
    path: str
    commits: CommitCache = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        """Return the source as written in a manifest."""
        return f"dvc://{self.url}@{quote(self.revision, safe='')}/{self.path}"

    @property
    def is_folder(self) -> bool:
        """Whether the source is a folder."""
        return self.path.endswith("/")

    def resolve(self) -> "DvcSource":
        """Return the same source at the current commit of its revision.

        Raises:
            InvalidInputError: The revision does not exist, or the folder is not a git repository.
            UnavailableError: The repository cannot be read, or dvc is not installed.
        """
        if _COMMIT.fullmatch(self.revision):
            return self
        key = self.repository, self.revision
        if key not in self.commits:
            with _open_repository(self) as files:
                self.commits[key] = _read_commit(self, files)
        return replace(self, revision=self.commits[key])

    def find_digest(self) -> Digest | None:
        """Return ``None``: DVC states an MD5, which is not collision-resistant."""
        return None

    @contextmanager
    def open(self, offset: int = 0, *, limit: int = LARGEST_DOWNLOAD) -> Iterator[BinaryIO]:
        """Open a file from ``offset`` on, streamed.

        Raises:
            InvalidInputError: The file does not exist, or has more than ``limit`` bytes in total (also while reading).
            UnavailableError: The repository or its remote cannot be read, or dvc is not installed.
        """
        with _open_repository(self) as files, _stream(self, files, offset, limit) as stream:
            yield stream

    @contextmanager
    def open_folder(self) -> Iterator[list[tuple[str, Opener]]]:
        """Yield every file of a folder, sorted: its path and a function that opens it with a limit in bytes.

        Raises:
            InvalidInputError: The source is not a folder.
            UnavailableError: The repository or its remote cannot be read, or dvc is not installed.
        """
        folder = self.path.rstrip("/")
        with _open_repository(self) as files:
            with _convert_failures(self):
                if files.info(folder)["type"] != "directory":
                    next_step = "remove the / at its end"
                    raise InvalidInputError(f"{self} is not a folder", where=str(self), next_step=next_step)
                paths = sorted(check_path(path.strip("/").removeprefix(f"{folder}/")) for path in files.find(folder))
            sources = [(path, replace(self, path=f"{folder}/{path}")) for path in paths]
            yield [(path, functools.partial(_stream, source, files, 0)) for path, source in sources]


@contextmanager
def _stream(source: DvcSource, files: Any, offset: int, limit: int) -> Iterator[BinaryIO]:  # noqa: ANN401 - no types
    with ExitStack() as stack:
        with _convert_failures(source):
            if files.info(source.path)["type"] != "file":
                next_step = "end it with / and publish it as a tree"
                raise InvalidInputError(f"{source} is a folder", where=str(source), next_step=next_step)
            stream = stack.enter_context(files.open(source.path, "rb"))
            _skip(stream, offset)
        yield cast("BinaryIO", stack.enter_context(io.BufferedReader(_Body(source, stream, offset, limit), CHUNK)))


def _skip(stream: BinaryIO, offset: int) -> None:
    """Move to an offset, by reading if the stream cannot be sought (files in git, and some remotes)."""
    if offset and stream.seekable():
        stream.seek(offset)
        return
    while offset and (chunk := stream.read(min(offset, CHUNK))):
        offset -= len(chunk)


class _Body(io.RawIOBase):
    """A stream of DVC whose errors name the source; exceeding ``limit`` bytes is an error."""

    def __init__(self, source: DvcSource, stream: BinaryIO, offset: int, limit: int) -> None:
        self._source, self._stream, self._position, self._limit = source, stream, offset, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        with _convert_failures(self._source):
            chunk = self._stream.read(len(view))
        self._position += len(chunk)
        if self._position > self._limit:
            raise InvalidInputError(
                f"{self._source} is larger than {self._limit} bytes",
                where=str(self._source),
                next_step="correct the expected size",
            )
        view[: len(chunk)] = chunk
        return len(chunk)


def parse_dvc_source(source: str, base: Path, commits: CommitCache) -> DvcSource:
    """Parse a ``dvc:`` source; a relative repository starts at ``base``.

    Raises:
        InvalidInputError: The text is not a file or folder of a repository, or contains a password.
    """
    match = _SOURCE.fullmatch(source)
    if not match:
        shown = _SECRET.sub("", source)
        raise InvalidInputError(
            f"{shown} is not a file of a DVC repository",
            where=shown,
            next_step="write dvc://URL@REVISION/PATH, the revision a commit, or a branch or tag with %2F for each "
            "slash in it; the URL may be https://, ssh:// or file://, or the path of a folder",
        )
    url, revision, path = match.groups()
    check_path(path.removesuffix("/"))
    return DvcSource(url, _parse_repository(url, base), unquote(revision), path, commits)


def _parse_repository(url: str, base: Path) -> str:
    """Return the repository for DVC; transports that run a command, such as git's ``ext::``, are rejected."""
    if url.startswith("file:"):
        return str(parse_file_url(url))
    if url.startswith(("/", ".")):
        return str(base / url)
    if "://" not in url:
        url = f"https://{url}"
    split = split_url(url)
    if split.scheme == "https":
        check_url(url, loopback_http=False)
    elif split.password is not None:
        shown = _SECRET.sub("", url)
        raise InvalidInputError(
            f"{shown} contains a password", where=shown, next_step="write the URL without one, and use an SSH agent"
        )
    return url


@functools.cache
def _file_system() -> Any:  # noqa: ANN401 - dvc ships no types
    """Import DVC's file system, and remove its clones at the end of the process.

    Raises:
        UnavailableError: Dvc is not installed.
    """
    try:
        from dvc.api import DVCFileSystem  # noqa: PLC0415 - heavy, and an extra
        from dvc.repo.open_repo import clean_repos  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"dvc: sources need DVC, and {error.name} is not installed", next_step="pip install 'benchlock[dvc]'"
        ) from error
    atexit.register(clean_repos)
    return DVCFileSystem


@contextmanager
def _open_repository(source: DvcSource) -> Iterator[Any]:
    """Open the repository of a source at its revision, as a file system."""
    file_system = _file_system()
    with ExitStack() as stack:
        with _convert_failures(source):
            _check_exists(source)
            files = file_system(source.repository, rev=source.revision)
            stack.callback(files.close)
            _read_commit(source, files)
        yield files


def _check_exists(source: DvcSource) -> None:
    """Raise if the repository is a path that does not exist, since git's own error is misleading."""
    if "://" not in source.repository and not Path(source.repository).exists():
        raise NoRepositoryError(
            f"{source.repository} not found",
            where=str(source),
            next_step="correct the path of the repository; a relative one starts at the manifest's folder",
        )


def _read_commit(source: DvcSource, files: Any) -> str:  # noqa: ANN401 - dvc ships no types
    """Return the open commit. Without git, DVC would read the folder as it is now, whatever the revision."""
    commit = getattr(files.repo.fs, "rev", "")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise InvalidInputError(
            f"{source} is not in a git repository",
            where=str(source),
            next_step="use a git repository, or the path of the file itself",
        )
    return commit


@contextmanager
def _convert_failures(source: DvcSource) -> Iterator[None]:
    """Convert all errors of DVC, git and their remotes into errors that name the source."""
    try:
        yield
    except BenchlockError:
        raise
    except Exception as error:
        reason = _SECRET.sub("", f"{type(error).__name__}: {error}".splitlines()[0])
        if type(error).__name__ == "RevError":
            raise InvalidInputError(
                f"{source.url} has no revision {source.revision}", where=str(source), next_step="check its commits"
            ) from error
        if isinstance(error, FileNotFoundError) and "No storage files" not in str(error):
            raise InvalidInputError(
                f"{source.url} has no {source.path} at {source.revision}",
                where=str(source),
                next_step="check what git and DVC track at that revision",
            ) from error
        raise UnavailableError(
            f"{source} cannot be read: {reason}",
            where=str(source),
            next_step="check the network and the repository's remote (dvc push uploads the files)",
        ) from error
