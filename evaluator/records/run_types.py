"""A run's start and end, checks of a record, and the interfaces of run stores.

An incomplete record is refused, because a number without its conditions is worthless.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Final, Literal, NewType, Protocol, get_args

from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Descriptor, Digest, DigestText, parse_digest
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.artifacts.json_codec import encode_canonical, prepare_decoder
from benchlock.artifacts.size_limits import Word, limit_document, limit_text
from benchlock.evaluator.records.evidence_status import EvidenceStatus
from benchlock.evaluator.statistics.metric_types import Count, Metric, metric_faults
from benchlock.registry.artifact_names import Name, Reference, parse_name
from benchlock.registry.database.ids_and_timestamps import as_json, is_id, new_id, parse_id_time, to_milliseconds
from benchlock.registry.manifests.metric_definitions import is_quality
from benchlock.registry.versions.version_ranges import Constraint

RunId = NewType("RunId", str)
RunText = Annotated[RunId, Meta(pattern=r"^run/[0-9a-hjkmnp-tv-z]{26}$", examples=["run/01kam1v3mz4w0q3d5g7h9j2k4m"])]
Moment = Annotated[datetime, Meta(tz=True)]
Isolation = Literal["container", "process"]
Outcome = Literal["done", "failed", "abandoned", "cancelled"]
Json = Mapping[str, Any]

PLATFORM_FACTS = ("os", "arch", "device", "python")
HOST_FACTS = (
    "cpu_model",
    "cpu_flags",
    "cores",
    "memory",
    "kernel",
    "governor",
    "engine",
    "accelerator",
    "driver",
)
"""The facts that every fingerprint of a host has; null means that the host has no such thing."""
MAY_BE_NONE = ("governor", "engine", "accelerator", "driver")

CONTAINER_CPU = "container_cpu"
"""The timing with the CPU seconds of the model's container, as its control group counted them."""
SELF_REPORTED = "self_reported"
"""The key of a record's details that names the metrics that code of the model could have forged."""
CALLS: Final = "calls"
"""The key of a record's details with the statistics of disturbed calls."""

_PREFIX = "run/"
_PERIOD: Final = re.compile(r"([0-9]{1,6})([dhm])")
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ROLE_PATTERN: Final = "^[a-z0-9]+(-[a-z0-9]+)*$"
"""The pattern of roles of blobs: words that are not a path on any system."""
_ROLE: Final = re.compile(ROLE_PATTERN)
Role = Annotated[str, limit_text(size_limits.ROLE, pattern=ROLE_PATTERN)]
_MAX_PHASES = size_limits.TIMINGS // (size_limits.WORD + 64)
"""The number of timings that always fits into their size limit, however long their names are."""


class RunEndedError(RefusedError):
    """The refusal to end a run again; it keeps its end."""

    code = "run-ended"


class IncompleteRecordError(InvalidInputError):
    """A record that lacks a field that every record has."""

    code = "incomplete-record"


class RunStart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The start of a run.

    Attributes:
        id: The id.
        lock: The digest of the lock.
        attempt: The number of this run among the runs of its lock, from 1.
        isolation: Container or process.
        platform: The facts in ``PLATFORM_FACTS``.
        host: The facts in ``HOST_FACTS``.
        process: The process that executes the run, so that an abandoned run can be distinguished from a live one.
        started_at: The calendar time.
        image_id: The image of a container; None for a process.
    """

    id: RunText
    lock: DigestText
    attempt: Count
    isolation: Isolation
    platform: Annotated[
        Mapping[Word, Annotated[str, limit_text(size_limits.PLATFORM)]], limit_document(size_limits.PLATFORM)
    ]
    host: Annotated[Mapping[Word, Any], limit_document(size_limits.HOST)]
    process: Annotated[Mapping[Word, Any], limit_document(size_limits.PROCESS)]
    started_at: Moment
    image_id: DigestText | None = None

    @property
    def platform_name(self) -> str:
        """The platform as locks write it: ``linux/amd64/cpu``."""
        return "/".join(str(self.platform[fact]) for fact in ("os", "arch", "device"))


class RunEnd(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of a run.

    ``packages`` map names to versions, ``blobs`` roles (predictions, …) to files, ``timings`` phases to seconds.

    Metrics that ``details`` name as self-reported are marked. If a metric of time is marked, so are the statistics of
    single calls in ``details``.
    """

    outcome: Outcome
    ended_at: Moment
    failure_class: Word | None = None
    failure_message: Annotated[str, limit_text(size_limits.FAILURE_MESSAGE)] | None = None
    metrics: Annotated[tuple[Metric, ...], Meta(max_length=size_limits.METRICS)] = ()
    packages: Annotated[Mapping[Word, Word], Meta(max_length=size_limits.PACKAGES)] = {}
    blobs: Annotated[Mapping[Role, Descriptor], Meta(max_length=size_limits.BLOBS)] = {}
    timings: Annotated[Mapping[Word, float], Meta(max_length=size_limits.PHASES)] = {}
    details: Annotated[Json, limit_document(size_limits.DETAILS)] = {}

    def __post_init__(self) -> None:
        """Mark self-reported metrics and calls."""
        names = self.details.get(SELF_REPORTED)
        if isinstance(names, list | tuple) and names:
            metrics = tuple(
                replace(metric, self_reported=True) if metric.name in names else metric for metric in self.metrics
            )
            force_setattr(self, "metrics", metrics)
        if self.times_self_reported:
            force_setattr(self, "details", mark_calls(self.details, self_reported=True))

    @property
    def times_self_reported(self) -> bool:
        """Whether code of the model ran in the process that times calls and keeps LoadGen's log."""
        return any(metric.self_reported and not is_quality(metric.name) for metric in self.metrics)


def mark_calls(details: Json, *, self_reported: bool) -> Json:
    """Return the details with a mark on the statistics of single calls, as far as they can be read."""
    calls = details.get(CALLS)
    if not isinstance(calls, Mapping):
        return details
    marked = {
        name: [_mark_figure(figure, self_reported=self_reported) for figure in part]
        for name, part in calls.items()
        if isinstance(part, list | tuple)
    }
    return {**details, CALLS: {**calls, **marked}}


def _mark_figure(figure: object, *, self_reported: bool) -> object:
    if not isinstance(figure, Mapping) or figure.get(SELF_REPORTED, False) == self_reported:
        return figure
    return {**figure, SELF_REPORTED: self_reported}


class Hiding(Struct, frozen=True):
    """When and why a record was hidden from everybody but administrators."""

    reason: str
    at: datetime


@prepare_decoder
class Run(Struct, frozen=True):
    """A run as recorded; without an end it is running, or abandoned and not yet reaped.

    Attributes:
        start: Its start.
        end: Its end. Metrics that do not agree with the evidence are withheld.
        imported_at: When it was imported from a bundle; None if it ran here.
        evidence: Whether the record agrees with its blobs; None if nobody has compared them.
        hidden: Why it is hidden from everybody but administrators; None if it is not.
        position: The position of the end in the chain of records; None without an end, or if the server does not send
            it.
    """

    start: RunStart
    end: RunEnd | None
    imported_at: datetime | None = None
    evidence: EvidenceStatus | None = None
    hidden: Hiding | None = None
    position: int | None = None

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same record; evidence and position are known of it, and no part of it."""
        if not isinstance(other, Run):
            return NotImplemented
        names = ("start", "end", "imported_at", "hidden")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    @property
    def id(self) -> RunId:
        """The id."""
        return self.start.id

    @property
    def order(self) -> tuple[int, RunId]:
        """A key that sorts ended runs by when this registry recorded their ends; a client chooses id and times."""
        return self.position or 0, self.id


class DamagedRun(Struct, frozen=True):
    """A run in a list whose record is damaged: its id and the damage; no other field of it is shown."""

    id: RunText
    damage: str


@dataclass(frozen=True, slots=True)
class VersionSelector:
    """The versions of a name that a constraint admits; without a constraint, all of them."""

    name: Name
    constraint: Constraint | None = None

    @staticmethod
    def parse(text: str) -> "VersionSelector":
        """Parse ``NAME[@CONSTRAINT]``.

        Raises:
            InvalidInputError: The text has another form.
        """
        name, at, constraint = text.partition("@")
        if at and not constraint.strip():
            raise InvalidInputError(
                f"missing version in {text!r}", next_step="write NAME or NAME@CONSTRAINT, such as resnet8@^1.0"
            )
        return VersionSelector(parse_name(name), Constraint.parse(constraint.strip()) if at else None)

    def __str__(self) -> str:
        """Return ``NAME[@CONSTRAINT]``."""
        return self.name if self.constraint is None else f"{self.name}@{self.constraint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """A filter of runs: all conditions that are set must be met.

    Attributes:
        lock: The lock of the run.
        outcome: The outcome; a run without an end has none.
        model: The locked model.
        operator: The locked operator.
        recipe: The locked recipe.
        dataset: The locked dataset.
        since: The time that the run was started at, or an earlier one. The run's id has that time.
        prefix: The first characters of the run's id, with ``run/``.
        flagged: Whether the times are flagged, by disturbed calls, late queries or clocks that disagree. A damaged run
            is neither.
    """

    lock: Digest | None = None
    outcome: Outcome | None = None
    model: VersionSelector | None = None
    operator: VersionSelector | None = None
    recipe: VersionSelector | None = None
    dataset: VersionSelector | None = None
    since: datetime | None = None
    prefix: str | None = None
    flagged: bool | None = None


@dataclass(frozen=True, slots=True)
class PromotedModel:
    """A model that was promoted from a training.

    Attributes:
        name: Its name.
        version: Its version.
        lock: The lock of the training, as its manifest states it.
        role: The role of its weights among the files of a run.
        run: The newest run of the lock that recorded these weights.
    """

    name: str
    version: str
    lock: Digest
    role: str
    run: RunId


ALL_RUNS: Final = RunFilter()
SELECTED_KINDS: Final = ("model", "operator", "recipe", "dataset")
"""The kinds of artifacts by which a filter selects runs."""


def filter_version(reference: Reference, **conditions: Any) -> RunFilter:  # noqa: ANN401 - fields of a filter
    """Return the filter of the runs of a version of one of ``SELECTED_KINDS`` that meet further conditions."""
    return RunFilter(**parse_selectors(**{reference.kind: f"{reference.name}@={reference.version}"}), **conditions)


def parse_selectors(**texts: str | None) -> dict[str, Any]:
    """Parse the selectors of a filter by kind, without those that are None; raise as ``VersionSelector.parse``."""
    return {kind: VersionSelector.parse(text) for kind, text in texts.items() if text is not None}


def parse_outcome(text: str) -> Outcome:
    """Parse an outcome.

    Raises:
        InvalidInputError: There is no such outcome.
    """
    outcomes: dict[str, Outcome] = {outcome: outcome for outcome in get_args(Outcome)}
    if text in outcomes:
        return outcomes[text]
    raise InvalidInputError(f"unknown outcome {text!r}", next_step=f"use one of {', '.join(get_args(Outcome))}")


def parse_since(text: str, now: datetime) -> datetime:
    """Parse the earliest time of a list: ``2026-11-01``, a time with its zone, or a period before now such as ``7d``.

    A date is its midnight in UTC.

    Raises:
        InvalidInputError: The text has another form, or the time is before 1970.
    """
    period = _PERIOD.fullmatch(text)
    try:
        if period is not None:
            at = now - timedelta(**{_UNITS[period[2]]: int(period[1])})
        else:
            at = datetime.fromisoformat(text)
            at = at.replace(tzinfo=UTC) if len(text) == len("2026-11-01") else at
    except (ValueError, OverflowError):
        at = None
    if at is None or at.tzinfo is None or at < _EPOCH:
        raise InvalidInputError(
            f"invalid time {text[:40]!r}",
            where="since",
            next_step="write a date (2026-11-01), a time with its zone (2026-11-01T12:00:00Z), or a period such as 7d",
        )
    return at


def new_run_id(at: datetime, random: bytes | None = None) -> RunId:
    """Create a new id; later runs sort after earlier ones."""
    return RunId(_PREFIX + new_id(at, random))


def parse_run_id(text: str) -> RunId:
    """Parse a run id.

    Raises:
        InvalidInputError: The text is not a run id.
    """
    if not text.startswith(_PREFIX) or not is_id(text.removeprefix(_PREFIX)):
        raise InvalidInputError(
            f"invalid run id {text!r}", next_step="use an id as listed by `runs`: run/ and 26 characters"
        )
    return RunId(text)


def parse_isolation(text: str) -> Isolation | None:
    """Parse an isolation; return None for an empty text.

    Raises:
        InvalidInputError: It is unknown.
    """
    if not text:
        return None
    if text == "container":
        return "container"
    if text == "process":
        return "process"
    raise InvalidInputError(f"unknown isolation {text!r}", next_step="use container or process")


def replace_nul(text: str) -> str:
    """Replace the NUL characters of a text, which PostgreSQL cannot store."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def clean_message(end: RunEnd) -> RunEnd:
    """Return the end without NUL characters in its failure message."""
    if end.failure_message is None:
        return end
    return replace(end, failure_message=replace_nul(end.failure_message))


def check_same_end(run: Run, end: RunEnd) -> None:
    """Raise unless ``run`` has this end. The times may differ, because the first report sets the time.

    Raises:
        RunEndedError: The run has another end.
    """
    assert run.end is not None
    if _sort_metrics(replace(run.end, ended_at=end.ended_at)) != _sort_metrics(_round_trip(end)):
        raise RunEndedError(f"{run.id} has ended already: {run.end.outcome}", where=run.id)


def _round_trip(end: RunEnd) -> RunEnd:
    """Return the end as the registry returns it: after a round trip through JSON."""
    details, timings = (json.loads(as_json(part)) for part in (end.details, end.timings))
    return replace(clean_message(end), details=details, timings=timings)


def _sort_metrics(end: RunEnd) -> RunEnd:
    """Return the end with sorted metrics, because the registry stores them without an order."""
    return replace(end, metrics=tuple(sorted(end.metrics, key=lambda metric: metric.key)))


def check_start(start: RunStart) -> None:
    """Raise if a start is incomplete, or its id is of a later time, so that it would sort as a later run.

    Raises:
        IncompleteRecordError: A field is missing or contradicts another; the message names it.
    """
    parse_run_id(start.id)
    parse_digest(start.lock)
    gaps = [f"platform.{fact}" for fact in PLATFORM_FACTS if not start.platform.get(fact)]
    gaps += [f"host.{fact}" for fact in HOST_FACTS if fact not in start.host]
    gaps += [f"host.{fact}" for fact in HOST_FACTS if start.host.get(fact, 1) in (None, "") and fact not in MAY_BE_NONE]
    gaps += ["image_id"] if start.isolation == "container" and not start.image_id else []
    gaps += ["isolation"] if start.isolation not in get_args(Isolation) else []
    gaps += ["attempt"] if start.attempt < 1 else []
    gaps += ["process"] if not start.process else []
    if start.started_at.tzinfo is None:
        gaps.append("started_at")
    elif parse_id_time(start.id.removeprefix(_PREFIX)) > to_milliseconds(start.started_at):
        gaps.append("started_at (before the time of the id)")
    _refuse(start.id, gaps)
    size_limits.check_document(start.platform, size_limits.PLATFORM, "platform")
    size_limits.check_document(start.host, size_limits.HOST, "host")
    size_limits.check_document(start.process, size_limits.PROCESS, "process")


def check_end(start: RunStart, end: RunEnd) -> None:
    """Raise if an end is incomplete, or contradicts itself or its start.

    Raises:
        IncompleteRecordError: A field is missing or contradicts another; the message names it.
    """
    check_consistency(start, end)
    _check_limits(end)


def check_consistency(start: RunStart, end: RunEnd) -> None:
    """Raise as ``check_end`` does, without the limits of texts, which old records may exceed."""
    gaps = ["outcome"] if end.outcome not in get_args(Outcome) else []
    if end.ended_at.tzinfo is None or end.ended_at.astimezone(UTC) < start.started_at:
        gaps.append("ended_at (before the start, or without a zone)")
    failure = (end.failure_class, end.failure_message)
    if end.outcome == "failed" and not all(failure):
        gaps.append("failure class and message")
    if end.outcome != "failed" and any(failure):
        gaps.append(f"outcome (a failure is given, and {end.outcome!r})")
    if end.outcome == "done":
        # A record without metrics is complete: a request may want predictions alone.
        required = {"packages": end.packages, "blobs": end.blobs, "timings": end.timings}
        gaps += [name for name, value in required.items() if not value]
    gaps += metric_faults(end.metrics)
    gaps += [f"packages.{name}" for name, version in end.packages.items() if not version]
    gaps += [f"blobs: the role {role!a:.80}" for role in end.blobs if not _ROLE.fullmatch(role)]
    _refuse(start.id, gaps)


def _check_limits(end: RunEnd) -> None:
    """Raise ``TooLongError`` if a text or a document of the end exceeds its limit."""
    size_limits.check_count(end.metrics, size_limits.METRICS, "metrics")
    size_limits.check_count(end.packages, size_limits.PACKAGES, "packages")
    size_limits.check_count(end.blobs, size_limits.BLOBS, "blobs")
    size_limits.check_count(end.timings, size_limits.PHASES, "timings")
    for metric in end.metrics:
        size_limits.check_text(metric.name, size_limits.WORD, "metrics: name")
        size_limits.check_text(metric.unit, size_limits.WORD, f"metrics.{metric.name}.unit")
    for name, version in end.packages.items():
        size_limits.check_text(name, size_limits.WORD, "packages: name")
        size_limits.check_text(version, size_limits.WORD, f"packages.{name}")
    for role in end.blobs:
        size_limits.check_text(role, size_limits.ROLE, "blobs: role")
    for phase in end.timings:
        size_limits.check_text(phase, size_limits.WORD, "timings: phase")
    size_limits.check_text(end.failure_class or "", size_limits.WORD, "failure_class")
    size_limits.check_text(end.failure_message or "", size_limits.FAILURE_MESSAGE, "failure_message")
    size_limits.check_document(end.timings, size_limits.TIMINGS, "timings")
    size_limits.check_document(end.details, size_limits.DETAILS, "details")


def fit_end(end: RunEnd) -> RunEnd:
    """Return the end with its texts truncated to their limits, each with a visible mark.

    It is for records that benchlock itself makes, so that long output of a model loses no run, and for showing records
    that are older than the limits.
    """
    return replace(
        end,
        failure_class=None if end.failure_class is None else size_limits.truncate(end.failure_class, size_limits.WORD),
        failure_message=(
            None
            if end.failure_message is None
            else size_limits.truncate(end.failure_message, size_limits.FAILURE_MESSAGE)
        ),
        packages=dict(islice(_words(end.packages), size_limits.PACKAGES)),
        timings={
            size_limits.truncate(phase, size_limits.WORD): spent
            for phase, spent in islice(end.timings.items(), _MAX_PHASES)
        },
        details=_fit_details(end.details),
    )


def fit_run(run: Run) -> Run:
    """Return the run with an end whose texts fit their limits; a record may be older than the limits."""
    return run if run.end is None else replace(run, end=fit_end(run.end))


def _words(packages: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return (
        (size_limits.truncate(name, size_limits.WORD), size_limits.truncate(text, size_limits.WORD))
        for name, text in packages.items()
    )


def _fit_details(details: Json) -> Json:
    """Return the details, the largest parts replaced by a mark until they fit together."""
    sizes = {name: len(encode_canonical(part)) for name, part in details.items()}
    fitted = dict(details)
    for name in sorted(sizes, key=lambda name: sizes[name], reverse=True):
        if len(encode_canonical(fitted)) <= size_limits.DETAILS:
            break
        fitted[name] = f"[truncated: {sizes[name]} bytes]"
    return fitted


def _refuse(run: RunId, gaps: list[str]) -> None:
    if gaps:
        raise IncompleteRecordError(
            f"the record of {run} is not stored: {', '.join(gaps)} missing or invalid", where=run
        )


class RunJournal(Protocol):
    """The interface of the place where a run is recorded: the runs of a registry, or the lease of a job."""

    def start(self, start: RunStart) -> None:
        """Record the start of a run. Raises as ``Records.start``."""

    def finish(self, run: RunId, end: RunEnd) -> None:
        """Record the end of a run. Raises as ``Records.finish``."""

    def get(self, run: RunId) -> Run:
        """Return the run as recorded."""

    def count(self, lock: Digest) -> int:
        """Return the number of runs of a lock."""


class RecordedRuns(RunJournal, Protocol):
    """The interface of the runs of a registry; ``Records`` documents each method."""

    def list(self, *, lock: Digest | None = None, outcome: Outcome | None = None, limit: int = 100) -> tuple[Run, ...]:
        """Return summaries of the newest runs, newest first; ``get`` returns a whole run."""
        ...

    def list_entries(
        self,
        *,
        chosen: RunFilter = ALL_RUNS,
        before: RunId | None = None,
        limit: int = 100,
        examine: bool = True,
    ) -> tuple[Run | DamagedRun, ...]:
        """Return summaries of the newest runs, with an entry for each damaged one."""

    def hide(self, run: RunId, reason: str) -> bool:
        """Hide a run; return whether that changed anything."""

    def unhide(self, run: RunId) -> bool:
        """Show a hidden run again; return whether that changed anything."""
