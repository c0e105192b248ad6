"""The table of steps: which function implements each step name.

A step takes one sample without the batch axis, and its arguments by keyword. Arguments that affect the result are
required. All rounding of halves is to even.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ..core.failures import Failure, describe_error
from ..core.job import Step
from . import audio, image, numeric, python_step, text
from .step_tensor import Source, StepError, Tensor

__all__ = ["FILE_STEPS", "STEPS", "BoundStep", "Kind", "Source", "StepError", "Tensor", "bind"]

Kind = Literal["image", "audio", "text", "tensor", "output"]
"""The target of a step: the type of an input, or an output."""

_Step = Callable[..., Tensor]

_NUMERIC: Mapping[str, _Step] = {
    "cast": numeric.cast,
    "scale": numeric.scale,
    "normalize": numeric.normalize,
    "transpose": numeric.transpose,
    "reshape": numeric.reshape,
    "pad": numeric.pad,
    "quantize": numeric.quantize,
    "dequantize": numeric.dequantize,
}
STEPS: Mapping[Kind, Mapping[str, _Step]] = {
    "image": {
        **_NUMERIC,
        "decode": image.decode,
        "resize": image.resize,
        "center_crop": image.center_crop,
    },
    "audio": {
        **_NUMERIC,
        "decode": audio.decode,
        "resample": audio.resample,
        "frame": audio.frame,
        "spectrogram": audio.spectrogram,
        "mfcc": audio.mfcc,
    },
    "text": {**_NUMERIC, "decode": text.decode},
    "tensor": _NUMERIC,
    "output": {
        **_NUMERIC,
        "softmax": numeric.softmax,
        "sigmoid": numeric.sigmoid,
        "argmax": numeric.argmax,
        "topk": numeric.topk,
    },
}
"""The function of each step, by target."""

FILE_STEPS: Mapping[str, Callable[..., Callable[[Tensor], Tensor]]] = {
    "python": python_step.python,
    "tokenize": text.tokenizer,
}
"""Steps that need files of the model: a function of the folder and the arguments returns the step."""


@dataclass(frozen=True, slots=True)
class BoundStep:
    """A step with its arguments; after a step with ``each``, every row of the first axis is a call of its own."""

    name: str
    apply: Callable[[Any], Tensor]
    each: bool = False


def bind(kind: Kind, steps: Sequence[Step], folder: Path) -> tuple[BoundStep, ...]:
    """Bind ``steps`` to their arguments and to the model's files in ``folder``, which are read here and never again.

    Raises:
        StepError: A step is unknown, or its file cannot be loaded.
        Failure: ``load``: the environment lacks a library.
    """
    bound = tuple(_bind_step(kind, step, folder, f"steps[{index}].{step.name}") for index, step in enumerate(steps))
    return (*_decode_and_resample(steps), *bound[2:]) if kind == "image" and _is_resampled(steps) else bound


def _is_resampled(steps: Sequence[Step]) -> bool:
    """Whether an image is decoded and then resampled by Pillow, so that Pillow can do both at once."""
    names = [step.name for step in steps[:2]]
    return names == ["decode", "resize"] and {"color", "exif"} == set(steps[0].arguments) and _is_antialiased(steps[1])


def _is_antialiased(resize: Step) -> bool:
    return resize.arguments.get("antialias") is True and set(resize.arguments) <= {
        "antialias",
        "method",
        "size",
        "shorter",
        "rounding",
    }


def _decode_and_resample(steps: Sequence[Step]) -> tuple[BoundStep, BoundStep]:
    """Return a step that decodes and resamples, and an empty second step.

    The first step also performs a ``center_crop`` that follows. That step stays, because a second crop to the same size
    changes nothing.
    """
    decoding, resizing = steps[0].arguments, dict(steps[1].arguments)
    del resizing["antialias"]
    after = steps[2] if len(steps) > 2 else None  # noqa: PLR2004 - a third step
    if after is not None and after.name == "center_crop" and {"size"} <= set(after.arguments) <= {"size", "offset"}:
        resizing["crop"] = after.arguments
    return (
        BoundStep("decode", partial(image.decode_and_resample, decoding=decoding, **resizing)),
        BoundStep("resize", lambda tensor: tensor),
    )


def _bind_step(kind: Kind, step: Step, folder: Path, where: str) -> BoundStep:
    if step.name in FILE_STEPS and (kind == "text" or step.name != "tokenize"):
        try:
            return BoundStep(step.name, FILE_STEPS[step.name](folder, **step.arguments))
        except (MemoryError, Failure):
            raise
        except Exception as error:
            raise StepError(f"{where}: {describe_error(error)}") from error
    if step.name not in STEPS[kind]:
        raise StepError(f"{where}: unknown step")
    each = step.arguments.get("calls") == "each"
    return BoundStep(step.name, partial(STEPS[kind][step.name], **step.arguments), each)
