"""The registry of the Python API: one class over a folder and a server alike."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchlock.api.client.draft_publication import Publisher, read_draft
from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.client.id_prefixes import complete_prefix, find_runs
from benchlock.api.client.lock_runs import LockRunner, compare_by_id
from benchlock.api.client.progress_bars import NotebookBars, TerminalBars, is_notebook
from benchlock.api.client.remote_registry import open_remote
from benchlock.api.client.user_files import load_lock, read_request
from benchlock.api.evaluation.image_building import build_image
from benchlock.api.local.local_registry import open_registry
from benchlock.api.local.registry_database import RegistryNotFoundError
from benchlock.api.python.results import (
    ArtifactVersion,
    Claim,
    Comparison,
    Lock,
    Rerun,
    Run,
    Runs,
    Table,
    convert_claim,
)
from benchlock.api.schemas import registry_protocol
from benchlock.api.settings import locate_registry
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.user_output import SILENT, Progress, escape_line
from benchlock.evaluator.images.build import BuildOptions
from benchlock.evaluator.records.run_types import (
    DamagedRun,
    Isolation,
    Outcome,
    RunFilter,
    RunId,
    parse_isolation,
    parse_outcome,
    parse_run_id,
    parse_selectors,
    parse_since,
)
from benchlock.evaluator.workflows.claim_verdicts import claims_of
from benchlock.registry.artifact_names import parse_kind, parse_target
from benchlock.registry.catalogue.catalogue_protocol import Entry, PublishResult
from benchlock.registry.lock import lockfile
from benchlock.registry.manifests import plain
from benchlock.registry.publishing.drafts import Draft
from benchlock.registry.requests.evaluation_request import parse_request
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.versions.version_ranges import Constraint

_LOGGER: Final = logging.getLogger("benchlock")
"""Gets messages for people. It has no handler: without logging set up, Python prints warnings alone."""


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
        progress: Show progress bars; by default in a terminal and in a notebook.

    Returns:
        The registry.

    Raises:
        UnknownNameError: The folder has no registry, and ``create`` is false.
        InvalidInputError: The URL is invalid or not encrypted, or a token was given for a folder.
        UnavailableError: The folder or the database cannot be used.
    """
    place = str(os.fspath(location)) if location is not None else locate_registry()
    bars = _choose_bars(progress)
    if "://" in place:
        remote = open_remote(place, _say, bars, token)
        return Registry(remote, remote.client.where, bars, remote.client.close)
    if token is not None:
        raise InvalidInputError(
            "a registry in a folder takes no token",
            where=place,
            next_step="omit the token, or give the URL of a server",
        )
    try:
        local = open_registry(place, _say, bars, create=create)
    except RegistryNotFoundError as error:
        error.next_step = "open its folder, or create a registry here with create=True"
        raise
    return Registry(EmbeddedRegistry(local), str(local.home), bars, local.database.dispose)


def _say(message: str) -> None:
    """Log a message for people; warnings are marked by their first word."""
    _LOGGER.log(logging.WARNING if message.startswith("warning: ") else logging.INFO, "%s", escape_line(message))


def _warn(message: str) -> None:
    _LOGGER.warning("%s", escape_line(message))


def _choose_bars(progress: bool | None) -> Progress:
    """Return the progress bars of a notebook or a terminal; None requests them wherever they can be shown."""
    if progress is not False and is_notebook():
        return NotebookBars()
    can_show = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return TerminalBars() if (can_show if progress is None else progress) else SILENT


class Registry:
    """A registry, in a folder of this machine or on a server.

    ``benchlock.open`` opens one. It may be used by several threads, and as a context manager, which closes it.
    """

    def __init__(
        self, opened: registry_protocol.Registry, location: str, progress: Progress, close: Callable[[], None]
    ) -> None:
        """Wrap an open registry; users call ``benchlock.open``.

        Args:
            opened: The registry.
            location: Its folder or URL.
            progress: Shows long tasks.
            close: Releases its connections.
        """
        self._opened = opened
        self._location = location
        self._progress = progress
        self._close = close

    def publish(self, *paths: str | PathLike[str], dry_run: bool = False) -> Table[ArtifactVersion]:
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
        return Table(map(_convert_result, results))

    def build_image(self, framework: str, *, layers: bool = True) -> ArtifactVersion:
        """Build and publish an image: the environment of a framework, for this machine's platform.

        Without ``layers``, the build needs nothing but wheels, and the image runs only as processes.

        Args:
            framework: Framework and version, such as ``onnxruntime==1.31.1``.
            layers: Assemble the layers that containers need.

        Returns:
            The version of the image. Its ``changed`` is false if the same image was published before.

        Raises:
            InvalidInputError: There is no such framework or version.
            UnavailableError: The wheels or the base of the image cannot be fetched.
        """
        options, bars = BuildOptions(layers=layers), self._progress
        built = build_image(self._opened, framework, options, steps=bars, transfers=bars)
        return _convert_result(built.results[0])

    def versions(self, target: str = "") -> Table[ArtifactVersion]:
        """Return published versions, yanked ones included.

        Args:
            target: A kind such as ``model``, or ``KIND/NAME``, or ``KIND/NAME@CONSTRAINT``; by default all of them.

        Returns:
            The versions, oldest first.

        Raises:
            UnknownNameError: There is no artifact with the name.
        """
        if "/" not in target:
            entries = self._opened.catalogue.list(parse_kind(target) if target else None)
            return Table(map(_version, entries))
        kind, name, text = parse_target(target)
        constraint = None if text is None else Constraint.parse(text)
        entries = self._opened.catalogue.versions(kind, name)
        return Table(
            _version(entry) for entry in entries if constraint is None or constraint.admits(entry.reference.version)
        )

    def manifest(self, target: str) -> dict[str, Any]:
        """Return the manifest of the newest version of an artifact.

        Args:
            target: ``KIND/NAME``, or ``KIND/NAME@CONSTRAINT`` such as ``model/digits-onnx@^1``.

        Returns:
            The manifest as JSON values.

        Raises:
            UnknownNameError: There is no such version.
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

        Returns:
            The lock.

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
        """Return a lock by its file or its id.

        Args:
            lock: A lockfile, or the beginning of the id of a stored lock: ``sha256:…``.

        Returns:
            The lock.

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

        Returns:
            The verdict with its reasons, and the new runs.

        Raises:
            InvalidInputError: There is no run to compare with.
            BenchlockError: As ``run``.
        """
        original, locked = self._find_original(target)
        if against is not None:
            original = self._find_run_id(against)
        result = self._runner(isolation, allow_code=allow_code).rerun(locked, original, repeat)
        return Rerun(result, locked)

    def compare(self, *runs: Run | str, force: bool = False) -> Comparison:
        """Compare recorded runs, each further lock with the first.

        Args:
            *runs: Two or more runs, or their ids.
            force: Compare them even if they are not comparable.

        Returns:
            The comparison.

        Raises:
            InvalidInputError: There is one run only, or an argument is not a run.
            RefusedError: The runs have different conditions, and ``force`` is false.
        """
        ids = [self._find_run_id(run) for run in runs]
        with self._progress.task("comparing the runs"):
            return Comparison(compare_by_id(self._opened, self._read_lock, ids, force=force))

    def compare_locks(
        self,
        *locks: Lock | str | PathLike[str],
        rounds: int | None = None,
        margins: Mapping[str, float] | None = None,
        isolation: Isolation | None = None,
        allow_code: bool = False,
    ) -> Comparison:
        """Run locks interleaved, and compare each further lock with the first.

        Every round runs each lock once and the first lock twice. The second run is a control: its difference from the
        first is the noise of this machine. The comparison ends at the first run that does not complete.

        Args:
            *locks: Two or more locks, lockfiles or ids of locks, the reference first.
            rounds: The number of rounds, at least 3; by default 6 to 10, depending on the number of locks.
            margins: The relative difference that counts as equivalent, by metric: 0.05 is 5 %.
            isolation: As for ``run``.
            allow_code: As for ``run``.

        Returns:
            The comparison. Check that it is ``comparable``: it is not if a run did not complete.

        Raises:
            InvalidInputError: There is one lock only, or a margin or the number of rounds is out of range.
            RefusedError: The locks measure different things, or the first run did not complete.
            BenchlockError: As ``run``.
        """
        read = [self._read_lock(lock) for lock in locks]
        return Comparison(self._runner(isolation, allow_code=allow_code).compare(read, rounds, margins or {}))

    def claims(self, run: Run | str) -> Table[Claim]:
        """Judge the claims of a run's model for its dataset by the run.

        A single run decides claims on quality. Claims on times need several runs, so they stay open.

        Args:
            run: A run, or its id.

        Returns:
            The judged claims in the order of the manifest; empty if the run did not complete.

        Raises:
            IntegrityError: The manifest is missing or damaged, or the run's record contradicts its evidence.
        """
        record = self._opened.records.get(self._find_run_id(run))
        lock = self._read_lock(record.start.lock)
        with self._progress.task("judging the claims"):
            return Table(map(convert_claim, claims_of(lock, record, self._opened.store)))

    def get_run(self, run: str) -> Run:
        """Return a run by its id.

        Args:
            run: The id, ``run/`` and 26 characters, or its beginning: 4 characters or more of one run only.

        Returns:
            The run.

        Raises:
            UnknownNameError: There is no such run.
        """
        record = self._opened.records.get(self._find_run_id(run))
        return Run(record, self._known_lock(record.start.lock))

    def runs(  # noqa: PLR0913 - the filters of a list
        self,
        *,
        model: str | None = None,
        operator: str | None = None,
        recipe: str | None = None,
        dataset: str | None = None,
        outcome: Outcome | None = None,
        since: str | None = None,
        lock: Lock | str | PathLike[str] | None = None,
        flagged: bool | None = None,
        limit: int = 20,
    ) -> Runs:
        """Return recorded runs, newest first.

        Args:
            model: Only runs of this model: a name, or a name with a constraint such as ``digits@^1.0``.
            operator: Only runs of this operator, in the same form.
            recipe: Only trainings with this recipe, in the same form.
            dataset: Only runs on this dataset, in the same form.
            outcome: Only runs with this outcome.
            since: Only runs since a date such as ``2026-11-01``, or within a period before now such as ``7d``.
            lock: Only runs of this lock: a lock, a lockfile, or the id of a lock.
            flagged: Only runs whose times are flagged; with ``False``, only others.
            limit: The maximum number of runs.

        Returns:
            The runs, and the damage of those whose record cannot be shown.

        Raises:
            InvalidInputError: A filter has another form.
        """
        if limit < 1:
            raise InvalidInputError(f"invalid limit {limit}", next_step="give a limit of 1 or more")
        chosen = RunFilter(
            **parse_selectors(model=model, operator=operator, recipe=recipe, dataset=dataset),
            outcome=parse_outcome(outcome) if outcome else None,
            since=parse_since(since, self._opened.now()) if since else None,
            lock=None if lock is None else self._read_lock(lock).id,
            flagged=flagged,
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

    def _find_run_id(self, run: Run | str) -> RunId:
        """Return the id of a run, which may be abbreviated to an unambiguous beginning."""
        if not isinstance(run, Run | str):
            message = f"not a run: {run!r}"
            raise InvalidInputError(message, next_step="give a run or its id; compare_locks compares locks")
        if isinstance(run, Run):
            return parse_run_id(run.id)
        return parse_run_id(complete_prefix("run", run, partial(find_runs, self._opened)))

    def _find_original(self, target: Run | Lock | str | PathLike[str]) -> tuple[RunId | None, lockfile.Lock]:
        """Return the run that ``target`` names, None for a lock, and the lock."""
        if isinstance(target, str) and not Path(target).is_file():
            target = complete_prefix("run", target, partial(find_runs, self._opened), only=False)
        if isinstance(target, Run) or (isinstance(target, str) and target.startswith("run/")):
            id_ = self._find_run_id(target)
            return id_, self._read_lock(self._opened.records.get(id_).start.lock)
        return None, self._read_lock(target)


def _convert_result(result: PublishResult) -> ArtifactVersion:
    reference = result.reference
    return ArtifactVersion(
        reference.kind, reference.name, str(reference.version), result.digest, changed=result.changed
    )


def _version(entry: Entry) -> ArtifactVersion:
    reference = entry.reference
    return ArtifactVersion(
        reference.kind, reference.name, str(reference.version), entry.digest, entry.published_at, entry.yanked
    )
