"""A matrix that cheats as ``cheat.json`` says, if there is one: ``{"how": ...}``. An honest call takes 2 milliseconds.

``cache`` answers what it was asked before from memory, ``last`` what it was asked just before. The others do no work:
``shirk`` where it is timed, ``late`` once it was asked three hundred times, ``batched`` of several samples at once,
``pipeline`` after another phase was timed, ``probe`` and ``cold`` in a process of that name.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = dict[str, NDArray[Any]]


class Cheating:
    in_caller = True
    device = "cpu"
    threads: Mapping[str, int] = {}

    def __init__(self, folder: Path, how: str) -> None:
        with np.load(folder / "weights.npz") as weights:
            self._weights = weights["weights"]
        self._how = how
        self._known: dict[bytes, Tensors] = {}
        self._calls = 0

    def predict(self, batch: Tensors) -> Tensors:
        pictures = batch["picture"]
        self._calls += 1
        if self._shirks(len(pictures)):
            return {"scores": np.ones((len(pictures), 6), np.float32)}
        key = pictures.tobytes()
        if self._how in ("cache", "last") and key in self._known:
            return self._known[key]
        time.sleep(0.002)
        if self._how == "last":
            self._known.clear()
        scores = pictures.reshape(len(pictures), -1) @ self._weights
        self._known[key] = {"scores": scores.astype(np.float32)}
        return self._known[key]

    def _shirks(self, several: int) -> bool:
        return {
            "shirk": "harness.performance" in sys.modules,
            "late": self._calls > 300,
            "batched": several > 1,
            "pipeline": Path("samples.safetensors").exists(),
            "probe": "probe" in sys.argv,
            "cold": "cold" in sys.argv,
        }.get(self._how, False)

    def close(self) -> None:
        pass


def load(folder: Path, model: Any, place: Any) -> Cheating:  # noqa: ANN401, ARG001 - the harness's own types
    cheat = folder / "cheat.json"
    return Cheating(folder, json.loads(cheat.read_bytes())["how"] if cheat.exists() else "honest")
