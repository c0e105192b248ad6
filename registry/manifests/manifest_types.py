"""The types of the six kinds of manifest: model, dataset, framework, image, operator and recipe."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType, field

from benchlock.registry.artifact_names import LONGEST_TAG, TAG, Kind
from benchlock.registry.manifests.field_types import (
    MAX_AXES,
    MAX_CASES,
    MAX_FILES,
    MAX_LAYERS,
    MAX_PLATFORMS,
    MAX_PORTS,
    MAX_SETTINGS,
    MAX_SPLITS,
    MAX_STEPS,
    MAX_TAGS,
    ConstraintText,
    Count,
    DigestText,
    DType,
    Fraction,
    HexText,
    Layout,
    NameText,
    NotNegative,
    Part,
    PathText,
    Positive,
    TagText,
    Text,
    VersionText,
    Whole,
)
from benchlock.registry.manifests.steps import AudioStep, ImageStep, OutputStep, TensorStep, TextStep

Task = Literal[
    "image-classification",
    "object-detection",
    "semantic-segmentation",
    "audio-classification",
    "text-classification",
    "regression",
    "tensor",
]
Format = Literal[
    "onnx",
    "torchscript", "torch-export", "safetensors", "state-dict",
    "savedmodel", "keras", "hdf5", "frozen-graph",
    "tflite",
]  # fmt: skip
Role = Literal["graph", "weights", "labels", "vocabulary", "code", "golden", "card", "wheels", "layer", "config"]
Shape = Annotated[
    tuple[int | str | None, ...],
    Meta(
        max_length=MAX_AXES, description="a number, null (the batch axis) or a name (another free axis) for each axis"
    ),
]
Tags = Annotated[
    tuple[TagText, ...], Meta(min_length=1, max_length=MAX_TAGS, description="words by which the artifact is found")
]
_STEPS = Meta(max_length=MAX_STEPS)
BatchAxis = Annotated[int | Literal["none"], Meta(description="the batch axis of a shape without null, or none")]


class File(Part, frozen=True, kw_only=True):
    """A file or tree; an authored one has a ``source``, a published one ``sha256`` and ``size``."""

    path: Annotated[PathText, Meta(description="relative, inside the artifact; a tree ends in /")]
    role: Role | UnsetType = UNSET
    source: (
        Annotated[Text, Meta(description="a path or file: from the manifest's folder, or https:, hf:, dvc:")]
        | UnsetType
    ) = UNSET
    sha256: HexText | UnsetType = UNSET
    size: Annotated[Whole, Meta(description="bytes")] | UnsetType = UNSET


class FrameworkRequirement(Part, frozen=True, kw_only=True):
    """The framework of a model, and the versions of it that fit."""

    name: NameText
    version: ConstraintText


class Tolerance(Part, frozen=True, kw_only=True):
    """The allowed difference of two values: ``|a - b| <= absolute + relative * |b|``."""

    absolute: NotNegative
    relative: NotNegative


class Input(Part, frozen=True, kw_only=True, tag_field="type"):
    """A tensor that the model is fed; the keys that all types of input have."""

    type: ClassVar[str]

    name: Text
    dtype: DType
    shape: Shape
    batch_axis: BatchAxis | UnsetType = UNSET
    layout: Layout | UnsetType = UNSET
    tolerance: Tolerance | UnsetType = UNSET


class ImageInput(Input, frozen=True, kw_only=True, tag="image"):
    """An image of the dataset."""

    type: ClassVar[str] = "image"

    field: Text | UnsetType = UNSET
    steps: Annotated[tuple[ImageStep, ...], _STEPS]


class AudioInput(Input, frozen=True, kw_only=True, tag="audio"):
    """A sound of the dataset."""

    type: ClassVar[str] = "audio"

    field: Text | UnsetType = UNSET
    steps: Annotated[tuple[AudioStep, ...], _STEPS]


class TextInput(Input, frozen=True, kw_only=True, tag="text"):
    """A text of the dataset."""

    type: ClassVar[str] = "text"

    field: Text | UnsetType = UNSET
    steps: Annotated[tuple[TextStep, ...], _STEPS]


class TensorInput(Input, frozen=True, kw_only=True, tag="tensor"):
    """An array or a list of numbers of the dataset."""

    type: ClassVar[str] = "tensor"

    field: Text | UnsetType = UNSET
    steps: Annotated[tuple[TensorStep, ...], _STEPS] | UnsetType = UNSET


class ConstantInput(Input, frozen=True, kw_only=True, tag="constant"):
    """A value that is the same in every call."""

    type: ClassVar[str] = "constant"

    value: Annotated[Any, Meta(description="a number, true, false, or nested lists of them")]


class StateInput(Input, frozen=True, kw_only=True, tag="state"):
    """A value that is fed back from an output of type ``state``."""

    type: ClassVar[str] = "state"

    from_: Annotated[Text, Meta(description="the name of the output")] = field(name="from")
    initial: Literal["zeros"]
    reset: Literal["sample", "never"]


AnyInput = ImageInput | AudioInput | TextInput | TensorInput | ConstantInput | StateInput


class Output(Part, frozen=True, kw_only=True):
    """A tensor that the model returns, and its postprocessing steps.

    ``dtype`` and ``shape`` are those of the model; ``tolerance`` applies to the value after the steps.
    """

    name: Text
    type: Literal["class-scores", "class-index", "tensor", "value", "mask", "boxes", "box-scores", "state"]
    dtype: DType
    shape: Shape | UnsetType = UNSET
    batch_axis: BatchAxis | UnsetType = UNSET
    labels: PathText | UnsetType = UNSET
    label_offset: Annotated[int, Meta(description="class index minus dataset label")] | UnsetType = UNSET
    threshold: Annotated[float, Meta(description="class 1 where a score of width 1 is at least this")] | UnsetType = (
        UNSET
    )
    reduce: (
        Annotated[Literal["max", "mean", "last", "none"], Meta(description="of several calls a sample")] | UnsetType
    ) = UNSET
    tolerance: Tolerance | UnsetType = UNSET
    allow_non_finite: Annotated[bool, Meta(description="accept NaN and infinities")] | UnsetType = UNSET
    steps: Annotated[tuple[OutputStep, ...], _STEPS] | UnsetType = UNSET


class Suppression(Part, frozen=True, kw_only=True):
    """Non-maximum suppression: a box is removed if its overlap with a better one is above ``iou``."""

    iou: Fraction
    per_class: bool


class Detections(Part, frozen=True, kw_only=True, tag_field="type", tag="detections"):
    """The outputs that make up the detected boxes, and their meaning."""

    boxes: Text
    scores: Text
    classes: str | None
    count: str | None
    box_format: Literal[
        "xyxy-relative", "yxyx-relative", "xywh-relative", "cxcywh-relative",
        "xyxy-absolute", "yxyx-absolute", "xywh-absolute", "cxcywh-absolute",
    ]  # fmt: skip
    background: Whole | None
    label_offset: int
    score_threshold: float
    nms: Suppression | None
    max_detections: Count | None


class Code(Part, frozen=True, kw_only=True):
    """A function of the model's author that builds the network: ``function(weights)`` -> a network of its framework."""

    file: PathText
    function: Text


class ClaimDataset(Part, frozen=True, kw_only=True):
    """The dataset and the split that a claim is about."""

    name: NameText
    version: ConstraintText
    split: Text


class Claim(Part, frozen=True, kw_only=True):
    """The value of a metric as stated by the author."""

    metric: Text
    value: float
    tolerance: NotNegative
    dataset: ClaimDataset


class TrainingOrigin(Part, frozen=True, kw_only=True):
    """The training that made the weights of a promoted model: its lock, and the repeat with its seed."""

    lock: DigestText
    repeat: Whole
    seed: Whole
    weights: Annotated[DigestText, Meta(description="of the weights as the harness writes them")]


class Model(Part, frozen=True, kw_only=True, tag_field="kind", tag="model"):
    """The manifest of a model."""

    kind: ClassVar[Kind] = "model"

    schema: Literal[1]
    name: NameText
    version: VersionText
    license: Text
    description: str | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET
    family: Annotated[NameText, Meta(description="the same network in other frameworks")] | UnsetType = UNSET
    task: Task
    framework: FrameworkRequirement
    format: Format
    signature: Annotated[Text, Meta(description="of a SavedModel")] | UnsetType = UNSET
    code: Code | UnsetType = UNSET
    unsafe: Annotated[bool, Meta(description="the files execute code when they are read")] | UnsetType = UNSET
    inputs: Annotated[tuple[AnyInput, ...], Meta(min_length=1, max_length=MAX_PORTS)]
    outputs: Annotated[tuple[Output, ...], Meta(min_length=1, max_length=MAX_PORTS)]
    predictions: Detections | UnsetType = UNSET
    files: Annotated[tuple[File, ...], Meta(min_length=1, max_length=MAX_FILES)]
    claims: Annotated[tuple[Claim, ...], Meta(max_length=MAX_PORTS)] | UnsetType = UNSET
    trained: Annotated[TrainingOrigin, Meta(description="of a promoted model")] | UnsetType = UNSET


DatasetFormat = Literal["image-index", "wav-index", "idx", "npz", "jsonl", "parquet", "coco"]
PredictorName = Literal["onnxruntime", "pytorch", "tensorflow", "litert"]


class Split(Part, frozen=True, kw_only=True):
    """A part of a dataset; the format of the dataset determines its keys."""

    samples: Count
    index: (
        Annotated[PathText, Meta(description="image-index, wav-index: a CSV with columns path, label")] | UnsetType
    ) = UNSET
    images: Annotated[PathText, Meta(description="idx: the pictures' file; coco: their folder")] | UnsetType = UNSET
    labels: (
        Annotated[PathText, Meta(description="idx: the labels' file; absent, the split is unlabelled")] | UnsetType
    ) = UNSET
    file: Annotated[PathText, Meta(description="npz, jsonl, parquet")] | UnsetType = UNSET
    fields: (
        Annotated[
            dict[str, Text],
            Meta(max_length=MAX_SPLITS, description="npz, jsonl, parquet: field to key; `label` the label"),
        ]
        | UnsetType
    ) = UNSET
    annotations: Annotated[PathText, Meta(description="coco")] | UnsetType = UNSET


class Dataset(Part, frozen=True, kw_only=True, tag_field="kind", tag="dataset"):
    """The manifest of a dataset."""

    kind: ClassVar[Kind] = "dataset"

    schema: Literal[1]
    name: NameText
    version: VersionText
    license: Text
    description: str | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET
    format: DatasetFormat
    splits: Annotated[dict[str, Split], Meta(min_length=1, max_length=MAX_SPLITS)]
    labels: Annotated[PathText, Meta(description="UTF-8, line i is index i")] | UnsetType = UNSET
    ignore_label: Annotated[int, Meta(description="of masks: pixels that are not compared")] | UnsetType = UNSET
    files: Annotated[tuple[File, ...], Meta(min_length=1, max_length=MAX_FILES)]


class Framework(Part, frozen=True, kw_only=True, tag_field="kind", tag="framework"):
    """The manifest of a framework."""

    kind: ClassVar[Kind] = "framework"

    schema: Literal[1]
    name: NameText
    version: VersionText
    license: Text
    description: str | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET
    predictor: PredictorName
    distributions: Annotated[
        tuple[Text, ...],
        Meta(min_length=1, max_length=MAX_PLATFORMS, description="Python distributions that are this framework"),
    ]


class Provision(Part, frozen=True, kw_only=True):
    """The one framework version that an image provides."""

    framework: NameText
    version: VersionText


class Platform(Part, frozen=True, kw_only=True):
    """An environment for one kind of host: wheels with the layers built from them, or a finished image by digest."""

    os: Text
    arch: Text
    device: Text
    python: Annotated[str, Meta(description="the minor version, quoted", extra_json_schema={"pattern": "^3\\.[0-9]+$"})]
    wheels: Annotated[PathText, Meta(description="a PEP 751 lock with paths and hashes")] | UnsetType = UNSET
    config: Annotated[DigestText, Meta(description="of the image's configuration: the image id")] | UnsetType = UNSET
    layers: (
        Annotated[
            tuple[DigestText, ...],
            Meta(min_length=1, max_length=MAX_LAYERS, description="uncompressed, the base first"),
        ]
        | UnsetType
    ) = UNSET
    reference: Annotated[Text, Meta(description="NAME@sha256:… of a finished image")] | UnsetType = UNSET


class Image(Part, frozen=True, kw_only=True, tag_field="kind", tag="image"):
    """The manifest of an image."""

    kind: ClassVar[Kind] = "image"

    schema: Literal[1]
    name: NameText
    version: VersionText
    license: Text
    description: str | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET
    provides: Provision
    platforms: Annotated[tuple[Platform, ...], Meta(min_length=1, max_length=MAX_PLATFORMS)]
    files: Annotated[tuple[File, ...], Meta(max_length=MAX_FILES)] | UnsetType = UNSET


class OperatorType(Part, frozen=True, kw_only=True):
    """An operator of the standard operator set of ONNX, which defines its meaning and the names of its arguments."""

    type: Annotated[Text, Meta(max_length=64, description="such as Conv")]
    opset: Annotated[int, Meta(ge=13, le=64, description="the version of the operator set")]


class OperatorInput(Part, frozen=True, kw_only=True):
    """An input of an operator, in the order of its definition."""

    name: Annotated[Text, Meta(max_length=64)]
    layout: Annotated[Literal["NCHW", "OIHW"], Meta(description="of pictures and of weights")] | UnsetType = UNSET


class Fill(Part, frozen=True, kw_only=True):
    """The distribution of the elements of each input; the lock has the seed of each case."""

    kind: Annotated[Literal["normal", "uniform"], Meta(description="normal: mean 0, deviation 1; uniform: [-1, 1)")]
    generator: Literal["pcg64"]


class OperatorTolerance(Part, frozen=True, kw_only=True):
    """The largest errors against the reference.

    ``l2`` and ``linf`` are multiples of the machine epsilon of ``dtype`` times the square root of ``reduction``.
    """

    l2: Positive
    linf: Positive
    gradient: Annotated[Positive, Meta(description="relative error of a gradient in float64")] | UnsetType = UNSET


class Case(Part, frozen=True, kw_only=True):
    """One size of an operator."""

    name: Annotated[str, Meta(extra_json_schema={"pattern": TAG, "maxLength": LONGEST_TAG})]
    shapes: Annotated[
        dict[str, Annotated[tuple[Count, ...], Meta(max_length=MAX_AXES)]], Meta(description="of each input, by name")
    ]
    arguments: Annotated[
        dict[str, int | float | str | tuple[int | float, ...]],
        Meta(max_length=32, description="the attributes of the operator; absent ones have ONNX's default"),
    ]
    reduction: Annotated[Count, Meta(description="products that are added up for one element of the output")]


class Operator(Part, frozen=True, kw_only=True, tag_field="kind", tag="operator"):
    """The manifest of an operator: the cases to measure, and the reference that results are compared with."""

    kind: ClassVar[Kind] = "operator"

    schema: Literal[1]
    name: NameText
    version: VersionText
    license: Text
    description: str | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET
    op: OperatorType
    dtype: Literal["float32", "float64"]
    inputs: Annotated[tuple[OperatorInput, ...], Meta(min_length=1, max_length=16)]
    reference: Annotated[
        Code | Literal["onnx"],
        Meta(description="code that gets float64 arrays by name and the case's arguments; or ONNX's own evaluator"),
    ]
    fill: Fill
    tolerance: OperatorTolerance
    cases: Annotated[tuple[Case, ...], Meta(min_length=1, max_length=MAX_CASES)]
    files: Annotated[tuple[File, ...], Meta(max_length=MAX_FILES)] | UnsetType = UNSET


Batch = Annotated[int, Meta(ge=1, le=1 << 20, description="samples")]


SETTING = "[a-z][a-z0-9_]{0,31}"
"""The pattern of the name of a setting of a custom optimizer."""
MUTABLE = rf"^(batch|micro_batch|evaluate\.every|optimizer\.{SETTING})$"


class Optimizer(Part, frozen=True, kw_only=True):
    """A named optimizer of a recipe; settings that it has and that are absent get the default of PyTorch.

    In TensorFlow it is ``sgd`` or ``adam``, and has no ``implementation``.
    """

    name: Literal["sgd", "adam", "adamw", "rmsprop"]
    lr: Annotated[float, Meta(gt=0, le=1e6)]
    betas: tuple[Fraction, Fraction] | UnsetType = UNSET
    eps: NotNegative | UnsetType = UNSET
    momentum: NotNegative | UnsetType = UNSET
    weight_decay: NotNegative | UnsetType = UNSET
    implementation: (
        Annotated[Literal["for-loop", "foreach", "fused"], Meta(description="it changes bits; absent, for-loop")]
        | UnsetType
    ) = UNSET


class Sampler(Part, frozen=True, kw_only=True):
    """The order of samples in an epoch, and the fate of a last batch that is not full."""

    kind: Literal["ordered", "shuffle"]
    generator: Annotated[Literal["pcg64"], Meta(description="absent, pcg64")] | UnsetType = UNSET
    last: Literal["drop", "keep"]


class EvaluationInterval(Part, frozen=True, kw_only=True):
    """The number of epochs between evaluations, and their batch size."""

    every: Annotated[Count, Meta(description="epochs; comparisons across different values are refused")]
    batch: Batch


Epochs = Annotated[float, Meta(ge=0, le=1e6, description="epochs")]
Warmup = Annotated[Epochs, Meta(description="epochs in which the rate rises in equal steps to lr; absent, 0")]
Final = Annotated[Fraction, Meta(description="the rate at the end as a share of lr, which stays; absent, 0")]


class ConstantRate(Part, frozen=True, kw_only=True, tag_field="name", tag="constant"):
    """A learning rate that stays at ``lr`` after its warm-up."""

    warmup: Warmup


class StepRate(Part, frozen=True, kw_only=True, tag_field="name", tag="step"):
    """A learning rate that is multiplied by ``factor`` at each milestone."""

    milestones: Annotated[
        tuple[Epochs, ...], Meta(min_length=1, max_length=MAX_SETTINGS, description="epochs from the start, ascending")
    ]
    factor: Annotated[float, Meta(gt=0, lt=1)]
    warmup: Warmup | UnsetType = UNSET


class LinearRate(Part, frozen=True, kw_only=True, tag_field="name", tag="linear"):
    """A learning rate that falls linearly from the end of the warm-up to ``epochs``."""

    epochs: Epochs
    final: Final | UnsetType = UNSET
    warmup: Warmup | UnsetType = UNSET


class CosineRate(Part, frozen=True, kw_only=True, tag_field="name", tag="cosine"):
    """A learning rate that falls as half a period of a cosine, from the end of the warm-up to ``epochs``."""

    epochs: Epochs
    final: Final | UnsetType = UNSET
    warmup: Warmup | UnsetType = UNSET


Schedule = ConstantRate | StepRate | LinearRate | CosineRate


class Recipe(Part, frozen=True, kw_only=True, tag_field="kind", tag="recipe"):
    """The manifest of a recipe: a network and how it is trained, without weights."""

    kind: ClassVar[Kind] = "recipe"

    schema: Literal[1]
    name: NameText
    version: VersionText
    license: Text
    description: str | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET
    task: Literal["image-classification", "audio-classification", "text-classification"]
    framework: FrameworkRequirement
    network: Annotated[Code, Meta(description="called with {} for a new network, with weights for a trained one")]
    loss: Literal["cross-entropy"]
    optimizer: Annotated[
        dict[str, Any],
        Meta(max_length=MAX_SETTINGS + 2, description="name and lr, or file and function of code and its settings"),
    ]
    schedule: Annotated[Schedule, Meta(description="of the learning rate; absent, it is constant")] | UnsetType = UNSET
    batch: Batch
    micro_batch: (
        Annotated[Batch, Meta(description="of each part of a batch whose gradients are added; absent, batch")]
        | UnsetType
    ) = UNSET
    batch_statistics: (
        Annotated[bool, Meta(description="the network normalizes by statistics of a batch; absent, false")] | UnsetType
    ) = UNSET
    sampler: Sampler
    evaluate: EvaluationInterval
    inputs: Annotated[tuple[AnyInput, ...], Meta(min_length=1, max_length=MAX_PORTS)]
    outputs: Annotated[tuple[Output, ...], Meta(min_length=1, max_length=1)]
    mutable: (
        Annotated[
            tuple[Annotated[str, Meta(extra_json_schema={"pattern": MUTABLE})], ...],
            Meta(max_length=MAX_SETTINGS + 3, description="the settings that a request may change"),
        ]
        | UnsetType
    ) = UNSET
    files: Annotated[tuple[File, ...], Meta(min_length=1, max_length=MAX_FILES)]


Manifest = Model | Dataset | Framework | Image | Operator | Recipe
Evaluated = Model | Operator | Recipe
"""What a lock evaluates."""


def holds_path(file: File, path: str) -> bool:
    """Return whether a path in a manifest is that of the file, or inside the tree."""
    return path == file.path or (file.path.endswith("/") and path.startswith(file.path))


def files_of(manifest: Manifest) -> tuple[File, ...]:
    """Return the files of any manifest; a framework has none."""
    if isinstance(manifest, Framework) or manifest.files is UNSET:
        return ()
    return manifest.files
