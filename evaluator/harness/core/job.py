"""The job: the complete description of a run for the harness."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .scenarios import PART, Accuracy, MicroBatch, Scenario

Stage = Literal["whole", "unlabel", "predict", "score"]
"""The part of a job that one process or container runs.

``unlabel`` writes the dataset without its labels, ``predict`` runs the model on that copy, and ``score`` compares the
predictions with the labels. Only ``predict`` has the model's files, and it has no labels. ``whole`` runs everything.
"""
TraceLevel = Literal["none", "model", "framework", "system", "full"]
"""How deep the phase ``trace`` looks into the calls of the model; ``none`` leaves the phase out."""
UNDECIDED = -(1 << 63)
"""The predicted label of a sample without a decision, because its scores have NaN."""
CALIBRATION_BINS = 15
SCORE_METRICS = ("auroc", "average_precision", f"ece_{CALIBRATION_BINS}", "brier")
"""Metrics of the probabilities of classes."""
CLASS_METRICS = ("f1_macro", "f1_weighted", *SCORE_METRICS)
"""Metrics of samples with one class each that are not counts."""
QUALITY_METRICS = ("top1", "top5", "map", "map_50", "miou", "mae", "rmse", *CLASS_METRICS)
_TIMES = ("latency_p50", "latency_p90", "latency_p99", "throughput")
PIPELINE_METRICS = tuple(f"pipeline_{name}" for name in _TIMES)
COLD_PHASES = ("start", "import", "load", "prepare", "predict", "outputs")
"""The phases of ``cold_start``.

In order: from the start of the interpreter to the import of the harness; imports of libraries and the framework;
loading the model; preparing the first sample from its stored bytes; the first call; the output steps.
"""
PEAK = "peak_qps"
TIME_METRICS = (
    *_TIMES,
    *PIPELINE_METRICS,
    "throughput_per_core",
    "cost_per_million",
    "optimal_batch",
    PEAK,
    "cold_start",
    *(f"cold_start_{name}" for name in COLD_PHASES),
    "outputs_equal",
    "outputs_difference",
    "peak_memory",
    "batch_latency",
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step with its name and arguments from the manifest."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Axes:
    """The position and size of a tensor's batch axis, and the shape of one sample.

    ``axis`` is None for a tensor without a batch axis, ``size`` is None for a dynamic batch. In ``sample``, None stands
    for a dynamic axis; ``sample`` itself is None where the manifest declares no shape.
    """

    axis: int | None
    size: int | None
    sample: tuple[int | None, ...] | None


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The allowed difference of two values: ``|a - b| <= absolute + relative * |b|``."""

    absolute: float
    relative: float


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the model; ``type`` is image, audio, text, tensor, constant or state.

    ``field`` is the dataset field that feeds the input, None the only one. A constant has a ``value``, numbers in
    nested lists. A state has a ``source``, the output that supplies its next value, and ``reset``, which is sample or
    never.
    """

    name: str
    type: str
    dtype: str
    layout: str | None
    axes: Axes
    steps: tuple[Step, ...]
    field: str | None = None
    value: Any = None
    source: str | None = None
    reset: str | None = None
    tolerance: Tolerance | None = None

    @property
    def is_fed(self) -> bool:
        """Whether the input takes its tensor from the dataset."""
        return self.type not in ("constant", "state")


@dataclass(frozen=True, slots=True)
class Output:
    """An output of the model.

    ``reduce`` combines the answers to several calls of one sample: max, mean, last, or none, which keeps them all.
    ``allow_non_finite`` permits NaN and infinite values.
    """

    name: str
    type: str
    dtype: str | None
    axes: Axes
    label_offset: int
    threshold: float | None
    steps: tuple[Step, ...]
    reduce: str | None = None
    tolerance: Tolerance | None = None
    allow_non_finite: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """A file of the model, relative to the folder ``model``; the ``path`` of a folder ends in ``/``."""

    path: str
    role: str


@dataclass(frozen=True, slots=True)
class Code:
    """The function ``function(weights)`` in ``file``, relative to the folder ``model``; it returns a network."""

    file: str
    function: str


@dataclass(frozen=True, slots=True)
class Suppression:
    """Settings of non-maximum suppression.

    A box is removed when its overlap (IoU) with a better box is above ``iou``; with ``per_class``, only boxes of the
    same class are compared.
    """

    iou: float
    per_class: bool


@dataclass(frozen=True, slots=True)
class Detections:
    """How boxes are made of outputs.

    The first four fields name outputs; the other fields are those of the manifest's ``predictions``.
    """

    boxes: str
    scores: str
    classes: str | None
    count: str | None
    box_format: str
    background: int | None
    label_offset: int
    score_threshold: float
    nms: Suppression | None
    max_detections: int | None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs that boxes are made of."""
        return tuple(name for name in (self.boxes, self.scores, self.classes, self.count) if name is not None)


@dataclass(frozen=True, slots=True)
class Model:
    """The model: its format, predictor, inputs, outputs and files."""

    format: str
    predictor: str
    task: str
    signature: str | None
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    files: tuple[File, ...]
    code: Code | None = None
    unsafe: bool = False
    detections: Detections | None = None

    @property
    def batch(self) -> int | None:
        """The number of samples of a call where the graph fixes it; None for a dynamic batch."""
        sizes = {axes.size for axes in (port.axes for port in self.inputs) if axes.axis is not None}
        return min((size for size in sizes if size is not None), default=None)

    @property
    def golden(self) -> str | None:
        """The path of the golden tensors, relative to the folder ``model``."""
        return next((file.path for file in self.files if file.role == "golden"), None)

    @property
    def first_image(self) -> str | None:
        """The first image input, to whose original boxes and masks refer; None without an image input."""
        return next((port.name for port in self.inputs if port.type == "image"), None)

    @property
    def runs_code(self) -> bool:
        """Whether code of the model's author runs with the model."""
        ports: list[Input | Output] = [*self.inputs, *self.outputs]
        return (
            self.code is not None or self.unsafe or any(step.name == "python" for port in ports for step in port.steps)
        )

    @property
    def takes_several_calls(self) -> bool:
        """Whether a step splits a sample into several calls."""
        steps = (step for port in self.inputs if port.is_fed for step in port.steps)
        return any(step.name == "frame" and step.arguments.get("calls") == "each" for step in steps)

    @property
    def prediction_outputs(self) -> tuple[Output, ...]:
        """The outputs that are predictions; states are not."""
        return tuple(port for port in self.outputs if port.type != "state")


@dataclass(frozen=True, slots=True)
class Dataset:
    """The dataset's format, split and labels; paths are relative to the folder ``dataset``.

    The keys of ``split``, from the manifest, depend on ``format``. Mask pixels equal to ``ignore_label`` are not
    compared.
    """

    format: str
    split: Mapping[str, Any]
    labels: str | None
    ignore_label: int | None = None


@dataclass(frozen=True, slots=True)
class Seeds:
    """The three seeds of LoadGen's generators, each of 32 bits."""

    qsl: int
    sample_index: int
    schedule: int


@dataclass(frozen=True, slots=True)
class GoldenTask:
    """A request for new golden tensors of the samples ``numbers``, or of ``count`` chosen samples.

    The predictions of ``judged_count`` more samples are compared with the labels, if there are labels.
    """

    count: int
    numbers: tuple[int, ...]
    judged_count: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the harness: one run, or one stage of it.

    ``device`` is the device that the model runs on: ``cpu``, or an accelerator such as ``cuda12``. ``golden`` restricts
    the job to golden tensors: ``check`` those of the model, or make new ones. ``order_seed`` determines the order in
    which the model sees the samples. ``lock_fingerprint`` identifies the lock; every result file carries it. ``trace``
    adds the phase that looks into calls; the timed phases are the same with every level. ``isolation`` is ``container``
    or ``process``.
    """

    model: Model
    dataset: Dataset
    scenario: Scenario
    metrics: tuple[str, ...]
    threads: int
    seeds: Seeds
    device: str
    golden: GoldenTask | Literal["check"] | None = None
    stage: Stage = "whole"
    order_seed: str = ""
    lock_fingerprint: str = ""
    trace: TraceLevel = "none"
    isolation: str = ""

    @property
    def file_metadata(self) -> dict[str, str]:
        """The metadata of the tensor files that the job writes."""
        return {"lock_fingerprint": self.lock_fingerprint}

    @property
    def quality_metrics(self) -> tuple[str, ...]:
        """The metrics of the job that compare predictions with labels."""
        return tuple(name for name in self.metrics if name in QUALITY_METRICS)

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases to run, in order; each runs in its own process."""
        if self.stage in ("unlabel", "score"):
            return (self.stage,)
        if self.golden is not None:
            return ("golden",)
        if isinstance(self.scenario, MicroBatch):
            golden = ("golden",) if self.model.golden is not None else ()
            return (*golden, *(f"{PART}{place}" for place in range(len(self.scenario.parts))))
        performance = not isinstance(self.scenario, Accuracy)
        accuracy = bool(self.quality_metrics) or not performance
        # The first phase that loads the model checks the golden tensors; a timed phase never does.
        needs = {
            "golden": self.model.golden is not None and not accuracy,
            "accuracy": accuracy,
            "score": bool(self.quality_metrics) and self.stage == "whole",
            "trace-probe": self.trace in ("framework", "full"),
            "performance": performance,
            "pipeline": any(name in PIPELINE_METRICS for name in self.metrics),
            "peak": PEAK in self.metrics,
            "trace": self.trace != "none",
        }
        return tuple(phase for phase, is_needed in needs.items() if is_needed)


_FOLDER_SIZE = 1000


def sample_path(number: int) -> str:
    """Return the path of the unlabelled sample ``number``; the path reveals nothing about the sample."""
    return f"samples/{number // _FOLDER_SIZE:06}/{number:09}"
