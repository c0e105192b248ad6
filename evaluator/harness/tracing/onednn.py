"""oneDNN's verbose output: a row of level ``kernel`` for each primitive that PyTorch or TensorFlow executes.

oneDNN writes a line for each primitive to the standard output of the process, which is a file while calls are recorded:
``onednn_verbose,v1,TIMESTAMP,primitive,exec,cpu,KIND,IMPLEMENTATION,PROPAGATION,TENSORS,ATTRIBUTES,DETAILS,PROBLEM,MS``.
Kernels of other libraries, such as matrix products of MKL, have no line.
"""

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..core.job import Model
from ..predictors import Place, Tensors, load
from . import Profile, Row, RowTensor, Shape
from .row_matrix import Span, build_profile
from .tensorflow import load_untraced

VARIABLES: Final = {"ONEDNN_VERBOSE": "profile_exec", "ONEDNN_VERBOSE_TIMESTAMP": "1"}
"""The environment of the process; oneDNN reads it when its library is loaded."""

_FIELDS: Final = 14
_STEP_NS: Final = 1000
_NANOSECONDS_A_MILLISECOND: Final = 1_000_000
_SIZES = re.compile(r"([a-z]+)(\d+)")
_TENSOR = re.compile(r"(src|wei|bia|dst)[^:]*:(\w+):")
_DTYPES: Final = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "s32": "int32", "s8": "int8",
    "u8": "uint8",
}  # fmt: skip
_STDOUT = 1


class Profiler:
    """A predictor whose process writes oneDNN's output into a file."""

    source = "onednn-verbose"

    def __init__(self, predictor: Any) -> None:  # noqa: ANN401 - a predictor, with what one of a framework has beside
        """Profile a predictor."""
        self._predictor = predictor
        self.in_caller, self.device, self.threads = predictor.in_caller, predictor.device, predictor.threads
        sys.stdout.flush()
        self._stdout = os.dup(_STDOUT)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open until the profile is finished
        os.dup2(self._file.fileno(), _STDOUT)
        self._ends: list[int] = []

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of one call."""
        answers: Tensors = self._predictor.predict(batch)
        self._ends.append(os.lseek(_STDOUT, 0, os.SEEK_CUR))
        return answers

    def start(self) -> None:
        """Begin to record."""
        self._ends = [os.lseek(_STDOUT, 0, os.SEEK_CUR)]

    def finish(self) -> Profile:
        """Stop, release the model, and return the profile."""
        os.dup2(self._stdout, _STDOUT)
        os.close(self._stdout)
        self._predictor.close()
        self._file.seek(self._ends[0])
        native = self._file.read(self._ends[-1] - self._ends[0])
        self._file.close()
        ends = [end - self._ends[0] for end in self._ends]
        return convert([native[begin:end] for begin, end in pairwise(ends)])


def open_profiler(folder: Path, model: Model, place: Place) -> Profiler:
    """Load the model in a process whose environment has ``VARIABLES``.

    Raises:
        ValueError: The model has no untraced executor, or the variables are not set.
    """
    if any(os.environ.get(name) != value for name, value in VARIABLES.items()):
        raise ValueError(f"the environment lacks {', '.join(VARIABLES)}, which oneDNN reads when it is loaded")
    if model.predictor == "tensorflow":
        return Profiler(load_untraced(folder, model, place))
    return Profiler(load(model, folder, place))


def convert(calls: Sequence[bytes]) -> Profile:
    """Convert the output of each call; without any row where oneDNN executed nothing."""
    lines = [_list_primitives(output) for output in calls]
    if not any(lines):
        empty = np.zeros((len(calls), 0), np.int64)
        note = "oneDNN executed no primitive: the model's kernels are those of another library"
        return Profile([], empty, empty, None, b"", notes=(note,))
    return build_profile(
        [[_span(fields) for fields in call] for call in lines],
        lambda number: [_row(fields) for fields in lines[number]],
        native=b"".join(calls),
        resolution_ns=_STEP_NS,
        notes=("kernels of libraries other than oneDNN have no row",),
    )


def _list_primitives(output: bytes) -> list[list[str]]:
    """Return the fields of each executed primitive, from the timestamp on."""
    listed = [line.split(",") for line in output.decode("utf-8", "replace").splitlines()]
    return [
        fields
        for fields in listed
        if len(fields) == _FIELDS and fields[0] == "onednn_verbose" and fields[3:5] == ["primitive", "exec"]
    ]


def _span(fields: Sequence[str]) -> Span:
    milliseconds, fraction = fields[2].split(".")
    start = int(milliseconds) * _NANOSECONDS_A_MILLISECOND + int(fraction.ljust(6, "0")[:6])
    return Span(tuple(fields[6:13]), start, round(float(fields[13]) * _NANOSECONDS_A_MILLISECOND))


def _row(fields: Sequence[str]) -> Row:
    kind, implementation, propagation, tensors, _, details, problem = fields[6:13]
    dtypes = {name: _DTYPES.get(dtype, dtype) for name, dtype in _TENSOR.findall(tensors)}
    inputs, output, attributes = read_problem(problem)
    roles = ("data", "weight") if "weight_format" in attributes else ("data",) * len(inputs)
    sources = ("src", "wei" if "wei" in dtypes else "src")
    algorithm = re.search(r"alg:(\w+)", details)
    return Row(
        level="kernel",
        name=f"{kind} {implementation}",
        type=kind,
        provider="oneDNN",
        variant=implementation,
        inputs=tuple(
            RowTensor(shape, dtypes.get(source), role)
            for shape, source, role in zip(inputs, sources, roles, strict=False)
        ),
        outputs=() if output is None else (RowTensor(output, dtypes.get("dst")),),
        attributes={
            **attributes,
            "algorithm": algorithm and algorithm[1],
            "propagation": propagation,
            "problem": problem,
        },
    )


def read_problem(text: str) -> tuple[list[Shape], Shape | None, dict[str, Any]]:
    """Return the shapes of the inputs, the shape of the output, and attributes, from a description of a problem.

    A convolution of 8 groups is ``g8mb1_ic8oc8_ih4oh4kh3…_iw4ow4kw3…``, a product of matrices ``1x64:64x10``, and what
    works on equal elements ``1x16x4x4``. Unknown descriptions give no shapes.
    """
    if re.fullmatch(r"[\dx:]+", text):
        shapes = [tuple(map(int, part.split("x"))) for part in text.split(":")]
        if len(shapes) > 1 and len(shapes[0]) > 1 and shapes[0][-1] == shapes[1][-2] != shapes[1][-1]:
            return shapes, (*shapes[0][:-1], shapes[1][-1]), {"weight_format": "IO"}
        return shapes, shapes[0], {}
    sizes = {name: int(size) for name, size in _SIZES.findall(text)}
    batch, channels = sizes.get("mb"), sizes.get("ic")
    if batch is None or channels is None:
        return [], None, {}
    axes = [axis for axis in "dhw" if f"i{axis}" in sizes]
    data = (batch, channels, *(sizes[f"i{axis}"] for axis in axes))
    outputs = sizes.get("oc")
    after = (batch, outputs or channels, *(sizes[f"o{axis}"] for axis in axes if f"o{axis}" in sizes))
    if outputs is None:
        return [data], after, {}
    group = sizes.get("g", 1)
    kernel = (sizes.get(f"k{axis}", sizes[f"i{axis}"]) for axis in axes)
    form = {0: "OI", 2: "OIHW"}.get(len(axes))
    attributes = {"group": group} | ({"weight_format": form} if form else {})
    return [data, (outputs, channels // group, *kernel)], after, attributes
