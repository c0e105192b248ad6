"""The step vocabulary: a table from a step's name to the function that does it.

A step takes one sample, without the batch axis, and its arguments by keyword, all that change a result demanded.
Wherever numbers are rounded, half goes to even.
"""

from collections.abc import Callable, Mapping

from . import numeric, outputs, picture
from .tensor import StepError, Tensor

__all__ = ["STEPS", "StepError", "Tensor"]

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
