"""The registry interface over a registry in a folder of this machine."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchlock.api.build_info import this_build
from benchlock.api.error_codes import error_document
from benchlock.api.local.local_registry import LocalRegistry, describe_store, now, open_reserve, open_uploads
from benchlock.api.local.registry_database import check_database, describe_database
from benchlock.api.schemas import maintenance_schemas as wire
from benchlock.api.schemas.artifact_schemas import encode_published_version
from benchlock.api.schemas.maintenance_schemas import GcReport, ImportReport, VerificationReport
from benchlock.api.schemas.registry_protocol import ChoiceExplanation, Json, LockResult
from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError
from benchlock.evaluator.records.evidence_status import SCRATCH, UnverifiedError, refuse_unverified
from benchlock.evaluator.records.run_types import Isolation, RunId, parse_run_id
from benchlock.evaluator.runner.lock_verification import check_agreement, read_manifests
from benchlock.registry.artifact_names import Kind, parse_target
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.database_checks import describe_checks, find_storage_damage
from benchlock.registry.database.record_chain import parse_head
from benchlock.registry.lock.lockfile import Lock, list_blob_references, load
from benchlock.registry.publishing.garbage_collection import collect_garbage
from benchlock.registry.text.quantities import spell_bytes
from benchlock.registry.versions.version_ranges import Constraint

if TYPE_CHECKING:
    from benchlock.artifacts.digest import Digest
    from benchlock.artifacts.stores.cached_store import CachedStore, EvictionReport
    from benchlock.artifacts.uploads.disk_quotas import DiskSpace
    from benchlock.artifacts.user_output import Progress
    from benchlock.evaluator.queue.queue_types import Explanation
    from benchlock.evaluator.records.run_store import Records
    from benchlock.evaluator.workflows.blob_inventory import Inventory, Names
    from benchlock.evaluator.workflows.bundles import BundleAdmission
    from benchlock.registry.lock.lock_assembly import Freshness
    from benchlock.registry.lock.lock_creation import ConfigurationLookup, Harness
    from benchlock.registry.requests.evaluation_request import Request
    from benchlock.registry.resolution.resolver_types import Candidate, Resolution
    from benchlock.registry.resolution.version_search import Preferences

RUN_PREFIX = "run/"


@dataclass(frozen=True, slots=True)
class EmbeddedRegistry:
    """A ``Registry`` over a local registry that is open.

    With ``public_images``, images are looked up in public OCI registries only: for clients of a service.
    """

    opened: LocalRegistry
    public_images: bool = False

    @property
    def home(self) -> Path:
        """Return the registry's folder."""
        return self.opened.home

    def now(self) -> datetime:
        """Return this machine's time."""
        return now()

    @property
    def store(self) -> FileStore:
        """Return the registry's store."""
        return self.opened.store

    @property
    def trial_store(self) -> FileStore:
        """Return the registry's own store: garbage collection deletes what trial runs leave in it."""
        return self.opened.store

    @property
    def catalogue(self) -> Catalogue:
        """Return the catalogue in the registry's database."""
        return self.opened.catalogue

    @property
    def records(self) -> "Records":
        """Return the run records in the registry's database."""
        return self.opened.records

    def resolve(
        self, request: "Request", preferences: "Preferences", drafts: "Sequence[Candidate]" = ()
    ) -> "Resolution":
        """Run the resolver on this machine."""
        from benchlock.registry.lock.lock_creation import resolve_drafted, resolve_request  # noqa: PLC0415 - the resolver is not always used

        if drafts:
            return resolve_drafted(request, drafts, self.catalogue)
        return resolve_request(request, self.catalogue, preferences)

    def lock(self, request: "Request", preferences: "Preferences") -> LockResult:
        """Resolve ``request`` on this machine and store its lock."""
        from benchlock.registry.lock.lock_creation import keep_lock, list_yanked, resolve_request  # noqa: PLC0415 - as above

        resolution = resolve_request(request, self.catalogue, preferences)
        harness, look_up = self.lock_parts()
        lock = keep_lock(request, resolution, harness, self.store, self.catalogue, look_up)
        return LockResult(lock, list_yanked(resolution))

    def lock_parts(self) -> "tuple[Harness, ConfigurationLookup]":
        """Return the harness of new locks, and the function that looks up the configurations of finished images."""
        from benchlock.api.local.container_registry_access import connect_in_public, connect_repository, look_up_image  # noqa: PLC0415 - as above
        from benchlock.evaluator.harness_archive import HARNESS_VERSION, build_harness  # noqa: PLC0415 - as above
        from benchlock.registry.lock.lock_creation import Harness  # noqa: PLC0415 - as above

        connect = connect_in_public if self.public_images else connect_repository
        return Harness(HARNESS_VERSION, build_harness()), partial(look_up_image, self.store, connect=connect)

    def check(self, lock: Lock, request: "Request") -> "Freshness":
        """Check ``lock`` against a snapshot of the catalogue."""
        from benchlock.registry.lock.lock_assembly import check_lock  # noqa: PLC0415 - as above

        with self.catalogue.snapshot(request.as_of) as snapshot:
            return check_lock(lock, request, snapshot)

    def why(self, lock: Lock, kind: Kind, name: str) -> ChoiceExplanation:
        """Explain a locked version from the catalogue."""
        from benchlock.registry.lock.lock_creation import explain_locked_version  # noqa: PLC0415 - as above

        answer = explain_locked_version(lock, kind, name, self.catalogue)
        return ChoiceExplanation(prose=answer.prose(), why=dict(answer.as_json()))

    def load_lock(self, text: str, where: str) -> Lock:
        """Load a lock from its text in the field ``where``, or by its id or the beginning of its id."""
        if text.startswith("sha256:"):
            return load(self.catalogue.get_lock(self.catalogue.find_lock(text)), text)
        return load(text, where)

    def receive_lock(self, lock: Lock) -> None:
        """Store a lock that a client made, whose blobs were uploaded before.

        Raises:
            MissingBlobsError: Blobs that every platform needs are missing.
            IntegrityError: The files, the split or the environment differ from those in the manifests.
            VersionTakenError: A version is published here with other content.
        """
        from benchlock.registry.publishing.remote_publication import require_blobs  # noqa: PLC0415 - used by services

        blobs = {  # tree listings of all platforms too, because they name further blobs
            reference.digest: reference.name
            for reference in list_blob_references(lock)
            if reference.platform is None or reference.sort == "tree"
        }
        with self.store.writing():
            require_blobs(blobs, self.store)
            manifests = read_manifests(lock, self.store)
            for platform in lock.image.platforms:
                check_agreement(lock, platform, manifests)
            for manifest in manifests.values():
                self.catalogue.would_change(manifest)
            self.catalogue.put_lock(lock)

    def submit_job(
        self, target: "Lock | Request", isolation: Isolation | None, *, allow_code: bool, priority: int = 0
    ) -> "Explanation":
        """Queue a run in the registry's database."""
        from benchlock.api.client.embedded_queue import open_queue  # noqa: PLC0415 - used by queued runs only
        from benchlock.evaluator.queue.submission_checks import make_job_request  # noqa: PLC0415 - as above
        from benchlock.registry.requests.evaluation_request import Request  # noqa: PLC0415 - as above

        lock = self.lock(target, {}).lock if isinstance(target, Request) else target
        queue = open_queue(self.opened)
        job_request = make_job_request(lock, self.store, isolation, now, allow_code=allow_code)
        self.catalogue.put_lock(lock)
        return queue.explain(queue.submit(replace(job_request, priority=priority)).id)

    def verify(
        self, targets: Sequence[str | Lock], progress: "Progress", *, remote: bool, head: str | None = None
    ) -> VerificationReport:
        """Verify the targets; without ``targets``, the whole database, all blobs and the evidence of all runs."""
        from benchlock.evaluator.workflows.blob_inventory import Inventory, list_damage  # noqa: PLC0415 - used by `verify` only

        store = self._require_cache("--remote").remote if remote else self.store
        inventory = Inventory(store, self.catalogue, self.records)
        blobs: Names = {}
        for target in targets:
            blobs |= self._target_blobs(inventory, target)
        if targets:
            run_targets = [entry for entry in targets if isinstance(entry, str) and entry.startswith(RUN_PREFIX)]
            runs, contradictions = self._compare([self._run(entry) for entry in run_targets], progress)
            damaged = tuple(map(error_document, list_damage(store, blobs, progress)))
            return VerificationReport(
                blobs=len(blobs),
                damaged=damaged,
                runs=runs,
                contradictions=tuple(map(error_document, contradictions)),
            )
        database = check_database(self.opened.database, None if head is None else parse_head(head))
        faults = list(database.damaged)
        # A damaged database does not tell what blobs are, or which ones are missing.
        blobs = {digest: f"blob {digest}" for digest in store.list()} if faults else inventory.everything()
        runs, contradictions = (0, []) if database.head is None else self._compare(self.records.ids(), progress)
        known_faults = {(fault.what, fault.where) for fault in faults}
        contradictions = [fault for fault in contradictions if (fault.what, fault.where) not in known_faults]
        faults += list_damage(store, blobs, progress)
        chain = database.head
        records, chain_head = (None, None) if chain is None else (chain.seq, str(chain) if chain.seq else None)
        damage_documents, differing = (tuple(map(error_document, group)) for group in (faults, contradictions))
        return VerificationReport(
            blobs=len(blobs),
            damaged=damage_documents,
            records=records,
            head=chain_head,
            runs=runs,
            contradictions=differing,
        )

    def _run(self, target: str | Lock) -> RunId:
        assert isinstance(target, str)
        return parse_run_id(target)

    def _compare(self, runs: Sequence[RunId], progress: "Progress") -> tuple[int, list[BenchlockError]]:
        """Read all evidence of runs again; return the number of compared runs, and an error for each that differs."""
        faults: list[BenchlockError] = []
        count = 0
        with progress.task("comparing records with their evidence", len(runs)) as advance:
            for id_ in runs:
                try:
                    run = self.records.as_recorded(id_)
                    if run.end is not None:
                        count += 1
                        refuse_unverified(id_, self.opened.examiner.compare(run, again=True))
                except (IntegrityError, UnverifiedError) as error:
                    faults.append(error)
                advance(1)
        return count, faults

    def _target_blobs(self, inventory: "Inventory", target: str | Lock) -> "Names":
        if not isinstance(target, str):
            return inventory.of_lock(target)
        if target.startswith(RUN_PREFIX):
            return inventory.of_run(self.records.as_recorded(parse_run_id(target)))
        kind, name, text = parse_target(target)
        entry = self.catalogue.newest(kind, name, None if text is None else Constraint.parse(text))
        self.catalogue.check(entry.reference)
        return inventory.of_version(entry.reference)

    def collect(self, *, dry_run: bool, local: bool) -> GcReport:
        """Delete unreferenced blobs, expired uploads and unused matches of the queue."""
        from benchlock.api.client.embedded_queue import open_queue  # noqa: PLC0415 - used by `gc` only

        # The cache is evicted first, because a damaged listing would stop the garbage collection.
        evicted = self._require_cache("--local").evict(dry_run=dry_run) if local else None
        uploads = open_uploads(self.opened)
        given_up = uploads.sweep(dry_run=dry_run)

        def live() -> "Iterator[Digest]":
            yield from self.records.live_digests()
            yield from uploads.held()

        result = collect_garbage(self.store, self.catalogue, live, dry_run=dry_run, forget=uploads.forget_expired)
        if not dry_run:
            open_queue(self.opened).remove_unused_matches()
        local_report = None if evicted is None else _evicted_document(evicted)
        return GcReport(
            blobs=len(result.digests),
            bytes=result.size,
            dry_run=dry_run,
            local=local_report,
            leftovers=result.leftovers + given_up,
        )

    def import_bundle(
        self, path: Path, progress: "Progress", admission: "BundleAdmission | None" = None
    ) -> ImportReport:
        """Import a bundle; ``admission`` decides which of its parts a client of the service may import."""
        from benchlock.evaluator.workflows.bundles import import_bundle  # noqa: PLC0415 - used by `bundle import` only
        from benchlock.registry.publishing.lock_bundle import describe_absent_parts  # noqa: PLC0415 - as above

        with suppress(OSError):  # a file that cannot be read is reported by the import
            open_reserve(self.opened).require(path.stat().st_size)
        scratch = self.home / SCRATCH
        result = import_bundle(path, self.store, self.opened.database, now, progress, scratch, admission)
        skipped = result.artifacts.kept_out.items()
        return wire.ImportReport(
            lock=result.lock.id,
            changed=result.changed,
            runs=tuple(wire.ImportedRun(run=run, changed=is_new) for run, is_new in result.runs.items()),
            platforms=tuple(str(platform) for platform in result.platforms),
            artifacts=tuple(map(encode_published_version, result.artifacts.published)),
            kept_out=tuple(
                wire.SkippedArtifact(
                    kind=reference.kind, name=reference.name, version=str(reference.version), reason=reason
                )
                for reference, reason in skipped
            ),
            blobs=result.blobs,
            warnings=(*result.warnings, *describe_absent_parts(result.platforms)),
        )

    def describe(self) -> Json:
        """Describe the registry's folder, database, store and disk, and check the pages of its database."""
        database = describe_database(self.opened.database, self.home)
        damaged = [fault.what for fault in find_storage_damage(self.opened.database)]
        pages = f"{len(damaged)} errors" if damaged else "no errors"
        return {
            "registry": str(self.home),
            "database": database,
            "schema": this_build().schema,  # any other revision is refused when the registry is opened
            "store": describe_store(self.opened),
            "disk": _describe_space(open_reserve(self.opened).measure()),
            "integrity": "; ".join(
                (f"{pages} in pages and indexes", *describe_checks(self.opened.database), _UNCHECKED)
            ),
            "damaged": damaged,
        }

    def _require_cache(self, option: str) -> "CachedStore[Any]":
        """Return the store with an OCI repository or a bucket behind it, which ``option`` requires."""
        from benchlock.artifacts.stores.cached_store import CachedStore  # noqa: PLC0415 - unused by a registry in a folder

        if not isinstance(self.store, CachedStore):
            what = f"{option} requires a registry with its blobs in an OCI repository or a bucket"
            raise InvalidInputError(what)
        return self.store


_UNCHECKED = "records and blobs not checked (run `benchlock verify`)"


def _evicted_document(evicted: "EvictionReport") -> dict[str, Any]:
    """Describe what was evicted, and the digests of blobs that stay because the repository has no intact copy."""
    size = sum(blob.size for blob in evicted.gone)
    return {"blobs": len(evicted.gone), "bytes": size, "kept": list(evicted.kept)}


def _describe_space(space: "DiskSpace") -> str:
    """Describe the free disk space, and the consequence if only the reserve is left."""
    text = f"{spell_bytes(space.free)} of {spell_bytes(space.size)} free, {spell_bytes(space.reserve)} reserved"
    return f"{text}: nearly full; uploads and imports are refused" if space.is_low else text
