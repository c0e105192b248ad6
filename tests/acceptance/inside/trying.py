"""Runs inside an image: models made on the spot are loaded and called by the harness's own predictors.

``python SCRIPT HARNESS OUT`` with the harness's zipapp; what was found goes to ``OUT/found.json``.
"""

import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, sys.argv[1])

from harness import predictors
from harness.core.failures import Failure, classify_errors
from harness.core.job_parser import parse_job
from harness.core.operator_job import Case, GradientCheck, Operator, OperatorInput, Tolerance
from harness.operators.gradient_check import gradient_error, sample_gradients

OUT = Path(sys.argv[2])
Batch = dict[str, NDArray[Any]]
_ALONE = predictors.Place(1, "cpu")
_REST: dict[str, Any] = {
    "dataset": {"format": "idx", "split": {}},
    "scenario": {"name": "accuracy", "warmup": 0, "batch": 1},
    "metrics": [],
    "threads": 1,
    "seeds": {"qsl": 1, "sample_index": 2, "schedule": 3},
}


def port(name: str, *shape: int | None, dtype: str = "float32", axis: int | str | None = None) -> dict[str, Any]:
    """An input or output of a manifest; ``axis`` is its ``batch_axis``."""
    found = {"name": name, "type": "tensor", "dtype": dtype, "shape": list(shape)}
    return found if axis is None else found | {"batch_axis": axis}


def tried(
    where: tuple[str, str],
    file: str | Sequence[str],
    inputs: Sequence[Mapping[str, Any]],
    outputs: Sequence[str],
    *batches: Batch,
    **more: object,
) -> Any:  # noqa: ANN401 - JSON
    """What the model answers to each batch, or how it fails; ``where`` is its predictor and format."""
    try:
        model = described(where, [file] if isinstance(file, str) else file, inputs, outputs, **more)
        loaded = predictors.load(model, OUT, _ALONE)
        answers = []
        for batch in batches:
            with classify_errors("predict", "a call"):
                answers.append(loaded.predict(batch))
        loaded.close()
    except Failure as error:
        return [error.kind, error.message]
    # Written once all calls are made: an answer that a later call changes would show.
    return [{name: values.tolist() for name, values in answer.items()} for answer in answers]


def described(
    where: tuple[str, str],
    paths: Sequence[str],
    inputs: Sequence[Mapping[str, Any]],
    outputs: Sequence[str],
    **more: object,
) -> Any:  # noqa: ANN401 - the harness's own type
    predictor, form = where
    role = "weights" if form in ("safetensors", "state-dict") else "graph"
    model = {
        "format": form,
        "predictor": predictor,
        "inputs": inputs,
        "outputs": [{"name": name, "type": "tensor"} for name in outputs],
        "files": [{"path": path, "role": role} for path in paths],
        **more,
    }
    return parse_job({"schema": 1, "model": model, **_REST}).model


def threads(
    where: tuple[str, str],
    file: str,
    *ports: Any,  # noqa: ANN401 - inputs, outputs, a batch
    runtime: Callable[[Any], object],
    counts: Sequence[int] = (1, 2),
    shared: bool = False,
) -> dict[str, Any]:
    """By the threads that are asked for: what the predictor records, and what ``runtime`` finds, after a call."""
    inputs, outputs, batch = ports
    found = {}
    for count in counts:
        place = predictors.Place(count, "cpu", shared)
        loaded = predictors.load(described(where, [file], inputs, outputs), OUT, place)
        loaded.predict(batch)
        found[str(count)] = {"recorded": dict(loaded.threads), "runtime": runtime(loaded)}
        loaded.close()
    return found


def damaged(path: Path) -> dict[str, Path]:
    """Copies of a file that are broken, by what is wrong with them."""
    content = path.read_bytes()
    middle = len(content) // 2
    wrong = {
        "empty": b"",
        "cut": content[:middle],
        "begun": content[:16],
        "noise": random.Random(7).randbytes(len(content)),
        "zeros": bytes(len(content)),
        "text": b"<!DOCTYPE html><html><body>404: Not Found</body></html>",
    }
    found = {}
    for name, bytes_ in wrong.items():
        found[name] = path.with_name(f"{name}-{path.name}")
        found[name].write_bytes(bytes_)
    return found


def broken(where: tuple[str, str], path: Path, *ports: Any, **more: object) -> dict[str, Any]:  # noqa: ANN401
    """How each damaged copy of a file fails."""
    inputs, outputs, batch = ports
    return {
        f"{where[1]}: {name}": tried(where, copy.name, inputs, outputs, batch, **more)
        for name, copy in damaged(path).items()
    }


def lite_tried(where: tuple[str, str], tables: Mapping[str, Any]) -> dict[str, Any]:
    """TFLite graphs by their names, with the names of their inputs and outputs."""
    found = {}
    for name, ((x,), outputs) in tables.items():
        free, four = {x: floats(1, 2)}, {x: floats(4, 2)}
        given = [port(x, None, 2)]
        found[name] = tried(where, name, given, outputs, four, free, four)
        found[f"{name}, a wider sample"] = tried(where, name, [port(x, None, 3)], outputs, {x: floats(1, 3)})
        found[f"{name}, another type"] = tried(where, name, given, outputs, {x: floats(1, 2).astype(np.int8)})
        found[f"{name}, no output"] = tried(where, name, given, ["scores"], free)
    (x,), outputs = tables["lite-free.tflite"]
    return found | broken(where, OUT / "lite-free.tflite", [port(x, None, 2)], outputs, {x: floats(1, 2)})


def lite_threads(where: tuple[str, str], tables: Mapping[str, Any], counts: Sequence[int]) -> dict[str, Any]:
    """As ``threads``; an interpreter says nothing of its own, so the process's threads are counted."""
    (x,), outputs = tables["lite-free.tflite"]
    before = _own_threads()
    return threads(
        where,
        "lite-free.tflite",
        [port(x, None, 2)],
        outputs,
        {x: floats(1, 2)},
        counts=counts,
        runtime=lambda _: [_own_threads() - before],
    )


def _own_threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def operated(library: Any, kind: str, shapes: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - a module
    """What an operator of the harness makes of whole numbers, and the largest error of its gradients."""
    case = Case("case", shapes, arguments, 1, seed=7)
    inputs = tuple(OperatorInput(name, None) for name in shapes)
    operator = Operator(kind, 21, "float32", inputs, None, "normal", Tolerance(1.0, 1.0, 1e-6), (case,))
    built = library.build(operator, case, {name: floats(*shape) for name, shape in shapes.items()}, _ALONE)
    samples = sample_gradients(library.differentiate(operator, case), operator, case, GradientCheck(1e-6, 4))
    errors = [gradient_error(*pair) for pair in samples.derivatives.values()]
    return {"output": built.to_array(built.repeat(1)).tolist(), "gradient_error": max(errors)}


def floats(*shape: int) -> NDArray[Any]:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def write(found: Mapping[str, Any]) -> None:
    (OUT / "found.json").write_text(json.dumps(found, indent=1))
