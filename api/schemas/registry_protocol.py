"""The interface of a registry, embedded or remote, the results of its operations, and its default location."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from benchlock.api.schemas.maintenance_schemas import GcReport, ImportReport, VerificationReport
    from benchlock.artifacts.blob_store import FileStore
    from benchlock.artifacts.user_output import Progress
    from benchlock.evaluator.queue.queue_types import Explanation
    from benchlock.evaluator.records.run_types import Isolation, RecordedRuns
    from benchlock.registry.artifact_names import Kind
    from benchlock.registry.catalogue.catalogue_protocol import CatalogueProtocol
    from benchlock.registry.lock.lock_assembly import Freshness
    from benchlock.registry.lock.lockfile import Lock
    from benchlock.registry.requests.evaluation_request import Request
    from benchlock.registry.resolution.resolver_types import Candidate, Resolution
    from benchlock.registry.resolution.version_search import Preferences

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LockResult:
    """A stored lock, and a warning for each yanked version in it."""

    lock: "Lock"
    warnings: tuple[str, ...]


class ChoiceExplanation(Struct, frozen=True, kw_only=True):
    """The reason for a locked version, as text and as JSON values."""

    prose: str
    why: dict[str, Any]


class Registry(Protocol):
    """A registry in a folder of this machine or on a server."""

    @property
    def home(self) -> Path:
        """Return this machine's folder for the registry: job folders, environments, builds and cached blobs."""

    def now(self) -> datetime:
        """Return the registry's clock, which times the records of runs."""
        ...

    @property
    def store(self) -> "FileStore":
        """Return the store of the registry's blobs."""

    @property
    def trial_store(self) -> "FileStore":
        """Return a view of ``store`` for trial runs: blobs that are put into it stay on this machine."""
        ...

    @property
    def catalogue(self) -> "CatalogueProtocol":
        """Return the catalogue of published versions and locks."""

    @property
    def records(self) -> "RecordedRuns":
        """Return the records of runs."""

    def resolve(
        self, request: "Request", preferences: "Preferences", drafts: "Sequence[Candidate]" = ()
    ) -> "Resolution":
        """Choose the versions that satisfy ``request``, as if ``drafts`` were published.

        Raises:
            BenchlockError: As ``lock_creation.resolve_request``.
        """
        ...

    def lock(self, request: "Request", preferences: "Preferences") -> LockResult:
        """Resolve ``request`` and store its lock.

        Raises:
            BenchlockError: As ``lock_creation.keep_lock``.
        """
        ...

    def check(self, lock: "Lock", request: "Request") -> "Freshness":
        """Check whether ``lock`` is still the answer to ``request``."""
        ...

    def why(self, lock: "Lock", kind: "Kind", name: str) -> ChoiceExplanation:
        """Explain why ``lock`` has its version of ``kind``/``name``.

        Raises:
            BenchlockError: As ``lock_creation.explain_locked_version``.
        """
        ...

    def submit_job(
        self, target: "Lock | Request", isolation: "Isolation | None", *, allow_code: bool, priority: int = 0
    ) -> "Explanation":
        """Queue a run of a lock, or of the lock that answers a request, for the workers. The lock is stored.

        Args:
            target: The lock, or the request to resolve.
            isolation: How the run is isolated; None for the default of the worker.
            allow_code: Whether code of the model may run.
            priority: The priority among the jobs of the same token.

        Returns:
            The job, and which machines may take it.

        Raises:
            BenchlockError: As ``lock``, and as the submission of a job.
        """
        ...

    def verify(
        self, targets: "Sequence[str | Lock]", progress: "Progress", *, remote: bool, head: str | None = None
    ) -> "VerificationReport":
        """Read blobs again and compare them with their digests.

        Args:
            targets: Locks, ``KIND/NAME[@CONSTRAINT]`` and ``run/ID``; if empty, everything is verified.
            progress: Shows how many bytes were read.
            remote: Read from the OCI repository behind the registry instead of the cache in its folder.
            head: A head of the chain of records that was noted before, to compare with.
        """
        ...

    def collect(self, *, dry_run: bool, local: bool) -> "GcReport":
        """Delete unreferenced blobs.

        Args:
            dry_run: Report what would be deleted, and delete nothing.
            local: Also delete cached blobs from the folder that the OCI repository has.
        """
        ...

    def import_bundle(self, path: Path, progress: "Progress") -> "ImportReport":
        """Import a bundle: its lock, runs, artifacts and blobs.

        Raises:
            BenchlockError: As the bundle import of the evaluator.
        """
        ...

    def describe(self) -> Json:
        """Describe the registry and its location for ``doctor``."""
        ...
