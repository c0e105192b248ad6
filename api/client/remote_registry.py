"""A registry on a server: the connection, its token and the local cache."""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchlock.api.client.api_client import ApiClient
from benchlock.api.client.remote_records import LocalRuns, RemoteCatalogue, RemoteRuns
from benchlock.api.registry_protocol import (
    ChoiceExplanation,
    GcReport,
    ImportReport,
    Json,
    LockResult,
    VerificationReport,
)
from benchlock.api.schemas.access_schemas import Caller
from benchlock.artifacts.blob_store import FileStore, verify
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.display import Advance, Progress, ignore_progress
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.artifacts.net.http_session import Session
from benchlock.artifacts.net.urls import is_loopback, redact_url, split_url
from benchlock.artifacts.stores.cached_store import CachedStore
from benchlock.artifacts.stores.http_store import HttpStore, Server, make_blob_client, open_session, parse_server
from benchlock.artifacts.stores.local_store import LocalStore

if TYPE_CHECKING:
    from typing import BinaryIO

    from benchlock.artifacts.net.blob_client import BlobClient
    from benchlock.evaluator.queue.queue_model import Explanation
    from benchlock.evaluator.records.run_model import Isolation
    from benchlock.registry.lock.lock_assembly import Freshness
    from benchlock.registry.lock.lockfile import Lock
    from benchlock.registry.names import Kind
    from benchlock.registry.requests.request import Request
    from benchlock.registry.resolution.candidates import Candidate, Resolution
    from benchlock.registry.resolution.version_search import Preferences


_BLOBS: Final = "blobs"
_LONG: Final = 3600.0  # seconds that a server may be silent while it reads all its bytes


class ReadOnlyStore(HttpStore):
    """The blobs on a server, where nothing is sent: for what is tried on this machine alone."""

    def send(self, source: "BinaryIO", blob: Descriptor, *, name: str, advance: Advance = ignore_progress) -> None:
        """Nothing: the bytes stay here."""


@dataclass(frozen=True)
class RemoteRegistry:
    """``api.client.registry.Registry`` over a server. ``home`` is a cache: what is in it may be removed at any time."""

    home: Path
    talk: ApiClient
    blobs: "BlobClient"
    progress: Progress

    @cached_property
    def store(self) -> FileStore:
        return CachedStore(self._local, self._there, self.progress)

    @cached_property
    def trial_store(self) -> FileStore:
        return CachedStore(self._local, ReadOnlyStore(self.blobs, self.home), self.progress)

    @cached_property
    def catalogue(self) -> RemoteCatalogue:
        return RemoteCatalogue(self.talk, self._resend)

    @cached_property
    def records(self) -> RemoteRuns:
        return RemoteRuns(self.talk, self._resend)

    def now(self) -> datetime:
        """Return the server's time, for records that are kept there."""
        if not self.talk.clock.is_set:
            with suppress(BenchlockError):  # what the record needs is asked for again
                self.talk.health()
        return self.talk.clock()

    def resolve(
        self, request: "Request", preferences: "Preferences", drafts: "Sequence[Candidate]" = ()
    ) -> "Resolution":
        from benchlock.api.schemas import lock_schemas as wire  # noqa: PLC0415 - most commands ask for no lock

        asked = wire.Question(
            request=dict(request.document),
            preferences=wire.encode_preferences(preferences),
            drafts=tuple(map(wire.encode_draft, drafts)),
        )
        return wire.decode_resolution(self.talk.send("POST", "resolve", asked, wire.Resolved))

    def lock(self, request: "Request", preferences: "Preferences") -> LockResult:
        from benchlock.api.schemas import lock_schemas as wire  # noqa: PLC0415 - as above
        from benchlock.registry.lock.lockfile import load  # noqa: PLC0415

        asked = wire.Given(request=dict(request.document), preferences=wire.encode_preferences(preferences))
        made = self.talk.send("POST", "locks", asked, wire.KeptLock)
        return LockResult(load(made.text, made.lock), made.warnings)

    def check(self, lock: "Lock", request: "Request") -> "Freshness":
        from benchlock.api.schemas import lock_schemas as wire  # noqa: PLC0415 - as above
        from benchlock.registry.lock.lockfile import dump  # noqa: PLC0415

        asked = wire.Checked(lock=dump(lock), request=dict(request.document))
        return wire.decode_freshness(self.talk.send("POST", "locks/check", asked, wire.FreshnessFound))

    def why(self, lock: "Lock", kind: "Kind", name: str) -> ChoiceExplanation:
        from benchlock.api.schemas import lock_schemas as wire  # noqa: PLC0415 - as above
        from benchlock.registry.lock.lockfile import dump  # noqa: PLC0415

        asked = wire.WhyAsked(lock=dump(lock), target=f"{kind}/{name}")
        told = self.talk.send("POST", "locks/why", asked, wire.WhyTold)
        return ChoiceExplanation(told.prose, told.why)

    def leave(self, asked: "Lock | Request", isolation: "Isolation | None", *, allow_code: bool) -> "Explanation":
        from benchlock.api.client.remote_queue import RemoteQueue  # noqa: PLC0415 - most commands leave nothing to others
        from benchlock.registry.requests.request import Request  # noqa: PLC0415

        queue = RemoteQueue(self.talk)
        if isinstance(asked, Request):
            return queue.explain(queue.leave(isolation, allow_code=allow_code, request=dict(asked.document)).id)
        self.catalogue.put_lock(asked)
        return queue.explain(queue.leave(isolation, allow_code=allow_code, lock=asked.id).id)

    def verify(
        self, targets: "Sequence[str | Lock]", progress: Progress, *, remote: bool, head: str | None = None
    ) -> VerificationReport:
        """Read there, not here: what this machine has of it is read, and held against its digest, by every run."""
        from benchlock.api.schemas import maintenance_schemas as wire  # noqa: PLC0415 - `verify` alone needs it
        from benchlock.registry.lock.lockfile import dump  # noqa: PLC0415

        named = tuple(one if isinstance(one, str) else dump(one) for one in targets)
        with progress.task(f"{self.talk.where} verifies"):
            asked = wire.ToVerify(targets=named, remote=remote, head=head)
            found = self.talk.send("POST", "verifications", asked, wire.VerifiedTold, again=False, patience=_LONG)
        return wire.decode_verification(found)

    def collect(self, *, dry_run: bool, local: bool) -> GcReport:
        from benchlock.api.schemas import maintenance_schemas as wire  # noqa: PLC0415 - `gc` alone needs it

        asked = wire.ToCollect(dry_run=dry_run, local=local)
        found = self.talk.send("POST", "collections", asked, wire.CollectedTold, again=False, patience=_LONG)
        return wire.decode_gc_report(found)

    def import_bundle(self, path: Path, progress: Progress) -> ImportReport:
        from benchlock.api.schemas import maintenance_schemas as wire  # noqa: PLC0415 - `bundle import` alone needs it
        from benchlock.artifacts.bundles.bundle_reader import open_bundle  # noqa: PLC0415

        with open_bundle(path):  # what is no bundle is not sent
            pass
        with progress.task(f"sending {path.name}", path.stat().st_size) as advance:
            sent = self._there.put_file(path, advance=advance)
        with progress.task(f"{self.talk.where} takes it in"):
            asked = wire.BundleSent(blob=sent.digest)
            found = self.talk.send("POST", "bundles", asked, wire.BundleTold, again=False, patience=_LONG)
        return wire.decode_import_report(found)

    def describe(self) -> Json:
        """Also which version answers, and what whoever asks may do."""
        store = f"the server's, and in {self.home} what was read or written here"
        server, caller = self.talk.health(), self.talk.get("caller", Caller)
        return {
            "registry": self.talk.where,
            "store": store,
            "server": f"benchlock {server.version} (commit {server.commit})",
            "schema": server.schema,
            "caller": caller.id,
            "scopes": ", ".join(caller.scopes),
        }

    @cached_property
    def _local(self) -> LocalStore:
        return LocalStore(self.home / _BLOBS)

    @cached_property
    def _there(self) -> HttpStore:
        return HttpStore(self.blobs, self.home)

    def _resend(self, digests: tuple[str, ...]) -> bool:
        """Send blobs of this machine that the server does not have, or not any more."""
        for digest in map(Digest, digests):
            if not self._local.exists(digest):
                return False
            blob = verify(self._local, digest, name=f"blob {digest}")
            with self._local.open(digest) as source:
                self._there.send(source, blob, name=f"blob {digest}")
        return bool(digests)


TOKEN: Final = "BENCHLOCK_TOKEN"  # noqa: S105 - the name of the variable that has it
TOKEN_FILE: Final = "BENCHLOCK_TOKEN_FILE"  # noqa: S105 - the name of the variable with the path of a file
_LARGEST_TOKEN: Final = 4096
_RUNS, _NOTES = "runs", "sending"


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """What is said to a server: documents by ``talk``, blobs over ``session``."""

    server: Server
    session: Session
    talk: ApiClient

    def home(self, folder: str = "") -> Path:
        """This machine's folder for what comes from the server, or a folder in it.

        Raises:
            UnavailableError: it cannot be made.
        """
        return _make_cache_folder(self.server, folder)


def connect_server(url: str) -> ServerConnection:
    """The server at ``url``, to be asked as whoever BENCHLOCK_TOKEN names. Nothing is asked of it yet.

    The token may be in the file that BENCHLOCK_TOKEN_FILE names. That file is read again when the server refuses the
    token, so that a long-lived process takes up a rotated one.

    Raises:
        InvalidInputError: the URL is that of no server, or what is said to it would not be encrypted; or the file of
            the token cannot be read.
    """
    server, token, file = _parse_server_url(url), os.environ.get(TOKEN) or None, os.environ.get(TOKEN_FILE) or None
    if token is not None and file is not None:
        raise InvalidInputError(
            f"{TOKEN} and {TOKEN_FILE} are both set", where=TOKEN_FILE, next_step=f"unset one: {TOKEN}, for a worker"
        )
    if file is None:
        session = open_session(server, token)
    else:
        path = Path(file)
        token = _read_token(path)
        session = open_session(server, token, lambda: _read_token(path))
    return ServerConnection(server, session, ApiClient(session, version("benchlock"), has_token=token is not None))


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
    line = connect_server(url)
    home, talk, session = line.home(), line.talk, line.session
    registry = RemoteRegistry(home, talk, make_blob_client(session, home / _NOTES), progress)
    if (home / _RUNS).is_dir() and any((home / _RUNS).iterdir()):
        from benchlock.api.local.local_registry import connect_engine, now  # noqa: PLC0415 - rarely needed
        from benchlock.evaluator.runner.orphans import sweep  # noqa: PLC0415

        for run in sweep(LocalRuns(registry.records, home / _RUNS), connect_engine(), home, now):
            say(f"{run} was abandoned: the process that ran it is no more; recorded as such")
    return registry


def _parse_server_url(url: str) -> Server:
    """The server of a URL that is encrypted, or of this machine."""
    split = split_url(url)
    if split.scheme not in ("http", "https"):
        raise InvalidInputError(
            f"{redact_url(url)} is no URL of a server, and no folder",
            where=redact_url(url),
            next_step="write https://HOST, or the name of a folder",
        )
    if split.scheme == "http" and not is_loopback(split.hostname or ""):
        raise InvalidInputError(
            f"{redact_url(url)} is not encrypted: whoever is in between could read the token, and change what is run",
            where=redact_url(url),
            next_step="write https://, or make a tunnel (ssh -L) and write http://127.0.0.1:PORT",
        )
    return parse_server(url)


def _make_cache_folder(server: Server, folder: str = "") -> Path:
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
