"""A predictor of ONNX graphs by onnx's own reference implementation: real models, without a framework's runtime."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator


class Reference:
    in_caller = True
    device = "cpu"
    threads: Mapping[str, int] = {}

    def __init__(self, path: Path, outputs: list[str]) -> None:
        self._graph = ReferenceEvaluator(str(path))
        self._outputs = outputs

    def predict(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return dict(zip(self._outputs, self._graph.run(self._outputs, dict(batch)), strict=True))

    def close(self) -> None:
        del self._graph


def load(folder: Path, model: Any, place: Any) -> Reference:  # noqa: ANN401, ARG001 - the harness's own types
    return Reference(folder / model.files[0].path, [port.name for port in model.outputs])
