"""The job: everything that the harness is told about a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .scenarios import Accuracy, Scenario

Stage = Literal["whole", "unlabel", "predict", "score"]
"""The part of a job that one process or container does.

``unlabel`` writes the dataset without its labels, ``predict`` runs the model on that, ``score`` compares its answers
with the labels. Only ``predict`` has the model's files, and it has no labels. ``whole`` does everything at once.
"""
QUALITY_METRICS = ("top1", "top5", "map", "map_50", "miou", "mae", "rmse")
_TIMES = ("latency_p50", "latency_p90", "latency_p99", "throughput")
PIPELINE_METRICS = tuple(f"pipeline_{name}" for name in _TIMES)
COLD_PHASES = ("start", "import", "load", "prepare", "predict", "outputs")
"""What ``cold_start`` is split into: until the interpreter comes to the harness; its libraries and the framework; the
model; the first sample from its stored bytes; the first call; the output steps."""
PEAK = "peak_qps"
TIME_METRICS = (
    *_TIMES,
    *PIPELINE_METRICS,
    "optimal_batch",
    PEAK,
    "cold_start",
    *(f"cold_start_{name}" for name in COLD_PHASES),
)


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
class Tolerance:
    """What two values may differ by: ``|a - b| <= absolute + relative * |b|``."""

    absolute: float
    relative: float


@dataclass(frozen=True, slots=True)
class Input:
    """``type`` is image, audio, text, tensor, constant or state.

    ``field`` is the dataset's that feeds it, None its only one. A constant has a ``value``, numbers in lists; a state
    has a ``source``, the output that it is fed from, and ``reset``, which is sample or never.
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
    def fed(self) -> bool:
        """Whether it takes its tensor from the dataset."""
        return self.type not in ("constant", "state")


@dataclass(frozen=True, slots=True)
class Output:
    """An output of the model.

    ``reduce`` makes one prediction of a sample's several calls: max, mean, last, or none, which keeps them all.
    ``allow_non_finite`` says that NaN and infinities are no failure.
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
    """A file of the model, or a tree, whose ``path`` then ends in ``/``; relative to the folder ``model``."""

    path: str
    role: str


@dataclass(frozen=True, slots=True)
class Code:
    """``function(weights) -> torch.nn.Module``, in ``file``, relative to the folder ``model``."""

    file: str
    function: str


@dataclass(frozen=True, slots=True)
class Suppression:
    """A box goes when its overlap (IoU) with a better one, of its own class if ``per_class``, is above ``iou``."""

    iou: float
    per_class: bool


@dataclass(frozen=True, slots=True)
class Detections:
    """How boxes are made: the first four name outputs, the rest is as in the manifest's ``predictions``."""

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
        """The outputs that boxes are made of."""
        return tuple(name for name in (self.boxes, self.scores, self.classes, self.count) if name is not None)


@dataclass(frozen=True, slots=True)
class Model:
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
        """How many samples a call takes: a number if the graph fixes it, None if it is free."""
        sizes = {axes.size for axes in (port.axes for port in self.inputs) if axes.axis is not None}
        return min((size for size in sizes if size is not None), default=None)

    @property
    def golden(self) -> str | None:
        """The path of the golden tensors, relative to the folder ``model``."""
        return next((file.path for file in self.files if file.role == "golden"), None)

    @property
    def first_picture(self) -> str | None:
        """The input over whose original boxes and masks are laid; None where none is a picture."""
        return next((port.name for port in self.inputs if port.type == "image"), None)

    @property
    def runs_code(self) -> bool:
        """Whether code of its author runs with it."""
        ports: list[Input | Output] = [*self.inputs, *self.outputs]
        return (
            self.code is not None or self.unsafe or any(step.name == "python" for port in ports for step in port.steps)
        )

    @property
    def takes_several_calls(self) -> bool:
        """Whether a step cuts a sample into several calls."""
        steps = (step for port in self.inputs if port.fed for step in port.steps)
        return any(step.name == "frame" and step.arguments.get("calls") == "each" for step in steps)

    @property
    def predicted(self) -> tuple[Output, ...]:
        """The outputs that are predictions: a state is none."""
        return tuple(port for port in self.outputs if port.type != "state")


@dataclass(frozen=True, slots=True)
class Dataset:
    """``split`` is the manifest's, whose keys depend on ``format``; paths are relative to the folder ``dataset``.

    Pixels of masks that are ``ignore_label`` are not compared.
    """

    format: str
    split: Mapping[str, Any]
    labels: str | None
    ignore_label: int | None = None


@dataclass(frozen=True, slots=True)
class Seeds:
    qsl: int
    sample_index: int
    schedule: int


@dataclass(frozen=True, slots=True)
class GoldenTask:
    """Golden tensors to be made: of the samples ``numbers``, or of ``count`` that are chosen.

    ``judged``: of so many samples more the answers are compared with the labels, if there are any.
    """

    count: int
    numbers: tuple[int, ...]
    judged: int


@dataclass(frozen=True, slots=True)
class Job:
    """``device`` is what the model runs on: ``cpu``, or an accelerator such as ``cuda12``.

    ``golden`` asks for golden tensors and nothing else: to check those of the model, or to make some. ``order_seed``
    decides the order in which the model sees the samples. ``lock_fingerprint`` names the lock that is run; every file
    of results carries it.
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

    @property
    def file_metadata(self) -> dict[str, str]:
        """What the files of tensors say of themselves."""
        return {"lock_fingerprint": self.lock_fingerprint}

    @property
    def quality_metrics(self) -> tuple[str, ...]:
        return tuple(name for name in self.metrics if name in QUALITY_METRICS)

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases to run, each in a process of its own, in this order."""
        if self.stage in ("unlabel", "score"):
            return (self.stage,)
        if self.golden is not None:
            return ("golden",)
        performance = not isinstance(self.scenario, Accuracy)
        accuracy = bool(self.quality_metrics) or not performance
        # Golden tensors are checked by the first phase that loads the model, and never by one that is timed.
        asked = {
            "golden": self.model.golden is not None and not accuracy,
            "accuracy": accuracy,
            "score": bool(self.quality_metrics) and self.stage == "whole",
            "performance": performance,
            "pipeline": any(name in PIPELINE_METRICS for name in self.metrics),
            "peak": PEAK in self.metrics,
        }
        return tuple(phase for phase, wanted in asked.items() if wanted)


_FOLDER_SIZE = 1000


def sample_path(number: int) -> str:
    """Return where the shown sample of that number lies: a name that says nothing of it."""
    return f"samples/{number // _FOLDER_SIZE:06}/{number:09}"
