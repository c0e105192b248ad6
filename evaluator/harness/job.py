"""What a job is: all that the harness is told, and all that it may know. ``reading`` makes it of ``job.json``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

QUALITY_METRICS = ("top1", "top5")
TIME_METRICS = ("latency_p50", "latency_p90", "latency_p99", "throughput")


@dataclass(frozen=True, slots=True)
class Step:
    """One step and its arguments, as the manifest names them."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Axes:
    """Where the batch is in a tensor: ``axis`` None if nowhere, ``size`` None if free.

    ``sample`` is the shape of one sample; None stands for a free axis, and for a shape that is not declared.
    """

    axis: int | None
    size: int | None
    sample: tuple[int | None, ...] | None


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    dtype: str
    layout: str | None
    axes: Axes
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    type: str
    dtype: str | None
    axes: Axes
    label_offset: int
    threshold: float | None
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class File:
    """A file of the model, or a tree, whose ``path`` then ends in ``/``; relative to the folder ``model``."""

    path: str
    role: str


@dataclass(frozen=True, slots=True)
class Model:
    format: str
    predictor: str
    signature: str | None
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    files: tuple[File, ...]

    @property
    def batch(self) -> int | None:
        """How many samples a call takes: a number if the graph fixes it, None if it is free."""
        sizes = {axes.size for axes in (port.axes for port in self.inputs) if axes.size is not None}
        return min(sizes) if sizes else None


@dataclass(frozen=True, slots=True)
class Dataset:
    """``split`` is the manifest's, whose keys depend on ``format``; paths are relative to the folder ``dataset``."""

    format: str
    split: Mapping[str, Any]
    labels: str | None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy phase alone, in batches of ``batch`` after ``warmup`` calls."""

    warmup: int
    batch: int


@dataclass(frozen=True, slots=True)
class SingleStream:
    """One sample a query, the next one on completion, until both minima are met (``min_duration`` in seconds)."""

    warmup: int
    min_queries: int
    min_duration: float


@dataclass(frozen=True, slots=True)
class Seeds:
    qsl: int
    sample_index: int
    schedule: int


@dataclass(frozen=True, slots=True)
class Job:
    """``device`` is what the model runs on: ``cpu``, or an accelerator such as ``cuda12``."""

    model: Model
    dataset: Dataset
    scenario: Accuracy | SingleStream
    metrics: tuple[str, ...]
    threads: int
    seeds: Seeds
    device: str

    @property
    def quality_metrics(self) -> tuple[str, ...]:
        return tuple(name for name in self.metrics if name in QUALITY_METRICS)

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases to run, each in a process of its own, in this order."""
        accuracy = bool(self.quality_metrics) or isinstance(self.scenario, Accuracy)
        performance = isinstance(self.scenario, SingleStream)
        return ("accuracy",) * accuracy + ("performance",) * performance
