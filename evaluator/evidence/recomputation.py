"""The one definition of what the blobs of a run say: its metrics, and the facts of its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from artifacts.digest import Descriptor
from artifacts.errors import InvalidInputError
from artifacts.store import BlobStore, verify
from evaluator.evidence.definitions import definitions_of
from evaluator.evidence.phases import PERFORMANCE, PIPELINE, equal, read_first_probe, read_phase, shown
from evaluator.evidence.scores import UnreadableLabelsError, score_predictions
from evaluator.evidence.workspace import lay_out, open_workspace
from evaluator.harness.account import find_peak
from evaluator.records.calls import KEY, calls_document
from evaluator.runner.ending import Failure
from evaluator.runner.results import LARGEST_RESULT, Result, parse_result
from evaluator.runner.surroundings import misfit
from evaluator.runner.trust import InvalidLoadError, check_audits, check_probes, check_times
from evaluator.statistics.calls import describe_calls
from evaluator.statistics.figures import Metric
from evaluator.statistics.metrics import Right, summarise
from evaluator.statistics.quality import Judged, judged
from evaluator.statistics.timing import Peak, Performance, Phases
from registry.lockfile import Lock, LockedPlatform
from registry.manifests import Framework, Manifest
from registry.names import Kind

COPIED: Final = ("harness", "golden", "accuracy", "performance", "pipeline", "loadgen", "audits", "peak")
"""The keys of ``result.json`` that a record's details repeat."""
SURROUNDINGS: Final = ("python", "threads")
"""The keys of its ``environment`` that they repeat."""
_SCOPES: Final = ("thread", "process")


@dataclass(frozen=True, slots=True)
class Subject:
    """What a run measured: its lock, the platform that it ran on, and the manifests that the lock names."""

    lock: Lock
    platform: LockedPlatform
    manifests: Mapping[Kind, Manifest]


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What the blobs of a run say.

    Attributes:
        result: The harness's ``result.json``; None where there is none that can be read.
        fault: Why it cannot be read.
        failure: Why no figures follow from a result that says ``done``: blobs are missing or contradict each other,
            or something else ran than was locked.
        metrics: The figures; none where there is a failure.
        details: What a record repeats of the result.
        calls: How single calls were disturbed, as a part of the details; empty where that was not counted.
        packages: Name to version of what was installed.
        timings: Seconds of the harness's phases.
        claimed: Seconds of all timed phases together.
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


def recompute(subject: Subject, blobs: Mapping[str, Descriptor], store: BlobStore, scratch: Path | None) -> Recomputed:
    """Compute what follows from the blobs of a run and the dataset of its lock, and from nothing else.

    Args:
        subject: What the run measured.
        blobs: The blobs by their roles.
        store: Has them, and the files of the locked dataset.
        scratch: A folder on the store's file system for files of the time of the call; None for any folder.

    Raises:
        IntegrityError: A blob is missing, or not what its digest says.
        InvalidInputError: This version cannot recompute figures of this lock.
    """
    definitions_of(subject.lock)
    for role, blob in blobs.items():
        verify(store, blob.digest, name=f"the blob {role}", size=blob.size)
    with open_workspace(scratch) as folder:
        # Numbers: a role is a text of the record, and no part of a path.
        files = {role: folder / "blobs" / str(number) for number, role in enumerate(blobs)}
        for role, blob in blobs.items():
            lay_out(store, blob, files[role])
        return _recompute(subject, files, store, folder)


def _recompute(subject: Subject, files: Mapping[str, Path], store: BlobStore, folder: Path) -> Recomputed:
    if "result" not in files:
        return Recomputed()
    try:
        result, document = parse_result(_content(files["result"]))
    except InvalidInputError as error:
        return Recomputed(fault=error.what)
    facts = Recomputed(
        result=result,
        details=_copied(document),
        packages={package.name: package.version for package in result.environment.packages},
        timings=result.timings,
    )
    if result.failure is not None:
        return facts
    framework = subject.manifests["framework"]
    assert isinstance(framework, Framework)
    if (failure := misfit(result, subject.platform, framework)) is not None:
        return replace(facts, failure=failure)
    evidence = _Evidence(subject, result, document, files)
    try:
        phases = evidence.phases()
        check_audits(document)
        check_times(subject.lock, phases)
        scores = score_predictions(subject.lock, subject.manifests, files, store, folder)
        quality = evidence.quality(*scores)
        metrics = summarise(definitions_of(subject.lock), quality, phases)
        calls = evidence.calls(phases.performance)
    except UnreadableLabelsError:
        raise
    except InvalidInputError as error:
        is_invalid = isinstance(error, InvalidLoadError)
        return replace(facts, failure=Failure("loadgen-invalid" if is_invalid else "crash", error.what))
    timed = [one for one in (phases.performance, phases.pipeline) if one is not None]
    return replace(facts, metrics=metrics, calls=calls, claimed=sum(one.duration for one in timed))


def _content(path: Path) -> bytes:
    if path.stat().st_size > LARGEST_RESULT:
        raise InvalidInputError(f"the harness left a result.json of more than {LARGEST_RESULT} bytes")
    return path.read_bytes()


def _copied(document: Mapping[str, Any]) -> dict[str, Any]:
    surroundings = document["environment"]
    facts = {name: surroundings[name] for name in SURROUNDINGS if name in surroundings}
    return {**{name: document[name] for name in COPIED if document.get(name) is not None}, **facts}


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A result that says ``done``, with the files of the blobs by their roles."""

    subject: Subject
    result: Result
    document: Mapping[str, Any]
    files: Mapping[str, Path]

    def phases(self) -> Phases:
        """Return what was timed, from the raw samples.

        Raises:
            InvalidInputError: Samples or a log are missing or malformed, or the result says something else.
        """
        scenario, pipeline = self.subject.lock.scenario, self.document.get("pipeline")
        account = None if pipeline is None else pipeline.get("loadgen")
        return Phases(
            read_phase(PERFORMANCE, self.files, scenario, self.document["performance"], self.document.get("loadgen")),
            read_phase(PIPELINE, self.files, scenario, pipeline, account),
            self._peak(),
        )

    def quality(self, scores: Mapping[str, Any], measures: Mapping[str, Any]) -> dict[str, Right | Judged]:
        """Return the quality that follows from the predictions.

        Raises:
            InvalidInputError: The result says something else.
        """
        stated = {} if self.document["quality"] is None else self.document["quality"]
        for name in sorted(stated.keys() | scores.keys()):
            if not equal(stated.get(name), scores.get(name)):
                raise InvalidInputError(
                    f"the harness says {name} is {shown(stated.get(name))}, and its predictions say "
                    f"{shown(scores.get(name))}"
                )
        return {name: _judged(name, found, measures) for name, found in scores.items()}

    def calls(self, performance: Performance | None) -> dict[str, Any]:
        """Return how single calls were disturbed, as a part of the details; nothing where that was not counted."""
        if performance is None:
            return {}
        scope = self.document["performance"].get("cpu_scope")
        device = self.subject.platform.device
        calls = describe_calls(performance.samples, scope if scope in _SCOPES else "process", device)
        return {} if calls is None else {KEY: calls_document(calls)}

    def _peak(self) -> Peak | None:
        peak = self.result.peak
        if peak is None:
            return None
        try:
            found = find_peak(peak.probes)
            check_probes(self.subject.lock.scenario, peak.probes)
        except (KeyError, TypeError) as error:
            raise InvalidInputError(f"the probes of the peak are malformed: {error}") from error
        if found != (peak.qps, peak.failed_qps):
            raise InvalidInputError(f"the harness says the peak is {peak.qps} queries/s, and its probes say {found[0]}")
        for probe in peak.probes:
            if probe.get("phase") == PERFORMANCE.name:
                _check_probe(probe, read_first_probe(self.files, probe["qps"]))
        return Peak(peak.qps, peak.failed_qps, len(peak.probes))


def _judged(name: str, found: Mapping[str, Any], measures: Mapping[str, Any]) -> Right | Judged:
    """Return a count as it is, and a value with its interval, made of what each sample adds to it."""
    if "correct" in found:
        return Right(found["correct"], found["n"])
    return judged(name, found["value"], found["n"], measures)


def _check_probe(stated: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    for name, value in found.items():
        if not equal(stated.get(name), value):
            raise InvalidInputError(
                f"the harness says a probe's {name} is {stated.get(name)}, and LoadGen says {value}"
            )
