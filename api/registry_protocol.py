"""The interface of a registry, embedded or remote, and the results of its operations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchlock.artifacts.atomic_files import RemovedFiles

if TYPE_CHECKING:
    from benchlock.artifacts.blob_store import FileStore
    from benchlock.artifacts.display import Progress
    from benchlock.evaluator.queue.queue_model import Explanation
    from benchlock.evaluator.records.run_model import Isolation, RecordedRuns, RunId
    from benchlock.registry.catalogue.catalogue_protocol import CatalogueProtocol, PublishResult
    from benchlock.registry.lock.lock_assembly import Freshness
    from benchlock.registry.lock.lockfile import Lock
    from benchlock.registry.names import Kind, Reference
    from benchlock.registry.requests.request import Request
    from benchlock.registry.resolution.candidates import Candidate, Resolution
    from benchlock.registry.resolution.version_search import Preferences

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LockResult:
    """A lock that was made and kept; ``warnings`` are of yanked versions in it."""

    lock: "Lock"
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChoiceExplanation:
    """An answer in words, and as plain values."""

    prose: str
    document: Json


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """What was verified, and what is wrong, as errors are shown: code, message, where, next.

    Attributes:
        blobs: The number of blobs that were read.
        damaged: Blobs that are missing or damaged.
        records: The number of records, where everything was verified.
        head: The last link of the chain of records, where everything was verified.
        runs: The number of ended runs whose records were compared with their evidence.
        contradictions: Records that contradict their evidence, or could not be compared with it.
    """

    blobs: int
    damaged: tuple[Json, ...]
    records: int | None = None
    head: str | None = None
    runs: int = 0
    contradictions: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class GcReport:
    """Blobs that nothing names, and their bytes. ``local``: what went from the folder alone, where that was asked.

    ``leftovers``: files of writers that were killed and of transfers that nobody resumed, and their bytes.
    """

    blobs: int
    size: int
    local: Json | None = None
    leftovers: RemovedFiles = field(default_factory=RemovedFiles)


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What came in a bundle: ``runs`` each with whether it is new, and artifacts that stay out with the reason."""

    lock: str
    changed: bool
    runs: "Mapping[RunId, bool]"
    platforms: tuple[str, ...]
    artifacts: "tuple[PublishResult, ...]"
    kept_out: "Mapping[Reference, str]"
    blobs: int
    warnings: tuple[str, ...]


class Registry(Protocol):
    """A registry. ``home`` is this machine's folder for it: job folders, environments, builds, and blobs at hand."""

    @property
    def home(self) -> Path: ...

    def now(self) -> datetime:
        """Return the time that runs are recorded with: that of the registry."""
        ...

    @property
    def store(self) -> "FileStore": ...

    @property
    def trial_store(self) -> "FileStore":
        """As ``store``, for what is tried and not kept: what is put stays on this machine."""
        ...

    @property
    def catalogue(self) -> "CatalogueProtocol": ...

    @property
    def records(self) -> "RecordedRuns": ...

    def resolve(
        self, request: "Request", preferences: "Preferences", drafts: "Sequence[Candidate]" = ()
    ) -> "Resolution":
        """Which versions answer ``request``, were ``drafts`` published. Raises as ``locks.resolve_request``."""
        ...

    def lock(self, request: "Request", preferences: "Preferences") -> LockResult:
        """The lock that answers ``request``, kept. Raises as ``registry.locks.keep_lock``."""
        ...

    def check(self, lock: "Lock", request: "Request") -> "Freshness":
        """Whether ``lock`` still answers ``request``."""
        ...

    def why(self, lock: "Lock", kind: "Kind", name: str) -> ChoiceExplanation:
        """Why ``lock`` has its version of ``kind``/``name``. Raises as ``registry.locks.why_chosen``."""
        ...

    def leave(self, asked: "Lock | Request", isolation: "Isolation | None", *, allow_code: bool) -> "Explanation":
        """A run of a lock, or of the one that answers a request, left to the workers: the job, and who may take it.

        The lock is kept. Raises as ``lock``, and as ``evaluator.dispatch.submission.wish_of``.
        """
        ...

    def verify(
        self, targets: "Sequence[str | Lock]", progress: "Progress", *, remote: bool, head: str | None = None
    ) -> VerificationReport:
        """Read again what locks name, and ``KIND/NAME[@CONSTRAINT]`` and ``run/ID``; without ``targets``, everything.

        ``remote``: in the OCI repository behind the registry, past what is kept of it in the registry's folder.
        """
        ...

    def collect(self, *, dry_run: bool, local: bool) -> GcReport:
        """Free what nothing names; with ``local`` also what is kept in the folder of blobs that lie elsewhere too."""
        ...

    def import_bundle(self, path: Path, progress: "Progress") -> ImportReport:
        """Take in what a bundle brings. Raises as ``evaluator.bundles.import_bundle``."""
        ...

    def describe(self) -> Json:
        """Where it is and what it is, for ``doctor``."""
        ...
