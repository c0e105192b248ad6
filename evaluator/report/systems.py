"""The systems of a report: recorded runs by model, framework and host, and whether they may be shown side by side."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.analysis.call_profiles import trimmed_mean
from benchlock.evaluator.evidence.timed_phases import LARGEST_SAMPLES
from benchlock.evaluator.records.replayed_runs import drop_replays
from benchlock.evaluator.records.run_comparison import describe_offered, host_differences, list_incomparabilities
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import explain_unusable_times, validity_of
from benchlock.evaluator.statistics.equivalence import centre
from benchlock.evaluator.statistics.metric_types import Metric
from benchlock.evaluator.statistics.time_metrics import read_columns, samples_of
from benchlock.evaluator.workflows.compare import Arm, LockedRun
from benchlock.registry.manifests.metric_definitions import is_quality

T = TypeVar("T")

QUERIED: Final = ("single_stream", "multi_stream", "server")
"""The scenarios with a latency per query of one size."""
ONLINE: Final = "single_stream"


@dataclass(frozen=True, eq=False)
class System:
    """A model in a framework on a host.

    Attributes:
        name: A name that no other system of the report has.
        arms: Its runs by lock; the locks differ in their scenarios.
        store: The store of the samples.
    """

    name: str
    arms: tuple[Arm, ...]
    store: FileStore

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order of the report."""
        return tuple(run for arm in self.arms for run in arm.runs)

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """The metrics by key; of several scenarios the first one that measures it, and over runs their center."""
        metrics: dict[str, Metric] = {}
        for metric in self._list_metrics():
            metrics.setdefault(metric.key, metric)
        return metrics

    def _list_metrics(self) -> Iterator[Metric]:
        """Yield the metrics of all scenarios; not rates that a scenario chooses."""
        for arm in self.arms:
            yield from (metric for metric in arm.metrics() if describe_offered(metric.name, scenario_of(arm)) is None)

    @property
    def qualities(self) -> dict[str, Metric]:
        """The metrics of predictions, by key."""
        return {key: metric for key, metric in self.metrics.items() if is_quality(metric.name)}

    def online_metric(self, name: str) -> Metric | None:
        """Return a metric of the scenario with one call at a time; None if it was not measured there."""
        arms = (arm for arm in self.arms if scenario_of(arm) == ONLINE)
        return next((metric for arm in arms for metric in arm.metrics() if metric.name == name), None)

    @property
    def throughput(self) -> Metric | None:
        """The highest throughput over all scenarios and batch sizes; None if none was measured."""
        rates = [metric for metric in self._list_metrics() if metric.name == "throughput"]
        return max(rates, key=lambda metric: metric.value, default=None)

    def value(self, name: str) -> float | None:
        """Return the value of a metric; None without one."""
        return self.metrics[name].value if name in self.metrics else None

    def list_by_batch(self, name: str) -> dict[int, Metric]:
        """Return a metric of a sweep by batch size."""
        return {
            metric.batch: metric for metric in self.metrics.values() if metric.name == name and metric.batch is not None
        }

    def rates(self) -> dict[int, Metric]:
        """Return the throughput of a sweep by batch size."""
        return self.list_by_batch("throughput")

    @property
    def size(self) -> int:
        """The bytes of the files of the model."""
        return sum(file.size for file in self.arms[0].lock.subject.files)

    def online(self) -> tuple[float, int] | None:
        """Return the trimmed mean of the latency in seconds, and the number of calls; None if not measured.

        Of several runs it is the median of their trimmed means.
        """
        runs = [run for arm in self.arms if scenario_of(arm) == ONLINE for run in arm.runs]
        means = [mean for run in runs if (mean := self.summarize_latencies(run, _find_mean)) is not None]
        if not means:
            return None
        return centre([mean for mean, _ in means]), sum(calls for _, calls in means)

    def summarize_latencies(self, run: Run, summarize: Callable[[NDArray[np.float64]], T]) -> T | None:
        """Return what a function finds in the latencies of a run in seconds; None if it has no samples.

        Results are cached: samples never change, and a million of them take half a second.

        Raises:
            InvalidInputError: The samples are malformed or too large.
        """
        blob = None if run.end is None else run.end.blobs.get("samples")
        if blob is None:
            return None
        if blob.size > LARGEST_SAMPLES:
            raise InvalidInputError(
                f"the samples have {blob.size} bytes; the maximum is {LARGEST_SAMPLES}",
                where=run.id,
                next_step="leave this run out of the report",
            )
        return _summarize(self.store.path(blob.digest), summarize)

    def notes(self) -> Iterator[str]:
        """Yield what limits the use of the numbers."""
        for run in self.runs:
            if reason := explain_unusable_times(run):
                yield f"unreliable: {reason}"
            validity = validity_of(run)
            if validity is not None and not validity.valid:
                yield f"LoadGen result of {run.id}: {validity.words}"
        reported = sorted({metric.name for metric in self.metrics.values() if metric.self_reported})
        if reported:
            yield f"self-reported, because code of the model ran beside the clock: {', '.join(reported)}"


@lru_cache(1024)
def _summarize(path: Path, summarize: Callable[[NDArray[np.float64]], T]) -> T | None:
    latencies = samples_of(read_columns(path)).latency
    return summarize(latencies) if len(latencies) else None


def _find_mean(latencies: NDArray[np.float64]) -> tuple[float, int]:
    return trimmed_mean(latencies), len(latencies)


def scenario_of(arm: Arm) -> str:
    """Return the name of the scenario of the runs of a lock."""
    return str(arm.lock.scenario["name"])


def list_differences(pairs: Sequence[LockedRun]) -> tuple[str, ...]:
    """List why the runs must not be shown side by side; empty if they may.

    Runs of one scenario must be comparable as ``compare`` demands. Runs of different scenarios, which have no metric in
    common, must have the same dataset and harness, and the same host.
    """
    first_of: dict[str, LockedRun] = {}
    reasons: list[str] = []
    for lock, run in pairs:
        name = str(lock.scenario["name"])
        if name in first_of:
            found = list_incomparabilities(first_of[name], (lock, run))
        elif first_of:
            other, measured = next(iter(first_of.values()))
            found = host_differences(measured, run)
            if lock.inputs != other.inputs:
                found = ("the dataset differs", *found)
            if lock.harness.digest != other.harness.digest:
                found = ("the harness differs", *found)
        else:
            found = ()
        first_of.setdefault(name, (lock, run))
        reasons += [f"{run.id}: {reason}" for reason in found]
    return tuple(dict.fromkeys(reasons))


def group_systems(
    pairs: Sequence[LockedRun], store: FileStore, *, force: bool = False
) -> tuple[tuple[System, ...], tuple[str, ...]]:
    """Group runs by system; runs that repeat a measurement count once.

    Args:
        pairs: The verified runs with their locks, in the order of the report.
        store: The store of the samples.
        force: Whether runs that are not comparable are shown nevertheless.

    Returns:
        The systems, and sentences that warn.

    Raises:
        RefusedError: The runs are not comparable.
    """
    pairs = list({run.id: (lock, run) for lock, run in pairs}.values())
    reasons = list_differences(pairs)
    if reasons and not force:
        raise RefusedError(
            f"the runs are not comparable: {'; '.join(reasons)}",
            next_step="report runs of one dataset, scenario and host, or show them anyway",
        )
    distinct, replays = drop_replays(run for _, run in pairs)
    arms: dict[tuple[str, ...], dict[str, list[LockedRun]]] = {}
    for lock, run in pairs:
        if run in distinct:
            host = (str(run.start.host.get("cpu_model", "")), run.start.isolation, run.start.platform_name)
            key = (lock.subject.digest, lock.framework.digest, lock.image.digest, *host)
            arms.setdefault(key, {}).setdefault(lock.id, []).append((lock, run))
    groups = [
        tuple(Arm(entries[0][0], tuple(run for _, run in entries)) for entries in locks.values())
        for locks in arms.values()
    ]
    names = name_systems(groups)
    systems = tuple(System(name, group, store) for name, group in zip(names, groups, strict=True))
    return systems, (*(f"not comparable: {reason}" for reason in reasons), *replays)


def name_systems(groups: Sequence[tuple[Arm, ...]]) -> list[str]:
    """Return a name for each system, as short as distinguishes them: the model, its framework, image and host."""
    names = [""] * len(groups)
    for part in range(5):
        words = [_describe(group)[part] for group in groups]
        names = [
            name if name and names.count(name) == 1 else f"{name}, {word}".removeprefix(", ")
            for name, word in zip(names, words, strict=True)
        ]
    return [f"{name} ({number})" if names.count(name) > 1 else name for number, name in enumerate(names, 1)]


def _describe(group: tuple[Arm, ...]) -> tuple[str, ...]:
    lock, start = group[0].lock, group[0].runs[0].start
    artifacts = (lock.subject, lock.framework, lock.image)
    return (*(f"{a.name} {a.version}" for a in artifacts), start.isolation, str(start.host.get("cpu_model", "")))
