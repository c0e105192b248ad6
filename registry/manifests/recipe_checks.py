"""Validation rules of recipes that types cannot express."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET

from benchlock.registry.manifests.file_checks import check_file_reference
from benchlock.registry.manifests.manifest_types import ConstantInput, File, Model, Recipe, StateInput
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.parsed_text import Place

TRAINED_WEIGHTS: Final = "weights.safetensors"
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


def list_defaults(recipe: Recipe) -> dict[str, Any]:
    """Return the defaults of all settings that the recipe's optimizer has in its framework."""
    defaults = dict(OPTIMIZER_SETTINGS[recipe.optimizer.name])
    return defaults if recipe.framework.name == _TENSORFLOW else {"implementation": "for-loop", **defaults}


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
        files=(*recipe.files, File(path=TRAINED_WEIGHTS, role="weights")),
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
    _check_optimizer(recipe, place.at("optimizer"), problems)
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


def _check_optimizer(recipe: Recipe, place: Place, problems: Problems) -> None:
    """Check that the optimizer has every setting that is stated."""
    optimizer = recipe.optimizer
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
