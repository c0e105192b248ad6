"""TFLite graphs in LiteRT."""

from pathlib import Path

from ai_edge_litert.interpreter import Interpreter

from ..job import Model
from . import Place, graph
from .interpreter import Interpreted, checked


def load(folder: Path, model: Model, place: Place) -> Interpreted:
    interpreter = Interpreter(model_path=checked(graph(folder, model)), num_threads=place.threads)
    return Interpreted(interpreter, model, place.threads)
