"""Bodies for runs, their metrics, blobs and evidence."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from benchlock.api.schemas.artifact_schemas import DigestText
from benchlock.api.schemas.shared_fields import limit_document, limit_text
from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.evaluator.records.evidence_status import EvidenceStatus, State
from benchlock.evaluator.records.run_types import (
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
from benchlock.evaluator.statistics.metric_types import Interval, Metric

RunText = Annotated[str, Meta(pattern=r"^run/[0-9a-hjkmnp-tv-z]{26}$", examples=["run/01kam1v3mz4w0q3d5g7h9j2k4m"])]
Role = Annotated[str, limit_text(size_limits.ROLE, pattern=ROLE_PATTERN)]
Word = Annotated[str, limit_text(size_limits.WORD)]
Moment = Annotated[datetime, Meta(tz=True)]
Whole = Annotated[int, Meta(ge=0, lt=1 << 62)]
Count = Annotated[int, Meta(ge=1, lt=1 << 31)]


class BlobOnWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A blob: its digest and its size in bytes."""

    digest: DigestText
    size: Whole


class MetricOnWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A metric. ``ci`` is two-sided at 95 %, with null for an end that ``n`` samples cannot bound.

    ``version`` is that of the metric's definition. With ``self_reported``, code of the model ran in the process that
    computed the value, which therefore is ignored in comparisons.
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
    """The start of a run: its lock, platform, host and process."""

    id: RunText
    lock: DigestText
    attempt: Count
    isolation: Isolation
    platform: Annotated[
        dict[Word, Annotated[str, limit_text(size_limits.PLATFORM)]], limit_document(size_limits.PLATFORM)
    ]
    host: Annotated[dict[Word, Any], limit_document(size_limits.HOST)]
    process: Annotated[dict[Word, Any], limit_document(size_limits.PROCESS)]
    started_at: Moment
    image_id: DigestText | None = None


class RunOver(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of a run; ``blobs`` are by role (predictions, samples, …), ``timings`` in seconds by phase."""

    outcome: Outcome
    ended_at: Moment
    failure_class: Word | None = None
    failure_message: Annotated[str, limit_text(size_limits.FAILURE_MESSAGE)] | None = None
    metrics: Annotated[tuple[MetricOnWire, ...], Meta(max_length=size_limits.METRICS)] = ()
    packages: Annotated[dict[Word, Word], Meta(max_length=size_limits.PACKAGES)] = {}
    blobs: Annotated[dict[Role, BlobOnWire], Meta(max_length=size_limits.BLOBS)] = {}
    timings: Annotated[dict[Word, float], Meta(max_length=size_limits.PHASES)] = {}
    details: Annotated[dict[str, Any], limit_document(size_limits.DETAILS)] = {}


class HiddenRecord(Struct, frozen=True, kw_only=True):
    """When and why a record was hidden from everybody but administrators."""

    reason: str
    at: datetime


class EvidenceOnWire(Struct, frozen=True, kw_only=True):
    """Whether a record agrees with its evidence; the end of a run that is not ``verified`` has no metrics.

    ``reasons`` name each difference, ``reported`` the fields that cannot be recomputed. ``measurement`` is a digest of
    the latencies of the timed calls: runs of one lock with the same digest count once. ``damaged``: a blob is missing
    or damaged. ``self_reported`` names the metrics that are self-reported whatever the record says.
    """

    state: State
    reasons: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    measurement: DigestText | None = None
    damaged: bool = False
    self_reported: tuple[str, ...] = ()


class RunOnWire(Struct, frozen=True, kw_only=True):
    """A recorded run; without an end it is running, and with ``imported_at`` it came in a bundle.

    Only administrators see ``hidden``, the reason why a run is hidden. ``evidence`` and ``position`` are null for a run
    that is running. ``position`` is the position of the end among all records of the registry: it tells which run was
    recorded first, whatever the clocks of the hosts.
    """

    start: RunBegun
    end: RunOver | None
    imported_at: datetime | None
    evidence: EvidenceOnWire | None = None
    hidden: HiddenRecord | None = None
    position: int | None = None


class HideRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to hide, and the reason; with ``undo``, a run to show again."""

    target: RunText
    reason: Annotated[str, limit_text(size_limits.REASON)] = ""
    undo: bool = False


class HideResult(Struct, frozen=True, kw_only=True):
    """Whether the run is hidden now; ``changed`` is false if it was already in that state."""

    target: RunText
    hidden: bool
    changed: bool


class DamagedRunOnWire(Struct, frozen=True, kw_only=True):
    """A run whose record is damaged, and the damage; its metrics are not shown."""

    id: RunText
    damage: str


class RunPage(Struct, frozen=True, kw_only=True):
    """Runs, newest first; ``next`` is the cursor of the next page, absent on the last.

    An item has no host, process, packages or blobs, a short failure message, and only those details that tell whether
    its metrics count. The run itself has all of them. ``damaged`` are the runs of the page whose records are damaged.
    """

    runs: tuple[RunOnWire, ...]
    damaged: tuple[DamagedRunOnWire, ...] = ()
    next: str | UnsetType = UNSET


class RunCount(Struct, frozen=True, kw_only=True):
    """The number of runs of a lock, whatever their outcome."""

    count: int


class Hold(Struct, frozen=True, kw_only=True):
    """The hold of a run: if it is not renewed within ``seconds``, the run counts as abandoned."""

    run: RunText
    seconds: float


def encode_recorded_run(run: Run) -> RunOnWire:
    """Encode a run."""
    end = None if run.end is None else encode_run_end(run.end)
    hidden = None if run.hidden is None else HiddenRecord(reason=run.hidden.reason, at=run.hidden.at)
    status, evidence = run.evidence, None
    if status is not None:
        evidence = EvidenceOnWire(
            state=status.state,
            reasons=status.reasons,
            reported=status.reported,
            measurement=status.measurement,
            damaged=status.damaged,
            self_reported=status.self_reported,
        )
    start = encode_run_start(run.start)
    return RunOnWire(
        start=start,
        end=end,
        imported_at=run.imported_at,
        hidden=hidden,
        evidence=evidence,
        position=run.position,
    )


def encode_run_entry(entry: Run | DamagedRun) -> RunOnWire | DamagedRunOnWire:
    """Encode a run or a damaged run."""
    if isinstance(entry, DamagedRun):
        return DamagedRunOnWire(id=entry.id, damage=entry.damage)
    return encode_recorded_run(entry)


def decode_run_entries(page: RunPage) -> tuple[Run | DamagedRun, ...]:
    """Decode the runs of a page, including damaged ones, newest first."""
    entries: list[Run | DamagedRun] = [decode_recorded_run(entry) for entry in page.runs]
    entries += [DamagedRun(RunId(entry.id), entry.damage) for entry in page.damaged]
    return tuple(sorted(entries, key=lambda entry: entry.id, reverse=True))


def decode_recorded_run(run: RunOnWire) -> Run:
    """Decode a run."""
    hidden = None if run.hidden is None else Hiding(run.hidden.reason, run.hidden.at)
    document = run.evidence
    evidence = None
    if document is not None:
        measurement = None if document.measurement is None else Digest(document.measurement)
        evidence = EvidenceStatus(
            document.state, document.reasons, document.reported, document.damaged, document.self_reported, measurement
        )
    end = None if run.end is None else decode_run_end(run.end)
    return Run(decode_run_start(run.start), end, run.imported_at, hidden, evidence, run.position)


def encode_run_start(start: RunStart) -> RunBegun:
    """Encode the start of a run."""
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


def decode_run_start(start: RunBegun) -> RunStart:
    """Decode the start of a run."""
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


def encode_run_end(end: RunEnd) -> RunOver:
    """Encode the end of a run, cut to the limits of the API."""
    end = fit_end(end)  # a record may be older than the limits
    return RunOver(
        outcome=end.outcome,
        ended_at=end.ended_at,
        failure_class=end.failure_class,
        failure_message=end.failure_message,
        metrics=tuple(map(_encode_metric, end.metrics)),
        packages=dict(end.packages),
        blobs={role: BlobOnWire(digest=blob.digest, size=blob.size) for role, blob in end.blobs.items()},
        timings=dict(end.timings),
        details=dict(end.details),
    )


def decode_run_end(end: RunOver) -> RunEnd:
    """Decode the end of a run."""
    return RunEnd(
        outcome=end.outcome,
        ended_at=end.ended_at,
        failure_class=end.failure_class,
        failure_message=end.failure_message,
        metrics=tuple(map(_decode_metric, end.metrics)),
        packages=end.packages,
        blobs={role: Descriptor(Digest(blob.digest), blob.size) for role, blob in end.blobs.items()},
        timings=end.timings,
        details=end.details,
    )


def _encode_metric(metric: Metric) -> MetricOnWire:
    return MetricOnWire(
        name=metric.name,
        value=metric.value,
        unit=metric.unit,
        direction=metric.direction,
        n=metric.n,
        ci=(metric.ci.low, metric.ci.high),
        version=metric.version,
        batch=metric.batch,
        self_reported=metric.self_reported,
    )


def _decode_metric(document: MetricOnWire) -> Metric:
    ci = Interval(*document.ci)
    return Metric(
        document.name,
        document.value,
        document.unit,
        document.direction,
        document.n,
        ci,
        document.version,
        document.batch,
        document.self_reported,
    )
