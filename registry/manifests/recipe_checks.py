"""Validation rules of recipes that types cannot express."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from msgspec import UNSET

from benchlock.registry.manifests.file_checks import check_file_reference
from benchlock.registry.manifests.manifest_types import (
    SETTING,
    Code,
    ConstantInput,
    ConstantRate,
    File,
    Model,
    Optimizer,
    Recipe,
    Schedule,
    StateInput,
    StepRate,
)
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.decoder import convert, suggest_nearest
from benchlock.registry.text.parsed_text import Document, Place

WEIGHTS_SUFFIX: Final = ".safetensors"
"""The end of the paths of initial weights, and of no other file of a recipe."""
TRAINED_WEIGHTS: Final = f"weights{WEIGHTS_SUFFIX}"
"""The file of the weights in a promoted model."""
OPTIMIZER_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "sgd": {"momentum": 0.0, "weight_decay": 0.0},
    "adam": {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
    "adamw": {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01},
    "rmsprop": {"eps": 1e-8, "momentum": 0.0, "weight_decay": 0.0},
}
"""The settings of each optimizer beside the learning rate, with PyTorch's defaults."""
_TENSORFLOW: Final = "tensorflow"
_TENSORFLOW_OPTIMIZERS: Final = ("sgd", "adam")
_CODE: Final = ("file", "function")


def is_custom(optimizer: Mapping[str, Any]) -> bool:
    """Return whether an optimizer is code of its recipe."""
    return "name" not in optimizer and any(key in optimizer for key in _CODE)


def list_defaults(recipe: Recipe) -> dict[str, Any]:
    """Return the defaults of all settings that the recipe's optimizer has in its framework; a custom one has none."""
    if is_custom(recipe.optimizer):
        return {}
    defaults = dict(OPTIMIZER_SETTINGS[recipe.optimizer["name"]])
    return defaults if recipe.framework.name == _TENSORFLOW else {"implementation": "for-loop", **defaults}


def is_initial(file: File) -> bool:
    """Return whether a file of a recipe has initial weights, which the trained model replaces."""
    return file.role == "weights"


def describe_trained(recipe: Recipe) -> Model:
    """Return the manifest of the model that a training of the recipe makes, without digests of its weights."""
    return Model(
        schema=1,
        name=recipe.name,
        version=recipe.version,
        license=recipe.license,
        task=recipe.task,
        framework=recipe.framework,
        format="safetensors",
        code=recipe.network,
        inputs=recipe.inputs,
        outputs=recipe.outputs,
        files=(*(file for file in recipe.files if not is_initial(file)), File(path=TRAINED_WEIGHTS, role="weights")),
    )


def check_recipe(recipe: Recipe, place: Place, problems: Problems) -> None:
    """Check the network, the optimizer, the inputs and the output of a recipe."""
    with problems.noted():
        check_file_reference(recipe.files, recipe.network.file, place.at("network", "file"))
    for index, file in enumerate(recipe.files):
        with problems.noted():
            if file.path.endswith("/"):
                raise place.at("files", index, "path").error("a recipe has no folders", "list its files one by one")
            if file.path == TRAINED_WEIGHTS:
                step = "give the file another name"
                raise place.at("files", index, "path").error("a training writes the file of this name", step)
            if is_initial(file) != file.path.endswith(WEIGHTS_SUFFIX):
                what = f"initial weights have the role weights and a path that ends in {WEIGHTS_SUFFIX}"
                raise place.at("files", index).error(what, "change the role or the format of the file")
    _check_settings(recipe, place, problems)
    for index, port in enumerate(recipe.inputs):
        with problems.noted():
            if isinstance(port, ConstantInput | StateInput):
                what = f"an input of type {port.type} cannot be trained with"
                raise place.at("inputs", index, "type").error(what, "feed every input from the dataset")
    with problems.noted():
        if recipe.outputs[0].type != "class-scores":
            step = "write class-scores: the loss cross-entropy compares scores with labels"
            raise place.at("outputs", 0, "type").error(f"{recipe.outputs[0].type} has no scores of classes", step)
    with problems.noted():
        if recipe.outputs[0].steps is not UNSET:
            step = "remove steps: loss and quality use the scores as the network returns them"
            raise place.at("outputs", 0, "steps").error("the output of a recipe has no steps", step)


def _check_settings(recipe: Recipe, place: Place, problems: Problems) -> None:
    """Check the optimizer, its schedule, the size of the parts of a batch, and what a request may change."""
    with problems.noted():
        check_optimizer = _check_custom if is_custom(recipe.optimizer) else _check_named
        check_optimizer(recipe, place.at("optimizer"), problems)
    with problems.noted():
        if recipe.schedule is not UNSET:
            _check_schedule(recipe.schedule, place.at("schedule"))
    with problems.noted():
        if recipe.micro_batch is not UNSET:
            _check_micro_batch(recipe, place.at("micro_batch"))
            if recipe.micro_batch > recipe.batch:
                what = f"a micro-batch of {recipe.micro_batch} is larger than the batch of {recipe.batch}"
                raise place.at("micro_batch").error(what, f"write at most {recipe.batch}")
    with problems.noted():
        for index, path in enumerate(() if recipe.mutable is UNSET else recipe.mutable):
            with problems.noted():
                _check_mutable(recipe, path, place.at("mutable", index))


def _check_schedule(schedule: Schedule, place: Place) -> None:
    """Check that the times of a schedule follow each other."""
    warmup = 0.0 if schedule.warmup is UNSET else schedule.warmup
    if isinstance(schedule, StepRate):
        times = (warmup, *schedule.milestones)
        if any(first >= second for first, second in pairwise(times)):
            step = "write ascending epochs, the first after the warm-up"
            raise place.at("milestones").error("milestones do not follow each other and the warm-up", step)
    elif not isinstance(schedule, ConstantRate) and warmup >= schedule.epochs:
        what = f"the schedule ends at epoch {schedule.epochs:g}, within its warm-up of {warmup:g}"
        raise place.at("epochs").error(what, "write more epochs, or a shorter warm-up")


def _check_mutable(recipe: Recipe, path: str, place: Place) -> None:
    """Check that a request may change the setting of a path."""
    names = [key for key in recipe.optimizer if key not in _CODE]
    if not is_custom(recipe.optimizer):
        names = ["lr", "momentum", "weight_decay"]
    known = sorted(["batch", "micro_batch", "evaluate.every", *(f"optimizer.{name}" for name in names)])
    if path not in known:
        raise place.error(f"{path!r} is not one of {', '.join(known)}", suggest_nearest(path, known))
    if path == "micro_batch":
        _check_micro_batch(recipe, place)


def _check_micro_batch(recipe: Recipe, place: Place) -> None:
    """Check that the parts of a batch can train the network as the batch does."""
    if recipe.framework.name == _TENSORFLOW:
        what = "micro_batch is not supported in TensorFlow, which may compute the parts of a batch at the same time"
        raise place.error(what, "remove it, or train in PyTorch")
    if recipe.batch_statistics is True:
        what = "with micro_batch, the network would normalize by the statistics of each part"
        raise place.error(what, "remove it, or use a network without batch_statistics")


def _check_custom(recipe: Recipe, place: Place, problems: Problems) -> None:
    """Check the function and the settings of an optimizer that is code of the recipe."""
    code = {key: value for key, value in recipe.optimizer.items() if key in _CODE}
    settings = {key: value for key, value in recipe.optimizer.items() if key not in _CODE}
    with problems.noted():
        if recipe.framework.name == _TENSORFLOW:
            what = "a custom optimizer is not supported in TensorFlow"
            raise place.error(what, f"write {' or '.join(_TENSORFLOW_OPTIMIZERS)}, or train in PyTorch")
    with problems.noted():
        check_file_reference(recipe.files, _convert(place, code, Code).file, place.at("file"))
    with problems.noted():
        _convert(place, settings, dict[str, float])
    for key in settings:
        with problems.noted():
            if not re.fullmatch(SETTING, key):
                step = "write a lower-case letter, then at most 31 lower-case letters, digits and _"
                raise place.at(key).error(f"invalid name of a setting: {key!r}", step)


def _convert(place: Place, value: Mapping[str, Any], target: Any) -> Any:  # noqa: ANN401 - as ``convert``
    return convert(Document(value, place.document.name), target, place)


def _check_named(recipe: Recipe, place: Place, problems: Problems) -> None:
    """Check that a named optimizer has every setting that is stated."""
    optimizer = _convert(place, recipe.optimizer, Optimizer)
    known = ("name", "lr", *list_defaults(recipe))
    with problems.noted():
        if recipe.framework.name == _TENSORFLOW and optimizer.name not in _TENSORFLOW_OPTIMIZERS:
            what = f"the optimizer {optimizer.name} is not supported in TensorFlow"
            raise place.at("name").error(what, f"write {' or '.join(_TENSORFLOW_OPTIMIZERS)}, or train in PyTorch")
    for key in optimizer.__struct_fields__:
        with problems.noted():
            if key not in known and getattr(optimizer, key) is not UNSET:
                what = f"the optimizer {optimizer.name} has no {key}"
                raise place.at(key).error(what, f"known here: {', '.join(known)}")
    with problems.noted():
        if optimizer.name == "rmsprop" and optimizer.implementation == "fused":
            step = "write for-loop or foreach"
            raise place.at("implementation").error("rmsprop has no fused implementation", step)
