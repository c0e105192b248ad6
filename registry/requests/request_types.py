"""The types of a request file, key by key."""

from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType

from benchlock.registry.artifact_names import Kind
from benchlock.registry.manifests.field_types import ConstraintText, Count, NameText, Part, Positive, Text

Duration = Annotated[str, Meta(description="a number and ms, s, m or h, such as 10m")]
Memory = Annotated[str, Meta(description="a number and a unit of bytes, such as 2GiB")]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Warmup = Annotated[int, Meta(ge=0, description="calls before the first that counts")]
Batch = Annotated[int, Meta(ge=1, description="samples a call; absent, 1")]
OneOrMore = Text | Annotated[tuple[Text, ...], Meta(min_length=1, extra_json_schema={"uniqueItems": True})]


class ArtifactRequirement(Part, frozen=True, kw_only=True):
    """An artifact by name, with a constraint on its version."""

    name: NameText
    version: ConstraintText


class DatasetRequirement(ArtifactRequirement, frozen=True, kw_only=True):
    """A dataset by name, with a constraint on its version, and the split to use."""

    split: Text


class FrameworkVersions(Part, frozen=True, kw_only=True):
    """A further constraint on the framework versions that the model allows."""

    version: ConstraintText


class AcceleratorRequirement(Part, frozen=True, kw_only=True):
    """Requirements on the accelerators of a host. At least one key is needed."""

    name: Annotated[Text, Meta(description="words of the accelerator's name, such as H200")] | UnsetType = UNSET
    count: Annotated[int, Meta(ge=1, description="minimum number; absent, 1")] | UnsetType = UNSET
    memory: Annotated[Memory, Meta(description="minimum of each, such as 80GiB")] | UnsetType = UNSET
    driver: Annotated[ConstraintText, Meta(description="versions of the driver, such as '>=550'")] | UnsetType = UNSET


class HardwareRequirement(Part, frozen=True, kw_only=True):
    """Requirements on platforms and hosts. A missing key allows any value."""

    os: OneOrMore | UnsetType = UNSET
    arch: OneOrMore | UnsetType = UNSET
    device: OneOrMore | UnsetType = UNSET
    cpus: Annotated[int, Meta(ge=1, description="minimum that a run may use")] | UnsetType = UNSET
    memory: Annotated[Memory, Meta(description="minimum of the host, such as 8GiB")] | UnsetType = UNSET
    accelerator: Annotated[Text | AcceleratorRequirement, Meta(description="a text is its name")] | UnsetType = UNSET


class RequestedLimits(Part, frozen=True, kw_only=True):
    """The resource limits of a run."""

    time: Duration
    memory: Memory
    cpus: Annotated[int, Meta(ge=1, description="also the thread count of every runtime")]
    processes: Count


class Accuracy(Part, frozen=True, kw_only=True, tag_field="name", tag="accuracy"):
    """A scenario with the accuracy phase only."""

    name: ClassVar[str] = "accuracy"

    batch: Batch | UnsetType = UNSET
    warmup: Annotated[Warmup, Meta(description="absent, 0")] | UnsetType = UNSET


class SingleStream(Part, frozen=True, kw_only=True, tag_field="name", tag="single_stream"):
    """A scenario that sends one query at a time."""

    name: ClassVar[str] = "single_stream"

    min_queries: Count
    min_duration: Duration
    warmup: Warmup


class MultiStream(Part, frozen=True, kw_only=True, tag_field="name", tag="multi_stream"):
    """A scenario that sends one query of several samples at a time."""

    name: ClassVar[str] = "multi_stream"

    min_queries: Count
    min_duration: Duration
    samples_per_query: Count
    warmup: Warmup


class Server(Part, frozen=True, kw_only=True, tag_field="name", tag="server"):
    """A scenario whose queries arrive at random times with a given rate."""

    name: ClassVar[str] = "server"

    min_queries: Count
    min_duration: Duration
    target_qps: Annotated[Positive, Meta(description="queries a second")]
    target_latency: Duration
    warmup: Warmup


class Offline(Part, frozen=True, kw_only=True, tag_field="name", tag="offline"):
    """A scenario that sends all samples at once."""

    name: ClassVar[str] = "offline"

    batch: Batch | UnsetType = UNSET
    min_samples: Count
    min_duration: Duration
    warmup: Warmup


class BatchSweep(Part, frozen=True, kw_only=True, tag_field="name", tag="batch_sweep"):
    """A scenario that finds the smallest batch size beyond which throughput does not improve."""

    name: ClassVar[str] = "batch_sweep"

    batches: Annotated[tuple[Count, ...], Meta(min_length=1)]
    warmup: Warmup


class ColdStart(Part, frozen=True, kw_only=True, tag_field="name", tag="cold_start"):
    """A scenario that measures the time from a fresh process to the first result."""

    name: ClassVar[str] = "cold_start"

    repeats: Count
    warmup: Warmup


AnyScenario = Accuracy | SingleStream | MultiStream | Server | Offline | BatchSweep | ColdStart


class MicroBatch(Part, frozen=True, kw_only=True, tag_field="name", tag="micro_batch"):
    """The scenario of networks: one batch in several numbers of parts, each number in a fresh process."""

    name: ClassVar[str] = "micro_batch"

    batch: Annotated[int, Meta(ge=1, le=65536, description="samples, the first of the split")]
    parts: Annotated[
        tuple[Count, ...],
        Meta(min_length=1, max_length=8, description="numbers of parts, ascending, such as [1, 4, 16]"),
    ]
    warmup: Warmup
    repeats: Count


class GradientCheck(Part, frozen=True, kw_only=True):
    """The comparison of the framework's gradient with central differences."""

    dtype: Literal["float64"]
    step: Annotated[float, Meta(gt=0, le=0.1, description="of an element; 1.0e-6 suits values around 1")]
    elements: Annotated[int, Meta(ge=1, le=4096, description="of each input, chosen at random")]


class PairedScenario(Part, frozen=True, kw_only=True, tag_field="name", tag="paired"):
    """The scenario of operators: calls of the framework alone, and through benchlock, in alternating blocks."""

    name: ClassVar[str] = "paired"

    blocks: Annotated[int, Meta(ge=1, le=100_000, description="groups of four: native, wrapped, wrapped, native")]
    calls: Annotated[int, Meta(ge=1, le=1_000_000)] | Literal["auto"]
    order: Literal["abba"]
    warmup: Annotated[Warmup, Meta(le=1_000_000)]
    gradient: GradientCheck | UnsetType = UNSET


class Price(Part, frozen=True, kw_only=True):
    """The price of the machine that the runs of a request use."""

    amount: Annotated[float, Meta(ge=1e-6, le=1e9)]
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$", description="ISO 4217, such as USD")]
    per: Literal["hour"]
    date: Annotated[str, Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$", description="of the price, such as 2026-11-20")]
    source: Text


class Target(Part, frozen=True, kw_only=True):
    """The quality that ends a training, and the split on which it is evaluated."""

    metric: Literal["top1"]
    split: Text
    value: Annotated[float, Meta(gt=0, le=1)]


class MaximumEpochs(Part, frozen=True, kw_only=True):
    """The number of epochs after which a repeat ends without the target."""

    epochs: Annotated[int, Meta(ge=1, le=100_000)]


class TimeToQuality(Part, frozen=True, kw_only=True, tag_field="name", tag="time_to_quality"):
    """The scenario of trainings: repeats with different seeds, each in a fresh process, until the target."""

    name: ClassVar[str] = "time_to_quality"

    repeats: Annotated[int, Meta(ge=1, le=64)]
    max: MaximumEpochs
    deterministic: Annotated[bool, Meta(description="use deterministic algorithms only; it may change bits")]


class Steps(Part, frozen=True, kw_only=True, tag_field="name", tag="steps"):
    """The scenario of distributed trainings: a fixed number of steps, in one process and in several."""

    name: ClassVar[str] = "steps"

    steps: Annotated[int, Meta(ge=1, le=1_000_000)]
    warmup: Annotated[int, Meta(ge=0, le=1_000_000, description="steps before the first whose time counts")]
    deterministic: Annotated[bool, Meta(description="use deterministic algorithms only; it may change bits")]


class Distribution(Part, frozen=True, kw_only=True):
    """The processes that share each batch of a training, and how they exchange gradients."""

    processes: Annotated[int, Meta(ge=2, le=16)]
    threads: Annotated[int, Meta(ge=1, description="threads of each process; limits.cpus must suffice for all")]
    bucket_bytes: Annotated[
        int, Meta(ge=1024, le=2**31, description="gradients are sent in groups of this size; absent, 26214400")
    ] = 26_214_400
    strategy: Literal["all-reduce"] = "all-reduce"
    backend: Literal["gloo"] = "gloo"


class DistributedRequestDocument(Part, frozen=True, kw_only=True):
    """A request that trains a recipe in several processes, key by key. ``lock --as-of`` adds ``as_of``."""

    schema: Literal[1]
    kind: Literal["evaluation"]
    level: Literal["distributed"]
    name: NameText
    recipe: ArtifactRequirement
    dataset: DatasetRequirement
    framework: ArtifactRequirement
    image: ArtifactRequirement | UnsetType = UNSET
    prereleases: tuple[Kind, ...] | UnsetType = UNSET
    settings: (
        Annotated[dict[Text, int | float], Meta(max_length=16, description="mutable settings of the recipe, by path")]
        | UnsetType
    ) = UNSET
    distribution: Distribution
    hardware: HardwareRequirement
    limits: RequestedLimits
    scenario: Steps
    metrics: tuple[Text, ...]
    seed: Seed
    as_of: Annotated[str, Meta(description="a time with its zone: resolves as of then")] | UnsetType = UNSET


class TrainingRequestDocument(Part, frozen=True, kw_only=True):
    """A request that trains a recipe on a split of a dataset, key by key. ``lock --as-of`` adds ``as_of``."""

    schema: Literal[1]
    kind: Literal["evaluation"]
    level: Literal["training"]
    name: NameText
    recipe: ArtifactRequirement
    dataset: DatasetRequirement
    framework: ArtifactRequirement
    image: ArtifactRequirement | UnsetType = UNSET
    prereleases: tuple[Kind, ...] | UnsetType = UNSET
    settings: (
        Annotated[dict[Text, int | float], Meta(max_length=16, description="mutable settings of the recipe, by path")]
        | UnsetType
    ) = UNSET
    target: Target
    hardware: HardwareRequirement
    limits: RequestedLimits
    scenario: TimeToQuality
    metrics: tuple[Text, ...]
    price: Annotated[Price, Meta(description="of the machine, for training_cost")] | UnsetType = UNSET
    reproduce: Annotated[
        Literal["bits", "distribution"], Meta(description="what a rerun must repeat: weights, or numbers of epochs")
    ]
    equivalence: Annotated[dict[str, Positive], Meta(description="a metric's relative difference")] | UnsetType = UNSET
    seed: Seed
    as_of: Annotated[str, Meta(description="a time with its zone: resolves as of then")] | UnsetType = UNSET


class OperatorRequestDocument(Part, frozen=True, kw_only=True):
    """A request that evaluates an operator in one framework, key by key. ``lock --as-of`` adds ``as_of``."""

    schema: Literal[1]
    kind: Literal["evaluation"]
    level: Literal["operator"]
    name: NameText
    operator: ArtifactRequirement
    framework: ArtifactRequirement
    image: ArtifactRequirement | UnsetType = UNSET
    prereleases: tuple[Kind, ...] | UnsetType = UNSET
    hardware: HardwareRequirement
    limits: RequestedLimits
    scenario: PairedScenario
    metrics: tuple[Text, ...]
    equivalence: Annotated[dict[str, Positive], Meta(description="a metric's relative difference")] | UnsetType = UNSET
    seed: Seed
    as_of: Annotated[str, Meta(description="a time with its zone: resolves as of then")] | UnsetType = UNSET


class RequestDocument(Part, frozen=True, kw_only=True):
    """A request file, key by key. ``lock --as-of`` adds ``as_of``."""

    schema: Literal[1]
    kind: Literal["evaluation"]
    level: Annotated[Literal["network"], Meta(description="for the scenario micro_batch alone")] | UnsetType = UNSET
    name: NameText
    model: ArtifactRequirement
    dataset: DatasetRequirement
    framework: FrameworkVersions | UnsetType = UNSET
    image: ArtifactRequirement | UnsetType = UNSET
    prereleases: tuple[Kind, ...] | UnsetType = UNSET
    hardware: HardwareRequirement
    limits: RequestedLimits
    scenario: AnyScenario | MicroBatch
    metrics: tuple[Text, ...]
    trace: Literal["none", "model", "framework", "system", "full"] | UnsetType = UNSET
    price: Annotated[Price, Meta(description="of the machine, for cost_per_million")] | UnsetType = UNSET
    equivalence: Annotated[dict[str, Positive], Meta(description="a metric's relative difference")] | UnsetType = UNSET
    seed: Seed
    as_of: Annotated[str, Meta(description="a time with its zone: resolves as of then")] | UnsetType = UNSET
