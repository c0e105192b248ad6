"""The registry of the Python API: one class over a folder and a server alike."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchlock.api.cli.output import Bars
from benchlock.api.client.draft_publication import Publisher, read_draft
from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.client.lock_runs import LockRunner, compare_by_id
from benchlock.api.client.remote_registry import open_remote
from benchlock.api.client.user_files import load_lock, read_request
from benchlock.api.local.local_registry import open_registry
from benchlock.api.python.results import ArtifactVersion, Comparison, Lock, Rerun, Run, Runs
from benchlock.api.schemas import registry_protocol
from benchlock.api.settings import locate_registry
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.user_output import SILENT, Progress, escape_line
from benchlock.evaluator.evidence.prediction_scores import PredictionPairs
from benchlock.evaluator.records.evidence_status import SCRATCH
from benchlock.evaluator.records.run_types import (
    DamagedRun,
    Isolation,
    Outcome,
    RunFilter,
    RunId,
    VersionSelector,
    parse_isolation,
    parse_outcome,
    parse_run_id,
    parse_since,
)
from benchlock.registry.artifact_names import parse_kind, parse_target
from benchlock.registry.catalogue.catalogue_protocol import Entry
from benchlock.registry.lock import lockfile
from benchlock.registry.manifests import plain
from benchlock.registry.publishing.drafts import Draft
from benchlock.registry.requests.evaluation_request import parse_request
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.versions.version_ranges import Constraint

_LOGGER: Final = logging.getLogger("benchlock")
"""Gets messages for people. It has no handler: without logging set up, Python prints warnings alone."""
"""The number of runs that are read at once."""


def open(  # noqa: A001 - users write benchlock.open, as gzip.open and sqlite3.connect
    location: str | PathLike[str] | None = None,
    *,
    token: str | None = None,
    create: bool = False,
    progress: bool | None = None,
) -> "Registry":
    """Open a registry.

    Args:
        location: A folder, or the URL of a server. By default that of BENCHLOCK_REGISTRY, of a configuration file, or
            ``benchlock`` in the folder of your applications' data, as for the command line.
        token: The token for a server; by default that of BENCHLOCK_TOKEN or BENCHLOCK_TOKEN_FILE.
        create: Create the registry if the folder has none.
        progress: Show progress bars; by default in a terminal, and in a notebook with ipywidgets.

    Raises:
        UnknownNameError: The folder has no registry, and ``create`` is false.
        InvalidInputError: The URL is invalid or not encrypted, or a token was given for a folder.
        UnavailableError: The folder or the database cannot be used.
    """
    place = str(os.fspath(location)) if location is not None else locate_registry()
    bars: Progress = Bars(forced=True) if (_can_show_bars() if progress is None else progress) else SILENT
    if "://" in place:
        remote = open_remote(place, _say, bars, token)
        return Registry(remote, remote.client.where, bars, remote.client.close)
    if token is not None:
        raise InvalidInputError(
            "a registry in a folder takes no token",
            where=place,
            next_step="omit the token, or give the URL of a server",
        )
    local = open_registry(place, _say, bars, create=create)
    return Registry(EmbeddedRegistry(local), str(local.home), bars, local.database.dispose)


def _say(message: str) -> None:
    """Log a message for people; warnings are marked by their first word."""
    _LOGGER.log(logging.WARNING if message.startswith("warning: ") else logging.INFO, "%s", escape_line(message))


def _warn(message: str) -> None:
    _LOGGER.warning("%s", escape_line(message))


def _can_show_bars() -> bool:
    """Check whether progress bars appear: in a terminal, or in a notebook with the widgets that they need."""
    return sys.stderr.isatty() or ("ipykernel" in sys.modules and find_spec("ipywidgets") is not None)


class Registry:
    """A registry, in a folder of this machine or on a server.

    ``benchlock.open`` opens one. It may be used by several threads, and as a context manager, which closes it.
    """

    def __init__(
        self, opened: registry_protocol.Registry, location: str, progress: Progress, close: Callable[[], None]
    ) -> None:
        """Use the registry ``opened``; ``close`` releases its connections. Users call ``benchlock.open``."""
        self._opened = opened
        self._location = location
        self._progress = progress
        self._close = close

    def publish(self, *paths: str | PathLike[str], dry_run: bool = False) -> tuple[ArtifactVersion, ...]:
        """Publish manifests with their files.

        Args:
            *paths: Manifests, or folders with a ``manifest.yaml``.
            dry_run: Check everything without publishing.

        Returns:
            The version of each manifest. Its ``changed`` is false if the same content was published before.

        Raises:
            InvalidInputError: A manifest is invalid, or its files contradict it; ``problems`` are all errors.
        """
        problems, drafts = Problems(), list[Draft]()
        for path in paths:
            with problems.noted():
                drafts.append(read_draft(Path(path)))
        publisher = Publisher(self._opened.catalogue, self._opened.store, self._progress, _say, _warn)
        with problems.noted():  # after an error in one manifest, the others are still checked
            results = publisher.publish(drafts, dry_run=dry_run or bool(problems.found))
        problems.refuse()
        return tuple(
            ArtifactVersion(
                result.reference.kind,
                result.reference.name,
                str(result.reference.version),
                result.digest,
                changed=result.changed,
            )
            for result in results
        )

    def versions(self, target: str = "") -> tuple[ArtifactVersion, ...]:
        """Return published versions, yanked ones included.

        Args:
            target: A kind such as ``model``, or ``KIND/NAME``, or ``KIND/NAME@CONSTRAINT``; by default all of them.

        Raises:
            UnknownNameError: There is no artifact with the name.
        """
        if "/" not in target:
            entries = self._opened.catalogue.list(parse_kind(target) if target else None)
            return tuple(map(_version, entries))
        kind, name, text = parse_target(target)
        constraint = None if text is None else Constraint.parse(text)
        entries = self._opened.catalogue.versions(kind, name)
        return tuple(
            _version(entry) for entry in entries if constraint is None or constraint.admits(entry.reference.version)
        )

    def manifest(self, target: str) -> dict[str, Any]:
        """Return the manifest of the newest version that ``KIND/NAME[@CONSTRAINT]`` admits, as JSON values.

        Raises:
            UnknownNameError: There is none.
        """
        kind, name, text = parse_target(target)
        entry = self._opened.catalogue.newest(kind, name, None if text is None else Constraint.parse(text))
        document: dict[str, Any] = plain(self._opened.catalogue.manifest(entry.reference))
        return document

    def lock(self, request: str | PathLike[str] | Mapping[str, Any], *, as_of: str = "") -> Lock:
        """Resolve a request to exact versions, and store the lock in the registry.

        Args:
            request: A request file, or a request as a mapping.
            as_of: Use the catalogue at this time, such as ``2026-11-20T12:00:00Z``.

        Raises:
            InvalidInputError: The request is invalid.
            ConflictError: No versions satisfy the request; the message explains why.
        """
        if isinstance(request, Mapping):
            document = {**request, **({"as_of": as_of} if as_of else {})}
            result = self._opened.lock(parse_request(document, "request"), {})
        else:
            result = self._opened.lock(read_request(Path(request), as_of), {})
        return Lock(result.lock, result.warnings)

    def get_lock(self, lock: str | PathLike[str]) -> Lock:
        """Return the lock in a lockfile, or the stored lock whose id begins with ``lock`` (``sha256:…``).

        Raises:
            UnknownNameError: There is no such lock.
            InvalidInputError: The file is not a lockfile.
            IntegrityError: The content of the lock does not match its id.
        """
        return Lock(self._read_lock(lock))

    def run(
        self, lock: Lock | str | PathLike[str], *, isolation: Isolation | None = None, allow_code: bool = False
    ) -> Run:
        """Verify and run a lock on this machine, and record the run.

        Args:
            lock: A lock, a lockfile, or the id of a lock.
            isolation: ``container`` or ``process``; by default a container if possible.
            allow_code: Allow code of the model to run without a container.

        Returns:
            The recorded run, also of a failed one: check its ``outcome``.

        Raises:
            IntegrityError: Content does not match the lock; nothing was started.
            UnavailableError: This machine cannot run the lock.
        """
        locked = self._read_lock(lock)
        return Run(self._runner(isolation, allow_code=allow_code).run(locked), locked)

    def rerun(
        self,
        target: Run | Lock | str | PathLike[str],
        *,
        against: Run | str | None = None,
        repeat: int | None = None,
        isolation: Isolation | None = None,
        allow_code: bool = False,
    ) -> Rerun:
        """Run a lock again, and compare with an earlier run.

        Args:
            target: The run to reproduce, or its id; or a lock, a lockfile, or the id of a lock.
            against: The run to compare with; by default ``target``, or the latest run of the lock.
            repeat: The number of new runs; by default 1, or 12 if the request states an ``equivalence``.
            isolation: As for ``run``.
            allow_code: As for ``run``.

        Raises:
            InvalidInputError: There is no run to compare with.
            BenchlockError: As ``run``.
        """
        original, locked = self._find_original(target)
        if against is not None:
            original = _run_id(against)
        result = self._runner(isolation, allow_code=allow_code).rerun(locked, original, repeat)
        return Rerun(result, locked)

    def compare(self, *runs: Run | str, force: bool = False) -> Comparison:
        """Compare recorded runs, each further lock with the first.

        Args:
            *runs: Two or more runs, or their ids.
            force: Compare them even if they are not comparable.

        Raises:
            RefusedError: The runs have different conditions, and ``force`` is false.
        """
        pairs = PredictionPairs(self._opened.store, self._opened.home / SCRATCH)
        ids = [_run_id(run) for run in runs]
        return Comparison(compare_by_id(self._opened.records, self._read_lock, ids, pairs.compare, force=force))

    def get_run(self, run: str) -> Run:
        """Return a run by its id.

        Raises:
            UnknownNameError: There is no such run.
        """
        record = self._opened.records.get(parse_run_id(run))
        return Run(record, self._known_lock(record.start.lock))

    def runs(
        self,
        *,
        model: str | None = None,
        dataset: str | None = None,
        outcome: Outcome | None = None,
        since: str | None = None,
        lock: Lock | str | PathLike[str] | None = None,
        limit: int = 20,
    ) -> Runs:
        """Return recorded runs, newest first.

        Args:
            model: Only runs of this model: a name, or a name with a constraint such as ``digits@^1.0``.
            dataset: Only runs on this dataset, in the same form.
            outcome: Only runs with this outcome.
            since: Only runs since a date such as ``2026-11-01``, or within a period before now such as ``7d``.
            lock: Only runs of this lock: a lock, a lockfile, or the id of a lock.
            limit: The maximum number of runs.

        Raises:
            InvalidInputError: A filter has another form.
        """
        chosen = RunFilter(
            model=VersionSelector.parse(model) if model else None,
            dataset=VersionSelector.parse(dataset) if dataset else None,
            outcome=parse_outcome(outcome) if outcome else None,
            since=parse_since(since, self._opened.now()) if since else None,
            lock=None if lock is None else self._read_lock(lock).id,
        )
        entries = self._opened.records.list_entries(chosen=chosen, limit=limit)
        intact = [entry for entry in entries if not isinstance(entry, DamagedRun)]
        locks = {id_: self._known_lock(id_) for id_ in {run.start.lock for run in intact}}
        damaged = {str(entry.id): entry.damage for entry in entries if isinstance(entry, DamagedRun)}
        return Runs(tuple(Run(run, locks[run.start.lock]) for run in intact), damaged)

    def close(self) -> None:
        """Close the connections of the registry."""
        self._close()

    def __enter__(self) -> Self:
        """Return the registry."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the registry."""
        self.close()

    def __repr__(self) -> str:
        """Return the location of the registry."""
        return f"<Registry {self._location}>"

    def _runner(self, isolation: Isolation | None, *, allow_code: bool) -> LockRunner:
        return LockRunner(self._opened, self._progress, _say, parse_isolation(isolation or ""), allow_code)

    def _read_lock(self, lock: Lock | str | PathLike[str]) -> lockfile.Lock:
        if isinstance(lock, Lock):
            return lock._record  # noqa: SLF001 - a class of this package
        return load_lock(self._opened.catalogue, os.fspath(lock))

    def _known_lock(self, id_: Digest) -> lockfile.Lock | None:
        """Load a lock; log a warning and return None if it cannot be read, so that its runs are shown anyway."""
        try:
            return self._read_lock(id_)
        except BenchlockError as error:
            _warn(error.what)
            return None

    def _find_original(self, target: Run | Lock | str | PathLike[str]) -> tuple[RunId | None, lockfile.Lock]:
        """Return the run that ``target`` names, None for a lock, and the lock."""
        if isinstance(target, Run) or (isinstance(target, str) and target.startswith("run/")):
            id_ = _run_id(target)
            return id_, self._read_lock(self._opened.records.get(id_).start.lock)
        return None, self._read_lock(target)


def _run_id(run: Run | str) -> RunId:
    return parse_run_id(run if isinstance(run, str) else run.id)


def _version(entry: Entry) -> ArtifactVersion:
    reference = entry.reference
    return ArtifactVersion(
        reference.kind, reference.name, str(reference.version), entry.digest, entry.published_at, entry.yanked
    )
