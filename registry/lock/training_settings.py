"""The settings and the environment of a training in a lock: every value that may change bits."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.manifests import Recipe, plain
from benchlock.registry.manifests.manifest_types import (
    Batch,
    CosineRate,
    EvaluationInterval,
    LinearRate,
    Optimizer,
    Schedule,
)
from benchlock.registry.manifests.recipe_checks import is_custom, list_defaults


def resolve_settings(recipe: Recipe, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return every setting of a training, defaults included.

    Args:
        recipe: The recipe.
        changes: The values of mutable settings that a request changes, by path, such as ``optimizer.lr``.

    Raises:
        InvalidInputError: A setting is not mutable, or its value is invalid.
    """
    allowed = () if recipe.mutable is UNSET else recipe.mutable
    kind: Any = dict[str, str | float] if is_custom(recipe.optimizer) else Optimizer
    settings: dict[str, Any] = {
        "optimizer": {**list_defaults(recipe), **plain(msgspec.convert(recipe.optimizer, kind))},
        "loss": recipe.loss,
        "batch": recipe.batch,
        "sampler": {"generator": "pcg64", **plain(recipe.sampler)},
        "evaluate": plain(recipe.evaluate),
    }
    if recipe.micro_batch is not UNSET:  # a lock without it keeps its id
        settings["micro_batch"] = recipe.micro_batch
    if recipe.schedule is not UNSET:
        settings["schedule"] = _resolve_schedule(recipe.schedule)
    for path, value in changes.items():
        where = f"settings.{path}"
        if path not in allowed:
            mutable = ", ".join(allowed) or "nothing"
            what = f"recipe/{recipe.name} {recipe.version} does not allow requests to change {path!r}"
            raise InvalidInputError(what, where=where, next_step=f"mutable here: {mutable}; or publish another recipe")
        *parents, key = path.split(".")
        table = settings[parents[0]] if parents else settings
        if parents and key not in table:
            what = f"the optimizer {recipe.optimizer['name']} has no {key}"
            raise InvalidInputError(what, where=where, next_step="remove it")
        table[key] = value
    try:
        msgspec.convert(settings["optimizer"], kind)
        msgspec.convert(settings["evaluate"], EvaluationInterval)
        msgspec.convert([settings["batch"], settings.get("micro_batch", 1)], list[Batch])
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"invalid setting: {error}", where="settings", next_step="correct the value") from error
    if settings.get("micro_batch", 0) > settings["batch"]:
        what = f"a micro-batch of {settings['micro_batch']} is larger than the batch of {settings['batch']}"
        raise InvalidInputError(what, where="settings", next_step="lower micro_batch, or raise batch")
    return settings


def _resolve_schedule(schedule: Schedule) -> dict[str, Any]:
    """Return every setting of a schedule, defaults included."""
    defaults = {"warmup": 0.0} | ({"final": 0.0} if isinstance(schedule, LinearRate | CosineRate) else {})
    return {**defaults, **plain(schedule)}


_ABSENT: Final = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_MAX_CPU_ISA",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_CBWR",
    "OMP_SCHEDULE",
    "TF_ENABLE_ONEDNN_OPTS",
)
"""Variables that change kernels and thus bits; a training runs without them."""


def make_environment(cpus: int, *, deterministic: bool) -> dict[str, str]:
    """Return the variables that may change the bits of a training; an empty value means absent."""
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
    return {
        **dict.fromkeys(_ABSENT, ""),
        **dict.fromkeys(threads, str(cpus)),
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_DETERMINISTIC_OPS": "1" if deterministic else "",
        "PYTHONHASHSEED": "0",
    }
