"""Runs on the way: all that is recorded of one, so that a client has the same run as the registry."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from benchlock.api.wire.artifacts import DigestText
from benchlock.api.wire.text_limits import limit_document, limit_text
from benchlock.artifacts import limits
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.evaluator.evidence.status import EvidenceStatus, State
from benchlock.evaluator.records.runs import (
    ROLE_PATTERN,
    DamagedRun,
    Hiding,
    Isolation,
    Outcome,
    Run,
    RunEnd,
    RunId,
    RunStart,
    fit_end,
)
from benchlock.evaluator.statistics.figures import Interval, Metric

RunText = Annotated[str, Meta(pattern=r"^run/[0-9a-hjkmnp-tv-z]{26}$", examples=["run/01kam1v3mz4w0q3d5g7h9j2k4m"])]
Role = Annotated[str, limit_text(limits.ROLE, pattern=ROLE_PATTERN)]
Word = Annotated[str, limit_text(limits.WORD)]
Moment = Annotated[datetime, Meta(tz=True)]
Whole = Annotated[int, Meta(ge=0, lt=1 << 62)]
Count = Annotated[int, Meta(ge=1, lt=1 << 31)]


class BlobOnWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    digest: DigestText
    size: Whole


class MetricOnWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``ci`` is two-sided at 95 %, null where n cannot bound that end; ``version`` is of the metric's definition.

    ``self_reported``: code of the model ran in the process that made the figure, which therefore decides nothing.
    """

    name: Word
    value: float
    unit: Word
    direction: Word
    n: Count
    ci: tuple[float | None, float | None]
    version: Count
    batch: Count | None = None
    self_reported: bool = False


class RunBegun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run's start: what runs, on which platform of which host, in the hands of which process."""

    id: RunText
    lock: DigestText
    attempt: Count
    isolation: Isolation
    platform: Annotated[dict[Word, Annotated[str, limit_text(limits.PLATFORM)]], limit_document(limits.PLATFORM)]
    host: Annotated[dict[Word, Any], limit_document(limits.HOST)]
    process: Annotated[dict[Word, Any], limit_document(limits.PROCESS)]
    started_at: Moment
    image_id: DigestText | None = None


class RunOver(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run's end. ``blobs`` by role (predictions, samples, …), ``timings`` in seconds by phase."""

    outcome: Outcome
    ended_at: Moment
    failure_class: Word | None = None
    failure_message: Annotated[str, limit_text(limits.FAILURE_MESSAGE)] | None = None
    metrics: Annotated[tuple[MetricOnWire, ...], Meta(max_length=limits.METRICS)] = ()
    packages: Annotated[dict[Word, Word], Meta(max_length=limits.PACKAGES)] = {}
    blobs: Annotated[dict[Role, BlobOnWire], Meta(max_length=limits.BLOBS)] = {}
    timings: Annotated[dict[Word, float], Meta(max_length=limits.PHASES)] = {}
    details: Annotated[dict[str, Any], limit_document(limits.DETAILS)] = {}


class HiddenRecord(Struct, frozen=True, kw_only=True):
    """Why and since when a record is hidden from everybody but administrators."""

    reason: str
    at: datetime


class EvidenceOnWire(Struct, frozen=True, kw_only=True):
    """Whether the record agrees with its blobs; figures are withheld from the end of one that is not ``verified``.

    ``reasons`` name each difference, ``reported`` the fields that nothing can recompute. ``measurement`` is a digest of
    the latencies of the timed calls: runs of one lock that have the same one count once. ``damaged``: a blob is missing
    or damaged. ``self_reported`` names the metrics that are so whatever the record says.
    """

    state: State
    reasons: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    measurement: DigestText | None = None
    damaged: bool = False
    self_reported: tuple[str, ...] = ()


class RunOnWire(Struct, frozen=True, kw_only=True):
    """A run as recorded; without an end it is running, with ``imported_at`` it came in a bundle.

    ``hidden``, which administrators alone see, says why nobody else sees the run.
    ``evidence`` is null of a run that is running, and so is ``position``: that of the end among all records of the
    registry. It says which run was recorded first, whatever the clocks of hosts said.
    """

    start: RunBegun
    end: RunOver | None
    imported_at: datetime | None
    evidence: EvidenceOnWire | None = None
    hidden: HiddenRecord | None = None
    position: int | None = None


class HideRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to hide, and why; or, with ``undo``, to show again."""

    target: RunText
    reason: Annotated[str, limit_text(limits.REASON)] = ""
    undo: bool = False


class HideResult(Struct, frozen=True, kw_only=True):
    """``changed`` is false where it was so already."""

    target: RunText
    hidden: bool
    changed: bool


class DamagedRunOnWire(Struct, frozen=True, kw_only=True):
    """A run whose record is damaged, and what is damaged; none of its figures is shown."""

    id: RunText
    damage: str


class RunPage(Struct, frozen=True, kw_only=True):
    """Runs, newest first; ``next`` is the cursor of what follows, absent at the end.

    An item has no host, process, packages or blobs, a short failure message, and of the details what says whether its
    figures count. The run itself has all of it. ``damaged`` are the runs of the page whose records are damaged.
    """

    runs: tuple[RunOnWire, ...]
    damaged: tuple[DamagedRunOnWire, ...] = ()
    next: str | UnsetType = UNSET


class RunCount(Struct, frozen=True, kw_only=True):
    """How many runs of a lock there are, whatever their outcome."""

    count: int


class Hold(Struct, frozen=True, kw_only=True):
    """That a run is held: renewed within so many ``seconds``, or it counts as abandoned."""

    run: RunText
    seconds: float


def run_on_wire(run: Run) -> RunOnWire:
    end = None if run.end is None else over_on_wire(run.end)
    hidden = None if run.hidden is None else HiddenRecord(reason=run.hidden.reason, at=run.hidden.at)
    found, evidence = run.evidence, None
    if found is not None:
        evidence = EvidenceOnWire(
            state=found.state,
            reasons=found.reasons,
            reported=found.reported,
            measurement=found.measurement,
            damaged=found.damaged,
            self_reported=found.self_reported,
        )
    start = begun_on_wire(run.start)
    return RunOnWire(
        start=start,
        end=end,
        imported_at=run.imported_at,
        hidden=hidden,
        evidence=evidence,
        position=run.position,
    )


def entry_on_wire(entry: Run | DamagedRun) -> RunOnWire | DamagedRunOnWire:
    if isinstance(entry, DamagedRun):
        return DamagedRunOnWire(id=entry.id, damage=entry.damage)
    return run_on_wire(entry)


def entries_of(page: RunPage) -> tuple[Run | DamagedRun, ...]:
    """Return the runs of a page, and the damaged ones among them, newest first."""
    entries: list[Run | DamagedRun] = [run_of(one) for one in page.runs]
    entries += [DamagedRun(RunId(one.id), one.damage) for one in page.damaged]
    return tuple(sorted(entries, key=lambda one: one.id, reverse=True))


def run_of(run: RunOnWire) -> Run:
    hidden = None if run.hidden is None else Hiding(run.hidden.reason, run.hidden.at)
    found = run.evidence
    evidence = None
    if found is not None:
        measurement = None if found.measurement is None else Digest(found.measurement)
        evidence = EvidenceStatus(
            found.state, found.reasons, found.reported, found.damaged, found.self_reported, measurement
        )
    end = None if run.end is None else end_of(run.end)
    return Run(start_of(run.start), end, run.imported_at, hidden, evidence, run.position)


def begun_on_wire(start: RunStart) -> RunBegun:
    return RunBegun(
        id=start.id,
        lock=start.lock,
        attempt=start.attempt,
        isolation=start.isolation,
        platform=dict(start.platform),
        host=dict(start.host),
        process=dict(start.process),
        started_at=start.started_at,
        image_id=start.image_id,
    )


def start_of(start: RunBegun) -> RunStart:
    return RunStart(
        id=RunId(start.id),
        lock=Digest(start.lock),
        attempt=start.attempt,
        isolation=start.isolation,
        platform=start.platform,
        host=start.host,
        process=start.process,
        started_at=start.started_at,
        image_id=None if start.image_id is None else Digest(start.image_id),
    )


def over_on_wire(end: RunEnd) -> RunOver:
    end = fit_end(end)  # a record may be older than the limits
    return RunOver(
        outcome=end.outcome,
        ended_at=end.ended_at,
        failure_class=end.failure_class,
        failure_message=end.failure_message,
        metrics=tuple(map(_metric_on_wire, end.metrics)),
        packages=dict(end.packages),
        blobs={role: BlobOnWire(digest=blob.digest, size=blob.size) for role, blob in end.blobs.items()},
        timings=dict(end.timings),
        details=dict(end.details),
    )


def end_of(end: RunOver) -> RunEnd:
    return RunEnd(
        outcome=end.outcome,
        ended_at=end.ended_at,
        failure_class=end.failure_class,
        failure_message=end.failure_message,
        metrics=tuple(map(_metric_of, end.metrics)),
        packages=end.packages,
        blobs={role: Descriptor(Digest(blob.digest), blob.size) for role, blob in end.blobs.items()},
        timings=end.timings,
        details=end.details,
    )


def _metric_on_wire(one: Metric) -> MetricOnWire:
    return MetricOnWire(
        name=one.name,
        value=one.value,
        unit=one.unit,
        direction=one.direction,
        n=one.n,
        ci=(one.ci.low, one.ci.high),
        version=one.version,
        batch=one.batch,
        self_reported=one.self_reported,
    )


def _metric_of(one: MetricOnWire) -> Metric:
    ci = Interval(*one.ci)
    return Metric(one.name, one.value, one.unit, one.direction, one.n, ci, one.version, one.batch, one.self_reported)
