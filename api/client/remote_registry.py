"""A registry on a server: the connection, its token and the local cache."""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from benchlock.api.client.api_client import ApiClient
from benchlock.api.client.remote_records import RemoteCatalogue, RemoteRuns
from benchlock.api.local.container_registry_access import read_network_policy
from benchlock.api.local.run_setup import connect_engine
from benchlock.api.schemas import lock_schemas, maintenance_schemas
from benchlock.api.schemas.access_schemas import Caller
from benchlock.api.schemas.registry_protocol import ChoiceExplanation, Json, LockResult
from benchlock.api.settings import read_setting
from benchlock.artifacts.blob_store import FileStore, verify
from benchlock.artifacts.bundles.bundle_reader import open_bundle
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.artifacts.net.http_session import Session
from benchlock.artifacts.net.urls import is_loopback, redact_url, split_url
from benchlock.artifacts.stores.cached_store import CachedStore
from benchlock.artifacts.stores.http_store import HttpStore, Server, make_blob_client, open_session, parse_server
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import Advance, Progress, ignore_progress
from benchlock.registry.lock.lockfile import Lock, dump, load
from benchlock.registry.requests.evaluation_request import Request

if TYPE_CHECKING:
    from benchlock.api.schemas.maintenance_schemas import GcReport, ImportReport, VerificationReport
    from benchlock.artifacts.net.blob_client import BlobClient
    from benchlock.evaluator.queue.queue_types import Explanation
    from benchlock.evaluator.records.run_types import Isolation
    from benchlock.registry.artifact_names import Kind
    from benchlock.registry.lock.lock_assembly import Freshness
    from benchlock.registry.resolution.resolver_types import Candidate, Resolution
    from benchlock.registry.resolution.version_search import Preferences


_BLOBS: Final = "blobs"
_LONG_SECONDS: Final = 3600.0  # seconds of silence while a server reads all of its blobs


class ReadOnlyStore(HttpStore):
    """A view of the blobs on a server that uploads nothing, for trial runs."""

    def send(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = ignore_progress) -> None:
        """Do nothing: the blob stays on this machine."""


@dataclass(frozen=True)
class RemoteRegistry:
    """A ``Registry`` over a server. ``home`` is a cache: its content may be removed at any time."""

    home: Path
    client: ApiClient
    blobs: "BlobClient"
    progress: Progress

    @cached_property
    def store(self) -> FileStore:
        """Return the server's store with this machine's cache."""
        return CachedStore(self._local_store, self._server_store, self.progress)

    @cached_property
    def trial_store(self) -> FileStore:
        """Return the store without uploads."""
        return CachedStore(self._local_store, ReadOnlyStore(self.blobs, self.home), self.progress)

    @cached_property
    def catalogue(self) -> RemoteCatalogue:
        """Return the server's catalogue."""
        return RemoteCatalogue(self.client, self._resend_blobs)

    @cached_property
    def records(self) -> RemoteRuns:
        """Return the server's run records."""
        return RemoteRuns(self.client, self._resend_blobs)

    def now(self) -> datetime:
        """Return the server's time, for records on the server."""
        if not self.client.clock.is_set:
            with suppress(BenchlockError):  # later requests report the error
                self.client.health()
        return self.client.clock()

    def resolve(self, request: Request, preferences: "Preferences", drafts: "Sequence[Candidate]" = ()) -> "Resolution":
        """Resolve ``request`` on the server."""
        body = lock_schemas.ResolveRequest(
            request=dict(request.document),
            preferences=lock_schemas.encode_preferences(preferences),
            drafts=tuple(map(lock_schemas.encode_draft, drafts)),
        )
        return lock_schemas.decode_resolution(self.client.send("POST", "resolve", body, lock_schemas.ResolveResponse))

    def lock(self, request: Request, preferences: "Preferences") -> LockResult:
        """Resolve ``request`` and store its lock on the server."""
        body = lock_schemas.LockRequest(
            request=dict(request.document), preferences=lock_schemas.encode_preferences(preferences)
        )
        document = self.client.send("POST", "locks", body, lock_schemas.LockResponse)
        return LockResult(load(document.text, document.lock), document.warnings)

    def check(self, lock: Lock, request: Request) -> "Freshness":
        """Check ``lock`` on the server."""
        from benchlock.registry.lock.lock_assembly import Freshness  # noqa: PLC0415 - the resolver; only `lock --check` needs it

        body = lock_schemas.LockCheckRequest(lock=dump(lock), request=dict(request.document))
        return self.client.send("POST", "locks/check", body, Freshness)

    def why(self, lock: Lock, kind: "Kind", name: str) -> ChoiceExplanation:
        """Explain a locked version on the server."""
        body = lock_schemas.ExplainRequest(lock=dump(lock), target=f"{kind}/{name}")
        return self.client.send("POST", "locks/why", body, ChoiceExplanation)

    def submit_job(
        self, target: Lock | Request, isolation: "Isolation | None", *, allow_code: bool, priority: int = 0
    ) -> "Explanation":
        """Queue a run on the server."""
        from benchlock.api.client.remote_queue import RemoteQueue  # noqa: PLC0415 - used by queued runs only

        queue = RemoteQueue(self.client)
        submit = partial(queue.submit_job, isolation, allow_code=allow_code, priority=priority)
        if isinstance(target, Request):
            return queue.explain(submit(request=dict(target.document)).id)
        self.catalogue.put_lock(target)
        return queue.explain(submit(lock=target.id).id)

    def verify(
        self, targets: Sequence[str | Lock], progress: Progress, *, remote: bool, head: str | None = None
    ) -> "VerificationReport":
        """Verify on the server only: every run checks the digests of this machine's cached blobs."""
        texts = tuple(target if isinstance(target, str) else dump(target) for target in targets)
        with progress.task(f"{self.client.where} verifies"):
            body = maintenance_schemas.VerificationRequest(targets=texts, remote=remote, head=head)
            return self.client.send(
                "POST",
                "verifications",
                body,
                maintenance_schemas.VerificationReport,
                again=False,
                patience=_LONG_SECONDS,
            )

    def collect(self, *, dry_run: bool, local: bool) -> "GcReport":
        """Delete unreferenced blobs on the server."""
        body = maintenance_schemas.GcRequest(dry_run=dry_run, local=local)
        return self.client.send(
            "POST", "collections", body, maintenance_schemas.GcReport, again=False, patience=_LONG_SECONDS
        )

    def import_bundle(self, path: Path, progress: Progress) -> "ImportReport":
        """Upload a bundle as a blob and import it on the server."""
        with open_bundle(path):  # an invalid bundle is not sent
            pass
        with progress.task(f"sending {path.name}", path.stat().st_size) as advance:
            blob = self._server_store.put_file(path, advance=advance)
        with progress.task(f"{self.client.where} imports it"):
            body = maintenance_schemas.BundleImportRequest(blob=blob.digest)
            return self.client.send(
                "POST", "bundles", body, maintenance_schemas.ImportReport, again=False, patience=_LONG_SECONDS
            )

    def describe(self) -> Json:
        """Describe the server, its version, and the caller's scopes."""
        store = f"on the server, with a cache in {self.home}"
        server, caller = self.client.health(), self.client.get("caller", Caller)
        return {
            "registry": self.client.where,
            "store": store,
            "server": f"benchlock {server.version} (commit {server.commit})",
            "schema": server.schema,
            "caller": caller.id,
            "scopes": ", ".join(caller.scopes),
        }

    @cached_property
    def _local_store(self) -> LocalStore:
        return LocalStore(self.home / _BLOBS)

    @cached_property
    def _server_store(self) -> HttpStore:
        return HttpStore(self.blobs, self.home)

    def _resend_blobs(self, digests: tuple[str, ...]) -> bool:
        """Send blobs of this machine that the server lacks; return whether this machine had all of them."""
        for digest in map(Digest, digests):
            if not self._local_store.exists(digest):
                return False
            blob = verify(self._local_store, digest, name=f"blob {digest}")
            with self._local_store.open(digest) as source:
                self._server_store.send(source, blob, name=f"blob {digest}")
        return bool(digests)


TOKEN: Final = "BENCHLOCK_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE: Final = "BENCHLOCK_TOKEN_FILE"  # noqa: S105 - the name of a variable
_LARGEST_TOKEN: Final = 4096
_RUNS, _NOTES = "runs", "sending"


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """A connection to a server: documents through ``client``, blobs over ``session``."""

    server: Server
    session: Session
    client: ApiClient

    def home(self, folder: str = "") -> Path:
        """Return this machine's cache folder of the server, or the folder ``folder`` in it.

        Raises:
            UnavailableError: The folder cannot be created.
        """
        return _make_cache_folder(self.server, folder)


def connect_server(url: str, token: str | None = None) -> ServerConnection:
    """Prepare a connection to the server at ``url``, without a request.

    Without ``token``, the token is in BENCHLOCK_TOKEN, or in the file of the setting ``token_file``. That file is read
    again when the server rejects the token, so that a long-lived process takes over a rotated token.

    Raises:
        InvalidInputError: The URL is invalid, the connection would not be encrypted, or the token file is unreadable.
    """
    server, variable = _parse_server_url(url), os.environ.get(TOKEN) or None
    file = None if token else read_setting("token_file")
    if token is None and variable is not None and os.environ.get(TOKEN_FILE):
        raise InvalidInputError(
            f"{TOKEN} and {TOKEN_FILE} are both set", where=TOKEN_FILE, next_step=f"unset one: {TOKEN}, for a worker"
        )
    token = token or variable
    policy = read_network_policy()
    if file is None or token is not None:
        session = open_session(server, token, policy=policy)
    else:
        path = Path(file.text)
        token = _read_token(path)
        session = open_session(server, token, lambda: _read_token(path), policy)
    return ServerConnection(server, session, ApiClient(session, version("benchlock"), has_token=token is not None))


def _read_token(path: Path) -> str:
    """Read the token in a file, without surrounding white space.

    Raises:
        InvalidInputError: The file cannot be read, or does not hold exactly one token.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_TOKEN + 1)
    except OSError as error:
        raise InvalidInputError(
            f"cannot read the token file: {error.strerror}",
            where=str(path),
            next_step=f"check {TOKEN_FILE} or the key token_file",
        ) from error
    words = content.split()
    if len(content) > _LARGEST_TOKEN or len(words) != 1 or not words[0].isascii():
        raise InvalidInputError(
            "the token file does not hold one token",
            where=str(path),
            next_step="write what `benchlock token create` or `token rotate` printed on standard output",
        )
    return words[0].decode()


def open_remote(url: str, say: Callable[[str], None], progress: Progress, token: str | None = None) -> RemoteRegistry:
    """Open the registry on the server at ``url``; the token is as for ``connect_server``.

    No request is sent, unless a killed process of this machine left runs. These are first recorded as abandoned and
    reported.

    Raises:
        InvalidInputError: The URL is invalid, or the connection would not be encrypted.
        UnavailableError: The cache folder cannot be created, or runs were left and the server does not answer.
    """
    connection = connect_server(url, token)
    home, client, session = connection.home(), connection.client, connection.session
    registry = RemoteRegistry(home, client, make_blob_client(session, home / _NOTES), progress)
    if (home / _RUNS).is_dir() and any((home / _RUNS).iterdir()):
        from benchlock.api.local.local_registry import now  # noqa: PLC0415 - SQL code; rarely used
        from benchlock.evaluator.runner.orphans import sweep  # noqa: PLC0415 - as above

        records = registry.records
        unfinished = records.find_unfinished(home / _RUNS)
        for run in sweep(unfinished, records.finish, connect_engine(), home, now):
            say(f"{run} was recorded as abandoned: its process no longer exists")
    return registry


def _parse_server_url(url: str) -> Server:
    """Parse the URL of a server, which must be encrypted unless it is on this machine."""
    split = split_url(url)
    if split.scheme not in ("http", "https"):
        raise InvalidInputError(
            f"{redact_url(url)} is neither a server URL nor a folder",
            where=redact_url(url),
            next_step="write https://HOST, or the name of a folder",
        )
    if split.scheme == "http" and not is_loopback(split.hostname or ""):
        raise InvalidInputError(
            f"{redact_url(url)} is not encrypted: the token could be read, and runs could be changed in transit",
            where=redact_url(url),
            next_step="write https://, or create a tunnel (ssh -L) and write http://127.0.0.1:PORT",
        )
    return parse_server(url)


def _make_cache_folder(server: Server, folder: str = "") -> Path:
    """Create the cache folder of a server in XDG_CACHE_HOME or ``~/.cache``, readable by this user alone."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchlock"
    words = re.sub(r"[^a-z0-9.]+", "-", server.base.partition("://")[2].lower()).strip("-")
    home = base / f"{words}-{sha256(server.base.encode()).hexdigest()[:8]}"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / folder).mkdir(exist_ok=True)
    except OSError as error:
        raise UnavailableError(
            f"cannot create the cache folder for {server}: {error.strerror}",
            where=str(home),
            next_step="set XDG_CACHE_HOME to a writable folder",
        ) from error
    return home / folder
