"""Operators in ONNX Runtime: a graph with one node."""

import tempfile
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..core.operator_job import Case, Operator
from ..predictors import Place, Tensors
from ..predictors.onnxruntime import OnnxRuntime
from . import OUTPUT, describe_model
from .onnx_model import encode_model


class OnnxRuntimeOperator:
    """An operator in ONNX Runtime; its native call is that of the predictor's own session."""

    def __init__(self, operator: Operator, case: Case, inputs: Tensors, place: Place) -> None:
        """Load the graph of the operator."""
        self.feeds = inputs
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "operator.onnx"
            path.write_bytes(encode_model(operator, case, OUTPUT))
            self.predictor = OnnxRuntime(path, describe_model(operator, "onnxruntime"), place)

    def repeat(self, calls: int) -> Any:  # noqa: ANN401 - ONNX Runtime has no types here
        """Call the session; return the last output."""
        run, names, feeds, answer = self.predictor.session.run, [OUTPUT], self.feeds, None
        for _ in range(calls):
            answer = run(names, feeds)
        return answer

    def to_array(self, output: Any) -> NDArray[Any]:  # noqa: ANN401 - as above
        """Return the array, which has the layout of ONNX."""
        array: NDArray[Any] = output[OUTPUT] if isinstance(output, dict) else output[0]
        return array


def build(operator: Operator, case: Case, inputs: Tensors, place: Place) -> OnnxRuntimeOperator:
    """Build the operator."""
    return OnnxRuntimeOperator(operator, case, inputs, place)
