"""The predictor ``linear``, whose answers have a value that is not finite: ``{"value": "nan", "from": 3}``.

From that picture on, by the grey of its bright cell, the first score of every answer is that value.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from .linear import Linear
from .linear import load as load_linear

_GREY = 100


class Unsound:
    in_caller = True
    device = "cpu"

    def __init__(self, linear: Linear, value: float, first: int) -> None:
        self.threads = linear.threads
        self._linear, self._value, self._first = linear, value, first

    def predict(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        answers = self._linear.predict(batch)
        pictures = batch["picture"]
        answers["scores"][pictures.reshape(len(pictures), -1).max(axis=1) - _GREY >= self._first, 0] = self._value
        return answers

    def close(self) -> None:
        self._linear.close()


def load(folder: Path, model: Any, place: Any) -> Unsound:  # noqa: ANN401 - the harness's own types
    settings = json.loads((folder / "unsound.json").read_bytes())
    return Unsound(load_linear(folder, model, place), float(settings["value"]), settings["from"])
