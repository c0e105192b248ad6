"""LiteRT: TFLite graphs."""

from pathlib import Path

from ai_edge_litert.interpreter import Interpreter, OpResolverType

from ..core.job import Model
from . import Place, find_graph
from .tflite_interpreter import TfliteInterpreter, check_tflite


def load(folder: Path, model: Model, place: Place) -> TfliteInterpreter:
    """Load the TFLite graph of the model."""
    interpreter = Interpreter(model_path=check_tflite(find_graph(folder, model)), num_threads=place.threads)
    return TfliteInterpreter(interpreter, model, place.threads)


def load_undelegated(folder: Path, model: Model, place: Place) -> TfliteInterpreter:
    """Load the TFLite graph without XNNPACK, which does not update the shapes of tensors between its operators."""
    graph, resolver = check_tflite(find_graph(folder, model)), OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_path=graph, num_threads=place.threads, experimental_op_resolver_type=resolver)
    return TfliteInterpreter(interpreter, model, place.threads)
