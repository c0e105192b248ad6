"""The phase ``reference``: the expected output of each case in float64, in a process without the framework."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from ..core.failures import Failure, classify_errors
from ..core.operator_job import Case, Operator, OperatorJob
from ..core.phase_reports import Progress, Timings
from ..predictors import Tensors
from ..steps.python_step import load_function
from . import OUTPUT, draw
from .onnx_model import encode_model

REFERENCE = "reference.safetensors"
_FOLDER = "operator"

Reference = Callable[[Case, Tensors], Any]


def run(job: OperatorJob, folder: Path, output: Path) -> dict[str, Any]:
    """Compute the reference of each case; write them and return the report of the phase.

    Raises:
        Failure: ``load``: the code cannot be loaded. ``golden``: it fails, or returns no finite float64 array.
    """
    timings, operator = Timings(), job.operator
    progress = Progress("reference", len(operator.cases))
    with timings.of("load"), classify_errors("load", "the reference"):
        reference = _load(operator, folder / _FOLDER)
    results: dict[str, NDArray[np.float64]] = {}
    with timings.of("reference"):
        for number, case in enumerate(operator.cases, 1):
            inputs = {name: values.astype(np.float64) for name, values in draw(operator, case).items()}
            with classify_errors("golden", f"the reference of case {case.name}"):
                results[case.name] = check_reference(case, reference(case, inputs))
            progress.at(number)
    progress.finish()
    save_file(results, output / REFERENCE, metadata=job.file_metadata)
    return {"timings": timings.seconds}


def check_reference(case: Case, result: Any) -> NDArray[np.float64]:  # noqa: ANN401 - what foreign code returned
    """Return the result of a reference.

    Raises:
        Failure: ``golden``: it is no finite array in float64 with a value other than 0.
    """
    where = f"the reference of case {case.name}"
    if not isinstance(result, np.ndarray) or result.dtype != np.float64:
        name = str(result.dtype) if isinstance(result, np.ndarray) else type(result).__name__
        raise Failure("golden", f"{where} returned {name}, expected an array in float64")
    if not np.isfinite(result).all() or not result.any():
        raise Failure("golden", f"{where} is not finite, or is 0 everywhere, so no error can be stated")
    return np.ascontiguousarray(result)


def _load(operator: Operator, folder: Path) -> Reference:
    if operator.reference is None:
        return lambda case, inputs: _evaluate(operator, case, inputs)
    function = load_function(folder / operator.reference.file, operator.reference.function)

    def call(case: Case, inputs: Tensors) -> Any:  # noqa: ANN401 - checked by the caller
        try:
            return function(inputs, dict(case.arguments))
        except SystemExit as error:  # code of an author must not end the harness
            raise Failure("golden", f"the reference of case {case.name} exited with {error.code!r}") from error

    return call


def _evaluate(operator: Operator, case: Case, inputs: Tensors) -> Any:  # noqa: ANN401 - checked by the caller
    import onnx.reference  # noqa: PLC0415 - optional in images

    model = onnx.load_model_from_string(encode_model(operator, case, OUTPUT, "float64"))
    (result,) = onnx.reference.ReferenceEvaluator(model).run([OUTPUT], inputs)
    return result
