"""TFLite graphs in LiteRT."""

from pathlib import Path

from ai_edge_litert.interpreter import Interpreter

from ..job import Model
from . import graph
from .interpreter import Interpreted, checked


def load(folder: Path, model: Model, threads: int, _device: str) -> Interpreted:
    interpreter = Interpreter(model_path=checked(graph(folder, model)), num_threads=threads)
    return Interpreted(interpreter, model, threads)
