"""The step vocabulary: a table from a step's name to the function that does it.

A step takes one sample, without the batch axis, and its arguments by keyword, all that change a result demanded.
Wherever numbers are rounded, half goes to even.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ..job import Step
from . import numeric, outputs, picture
from .tensor import Source, StepError, Tensor

__all__ = ["STEPS", "Bound", "Kind", "Source", "StepError", "Tensor", "bind"]

Kind = Literal["image", "audio", "text", "tensor", "output"]
"""What a step is done to: the type of an input, or an output."""

STEPS: Mapping[str, Callable[..., Tensor]] = {
    "decode": picture.decode,
    "resize": picture.resize,
    "center_crop": picture.center_crop,
    "cast": numeric.cast,
    "scale": numeric.scale,
    "normalize": numeric.normalize,
    "transpose": numeric.transpose,
    "reshape": numeric.reshape,
    "pad": numeric.pad,
    "quantize": numeric.quantize,
    "dequantize": numeric.dequantize,
    "softmax": outputs.softmax,
    "sigmoid": outputs.sigmoid,
    "argmax": outputs.argmax,
    "topk": outputs.topk,
}


@dataclass(frozen=True, slots=True)
class Bound:
    """A step with its arguments. After one with ``each`` every row of the first axis is a call of its own."""

    name: str
    apply: Callable[[Any], Tensor]
    each: bool = False


def bind(kind: Kind, steps: Sequence[Step], folder: Path) -> tuple[Bound, ...]:  # noqa: ARG001 - of the model's files
    """``steps`` ready to be done; ``folder`` has the model's files, which are read here and never again.

    Raises:
        StepError: there is no such step.
    """
    bound = []
    for index, step in enumerate(steps):
        if step.name not in STEPS:
            raise StepError(f"steps[{index}].{step.name}: no such step")
        bound.append(Bound(step.name, partial(STEPS[step.name], **step.arguments)))
    return tuple(bound)
