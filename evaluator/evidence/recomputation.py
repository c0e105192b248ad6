"""Recomputation of a run's metrics and facts from its blobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from benchlock.artifacts.blob_store import BlobStore, verify
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.isolation.child_process import CallerBlobs, pack_error, unpack_error
from benchlock.artifacts.isolation.isolated_calls import run_isolated
from benchlock.artifacts.isolation.resource_limits import IsolatedFaultError, LimitExceededError, Limits
from benchlock.evaluator.evidence.class_details import describe_classes
from benchlock.evaluator.evidence.distributed.distributed_evidence import (
    DistributedEvidence,
    UnsynchronizedError,
    measure_distributed,
)
from benchlock.evaluator.evidence.distributed.rank_details import RANKS
from benchlock.evaluator.evidence.loadgen_checks import LARGEST_SUMMARY
from benchlock.evaluator.evidence.networks.network_evidence import NetworkEvidence, is_micro_batch, measure_network
from benchlock.evaluator.evidence.operator_evidence import OperatorEvidence, OperatorFailure, measure_operator
from benchlock.evaluator.evidence.prediction_scores import (
    LARGEST_PREDICTIONS,
    NonFiniteError,
    UnreadableLabelsError,
    lay_labels,
    lay_out,
    open_workspace,
    score_predictions,
)
from benchlock.evaluator.evidence.required_evidence import check_requirements
from benchlock.evaluator.evidence.timed_phases import (
    LARGEST_LOG,
    LARGEST_SAMPLES,
    PERFORMANCE,
    PIPELINE,
    PhaseReader,
    is_equal,
    shorten_value,
)
from benchlock.evaluator.evidence.trace_evidence import LARGEST as LARGEST_TRACES
from benchlock.evaluator.evidence.trace_evidence import TRACE, read_overheads
from benchlock.evaluator.evidence.training_evidence import TrainingEvidence, measure_training
from benchlock.evaluator.harness.core.scenarios import MAX_NETWORKS
from benchlock.evaluator.harness.performance.loadgen_traces import find_peak
from benchlock.evaluator.harness.phases.scoring import Score
from benchlock.evaluator.records.evidence_status import PEAK_LOGS
from benchlock.evaluator.records.run_types import CALLS
from benchlock.evaluator.records.timing_validity import calls_document
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.evaluator.runner.run_outcome import (
    LARGEST_RESULT,
    RANK_ROLES,
    Failure,
    FailureClass,
    Result,
    find_mismatch,
    outputs_role,
    parse_result,
)
from benchlock.evaluator.runner.run_stages import harness_version
from benchlock.evaluator.runner.self_reported_times import (
    InvalidLoadError,
    check_audits,
    check_probes,
    check_times,
    sum_cpu,
)
from benchlock.evaluator.statistics.metric_types import Metric, find_definitions
from benchlock.evaluator.statistics.quality_metrics import QualityEstimate, estimate_quality
from benchlock.evaluator.statistics.run_metrics import (
    Conditions,
    CorrectCount,
    describe_calls,
    find_undelayed,
    summarise,
)
from benchlock.evaluator.statistics.time_metrics import Peak, Performance, Phases
from benchlock.registry.artifact_names import Kind
from benchlock.registry.lock.lockfile import Lock, LockedPlatform, dataset_of, dump, load
from benchlock.registry.manifests import Dataset, Framework, Manifest
from benchlock.registry.manifests.metric_definitions import DEFINITIONS, NETWORK, OVERHEAD, is_quality

LARGEST_BLOB: Final = {
    "result": LARGEST_RESULT,
    "predictions": LARGEST_PREDICTIONS,
    "reference": LARGEST_PREDICTIONS,
    "samples": LARGEST_SAMPLES,
    "pipeline-samples": LARGEST_SAMPLES,
    "breakdown": LARGEST_LOG,
    **dict.fromkeys(RANK_ROLES, LARGEST_SAMPLES),
    "loadgen-detail": LARGEST_LOG,
    "pipeline-loadgen-detail": LARGEST_LOG,
    "loadgen-summary": LARGEST_SUMMARY,
    "pipeline-loadgen-summary": LARGEST_SUMMARY,
    PEAK_LOGS: LARGEST_LOG,
    "quality": LARGEST_PREDICTIONS,
    **{outputs_role(place): LARGEST_PREDICTIONS for place in range(MAX_NETWORKS)},
    **LARGEST_TRACES,
}
"""The maximum size of the blobs that are read, in bytes, by role."""
COPIED_KEYS: Final = (
    "harness",
    "golden",
    "accuracy",
    "performance",
    "pipeline",
    "loadgen",
    "audits",
    "peak",
    "trace",
    "operator",
    "training",
    "network",
    "distributed",
    "resources",
)
"""The keys of ``result.json`` that are copied into a record's details."""
SURROUNDINGS: Final = ("python", "threads")
"""The keys of its ``environment`` that are copied into the details."""
_RESOLUTION: Final = 1.05 * (1 + 1e-9)
"""The maximum ratio of the lowest rate that failed to the highest rate that passed."""
_SCOPES: Final = ("thread", "process")
_FIRST_UNDELAYED: Final = (1, 3)
"""The first harness whose records have latencies without the host's delay; older ones stay as recorded."""

LIMITS: Final = Limits(memory=4 << 30, cpu_seconds=600, seconds=900.0, files=64, result=32 << 20)
"""The limits of the recomputation of one run: 50,000 predictions of 1,000 classes need a fifth of the memory."""
_FEWEST_LATENCIES: Final = 16
"""The minimum number of latencies; fewer may be equal in two measurements by chance."""
_NEXT: Final = "verify the record with the version of benchlock that created it"


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a run: its lock, the platform that it ran on, and the manifests that the lock names."""

    lock: Lock
    platform: LockedPlatform
    manifests: Mapping[Kind, Manifest]


@dataclass(frozen=True, slots=True)
class Recomputation:
    """The facts and metrics that follow from the blobs of a run.

    Attributes:
        result: The harness's ``result.json``; None if there is none that can be read.
        fault: Why it cannot be read.
        failure: Why no metrics follow from a result with the outcome ``done``: blobs are missing or contradict each
            other, or the environment differs from the lock.
        metrics: The metrics; none if there is a failure.
        details: The parts of the result that a record copies.
        calls: Statistics that are a part of the details: of disturbed calls, of classes, of ranks; empty without them.
        packages: The versions of the installed packages by name.
        timings: Seconds of the harness's phases.
        claimed: Seconds of all timed phases together.
        claimed_cpu: CPU seconds of all calls together, if they followed one another.
        measurement: A digest of the latencies of the timed calls; None if there are none.
    """

    result: Result | None = None
    fault: str | None = None
    failure: Failure | None = None
    metrics: tuple[Metric, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    calls: Mapping[str, Any] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    claimed: float = 0.0
    claimed_cpu: float = 0.0
    measurement: Digest | None = None


def recompute(
    subject: Subject, blobs: Mapping[str, Descriptor], store: BlobStore, scratch: Path | None
) -> Recomputation:
    """Compute everything that follows from the blobs of a run and the dataset of its lock alone.

    The blobs are not trusted, so a child process with limits reads them.

    Args:
        subject: The lock, the platform and the manifests of the run.
        blobs: The blobs by their roles.
        store: The store with the blobs, and with the manifests and files of the lock.
        scratch: A folder on the store's file system for temporary files; None for any folder.

    Raises:
        IntegrityError: A blob is missing, or does not match its digest.
        InvalidInputError: This version cannot recompute the metrics of this lock.
        LimitExceededError: The recomputation needs more than ``LIMITS``.
        IsolatedFaultError: It failed in an unexpected way.
    """
    find_definitions(subject.lock)
    for role, blob in blobs.items():
        _check_size(role, blob)
        verify(store, blob.digest, name=f"the blob {role}", size=blob.size)
    with open_workspace(scratch) as folder:
        # The names are numbers, because a role is an untrusted text of the record.
        files = {role: folder / "blobs" / str(number) for number, role in enumerate(blobs)}
        for role, blob in blobs.items():
            lay_out(store, blob, files[role])
        arguments = {
            "lock": dump(subject.lock),
            "platform": subject.lock.image.platforms.index(subject.platform),
            "files": {role: str(path.absolute()) for role, path in files.items()},
            "labels": str((folder / "dataset").absolute()),
            "missing": _lay_labels(subject, blobs, store, folder / "dataset"),
        }
        return _isolate(arguments, store)


def _check_size(role: str, blob: Descriptor) -> None:
    limit = LARGEST_BLOB.get(role)
    if limit is not None and blob.size > limit:
        raise LimitExceededError(
            f"the blob {role} has {blob.size} bytes; the maximum is {limit}",
            where=str(blob.digest),
            next_step=_NEXT,
        )


def _lay_labels(
    subject: Subject, blobs: Mapping[str, Descriptor], store: BlobStore, folder: Path
) -> dict[str, Any] | None:
    """Lay the labels out; return the packed error if that fails, because some runs need no labels."""
    needs_labels = subject.lock.target or any(map(is_quality, subject.lock.metrics))
    if "result" not in blobs or "predictions" not in blobs or not needs_labels:
        return None
    try:
        lay_labels(subject.lock, subject.manifests, store, folder)
    except BenchlockError as error:
        return pack_error(error)
    return None


def _isolate(arguments: Mapping[str, Any], store: BlobStore) -> Recomputation:
    task = "the recomputation of metrics"
    try:
        values = run_isolated(f"{__name__}:recompute_files", arguments, limits=LIMITS, subject=task, blobs=store)
        return msgspec.convert(values, Recomputation)
    except (LimitExceededError, IsolatedFaultError) as error:
        error.next_step = _NEXT
        raise
    except msgspec.ValidationError as error:
        raise IsolatedFaultError(f"{task} returned malformed values: {error}", next_step=_NEXT) from error


def recompute_files(arguments: dict[str, Any], blobs: CallerBlobs) -> Any:  # noqa: ANN401 - plain values
    """Recompute from laid-out files in a child process; return the result as plain values."""
    lock = load(arguments["lock"], "the lock of the run")
    subject = Subject(lock, lock.image.platforms[arguments["platform"]], read_manifests(lock, blobs))
    files = {role: Path(path) for role, path in arguments["files"].items()}
    return msgspec.to_builtins(_recompute(subject, files, Path(arguments["labels"]), arguments["missing"]))


def _recompute(
    subject: Subject, files: Mapping[str, Path], labels: Path, missing: dict[str, Any] | None
) -> Recomputation:
    if "result" not in files:
        return Recomputation()
    try:
        result, document = parse_result(_content(files["result"]))
    except InvalidInputError as error:
        return Recomputation(fault=error.what)
    facts = Recomputation(
        result=result,
        details=_copy_details(document),
        packages={package.name: package.version for package in result.environment.packages},
        timings=result.timings,
    )
    if result.failure is not None:
        return facts
    framework = subject.manifests["framework"]
    assert isinstance(framework, Framework)
    failure = find_mismatch(result, subject.platform, framework)
    if failure is not None or not subject.lock.model or is_micro_batch(subject.lock):
        facts = replace(facts, failure=failure)
        return facts if failure else _recompute_level(subject, facts, files, document, (labels, missing))
    evidence = Evidence(subject, result, document, files)
    try:
        check_requirements(subject.lock, document, files)
        phases = evidence.phases()
        check_audits(document)
        check_times(subject.lock, phases)
        scores = _score(subject, files, labels, missing)
        quality = evidence.quality(scores.quality, scores.measures)
        metrics = summarise(find_definitions(subject.lock), quality, phases, conditions_of(subject.lock))
        metrics += read_overheads(subject.lock, files, document.get("trace"))
        calls = evidence.calls(phases) | describe_classes(subject.lock, scores.decided)
    except UnreadableLabelsError:
        raise
    except InvalidInputError as error:
        return replace(facts, failure=Failure(_failure_class(error), error.what))
    timed = [phase for phase in (phases.performance, phases.pipeline) if phase is not None]
    return replace(
        facts,
        metrics=metrics,
        calls=calls,
        claimed=sum(phase.duration for phase in timed),
        claimed_cpu=sum_cpu(subject.lock.scenario, timed),
        measurement=digest_latencies(phases.performance),
    )


def _recompute_level(
    subject: Subject,
    facts: Recomputation,
    files: Mapping[str, Path],
    document: Mapping[str, Any],
    laid: tuple[Path, dict[str, Any] | None],
) -> Recomputation:
    """Recompute a run of a request with a level; ``laid`` is the folder of the labels, or why there is none."""
    labels, missing = laid
    try:
        check_requirements(subject.lock, document, files)
        measured: NetworkEvidence | OperatorEvidence | TrainingEvidence | DistributedEvidence
        if subject.lock.operator:
            measured = measure_operator(subject.lock, subject.manifests, files, document)
        elif subject.lock.model:
            measured = measure_network(subject.lock, subject.manifests, files, document)
        elif subject.lock.distribution:
            measured = measure_distributed(subject.lock, subject.manifests, files, document)
        else:
            _refuse_missing(missing)
            measured = measure_training(subject.lock, subject.manifests, files, document, labels)
    except UnreadableLabelsError:
        raise
    except InvalidInputError as error:
        return replace(facts, failure=Failure(_failure_class(error), error.what))
    calls = {RANKS: msgspec.to_builtins(measured.details)} if isinstance(measured, DistributedEvidence) else {}
    facts = replace(facts, metrics=measured.metrics, calls=calls, claimed=measured.claimed)
    return replace(facts, measurement=measured.measurement)


def list_metric_roles(name: str) -> tuple[str, ...]:
    """Return the roles of the blobs from which ``recompute`` computes a metric, and with which it checks it."""
    if is_quality(name):
        return ("predictions",)
    if name.startswith(OVERHEAD):
        return (TRACE,)
    if DEFINITIONS[name].scenarios == NETWORK:
        return ("result", *map(outputs_role, range(MAX_NETWORKS)))
    phase = PIPELINE if name.startswith(PIPELINE.name) else PERFORMANCE
    if name == "peak_qps":
        return (PEAK_LOGS, phase.log, "result")
    return (phase.samples, phase.log, phase.summary)


def digest_latencies(phase: Performance | None) -> Digest | None:
    """Return the digest of the latencies of a phase; None if they are so few that two runs may be equal."""
    if phase is None or len(phase.samples.latency) < _FEWEST_LATENCIES:
        return None
    return digest_bytes(phase.samples.latency.tobytes())


def conditions_of(lock: Lock) -> Conditions:
    """Return the CPUs and the price that metrics of a run of the lock are divided by and multiplied with."""
    price = lock.request.get("price")
    amount = price.get("amount") if isinstance(price, Mapping) else None
    return Conditions(lock.limits.cpus, amount if isinstance(amount, int | float) else None)


_FAILURE_CLASSES: Final[Mapping[type[InvalidInputError], FailureClass]] = {
    NonFiniteError: "non-finite",
    InvalidLoadError: "loadgen-invalid",
    OperatorFailure: "golden",
    UnsynchronizedError: "desync",
}
"""The failure class of a run by the error of its recomputation; ``crash`` for all others."""


def _failure_class(error: InvalidInputError) -> FailureClass:
    for kind, name in _FAILURE_CLASSES.items():
        if isinstance(error, kind):
            return name
    return "crash"


def _refuse_missing(missing: dict[str, Any] | None) -> None:
    """Raise the packed error of labels that could not be laid out."""
    if missing is not None:
        error = unpack_error(missing)
        raise UnreadableLabelsError(error.what) if isinstance(error, InvalidInputError) else error


def _score(subject: Subject, files: Mapping[str, Path], labels: Path, missing: dict[str, Any] | None) -> Score:
    _refuse_missing(missing)
    return score_predictions(subject.lock, subject.manifests, files, labels)


def _content(path: Path) -> bytes:
    if path.stat().st_size > LARGEST_RESULT:
        raise InvalidInputError(f"the harness left a result.json of more than {LARGEST_RESULT} bytes")
    return path.read_bytes()


def _copy_details(document: Mapping[str, Any]) -> dict[str, Any]:
    surroundings = document["environment"]
    facts = {name: surroundings[name] for name in SURROUNDINGS if name in surroundings}
    return {**{name: document[name] for name in COPIED_KEYS if document.get(name) is not None}, **facts}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of a result with the outcome ``done``, with the files of the blobs by role."""

    subject: Subject
    result: Result
    document: Mapping[str, Any]
    files: Mapping[str, Path]

    def phases(self) -> Phases:
        """Return the timed phases, read from the raw samples.

        Raises:
            InvalidInputError: Samples or a log are missing or malformed, or the result contradicts them.
        """
        pipeline, reader = self.document.get("pipeline"), self._reader()
        account = None if pipeline is None else pipeline.get("loadgen")
        return Phases(
            reader.read(PERFORMANCE, self.document["performance"], self.document.get("loadgen")),
            reader.read(PIPELINE, pipeline, account),
            self._peak(reader),
        )

    def _reader(self) -> PhaseReader:
        lock, dataset = self.subject.lock, self.subject.manifests["dataset"]
        assert isinstance(dataset, Dataset)
        return PhaseReader(lock, self.files, dataset.splits[dataset_of(lock).split].samples)

    def quality(
        self, scores: Mapping[str, Any], measures: Mapping[str, Any]
    ) -> dict[str, CorrectCount | QualityEstimate]:
        """Return the quality that follows from the predictions.

        Raises:
            InvalidInputError: The result contradicts it.
        """
        stated = {} if self.document["quality"] is None else self.document["quality"]
        for name in sorted(stated.keys() | scores.keys()):
            if not is_equal(stated.get(name), scores.get(name)):
                raise InvalidInputError(
                    f"the harness reports {name} {shorten_value(stated.get(name))}, but its predictions give "
                    f"{shorten_value(scores.get(name))}"
                )
        versions = self.subject.lock.metrics
        return {name: _estimate(name, score, measures, versions[name]) for name, score in scores.items()}

    def calls(self, phases: Phases) -> dict[str, Any]:
        """Return the statistics of disturbed calls, as a part of the details; empty if they were not counted."""
        performance, lock = phases.performance, self.subject.lock
        if performance is None:
            return {}
        scope = self.document["performance"].get("cpu_scope")
        device = self.subject.platform.device
        version = max((number for name, number in lock.metrics.items() if not is_quality(name)), default=1)
        calls = describe_calls(performance.samples, scope if scope in _SCOPES else "process", device, version)
        if calls is not None and harness_version(lock) >= _FIRST_UNDELAYED:
            calls = msgspec.structs.replace(calls, undelayed=tuple(find_undelayed(phases, lock.metrics)))
        return {} if calls is None else {CALLS: calls_document(calls)}

    def _peak(self, reader: PhaseReader) -> Peak | None:
        peak = self.result.peak
        if peak is None:
            return None
        try:
            rates = find_peak(peak.probes)
            check_probes(self.subject.lock.scenario, peak.probes)
        except (KeyError, TypeError) as error:
            raise InvalidInputError(f"the probes of the peak are malformed: {error}") from error
        if rates != (peak.qps, peak.failed_qps):
            raise InvalidInputError(
                f"the harness reports a peak of {peak.qps} queries/s, but its probes give {rates[0]}"
            )
        if not peak.qps < peak.failed_qps <= peak.qps * _RESOLUTION:
            raise InvalidInputError(f"the harness reports a peak between {peak.qps} and {peak.failed_qps} queries/s")
        timed = [probe for probe in peak.probes if probe.get("phase") == PERFORMANCE.name]
        searched = [probe for probe in peak.probes if probe.get("phase") != PERFORMANCE.name]
        if len(timed) != 1:
            raise InvalidInputError(
                f"the harness reports {len(timed)} probes of the peak as the performance phase, expected 1"
            )
        _check_probe(timed[0], reader.read_first_probe(self.subject.lock.scenario["target_qps"]))
        logged = reader.read_probes([probe["qps"] for probe in searched])
        for probe, found_probe in zip(searched, logged or (), strict=logged is not None):
            _check_probe(probe, found_probe)
        return Peak(peak.qps, peak.failed_qps, len(peak.probes))


def _estimate(
    name: str, score: Mapping[str, Any], measures: Mapping[str, Any], version: int
) -> CorrectCount | QualityEstimate:
    """Return a count as it is, and a value with its interval from the contributions of the samples."""
    if "correct" in score:
        return CorrectCount(score["correct"], score["n"])
    return estimate_quality(name, score["value"], score["n"], measures, version)


def _check_probe(stated: Mapping[str, Any], logged: Mapping[str, Any]) -> None:
    for name, value in logged.items():
        if not is_equal(stated.get(name), value):
            raise InvalidInputError(f"the harness reports {name} {stated.get(name)} of a probe, but LoadGen {value}")
