"""Checks that the versions of a resolution can answer the request and are supported."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.artifact_names import find_close
from benchlock.registry.inspection.file_facts import ComparedLabels, FileFacts, LabelComparison, ResampledField
from benchlock.registry.lock.split_checks import (
    check_index_labelled,
    check_labelled,
    check_model_inputs,
    missing_rate_error,
    resampled_fields,
)
from benchlock.registry.lock.training_settings import resolve_settings
from benchlock.registry.manifests import Dataset, Framework, Image, Manifest, Model, Operator, Recipe
from benchlock.registry.manifests.manifest_types import ConstantInput, ImageInput, Output, StateInput
from benchlock.registry.manifests.metric_definitions import (
    DECIDED,
    DEFINITIONS,
    GRADIENT,
    MEMORY,
    SCORED,
    check_metrics,
)
from benchlock.registry.manifests.steps import Frame
from benchlock.registry.requests.evaluation_request import EPOCHS, Request
from benchlock.registry.requests.hardware_requirements import CPU
from benchlock.registry.requests.request_types import (
    BatchSweep,
    DistributedRequestDocument,
    MicroBatch,
    TrainingRequestDocument,
)
from benchlock.registry.resolution.conflicts import SHOWN, Conflict, ConflictError
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import Constraint

_OLDEST_PYTHON = 11  # minor version of Python 3 that the harness needs


def find_unsupported(subject: Manifest | Request) -> tuple[str, ...]:
    """Return the parts of ``subject`` that locks do not support yet, such as a finished image with Python 3.10."""
    if isinstance(subject, Model):
        return tuple(f"{reason} is not supported yet" for reason in _model(subject))
    if isinstance(subject, Image):
        return tuple(f"platforms[{index}].{reason} is not supported yet" for index, reason in _platforms(subject))
    return ()


def _platforms(image: Image) -> Iterator[tuple[int, str]]:
    for index, platform in enumerate(image.platforms):
        if platform.reference is not UNSET and int(platform.python.partition(".")[2]) < _OLDEST_PYTHON:
            yield index, f"python: a finished image with Python {platform.python}"


def _model(model: Model) -> Iterator[str]:
    if model.predictions is not UNSET and not any(isinstance(port, ImageInput) for port in model.inputs):
        yield "predictions: boxes without an input of type image"


@dataclass(frozen=True, slots=True)
class ChosenManifests:
    """The published manifests of a resolution."""

    model: Model
    dataset: Dataset
    framework: Framework
    image: Image

    def all(self) -> tuple[Manifest, ...]:
        """Return the four manifests."""
        return (self.model, self.dataset, self.framework, self.image)


@dataclass(frozen=True, slots=True)
class ChosenOperator:
    """The published manifests of a resolution that evaluates an operator."""

    operator: Operator
    framework: Framework
    image: Image

    def all(self) -> tuple[Manifest, ...]:
        """Return the three manifests."""
        return (self.operator, self.framework, self.image)


@dataclass(frozen=True, slots=True)
class ChosenRecipe:
    """The published manifests of a resolution that trains a recipe."""

    recipe: Recipe
    dataset: Dataset
    framework: Framework
    image: Image

    def all(self) -> tuple[Manifest, ...]:
        """Return the four manifests."""
        return (self.recipe, self.dataset, self.framework, self.image)


Chosen = ChosenManifests | ChosenOperator | ChosenRecipe
"""The published manifests of a resolution of any level."""
_TRAINED: Final = ("pytorch", "tensorflow")
"""The predictors whose frameworks the harness can train in."""
_DISTRIBUTED: Final = ("pytorch",)
"""The predictors whose frameworks the harness can train in several processes."""
_TRAINED_QUALITY: Final = "top1"
"""The metric whose labels every training needs."""
_BROKEN_DOWN: Final = ("pytorch",)
"""The predictors whose trainings have a breakdown of a step."""


def _check_recipe(request: Request, chosen: ChosenRecipe) -> None:
    """Require that the harness can train the recipe in the framework, on the splits of the request."""
    content, recipe, framework = request.content, chosen.recipe, chosen.framework
    assert isinstance(content, TrainingRequestDocument | DistributedRequestDocument)
    _check_trainable(request, chosen)
    splits = [("dataset.split", content.dataset.split)]
    if isinstance(content, TrainingRequestDocument):
        _check_target(request, content, framework)
        splits.append(("target.split", content.target.split))
    for where, split in splits:
        _check_split(split, chosen.dataset, where)
        check_model_inputs(recipe, chosen.dataset, chosen.dataset.splits[split])
        check_labelled([_TRAINED_QUALITY], chosen.dataset, split)
    settings = resolve_settings(recipe, {} if content.settings is UNSET else content.settings)
    samples = chosen.dataset.splits[content.dataset.split].samples
    _check_batch(settings, samples)
    if isinstance(content, TrainingRequestDocument):
        _check_interval(settings, content.scenario.max.epochs)
    else:
        _check_distribution(content, framework, settings, samples)


def _check_trainable(request: Request, chosen: ChosenRecipe) -> None:
    """Require that the chosen framework is the recipe's, and can train on the requested devices."""
    recipe, framework = chosen.recipe, chosen.framework
    needed = recipe.framework
    fits = Constraint.parse(needed.version).admits(parse_version(framework.version), prereleases=True)
    if framework.name != needed.name or not fits:
        raise InvalidInputError(
            f"recipe/{recipe.name} {recipe.version} needs framework/{needed.name} {needed.version}, "
            f"but {framework.name} {framework.version} was chosen",
            where="framework",
            next_step=f"request framework: {{name: {needed.name}, version: {needed.version!r}}}",
        )
    if framework.predictor not in _TRAINED:
        raise InvalidInputError(
            f"framework/{framework.name} cannot train here",
            where="framework.name",
            next_step=f"choose a framework with the predictor {', '.join(_TRAINED)}",
        )
    if others := sorted(_admitted_devices(request, chosen.image) - {CPU}):
        raise InvalidInputError(
            f"trainings run on the device cpu, but the request admits {', '.join(others)}",
            where="hardware.device",
            next_step="set hardware.device to cpu",
        )


def _check_target(request: Request, content: TrainingRequestDocument, framework: Framework) -> None:
    """Require that a training to a target can be measured and compared as requested."""
    asked = [name for name in content.metrics if name in MEMORY]
    if asked and framework.predictor not in _BROKEN_DOWN:
        raise InvalidInputError(
            f"{asked[0]} needs a profile of the memory, which the predictor {framework.predictor} does not have",
            where="metrics",
            next_step=f"remove {', '.join(asked)}",
        )
    if content.reproduce == "distribution" and EPOCHS not in request.equivalence:
        raise InvalidInputError(
            f"distribution needs the margin of {EPOCHS}",
            where="reproduce",
            next_step=f"add equivalence: {{{EPOCHS}: 0.25}}",
        )
    if content.target.split == content.dataset.split:
        raise InvalidInputError(
            f"the target is evaluated on the split {content.target.split!r}, which the training learns",
            where="target.split",
            next_step="choose another split",
        )


def _check_distribution(
    content: DistributedRequestDocument, framework: Framework, settings: Mapping[str, Any], samples: int
) -> None:
    """Require that the processes can share every batch, in a framework that needs no cluster."""
    if framework.predictor not in _DISTRIBUTED:
        raise InvalidInputError(
            f"framework/{framework.name} cannot train in several processes here: TensorFlow's collective strategy "
            "needs the addresses of a cluster",
            where="level",
            next_step="train a recipe of PyTorch, or request level: training",
        )
    processes, batch = content.distribution.processes, settings["batch"]
    rest = samples % batch if settings["sampler"]["last"] == "keep" else 0
    for count, what in ((batch, "a batch"), (rest, "the last batch of an epoch")):
        if count % processes:
            raise InvalidInputError(
                f"{what} has {count} samples, which {processes} processes cannot share equally",
                where="distribution.processes",
                next_step=f"choose a number of processes that divides {count}, or another batch in settings",
            )
    if settings.get("micro_batch", batch) * processes < batch:
        raise InvalidInputError(
            f"a process has {batch // processes} samples of a batch, and micro-batches cannot be shared: "
            "every backward pass would send all gradients",
            where="settings.micro_batch",
            next_step=f"choose a micro_batch of at least {batch // processes}, or more processes",
        )


def _check_interval(settings: Mapping[str, Any], epochs: int) -> None:
    """Require that a training is evaluated before its last epoch ends."""
    every = settings["evaluate"]["every"]
    if every > epochs:
        raise InvalidInputError(
            f"an evaluation every {every} epochs never happens within {epochs}",
            where="scenario.max.epochs",
            next_step=f"allow at least {every} epochs, or lower evaluate.every",
        )


def _check_batch(settings: Mapping[str, Any], samples: int) -> None:
    """Require that a training takes at least one step an epoch."""
    batch = settings["batch"]
    if batch > samples and settings["sampler"]["last"] == "drop":
        raise InvalidInputError(
            f"a batch of {batch} is larger than the split, which has {samples} samples",
            where="settings.batch",
            next_step=f"choose a batch of at most {samples}",
        )


OPERATED: Final = ("onnxruntime", "pytorch", "tensorflow")
"""The predictors for which the harness builds operators."""


def _check_operator(request: Request, chosen: ChosenOperator) -> None:
    """Require that the harness can build the operator and check what the request asks for."""
    operator, framework = chosen.operator, chosen.framework
    if framework.predictor not in OPERATED:
        raise InvalidInputError(
            f"framework/{framework.name} runs models only",
            where="framework.name",
            next_step=f"choose a framework with one of the predictors {', '.join(OPERATED)}",
        )
    if others := sorted(_admitted_devices(request, chosen.image) - {CPU}):
        raise InvalidInputError(
            f"operators run on the device cpu, but the request admits {', '.join(others)}",
            where="hardware.device",
            next_step="set hardware.device to cpu",
        )
    if GRADIENT in request.metrics and operator.tolerance.gradient is UNSET:
        raise InvalidInputError(
            f"operator/{operator.name} states no tolerance of gradients",
            where="metrics",
            next_step=f"remove {GRADIENT}, or publish a version with tolerance.gradient, such as 1.0e-6",
        )


def check_answerable(request: Request, chosen: Chosen) -> None:
    """Require that the chosen versions can answer the request.

    The split must exist and have the fields of the model, the metrics must be available for the task, and this version
    of benchlock must support everything.

    Raises:
        InvalidInputError: One of these conditions is not met; the error says which.
    """
    for subject, name in (
        (request, "the request"),
        *((manifest, f"{manifest.kind}/{manifest.name}") for manifest in chosen.all()),
    ):
        if reasons := find_unsupported(subject):
            raise InvalidInputError(
                f"{name} cannot be run: {'; '.join(reasons)}",
                where=name,
                next_step="remove it from the request, or request another version of the artifact",
            )
    if isinstance(chosen, ChosenOperator):
        _check_operator(request, chosen)
        return
    if isinstance(chosen, ChosenRecipe):
        _check_recipe(request, chosen)
        return
    content = request.of_model
    _check_split(content.dataset.split, chosen.dataset, "dataset.split")
    _check_trace(request, chosen)
    check_metrics(chosen.model.task, content.scenario.name, content.metrics)
    _check_batches(content.scenario, chosen.model)
    if isinstance(content.scenario, MicroBatch):
        _check_micro_batch(request, content.scenario, chosen)
    check_model_inputs(chosen.model, chosen.dataset, chosen.dataset.splits[content.dataset.split])
    check_labelled(_quality(request), chosen.dataset, content.dataset.split)
    check_class_output(request.metrics, chosen.model)


def check_class_output(metrics: Sequence[str], model: Model) -> None:
    """Require that the first output of classes is reduced to one decision, and has scores where a metric needs them.

    Raises:
        InvalidInputError: It has not; ``where`` is the output.
    """
    ports = [(i, port) for i, port in enumerate(model.outputs) if port.type in ("class-scores", "class-index")]
    for index, output in ports[:1]:
        for metric in metrics:
            needs = ""
            if metric in SCORED and output.type != "class-scores":
                needs = "scores of classes"
            elif metric in (*DECIDED, *SCORED) and output.reduce == "none":
                needs = "one decision per sample"
            if needs:
                raise InvalidInputError(
                    f"{metric} needs {needs}, which the output {output.name} does not have",
                    where=f"model/{model.name} outputs[{index}]",
                    next_step=f"remove {metric}, or publish a version of the model with such an output",
                )


_PROFILED: Final = ("onnxruntime", "pytorch", "tensorflow", "litert")
"""The predictors whose frameworks have a profiler of operators that the harness reads."""
_SPANS: Final = ("none", "model")
"""The levels that need no profiler of the framework."""


def _check_trace(request: Request, chosen: ChosenManifests) -> None:
    """Require that the calls of the request can be traced at its level.

    Raises:
        InvalidInputError: The scenario, the framework, the format or the device does not allow it.
    """
    content = request.of_model
    if content.trace in (UNSET, "none"):
        return
    where, level, framework = "trace", f"trace: {content.trace}", chosen.framework
    if content.scenario.name == "accuracy":
        raise InvalidInputError(
            f"{level} needs a scenario that times calls, but the scenario is accuracy",
            where=where,
            next_step="request single_stream, or remove trace",
        )
    if content.trace not in _SPANS and framework.predictor not in _PROFILED:
        raise InvalidInputError(
            f"{level} needs a profiler, which the predictor {framework.predictor} does not have",
            where=where,
            next_step="use trace: model, or remove trace",
        )
    if content.trace not in _SPANS and (framework.predictor, chosen.model.format) == ("tensorflow", "tflite"):
        raise InvalidInputError(
            f"{level} needs a profiler, which TensorFlow's interpreter of TFLite graphs does not have",
            where=where,
            next_step="request a model for the framework litert, or use trace: model",
        )
    if others := sorted(_admitted_devices(request, chosen.image) - {CPU}):
        raise InvalidInputError(
            f"{level} is for the device cpu, but the request admits {', '.join(others)}",
            where=where,
            next_step="set hardware.device to cpu, or remove trace",
        )


def _admitted_devices(request: Request, image: Image) -> set[str]:
    return {
        platform.device
        for platform in image.platforms
        if request.hardware.admits((platform.os, platform.arch, platform.device, platform.python, False))
    }


def _quality(request: Request) -> list[str]:
    return [name for name in request.metrics if name in DEFINITIONS and DEFINITIONS[name].is_quality]


def find_required_index(request: Request, chosen: ChosenManifests) -> str | None:
    """Return the path of the index to read for the labels of the split, or ``None`` if none is needed."""
    split = chosen.dataset.splits.get(request.of_model.dataset.split)
    return split.index if split is not None and split.index is not UNSET and _quality(request) else None


def check_index(request: Request, chosen: ChosenManifests, facts: FileFacts) -> None:
    """Require that the split's index has the labels for the metrics; raise ``InvalidInputError`` if not."""
    if find_required_index(request, chosen) is not None:
        check_index_labelled(_quality(request), request.of_model.dataset.split, facts.label_columns)


def check_rates(chosen: ChosenManifests, facts: FileFacts) -> None:
    """Require that no input resamples sounds without a sample rate; raise ``InvalidInputError`` if one does."""
    for index in facts.without_rate:
        raise missing_rate_error(chosen.model, index, chosen.dataset)


def list_resampled_files(request: Request, chosen: ChosenManifests) -> tuple[ResampledField, ...]:
    """Return the fields of the split whose files must be read to learn whether their sounds have a sample rate."""
    split = chosen.dataset.splits.get(request.of_model.dataset.split)
    return () if split is None else tuple(resampled_fields(chosen.model, chosen.dataset, split))


def _check_split(split: str, dataset: Dataset, where: str) -> None:
    splits = sorted(dataset.splits)
    if split not in splits:
        near = find_close(split, splits)
        raise InvalidInputError(
            f"dataset/{dataset.name} {dataset.version} has no split {split!r}",
            where=where,
            next_step=f"did you mean {near[0]!r}?" if near else f"known splits: {', '.join(splits)}",
        )


def _check_batches(scenario: object, model: Model) -> None:
    """Require that a batch sweep uses batches that the model accepts. Other scenarios pad batches to a fixed size."""
    fixed = _fixed_batch(model)
    if isinstance(scenario, BatchSweep) and fixed is not None and set(scenario.batches) != {fixed}:
        others = ", ".join(str(size) for size in scenario.batches if size != fixed)
        raise InvalidInputError(
            f"model/{model.name} {model.version} accepts only batches of {fixed}, but the sweep requests {others}",
            where="scenario.batches",
            next_step="choose a model with a dynamic batch axis, or use the scenario offline",
        )


def _check_micro_batch(request: Request, scenario: MicroBatch, chosen: ChosenManifests) -> None:
    """Require that the model takes a batch in parts of any size, and that the split has the samples of the batch."""
    model, samples = chosen.model, chosen.dataset.splits[request.of_model.dataset.split].samples
    takes_calls = any(isinstance(step, Frame) and step.calls == "each" for step in _list_steps(model))
    if _fixed_batch(model) is not None or takes_calls:
        raise InvalidInputError(
            f"model/{model.name} {model.version} does not take batches of any size, but micro_batch changes their size",
            where="scenario.name",
            next_step="choose a model with a dynamic batch axis",
        )
    if scenario.batch > samples:
        raise InvalidInputError(
            f"the split has {samples} samples, but a batch needs {scenario.batch}",
            where="scenario.batch",
            next_step=f"choose a batch of at most {samples}",
        )
    if others := sorted(_admitted_devices(request, chosen.image) - {CPU}):
        raise InvalidInputError(
            f"peak_memory is that of a process on the device cpu, but the request admits {', '.join(others)}",
            where="hardware.device",
            next_step="set hardware.device to cpu",
        )


def _list_steps(model: Model) -> Iterator[object]:
    """Yield the steps of the inputs that the dataset feeds."""
    for port in model.inputs:
        if not isinstance(port, ConstantInput | StateInput) and port.steps is not UNSET:
            yield from port.steps


def _fixed_batch(model: Model) -> int | None:
    """Return the batch size of every call; ``None`` if it is free, or if only the harness can determine it."""
    sample_inputs = [port for port in model.inputs if not isinstance(port, ConstantInput | StateInput)]
    stateful = any(isinstance(port, StateInput) for port in model.inputs)
    if stateful or any(port.batch_axis == "none" or port.shape == () for port in (*sample_inputs, *model.outputs)):
        return 1
    sizes = [port.shape[port.batch_axis] for port in sample_inputs if isinstance(port.batch_axis, int)]
    return next((size for size in sizes if isinstance(size, int)), None)


def find_compared_labels(request: Request, chosen: ChosenManifests) -> Iterator[ComparedLabels]:
    """Yield the outputs with labels that the dataset labels as well."""
    dataset, model = chosen.dataset, chosen.model
    split = dataset.splits.get(request.of_model.dataset.split)
    path, categories = dataset.labels, False
    if path is UNSET and split is not None:
        path, categories = split.annotations, True
    if path is UNSET:
        return
    for index, output in enumerate(model.outputs):
        if output.labels is not UNSET:
            yield ComparedLabels(index, output.labels, path, _offset(model, output), categories)


def _offset(model: Model, output: Output) -> int:
    """Return class index minus label of an output; for an output of boxes, the offset of ``predictions``."""
    boxes = model.predictions
    if boxes is not UNSET and output.name in (boxes.scores, boxes.classes):
        return boxes.label_offset
    return 0 if output.label_offset is UNSET else output.label_offset


def check_labels(request: Request, chosen: ChosenManifests, facts: FileFacts) -> None:
    """Require that model and dataset agree about every label name that both have.

    Raises:
        ConflictError: They disagree.
    """
    for compared, comparison in zip(find_compared_labels(request, chosen), facts.compared, strict=True):
        if comparison.count:
            raise ConflictError(_conflict(chosen, compared, comparison))


def _conflict(chosen: ChosenManifests, compared: ComparedLabels, comparison: LabelComparison) -> Conflict:
    model, dataset = (
        f"{manifest.kind}/{manifest.name} {manifest.version}" for manifest in (chosen.model, chosen.dataset)
    )
    examples = "; ".join(
        f"{label.name!r} is label {label.expected} in the dataset and {label.found} in the model"
        for label in comparison.shown[:SHOWN]
    )
    advice = "list the classes in the labels file of the model in the order of its output"
    if comparison.shift is not None:
        advice = (
            f"declare label_offset: {compared.offset + comparison.shift} of outputs[{compared.output}] in a new version"
        )
    return Conflict(
        f"{model} and {dataset} disagree about {comparison.count} labels (label_offset {compared.offset}): {examples}",
        advice=f"{advice}, if the labels files are correct",
        details={
            "labels": [
                {"name": label.name, "dataset": label.expected, "model": label.found} for label in comparison.shown
            ],
            "label_offset": compared.offset,
        },
    )
