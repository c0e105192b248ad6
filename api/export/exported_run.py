"""A run as other tools get it: its metrics, and what identifies the bytes that produced them.

No metric is exported unless the record of its run agrees with its evidence, and the evidence is intact now.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec import UNSET, Struct

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import IntegrityError, RefusedError
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.harness_releases import is_released
from benchlock.evaluator.records.evidence_status import RUN_AGAIN, UnverifiedError, refuse_unverified
from benchlock.evaluator.records.run_comparison import describe_offered
from benchlock.evaluator.records.run_types import Run, RunEnd, RunId
from benchlock.evaluator.records.timing_validity import explain_unusable_times, validity_of
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.evaluator.statistics.metric_types import Metric
from benchlock.evaluator.workflows.blob_inventory import list_damage
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.manifest_types import Model, Recipe
from benchlock.registry.manifests.metric_definitions import is_bracketed, is_quality

SELF_REPORTED = "self-reported"


class ExportedArtifact(Struct, frozen=True):
    """An artifact of the lock; ``digest`` is that of its manifest."""

    name: str
    version: str
    digest: Digest


class ExportedHarness(Struct, frozen=True):
    """The harness of the lock; all metrics of a harness that is not released are self-reported."""

    version: str
    digest: Digest
    released: bool


class ExportedMetric(Struct, frozen=True, kw_only=True):
    """A metric of the run.

    Attributes:
        metric: The name, with the batch size in a sweep.
        value: The value.
        unit: The unit of the value and its interval.
        direction: Whether ``higher`` or ``lower`` values are better; ``none`` if neither is.
        low: The lower end of the interval; None if it has none.
        high: The upper end.
        interval: The kind of the interval: ``95 % confidence``, ``95 % within this run`` or ``bracket``.
        n: The number of samples or calls.
        definition: The version of the definition of the metric.
        notes: What limits its use, such as ``self-reported``.
    """

    metric: str
    value: float
    unit: str
    direction: str
    low: float | None
    high: float | None
    interval: str
    n: int
    definition: int
    notes: tuple[str, ...]


class ExportedRun(Struct, frozen=True, kw_only=True):
    """A verified run.

    ``artifacts`` are those of its lock by kind, beginning with the model, the recipe or the operator. The split and the
    task are empty where there is none.
    """

    run: RunId
    lock: Digest
    artifacts: Mapping[str, ExportedArtifact]
    split: str
    harness: ExportedHarness
    task: str
    scenario: str
    isolation: str
    platform: str
    cpu_model: str
    accelerator: str | None
    started_at: datetime
    ended_at: datetime
    imported_at: datetime | None
    metrics: tuple[ExportedMetric, ...]

    @property
    def subject(self) -> ExportedArtifact:
        """The model, the recipe or the operator that was evaluated."""
        return next(iter(self.artifacts.values()))


def require_model(exported: ExportedRun) -> tuple[ExportedArtifact, ExportedArtifact]:
    """Return the model and the dataset of a run, for formats that are about models alone.

    Raises:
        RefusedError: The run is of a recipe or an operator.
    """
    if "model" not in exported.artifacts:
        kind = next(iter(exported.artifacts))
        raise RefusedError(
            f"{exported.run} evaluated {kind}/{exported.subject.name}; this format is about models",
            where=exported.run,
            next_step="promote a training and export a run of its model, or use the format json",
        )
    return exported.artifacts["model"], exported.artifacts["dataset"]


def export_run(run: Run, lock: Lock, store: BlobStore, progress: Progress) -> ExportedRun:
    """Return a run for other tools, after its evidence was read again.

    Args:
        run: The run, with the state of its evidence.
        lock: Its lock.
        store: The store of the manifests and the evidence.
        progress: Shows how many bytes were read.

    Raises:
        RefusedError: The run has no metrics, or is hidden.
        IntegrityError: The record contradicts its evidence, or a blob is missing or damaged.
        UnverifiedError: The record was not compared with its evidence.
    """
    end = require_verified(run, store, progress)
    subject = read_manifests(lock, store)[next(iter(lock.artifacts()))]
    accelerator = run.start.host.get("accelerator")
    return ExportedRun(
        run=run.id,
        lock=lock.id,
        artifacts={
            kind: ExportedArtifact(artifact.name, artifact.version, artifact.digest)
            for kind, artifact in lock.artifacts().items()
        },
        split="" if lock.dataset is UNSET else lock.dataset.split,
        harness=ExportedHarness(lock.harness.version, lock.harness.digest, is_released(lock.harness)),
        task=subject.task if isinstance(subject, Model | Recipe) else "",
        scenario=str(lock.scenario["name"]),
        isolation=run.start.isolation,
        platform=run.start.platform_name,
        cpu_model=str(run.start.host.get("cpu_model", "")),
        accelerator=None if accelerator is None else str(accelerator),
        started_at=run.start.started_at,
        ended_at=end.ended_at,
        imported_at=run.imported_at,
        metrics=tuple(_export_metric(run, lock, metric) for metric in end.metrics),
    )


def require_verified(run: Run, store: BlobStore, progress: Progress) -> RunEnd:
    """Return the end of a run whose metrics follow from its evidence, which is intact now."""
    if run.hidden is not None:
        raise RefusedError(
            f"{run.id} is hidden: {run.hidden.reason or 'no reason given'}",
            where=run.id,
            next_step="export another run, or show this one again",
        )
    if run.end is None or run.end.outcome != "done":
        outcome = "it is running" if run.end is None else f"it ended as {run.end.outcome}"
        raise RefusedError(
            f"{run.id} has no metrics to export: {outcome}", where=run.id, next_step="export a completed run"
        )
    if run.evidence is None:
        raise UnverifiedError(
            f"the record of {run.id} was not compared with its evidence",
            where=run.id,
            next_step="verify the registry, and export the run again",
        )
    refuse_unverified(run.id, run.evidence)
    blobs = {blob.digest: f"{run.id} {role}" for role, blob in run.end.blobs.items()}
    damaged = list(list_damage(store, blobs, progress))
    if damaged:
        raise IntegrityError(
            f"the evidence of {run.id} is damaged: {'; '.join(error.what for error in damaged)}",
            where=run.id,
            next_step=RUN_AGAIN,
        )
    if not run.end.metrics:
        raise RefusedError(
            f"{run.id} has no metrics to export: its request has none",
            where=run.id,
            next_step="export a run of a request with `metrics`",
        )
    return run.end


def _export_metric(run: Run, lock: Lock, metric: Metric) -> ExportedMetric:
    kind = "95 % confidence" if is_quality(metric.name) else "95 % within this run"
    return ExportedMetric(
        metric=metric.key,
        value=metric.value,
        unit=metric.unit,
        direction=metric.direction,
        low=metric.ci.low,
        high=metric.ci.high,
        interval="bracket" if is_bracketed(metric.name) else kind,
        n=metric.n,
        definition=metric.version,
        notes=tuple(_notes(run, lock, metric)),
    )


def _notes(run: Run, lock: Lock, metric: Metric) -> Iterator[str]:
    if metric.self_reported:
        yield SELF_REPORTED
    if is_quality(metric.name):
        return
    if reason := explain_unusable_times(run):
        yield f"unreliable: {reason}"
    validity = validity_of(run)
    if validity is not None and not validity.valid:
        yield f"LoadGen result {validity.words}"
    if offered := describe_offered(metric.name, str(lock.scenario["name"])):
        yield offered
