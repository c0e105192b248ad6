"""The catalogue and the run records of a registry on a server."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from benchlock.api.client.api_client import ApiClient
from benchlock.api.schemas.artifact_schemas import (
    Publication,
    PublishedVersion,
    VersionDocument,
    VersionPage,
    YankRequest,
    YankResult,
    decode_published_version,
    decode_version_entry,
)
from benchlock.api.schemas.lock_schemas import LockRequest, LockResponse
from benchlock.api.schemas.pagination_cursors import encode_cursor
from benchlock.api.schemas.run_schemas import (
    HideRequest,
    HideResult,
    Hold,
    RunCount,
    RunPage,
)
from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import BenchlockError, IntegrityError, UnavailableError, UnknownNameError
from benchlock.evaluator.records.run_types import (
    ALL_RUNS,
    SELECTED_KINDS,
    DamagedRun,
    Outcome,
    Run,
    RunEnd,
    RunFilter,
    RunId,
    RunStart,
    fit_end,
)
from benchlock.registry.artifact_names import Kind, Name, Reference
from benchlock.registry.catalogue.catalogue_protocol import (
    ANY_CONTENT,
    ContentFilter,
    Entry,
    Provenance,
    PublishResult,
    version_taken_error,
)
from benchlock.registry.database.ids_and_timestamps import format_time
from benchlock.registry.lock.lockfile import Lock, dump
from benchlock.registry.manifests import Manifest, manifest_digest, parse_published
from benchlock.registry.manifests.manifest_content import content, reference_of
from benchlock.registry.versions.version_ranges import Constraint

_LATEST: Final = "latest"
_VERSION_PAGE: Final = 1000
Result = TypeVar("Result")

Resend = Callable[[tuple[str, ...]], bool]
"""Sends blobs that a server lost again, by their digests; returns whether this machine had all of them."""


def resend_missing_blobs(resend: Resend, act: Callable[[], Result]) -> Result:
    """Return the result of ``act``; if the server lacks blobs for it, send them again and repeat it once."""
    try:
        return act()
    except BenchlockError as error:
        if error.code != "missing-blobs" or not resend(tuple(getattr(error, "blobs", ()))):
            raise
    return act()


class RemoteCatalogue:
    """The catalogue of a registry on a server; manifests and locks are cached in memory."""

    def __init__(self, client: ApiClient, resend: Resend) -> None:
        """Send requests with ``client``, and missing blobs with ``resend``."""
        self._client = client
        self._resend = resend
        self._documents: dict[Reference, VersionDocument] = {}
        self._locks: dict[str, str] = {}

    def publish(self, manifest: Manifest, provenance: Provenance) -> PublishResult:
        """Publish a version whose blobs were uploaded before."""
        body = Publication(
            manifest=msgspec.json.decode(content(manifest)),
            authored=provenance.authored,
            sources=dict(provenance.sources),
            digest=manifest_digest(manifest),
        )
        return decode_published_version(
            resend_missing_blobs(self._resend, lambda: self._client.send("POST", "artifacts", body, PublishedVersion))
        )

    def would_change(self, manifest: Manifest) -> PublishResult:
        """Compare the manifest with the published version of the same reference."""
        reference, digest = reference_of(manifest), manifest_digest(manifest)
        try:
            entry = self.get(reference)
        except UnknownNameError:
            return PublishResult(reference, digest, changed=True)
        if entry.digest != digest:
            raise version_taken_error(reference, str(entry.reference.version), entry.digest, digest)
        return PublishResult(reference, digest, changed=False)

    def get(self, reference: Reference) -> Entry:
        """Fetch the entry of a version."""
        return decode_version_entry(self._client.get(_version_path(reference), VersionDocument))

    def manifest(self, reference: Reference) -> Manifest:
        """Fetch the manifest of a version and check its digest."""
        return parse_published(self.content(reference)[0].encode())

    def content(self, reference: Reference) -> tuple[str, Mapping[str, str]]:
        """Fetch the text of a manifest and the sources of its files, and check its digest."""
        document = self._document(reference)
        return bytes(document.manifest).decode(), document.sources

    def versions(self, kind: Kind, name: Name) -> tuple[Entry, ...]:
        """Fetch all versions of a name."""
        entries = tuple(self._pages(kind=kind, name=name))
        if not entries:  # the request for one version raises an error with similar names
            self.newest(kind, name, None)
        return entries

    def newest(self, kind: Kind, name: Name, constraint: Constraint | None) -> Entry:
        """Fetch the entry of the newest version that ``constraint`` admits."""
        version = _LATEST if constraint is None else quote(str(constraint), safe="")
        return decode_version_entry(self._client.get(f"artifacts/{kind}/{quote(name)}@{version}", VersionDocument))

    def list(self, kind: Kind | None = None, content: ContentFilter = ANY_CONTENT) -> tuple[Entry, ...]:
        """Fetch the versions of all names whose manifests match ``content``."""
        wanted = {name: getattr(content, name) for name in ContentFilter.__dataclass_fields__}
        return tuple(self._pages(kind=kind, **wanted))

    def yank(self, reference: Reference, reason: str) -> bool:
        """Yank a version; return whether this changed it."""
        return self._client.send("POST", "yanks", YankRequest(target=str(reference), reason=reason), YankResult).changed

    def unyank(self, reference: Reference) -> bool:
        """Undo a yank; return whether this changed the version."""
        return self._client.send("POST", "yanks", YankRequest(target=str(reference), undo=True), YankResult).changed

    def put_lock(self, lock: Lock) -> None:
        """Store a lock on the server."""
        text = dump(lock)
        resend_missing_blobs(
            self._resend, lambda: self._client.send("POST", "locks", LockRequest(text=text), LockResponse)
        )

    def get_lock(self, lock: Digest) -> str:
        """Fetch the text of a lock."""
        if lock not in self._locks:
            self.find_lock(lock)
        return self._locks[lock]

    def find_lock(self, text: str) -> Digest:
        """Fetch the lock with the id, or the abbreviated id, ``text``."""
        document = self._client.get(f"locks/{quote(text, safe=':')}", LockResponse)
        self._locks[document.lock] = document.text
        return Digest(document.lock)

    def _document(self, reference: Reference) -> VersionDocument:
        """Return a version with its manifest, whose bytes are checked against the digest."""
        if reference not in self._documents:
            document = self._client.get(_version_path(reference), VersionDocument)
            if digest_bytes(bytes(document.manifest)) != document.digest:
                raise IntegrityError(
                    f"the manifest of {reference} does not match its digest: {document.digest}",
                    where=self._client.where,
                    next_step="ask the operator of the server to run `benchlock verify`",
                )
            self._documents[reference] = document
        return self._documents[reference]

    def _pages(self, **query: str | None) -> Iterator[Entry]:
        cursor: str | None = None
        while True:
            page = self._client.get("artifacts", VersionPage, limit=_VERSION_PAGE, cursor=cursor, **query)
            yield from map(decode_version_entry, page.artifacts)
            if isinstance(page.next, msgspec.UnsetType):
                return
            cursor = page.next


def _version_path(reference: Reference) -> str:
    return f"artifacts/{reference.kind}/{quote(reference.name)}@{quote(str(reference.version), safe='')}"


RUN_PAGE: Final = 1000
_BEATS: Final = 4  # renewals per hold
_BETWEEN_TRIES: Final = 2.0  # seconds


class RemoteRuns:
    """The run records of a registry on a server. A run that is started is held until its end is recorded.

    Recording an end is repeated for ``patience`` seconds while the server does not answer, so that a restart of the
    server loses no measurement.
    """

    def __init__(self, client: ApiClient, resend: Resend, *, patience: float = 120.0) -> None:
        """Send requests with ``client``, and missing blobs with ``resend``."""
        self._client = client
        self._resend = resend
        self._patience = patience
        self._holds: dict[RunId, Event] = {}

    def start(self, start: RunStart) -> None:
        """Record the start of a run and renew its hold in the background."""
        hold = self._client.send("POST", "runs", start, Hold)
        over = self._holds[start.id] = Event()
        renew = Thread(target=self._renew, args=(start.id, hold.seconds / _BEATS, over), daemon=True)
        renew.start()

    def finish(self, run: RunId, end: RunEnd) -> None:
        """Record the end of a run and end its hold."""
        path, body = f"{_run_path(run)}/end", fit_end(end)

        def send() -> Run:
            return self._client.send("PUT", path, body, Run)

        try:
            _retry_until_answered(lambda: resend_missing_blobs(self._resend, send), self._patience)
        finally:
            over = self._holds.pop(run, None)
            if over is not None:
                over.set()

    def get(self, run: RunId) -> Run:
        """Fetch a run."""
        return self._client.get(_run_path(run), Run)

    def list(self, *, lock: Digest | None = None, outcome: Outcome | None = None, limit: int = 100) -> tuple[Run, ...]:
        """Fetch runs, newest first.

        Raises:
            IntegrityError: The record of one of them is damaged.
        """
        entries = self.list_entries(chosen=RunFilter(lock=lock, outcome=outcome), limit=limit)
        damaged_run = next((entry for entry in entries if isinstance(entry, DamagedRun)), None)
        if damaged_run is not None:
            raise IntegrityError(damaged_run.damage, where=damaged_run.id, next_step="restore the registry's backup")
        return tuple(entry for entry in entries if isinstance(entry, Run))

    def list_entries(
        self,
        *,
        chosen: RunFilter = ALL_RUNS,
        before: RunId | None = None,
        limit: int = 100,
        examine: bool = True,  # noqa: ARG002 - a server always examines runs
    ) -> tuple[Run | DamagedRun, ...]:
        """Fetch runs and damaged runs of as many pages as ``limit`` needs."""
        entries: list[Run | DamagedRun] = []
        cursor = None if before is None else encode_cursor((before,))
        query = {
            "lock": chosen.lock,
            "outcome": chosen.outcome,
            **{kind: str(one) for kind in SELECTED_KINDS if (one := getattr(chosen, kind)) is not None},
            "since": None if chosen.since is None else format_time(chosen.since),
            "prefix": chosen.prefix,
            "flagged": None if chosen.flagged is None else str(chosen.flagged).lower(),
        }
        while len(entries) < limit:
            page_size = min(limit - len(entries), RUN_PAGE)
            page = self._client.get("runs", RunPage, limit=page_size, cursor=cursor, **query)
            entries += sorted((*page.runs, *page.damaged), key=lambda entry: entry.id, reverse=True)
            if isinstance(page.next, msgspec.UnsetType):
                break
            cursor = page.next
        return tuple(entries)

    def count(self, lock: Digest) -> int:
        """Fetch the number of runs of a lock."""
        return self._client.get("runs/count", RunCount, lock=lock).count

    def hide(self, run: RunId, reason: str) -> bool:
        """Hide a run; return whether this changed it."""
        return self._client.send("POST", "hidings", HideRequest(target=run, reason=reason), HideResult).changed

    def unhide(self, run: RunId) -> bool:
        """Show a hidden run again; return whether this changed it."""
        return self._client.send("POST", "hidings", HideRequest(target=run, undo=True), HideResult).changed

    def find_unfinished(self, folder: Path) -> tuple[Run, ...]:
        """Fetch the runs without an end of this machine: each has a folder in ``folder``, the rest of its id."""
        runs: list[Run] = []
        for root in sorted(folder.iterdir()) if folder.is_dir() else ():
            with suppress(UnknownNameError):
                runs.append(self.get(RunId(f"run/{root.name}")))
        return tuple(run for run in runs if run.end is None)

    def _renew(self, run: RunId, pause: float, over: Event) -> None:
        """Renew the hold of a run until ``over``. Errors are ignored here, because recording the end repeats them."""
        while not over.wait(pause):
            with suppress(BenchlockError):
                self._client.send("PUT", f"{_run_path(run)}/hold", {}, Hold)


def _run_path(run: RunId) -> str:
    return f"runs/{run.removeprefix('run/')}"


def _retry_until_answered(act: Callable[[], object], patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            act()
        except UnavailableError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_BETWEEN_TRIES)
        else:
            return
