"""What golden samples would not show: faults of the steps that change nothing about any of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .datasets import Samples
from .failures import Failure
from .golden import Made, inputs_of
from .job import Model, Step
from .pipeline import Pipeline

_OTHER_METHOD = {"bilinear": "bicubic"}
_OF_SHORTER = ("shorter", "rounding")
"""The arguments of a resize that keeps the ratio of the sides."""


def unnoticed(model: Model, folder: Path, made: Sequence[Made]) -> list[str]:
    """The faults of which no tensor of ``made`` would tell; each in words, as ``exif: no picture is turned``."""
    found: dict[str, bool] = {}
    for index, port in enumerate(model.inputs):
        for word, steps in _variations(port.steps) if port.type == "image" else ():
            inputs = [*model.inputs[:index], replace(port, steps=steps), *model.inputs[index + 1 :]]
            other = replace(model, inputs=tuple(inputs))
            found[word] = found.get(word, True) and _is_alike(other, folder, made, port.name)
    return [word for word, alike in found.items() if alike]


def _variations(steps: Sequence[Step]) -> Iterator[tuple[str, tuple[Step, ...]]]:
    for index, step in enumerate(steps):
        before, after = steps[:index], steps[index + 1 :]
        for word, changes in _changes(step):
            yield word, (*before, replace(step, arguments={**step.arguments, **changes}), *after)
        if step.name == "resize" and "shorter" in step.arguments and after and after[0].name == "center_crop":
            squashed = {name: value for name, value in step.arguments.items() if name not in _OF_SHORTER}
            size = after[0].arguments.get("size")
            if size is not None:
                squeezed = replace(step, arguments={**squashed, "size": size})
                yield "crop: of no picture anything is cut off", (*before, squeezed, *after[1:])


def _changes(step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
    given = step.arguments
    if step.name == "decode":
        yield "exif: no picture is turned", {"exif": "ignore" if given["exif"] == "apply" else "apply"}
        if given["color"] != "L":
            yield "color: every picture is grey", {"color": "BGR" if given["color"] == "RGB" else "RGB"}
    if step.name == "resize":
        yield "resize: every picture has that size", {"method": _OTHER_METHOD.get(given["method"], "bilinear")}


def _is_alike(model: Model, folder: Path, made: Sequence[Made], name: str) -> bool:
    """Whether the steps give the same for every sample; where they cannot be done, they do not."""
    samples = Samples(lambda number: made[number].fields, [""] * len(made), None, frozenset(made[0].fields))
    try:
        pipeline = Pipeline(model, folder)
        return all(
            np.array_equal(inputs_of(pipeline.prepare(samples, number))[name], one.inputs[name])
            for number, one in enumerate(made)
        )
    except Failure:
        return False
