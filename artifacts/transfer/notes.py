"""Where uploads are that were begun: what another process needs, to go on with the upload of one that was killed."""

from contextlib import suppress
from pathlib import Path

from benchlock.artifacts.digest import Digest, parse_digest, to_hex
from benchlock.artifacts.drafts import new_file

_LONGEST = 4096  # bytes of a URL


class Notes:
    """A small file an upload, by the digest of its blob. A note that cannot be kept or read is none: nothing is lost.

    The folder is one server's, and one user's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, digest: Digest) -> str | None:
        """Where the upload of a blob goes on, as its server said."""
        try:
            with self._path(digest).open("rb") as file:
                return file.read(_LONGEST).decode("ascii")
        except (OSError, UnicodeDecodeError):
            return None

    def keep(self, digest: Digest, location: str) -> None:
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with new_file(self._path(digest)) as file:
                file.write(location.encode("ascii"))

    def drop(self, digest: Digest) -> None:
        with suppress(OSError):
            self._path(digest).unlink()

    def _path(self, digest: Digest) -> Path:
        return self._folder / to_hex(parse_digest(digest))
