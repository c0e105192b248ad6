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
    Yank,
    Yanked,
    decode_published_version,
    decode_version_entry,
)
from benchlock.api.schemas.lock_schemas import Given, KeptLock
from benchlock.api.schemas.run_schemas import (
    HideRequest,
    HideResult,
    Hold,
    RunCount,
    RunOnWire,
    RunPage,
    decode_recorded_run,
    decode_run_entries,
    encode_run_end,
    encode_run_start,
)
from benchlock.api.schemas.shared_fields import encode_cursor
from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import BenchlockError, IntegrityError, UnavailableError, UnknownNameError
from benchlock.evaluator.records.run_model import DamagedRun, Outcome, Run, RunEnd, RunId, RunStart
from benchlock.registry.catalogue.catalogue_protocol import Entry, Provenance, PublishResult, version_taken_error
from benchlock.registry.lock.lockfile import Lock, dump
from benchlock.registry.manifests import Manifest, manifest_digest, parse_published
from benchlock.registry.manifests.manifest_content import content, reference_of
from benchlock.registry.names import Kind, Name, Reference

_LATEST: Final = "latest"
_VERSION_PAGE: Final = 1000
Result = TypeVar("Result")

Resend = Callable[[tuple[str, ...]], bool]
"""Sends blobs again that a server lost, by their digests, as far as they are here; whether all of them were."""


def resend_missing_blobs(resend: Resend, act: Callable[[], Result]) -> Result:
    """What ``act`` gives; where the server lacks blobs for it, once more after they were sent again."""
    try:
        return act()
    except BenchlockError as error:
        if error.code != "missing-blobs" or not resend(tuple(getattr(error, "blobs", ()))):
            raise
    return act()


class RemoteCatalogue:
    """Implements ``registry.catalogue.contents.Contents``."""

    def __init__(self, talk: ApiClient, resend: Resend) -> None:
        self._talk = talk
        self._resend = resend
        self._documents: dict[Reference, VersionDocument] = {}
        self._locks: dict[str, str] = {}

    def publish(self, manifest: Manifest, provenance: Provenance) -> PublishResult:
        body = Publication(
            manifest=msgspec.json.decode(content(manifest)),
            authored=provenance.authored,
            sources=dict(provenance.sources),
            digest=manifest_digest(manifest),
        )
        return decode_published_version(
            resend_missing_blobs(self._resend, lambda: self._talk.send("POST", "artifacts", body, PublishedVersion))
        )

    def would_change(self, manifest: Manifest) -> PublishResult:
        reference, digest = reference_of(manifest), manifest_digest(manifest)
        try:
            found = self.get(reference)
        except UnknownNameError:
            return PublishResult(reference, digest, changed=True)
        if found.digest != digest:
            raise version_taken_error(reference, str(found.reference.version), found.digest, digest)
        return PublishResult(reference, digest, changed=False)

    def get(self, reference: Reference) -> Entry:
        return decode_version_entry(self._talk.get(_version_path(reference), VersionDocument))

    def manifest(self, reference: Reference) -> Manifest:
        return parse_published(self.content(reference)[0].encode())

    def content(self, reference: Reference) -> tuple[str, Mapping[str, str]]:
        document = self._document(reference)
        return bytes(document.manifest).decode(), document.sources

    def versions(self, kind: Kind, name: Name) -> tuple[Entry, ...]:
        found = tuple(self._pages(kind=kind, name=name))
        if not found:  # whoever asks for one is told what is near
            self._talk.get(f"artifacts/{kind}/{quote(name)}@{_LATEST}", VersionDocument)
        return found

    def list(self, kind: Kind | None = None) -> tuple[Entry, ...]:
        return tuple(self._pages(kind=kind))

    def yank(self, reference: Reference, reason: str) -> bool:
        return self._talk.send("POST", "yanks", Yank(target=str(reference), reason=reason), Yanked).changed

    def unyank(self, reference: Reference) -> bool:
        return self._talk.send("POST", "yanks", Yank(target=str(reference), undo=True), Yanked).changed

    def put_lock(self, lock: Lock) -> None:
        text = dump(lock)
        resend_missing_blobs(self._resend, lambda: self._talk.send("POST", "locks", Given(text=text), KeptLock))

    def get_lock(self, lock: Digest) -> str:
        if lock not in self._locks:
            self.find_lock(lock)
        return self._locks[lock]

    def find_lock(self, text: str) -> Digest:
        found = self._talk.get(f"locks/{quote(text, safe=':')}", KeptLock)
        self._locks[found.lock] = found.text
        return Digest(found.lock)

    def _document(self, reference: Reference) -> VersionDocument:
        """The version with its manifest, whose bytes are those of the digest."""
        if reference not in self._documents:
            found = self._talk.get(_version_path(reference), VersionDocument)
            if digest_bytes(bytes(found.manifest)) != found.digest:
                raise IntegrityError(
                    f"the manifest of {reference} is not what its digest says: {found.digest}",
                    where=self._talk.where,
                    next_step="have who runs the server look at it with `benchlock verify`",
                )
            self._documents[reference] = found
        return self._documents[reference]

    def _pages(self, **query: str | None) -> Iterator[Entry]:
        cursor: str | None = None
        while True:
            page = self._talk.get("artifacts", VersionPage, limit=_VERSION_PAGE, cursor=cursor, **query)
            yield from map(decode_version_entry, page.artifacts)
            if isinstance(page.next, msgspec.UnsetType):
                return
            cursor = page.next


def _version_path(reference: Reference) -> str:
    return f"artifacts/{reference.kind}/{quote(reference.name)}@{quote(str(reference.version), safe='')}"


_RUN_PAGE: Final = 1000
_BEATS: Final = 4  # in the time that a hold lasts
_BETWEEN_TRIES: Final = 2.0  # seconds


class RemoteRuns:
    """Implements ``evaluator.records.kept.KeptRuns``. A run that is started is held until its end is recorded.

    ``patience`` is for how many seconds an end is tried again while the server does not answer: what was measured is
    not lost with a server that is started again.
    """

    def __init__(self, talk: ApiClient, resend: Resend, *, patience: float = 120.0) -> None:
        self._talk = talk
        self._resend = resend
        self._patience = patience
        self._held: dict[RunId, Event] = {}

    def start(self, start: RunStart) -> None:
        hold = self._talk.send("POST", "runs", encode_run_start(start), Hold)
        over = self._held[start.id] = Event()
        renew = Thread(target=self._renew, args=(start.id, hold.seconds / _BEATS, over), daemon=True)
        renew.start()

    def finish(self, run: RunId, end: RunEnd) -> None:
        path, body = f"{_run_path(run)}/end", encode_run_end(end)

        def send() -> RunOnWire:
            return self._talk.send("PUT", path, body, RunOnWire)

        try:
            _retry_until_answered(lambda: resend_missing_blobs(self._resend, send), self._patience)
        finally:
            over = self._held.pop(run, None)
            if over is not None:
                over.set()

    def get(self, run: RunId) -> Run:
        return decode_recorded_run(self._talk.get(_run_path(run), RunOnWire))

    def list(self, *, lock: Digest | None = None, outcome: Outcome | None = None, limit: int = 100) -> tuple[Run, ...]:
        entries = self.list_entries(lock=lock, outcome=outcome, limit=limit)
        damaged_run = next((one for one in entries if isinstance(one, DamagedRun)), None)
        if damaged_run is not None:
            raise IntegrityError(damaged_run.damage, where=damaged_run.id, next_step="restore the registry's backup")
        return tuple(one for one in entries if isinstance(one, Run))

    def list_entries(
        self,
        *,
        lock: Digest | None = None,
        outcome: Outcome | None = None,
        before: RunId | None = None,
        limit: int = 100,
        examine: bool = True,  # noqa: ARG002 - a server examines in any case
    ) -> tuple[Run | DamagedRun, ...]:
        """Return the entries of as many pages as are needed."""
        found: list[Run | DamagedRun] = []
        cursor = None if before is None else encode_cursor((before,))
        while len(found) < limit:
            wanted = min(limit - len(found), _RUN_PAGE)
            page = self._talk.get("runs", RunPage, lock=lock, outcome=outcome, limit=wanted, cursor=cursor)
            found += decode_run_entries(page)
            if isinstance(page.next, msgspec.UnsetType):
                break
            cursor = page.next
        return tuple(found)

    def count(self, lock: Digest) -> int:
        return self._talk.get("runs/count", RunCount, lock=lock).count

    def hide(self, run: RunId, reason: str) -> bool:
        return self._talk.send("POST", "hidings", HideRequest(target=run, reason=reason), HideResult).changed

    def unhide(self, run: RunId) -> bool:
        return self._talk.send("POST", "hidings", HideRequest(target=run, undo=True), HideResult).changed

    def _renew(self, run: RunId, pause: float, over: Event) -> None:
        """Say again and again that the run goes on. What the server says against it, it says again at the end."""
        while not over.wait(pause):
            with suppress(BenchlockError):
                self._talk.send("PUT", f"{_run_path(run)}/hold", {}, Hold)


class LocalRuns:
    """Implements ``evaluator.records.kept.OpenRuns`` for the runs whose folders are on this machine, and no others."""

    def __init__(self, runs: RemoteRuns, folder: Path) -> None:
        """``folder`` has a folder for each run that began here, under the rest of its id."""
        self._runs = runs
        self._folder = folder

    def unfinished(self) -> tuple[Run, ...]:
        found: list[Run] = []
        for root in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            with suppress(UnknownNameError):
                found.append(self._runs.get(RunId(f"run/{root.name}")))
        return tuple(run for run in found if run.end is None)

    def finish(self, run: RunId, end: RunEnd) -> None:
        self._runs.finish(run, end)


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
