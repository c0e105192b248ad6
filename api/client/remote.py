"""A registry on a server, as commands see it; what was fetched from it lies in a folder of this machine."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchlock.api.client.catalogue import RemoteCatalogue
from benchlock.api.client.conversation import Conversation
from benchlock.api.client.records import RemoteRuns
from benchlock.api.client.registry import Brought, Freed, Json, Looked, Made, Told
from benchlock.api.wire.caller import Caller
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.http.store import HttpStore
from benchlock.artifacts.local import LocalStore
from benchlock.artifacts.mirrored import MirroredStore
from benchlock.artifacts.progress import Advance, Progress, unnoticed
from benchlock.artifacts.store import FileStore, verify

if TYPE_CHECKING:
    from typing import BinaryIO

    from benchlock.artifacts.transfer.blobs import BlobClient
    from benchlock.evaluator.dispatch.queue import Explanation
    from benchlock.evaluator.records.runs import Isolation
    from benchlock.registry.lockfile import Lock
    from benchlock.registry.names import Kind
    from benchlock.registry.requests import Request
    from benchlock.registry.resolution.candidates import Candidate, Resolution
    from benchlock.registry.resolution.search import Preferences
    from benchlock.registry.staleness import Freshness

_BLOBS: Final = "blobs"
_LONG: Final = 3600.0  # seconds that a server may be silent while it reads all its bytes


class ReadingStore(HttpStore):
    """The blobs on a server, where nothing is sent: for what is tried on this machine alone."""

    def send(self, source: "BinaryIO", blob: Descriptor, *, name: str, advance: Advance = unnoticed) -> None:
        """Nothing: the bytes stay here."""


@dataclass(frozen=True)
class RemoteRegistry:
    """``api.client.registry.Registry`` over a server. ``home`` is a cache: what is in it may be removed at any time."""

    home: Path
    talk: Conversation
    blobs: "BlobClient"
    progress: Progress

    @cached_property
    def store(self) -> FileStore:
        return MirroredStore(self._local, self._there, self.progress)

    @cached_property
    def trial_store(self) -> FileStore:
        return MirroredStore(self._local, ReadingStore(self.blobs, self.home), self.progress)

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
        from benchlock.api.wire import locks as wire  # noqa: PLC0415 - most commands ask for no lock

        asked = wire.Question(
            request=dict(request.document),
            preferences=wire.preferences_on_wire(preferences),
            drafts=tuple(map(wire.draft_on_wire, drafts)),
        )
        return wire.resolution_of(self.talk.send("POST", "resolve", asked, wire.Resolved))

    def lock(self, request: "Request", preferences: "Preferences") -> Made:
        from benchlock.api.wire import locks as wire  # noqa: PLC0415 - as above
        from benchlock.registry.lockfile import load  # noqa: PLC0415

        asked = wire.Given(request=dict(request.document), preferences=wire.preferences_on_wire(preferences))
        made = self.talk.send("POST", "locks", asked, wire.KeptLock)
        return Made(load(made.text, made.lock), made.warnings)

    def check(self, lock: "Lock", request: "Request") -> "Freshness":
        from benchlock.api.wire import locks as wire  # noqa: PLC0415 - as above
        from benchlock.registry.lockfile import dump  # noqa: PLC0415

        asked = wire.Checked(lock=dump(lock), request=dict(request.document))
        return wire.freshness_of(self.talk.send("POST", "locks/check", asked, wire.FreshnessFound))

    def why(self, lock: "Lock", kind: "Kind", name: str) -> Told:
        from benchlock.api.wire import locks as wire  # noqa: PLC0415 - as above
        from benchlock.registry.lockfile import dump  # noqa: PLC0415

        asked = wire.WhyAsked(lock=dump(lock), target=f"{kind}/{name}")
        told = self.talk.send("POST", "locks/why", asked, wire.WhyTold)
        return Told(told.prose, told.why)

    def leave(self, asked: "Lock | Request", isolation: "Isolation | None", *, allow_code: bool) -> "Explanation":
        from benchlock.api.client.queue import HttpQueue  # noqa: PLC0415 - most commands leave nothing to others
        from benchlock.registry.requests import Request  # noqa: PLC0415

        queue = HttpQueue(self.talk)
        if isinstance(asked, Request):
            return queue.explain(queue.leave(isolation, allow_code=allow_code, request=dict(asked.document)).id)
        self.catalogue.put_lock(asked)
        return queue.explain(queue.leave(isolation, allow_code=allow_code, lock=asked.id).id)

    def verify(
        self, targets: "Sequence[str | Lock]", progress: Progress, *, remote: bool, head: str | None = None
    ) -> Looked:
        """Read there, not here: what this machine has of it is read, and held against its digest, by every run."""
        from benchlock.api.wire import upkeep as wire  # noqa: PLC0415 - `verify` alone needs it
        from benchlock.registry.lockfile import dump  # noqa: PLC0415

        named = tuple(one if isinstance(one, str) else dump(one) for one in targets)
        with progress.task(f"{self.talk.where} verifies"):
            asked = wire.ToVerify(targets=named, remote=remote, head=head)
            found = self.talk.send("POST", "verifications", asked, wire.VerifiedTold, again=False, patience=_LONG)
        return wire.verified_of(found)

    def collect(self, *, dry_run: bool, local: bool) -> Freed:
        from benchlock.api.wire import upkeep as wire  # noqa: PLC0415 - `gc` alone needs it

        asked = wire.ToCollect(dry_run=dry_run, local=local)
        found = self.talk.send("POST", "collections", asked, wire.CollectedTold, again=False, patience=_LONG)
        return wire.collected_of(found)

    def import_bundle(self, path: Path, progress: Progress) -> Brought:
        from benchlock.api.wire import upkeep as wire  # noqa: PLC0415 - `bundle import` alone needs it
        from benchlock.artifacts.bundles.reading import open_bundle  # noqa: PLC0415

        with open_bundle(path):  # what is no bundle is not sent
            pass
        with progress.task(f"sending {path.name}", path.stat().st_size) as advance:
            sent = self._there.put_file(path, advance=advance)
        with progress.task(f"{self.talk.where} takes it in"):
            asked = wire.BundleSent(blob=sent.digest)
            found = self.talk.send("POST", "bundles", asked, wire.BundleTold, again=False, patience=_LONG)
        return wire.bundle_of(found)

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
