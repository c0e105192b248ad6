"""Opening the registry on a server: who asks, over which line, and where what comes from it is kept."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchlock.api.client.conversation import Conversation
from benchlock.api.client.records import RunsHere
from benchlock.api.client.remote import RemoteRegistry
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.http.client import connect, session_with
from benchlock.artifacts.http.server import Server, parse_server
from benchlock.artifacts.progress import Progress
from benchlock.artifacts.transfer.session import Session
from benchlock.artifacts.urls import is_loopback, shown_url, split_url

TOKEN: Final = "BENCHLOCK_TOKEN"  # noqa: S105 - the name of the variable that has it
TOKEN_FILE: Final = "BENCHLOCK_TOKEN_FILE"  # noqa: S105 - the name of the variable with the path of a file
_LARGEST_TOKEN: Final = 4096
_RUNS, _NOTES = "runs", "sending"


@dataclass(frozen=True, slots=True)
class Line:
    """What is said to a server: documents by ``talk``, blobs over ``session``."""

    server: Server
    session: Session
    talk: Conversation

    def home(self, folder: str = "") -> Path:
        """This machine's folder for what comes from the server, or a folder in it.

        Raises:
            UnavailableError: it cannot be made.
        """
        return _cache(self.server, folder)


def reach(url: str) -> Line:
    """The server at ``url``, to be asked as whoever BENCHLOCK_TOKEN names. Nothing is asked of it yet.

    The token may be in the file that BENCHLOCK_TOKEN_FILE names. That file is read again when the server refuses the
    token, so that a long-lived process takes up a rotated one.

    Raises:
        InvalidInputError: the URL is that of no server, or what is said to it would not be encrypted; or the file of
            the token cannot be read.
    """
    server, token, file = _server(url), os.environ.get(TOKEN) or None, os.environ.get(TOKEN_FILE) or None
    if token is not None and file is not None:
        raise InvalidInputError(
            f"{TOKEN} and {TOKEN_FILE} are both set", where=TOKEN_FILE, next_step=f"unset one: {TOKEN}, for a worker"
        )
    if file is None:
        session = session_with(server, token)
    else:
        path = Path(file)
        token = _read_token(path)
        session = session_with(server, token, lambda: _read_token(path))
    return Line(server, session, Conversation(session, version("benchlock"), has_token=token is not None))


def _read_token(path: Path) -> str:
    """Read the token in a file, without the white space around it.

    Raises:
        InvalidInputError: the file cannot be read, or does not hold one token.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_TOKEN + 1)
    except OSError as error:
        raise InvalidInputError(
            f"cannot read the token file: {error.strerror}", where=str(path), next_step=f"check {TOKEN_FILE}"
        ) from error
    words = content.split()
    if len(content) > _LARGEST_TOKEN or len(words) != 1 or not words[0].isascii():
        raise InvalidInputError(
            "the token file does not hold one token",
            where=str(path),
            next_step="write what `benchlock token create` or `token rotate` printed on standard output",
        )
    return words[0].decode()


def open_remote(url: str, say: Callable[[str], None], progress: Progress) -> RemoteRegistry:
    """The registry on the server at ``url``, asked as whoever BENCHLOCK_TOKEN names. Nothing is asked of it yet.

    Runs of this machine that a process left which is no more are recorded as abandoned first, and said.

    Raises:
        InvalidInputError: the URL is that of no server, or what is said to it would not be encrypted.
        UnavailableError: the folder for what comes from it cannot be made; or runs were left, and it does not answer.
    """
    line = reach(url)
    home, talk, session = line.home(), line.talk, line.session
    registry = RemoteRegistry(home, talk, connect(session, home / _NOTES), progress)
    if (home / _RUNS).is_dir() and any((home / _RUNS).iterdir()):
        from benchlock.api.wiring import connect_engine, now  # noqa: PLC0415 - rarely needed
        from benchlock.evaluator.runner.reaping import sweep  # noqa: PLC0415

        for run in sweep(RunsHere(registry.records, home / _RUNS), connect_engine(), home, now):
            say(f"{run} was abandoned: the process that ran it is no more; recorded as such")
    return registry


def _server(url: str) -> Server:
    """The server of a URL that is encrypted, or of this machine."""
    split = split_url(url)
    if split.scheme not in ("http", "https"):
        raise InvalidInputError(
            f"{shown_url(url)} is no URL of a server, and no folder",
            where=shown_url(url),
            next_step="write https://HOST, or the name of a folder",
        )
    if split.scheme == "http" and not is_loopback(split.hostname or ""):
        raise InvalidInputError(
            f"{shown_url(url)} is not encrypted: whoever is in between could read the token, and change what is run",
            where=shown_url(url),
            next_step="write https://, or make a tunnel (ssh -L) and write http://127.0.0.1:PORT",
        )
    return parse_server(url)


def _cache(server: Server, folder: str = "") -> Path:
    """The folder of what comes from a server, below XDG_CACHE_HOME or ``~/.cache``; for this user alone."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchlock"
    words = re.sub(r"[^a-z0-9.]+", "-", server.base.partition("://")[2].lower()).strip("-")
    home = base / f"{words}-{sha256(server.base.encode()).hexdigest()[:8]}"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / folder).mkdir(exist_ok=True)
    except OSError as error:
        raise UnavailableError(
            f"the folder for what comes from {server} cannot be made: {error.strerror}",
            where=str(home),
            next_step="set XDG_CACHE_HOME to a folder that you may write in",
        ) from error
    return home / folder
