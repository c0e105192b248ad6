"""TensorFlow: SavedModels, Keras files, frozen graphs, TFLite graphs, and weights of a network built by code."""

import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from safetensors.tensorflow import load_file
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from ..core.job import Code, Model
from ..steps.python_step import load_function
from . import (
    CPU,
    Place,
    Predictor,
    Tensors,
    check_cuda,
    check_names,
    find_graph,
    list_files,
    map_by_position,
    merge_weights,
)
from .tflite_interpreter import TfliteInterpreter, check_tflite

_ACCELERATOR = "GPU"
_SUFFIXES = {"keras": ".keras", "hdf5": ".h5"}


class Frozen(NamedTuple):
    """A graph with constant weights, and its tensors by the names of the manifest."""

    definition: Any
    feeds: dict[str, str]
    fetches: dict[str, str]

    def infer_shapes(self, shapes: Mapping[str, Sequence[int]]) -> Any:  # noqa: ANN401 - TensorFlow has no types here
        """Return the operations of the graph, where all shapes follow from those of the inputs."""
        inputs = {feed.partition(":")[0]: shapes[name] for name, feed in self.feeds.items()}
        definition = tf.compat.v1.GraphDef()
        definition.CopyFrom(self.definition)
        for node in definition.node:
            node.attr.pop("_output_shapes", None)
            if node.name in inputs:
                node.attr["shape"].shape.CopyFrom(tf.TensorShape(inputs[node.name]).as_proto())
        return _import(definition).get_operations()


class _Function:
    """A traced function, whose kernels run in threads of TensorFlow."""

    in_caller = False

    def __init__(self, function: Any, threads: int, device: str) -> None:  # noqa: ANN401 - TensorFlow has no types here
        self.threads = {"intra_op_parallelism_threads": threads, "inter_op_parallelism_threads": 1}
        self.device = device
        self._function = function

    def close(self) -> None:
        """Release the function."""
        del self._function

    def freeze(self) -> Frozen:
        """Return the graph of the function."""
        function, inputs, outputs = self._specialize()
        frozen = convert_variables_to_constants_v2(function)
        feeds = {name: tensor.name for name, tensor in zip(inputs, frozen.inputs, strict=True)}
        fetches = {name: tensor.name for name, tensor in zip(outputs, frozen.outputs, strict=True)}
        return Frozen(frozen.graph.as_graph_def(), feeds, fetches)

    def _specialize(self) -> tuple[Any, Sequence[str], Sequence[str]]:
        """Return the function with one graph, and the names of its inputs and outputs in the order of that graph."""
        raise NotImplementedError

    def _answer(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - tensors
        """Call the function; on an accelerator, raise unless all its results were computed there."""
        outputs = self._function(*arguments, **named)
        if self.device != CPU:
            for tensor in tf.nest.flatten(outputs):
                if _ACCELERATOR not in tensor.device:
                    raise ValueError(f"the model returned a tensor on {tensor.device}, but {self.device} was requested")
        return outputs


class SavedModel(_Function):
    """A signature of a SavedModel, with tensors by the signature's keys."""

    def __init__(self, path: Path, model: Model, threads: int, device: str) -> None:
        """Load the SavedModel and check the signature's inputs and outputs."""
        loaded = tf.saved_model.load(str(path if path.is_dir() else path.parent))
        if model.signature not in loaded.signatures:
            present = ", ".join(loaded.signatures)
            raise ValueError(f"no signature {model.signature!r}; the SavedModel has {present or 'none'}")
        function = loaded.signatures[model.signature]
        super().__init__(function, threads, device)
        # A signature does not keep the variables of its SavedModel alive.
        self._loaded = loaded
        self._outputs = [port.name for port in model.outputs]
        inputs = [port.name for port in model.inputs]
        check_names("input", inputs, function.structured_input_signature[1], all_fed=True)
        check_names("output", self._outputs, function.structured_outputs)

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of the signature for ``batch``."""
        outputs = self._answer(**{name: tf.constant(values) for name, values in batch.items()})
        return {name: outputs[name].numpy() for name in self._outputs}

    def _specialize(self) -> tuple[Any, Sequence[str], Sequence[str]]:
        signature = self._function.structured_input_signature[1]
        return self._function, sorted(signature), sorted(self._function.structured_outputs)


class Keras(_Function):
    """A Keras network, with tensors by position, in the order of its ``inputs`` and ``outputs``."""

    def __init__(self, network: Any, model: Model, threads: int, device: str) -> None:  # noqa: ANN401 - as above
        """Wrap the network and check the number of its inputs."""
        super().__init__(tf.function(lambda inputs: network(inputs, training=False)), threads, device)
        self._model = model
        self._inputs = [port.name for port in model.inputs]
        tensors = getattr(network, "inputs", None) or ()
        input_count = len(tensors or self._inputs)
        if input_count != len(self._inputs):
            raise ValueError(f"the network takes {input_count} tensors, but the manifest lists {len(self._inputs)}")
        self._structure = getattr(network, "input", None) if input_count > 1 else None
        self._specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of the network for ``batch``."""
        argument = self.pack([tf.constant(batch[name]) for name in self._inputs])
        return map_by_position(self._model, tf.nest.flatten(self._answer(argument)))

    def pack(self, inputs: list[Any]) -> Any:  # noqa: ANN401 - tensors
        """Return the inputs in the structure that the network takes."""
        if isinstance(self._structure, Mapping):
            return tf.nest.pack_sequence_as(self._structure, inputs)
        return inputs if len(inputs) > 1 else inputs[0]

    def _specialize(self) -> tuple[Any, Sequence[str], Sequence[str]]:
        function = self._function.get_concrete_function(self.pack(self._specs))
        return function, self._inputs, [port.name for port in self._model.outputs]


class FrozenGraph(_Function):
    """A graph with constant weights, with tensors by name; an operation's name stands for its first tensor."""

    def __init__(self, path: Path, model: Model, threads: int, device: str) -> None:
        """Load the graph and find its inputs and outputs."""
        definition = tf.compat.v1.GraphDef()
        definition.ParseFromString(path.read_bytes())
        for node in definition.node:
            node.device = ""  # the device of the machine that made the graph
        imported = tf.compat.v1.wrap_function(lambda: tf.compat.v1.import_graph_def(definition, name=""), [])
        feeds = [_tensor(imported.graph, "input", port.name) for port in model.inputs]
        fetches = [_tensor(imported.graph, "output", port.name) for port in model.outputs]
        super().__init__(imported.prune(feeds, fetches), threads, device)
        self._inputs = [port.name for port in model.inputs]
        self._model = model

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of the graph for ``batch``."""
        return map_by_position(self._model, self._answer(*[tf.constant(batch[name]) for name in self._inputs]))

    def _specialize(self) -> tuple[Any, Sequence[str], Sequence[str]]:
        return self._function, self._inputs, [port.name for port in self._model.outputs]


class TracedFunction(_Function):
    """A function of tensors that is traced at its first call, with inputs and outputs by position."""

    def __init__(self, function: Callable[..., Any], model: Model, threads: int, device: str) -> None:
        """Keep the function, which gets the inputs in the order of the model."""
        self.function = tf.function(function)
        super().__init__(self.function, threads, device)
        self._model = model
        self._inputs = [port.name for port in model.inputs]

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of the function for ``batch``."""
        return map_by_position(self._model, self._answer(*[tf.constant(batch[name]) for name in self._inputs]))


class GraphSession:
    """A ``Session`` of the model's graph: the only executor whose profile has every operator of every call.

    It optimizes the graph in another way than the functions of the other classes, so that answers may differ in their
    last bits.
    """

    in_caller = False
    device = CPU

    def __init__(self, folder: Path, model: Model, place: Place) -> None:
        """Load the model.

        Raises:
            ValueError: The model is a TFLite graph or is to run on an accelerator.
        """
        if place.device != CPU or model.format == "tflite":
            what = "TFLite graphs" if model.format == "tflite" else f"the device {place.device}"
            raise ValueError(f"TensorFlow's profile of each operator does not cover {what}")
        predictor = load(folder, model, place)
        assert isinstance(predictor, _Function)
        self.threads = predictor.threads
        self.frozen = predictor.freeze()
        predictor.close()
        self._metadata = tf.compat.v1.RunMetadata
        options = tf.compat.v1.RunOptions
        self._traced = options(trace_level=options.FULL_TRACE)
        self._described = options(trace_level=options.FULL_TRACE, output_partition_graphs=True)
        if model.format == "savedmodel":  # whose variables are read in each call, as in its function
            self._session = _open_session(tf.Graph(), place)
            path = find_graph(folder, model)
            loaded = tf.compat.v1.saved_model.load(
                self._session, ["serve"], str(path if path.is_dir() else path.parent)
            )
            signature = loaded.signature_def[model.signature]
            feeds = {name: signature.inputs[name].name for name in self.frozen.feeds}
            fetches = {name: signature.outputs[name].name for name in self.frozen.fetches}
        else:
            self._session = _open_session(_import(self.frozen.definition), place)
            feeds, fetches = self.frozen.feeds, self.frozen.fetches
        self._outputs = [port.name for port in model.outputs]
        self._inputs = [port.name for port in model.inputs]
        self._call = self._session.make_callable(
            [fetches[name] for name in self._outputs], [feeds[name] for name in self._inputs], accept_options=True
        )

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of the graph for ``batch``."""
        return self._run(batch, None, None)

    def profile(self, batch: Tensors, *, with_graph: bool = False) -> tuple[Tensors, Any]:
        """Return the outputs for ``batch`` and the ``RunMetadata`` of the call.

        Args:
            batch: The inputs by name.
            with_graph: Whether the metadata has the graph that was executed, after all optimizations.
        """
        metadata = self._metadata()
        answers = self._run(batch, self._described if with_graph else self._traced, metadata)
        return answers, metadata

    def close(self) -> None:
        """Release the graph."""
        del self._call
        self._session.close()

    def _run(self, batch: Tensors, options: Any, metadata: Any) -> Tensors:  # noqa: ANN401 - no types here
        inputs = [batch[name] for name in self._inputs]
        return dict(zip(self._outputs, self._call(*inputs, options=options, run_metadata=metadata), strict=True))


def _open_session(graph: Any, place: Place) -> Any:  # noqa: ANN401 - TensorFlow has no types here
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=place.threads, inter_op_parallelism_threads=1, device_count={_ACCELERATOR: 0}
    )
    return tf.compat.v1.Session(graph=graph, config=config)


def _import(definition: Any) -> Any:  # noqa: ANN401 - TensorFlow has no types here
    graph = tf.Graph()
    with graph.as_default():
        tf.compat.v1.import_graph_def(definition, name="")
    return graph


def set_threads(threads: int, device: str) -> None:
    """Set the thread counts of TensorFlow, and the device that it sees."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    _select_device(device)


def load(folder: Path, model: Model, place: Place) -> Predictor:
    """Load the model; it can be any file of ``_FUNCTIONS``, a TFLite graph, or weights with code."""
    set_threads(place.threads, place.device)
    if model.format == "safetensors":
        if model.code is None:
            raise ValueError("a model with format safetensors needs code")
        tf.keras.backend.clear_session()  # names of layers are numbered per process, as in the process that trained
        network = build_network(folder, model.code, merge_weights(list_files(folder, model, "weights"), load_file))
        return Keras(network, model, place.threads, place.device)
    path = find_graph(folder, model)
    if model.format == "tflite":
        return TfliteInterpreter(
            tf.lite.Interpreter(model_path=check_tflite(path), num_threads=place.threads), model, place.threads
        )
    if model.format not in _FUNCTIONS:
        raise ValueError(f"format {model.format!r} is not supported")
    return _FUNCTIONS[model.format](path, model, place.threads, place.device)


def build_network(folder: Path, code: Code, weights: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as above
    """Return the Keras network that code builds: a new one without weights.

    Raises:
        TypeError: The code returns something else.
        ValueError: The code exits, or the network has no weights yet.
    """
    function = load_function(folder / code.file, code.function)
    try:
        network = function(weights)
    except SystemExit as error:  # code of a model must not end the harness
        raise ValueError(f"{code.function} exited with {error.code!r}") from error
    if not isinstance(network, tf.keras.Model):
        raise TypeError(f"{code.function} returned {type(network).__name__}, expected tf.keras.Model")
    if not network.built:
        raise ValueError(f"{code.function} returned a network without weights; begin it with keras.Input(shape)")
    return network


def _load_keras(path: Path, model: Model, threads: int, device: str) -> Keras:
    """Load a Keras or HDF5 file."""
    if model.format == "keras" and not zipfile.is_zipfile(path):
        raise ValueError(f"{path.name} is not a Keras file (zip archive)")
    with _with_suffix(path, _SUFFIXES[model.format]) as name:
        # Code inside the file is executed only where the manifest declares it.
        network = tf.keras.models.load_model(name, compile=False, safe_mode=not model.unsafe)
    return Keras(network, model, threads, device)


_FUNCTIONS: Mapping[str, Callable[[Path, Model, int, str], Predictor]] = {
    "savedmodel": SavedModel,
    "keras": _load_keras,
    "hdf5": _load_keras,
    "frozen-graph": FrozenGraph,
}


def _tensor(graph: Any, kind: str, name: str) -> Any:  # noqa: ANN401 - TensorFlow has no types here
    try:
        return graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
    except (KeyError, ValueError) as error:
        present = [f"{operation.name}:0" for operation in graph.get_operations() if operation.type == "Placeholder"]
        hint = f"; it takes {', '.join(present) or 'none'}" if kind == "input" else ""
        raise ValueError(f"the graph has no {kind} {name!r}{hint}") from error


@contextmanager
def _with_suffix(path: Path, suffix: str) -> Iterator[str]:
    """Yield a path of the file that ends in ``suffix``, because Keras recognizes formats only by the suffix."""
    if path.suffix == suffix:
        yield str(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / f"model{suffix}"
        link.symlink_to(path.absolute())
        yield str(link)


def _select_device(device: str) -> None:
    """Make TensorFlow see only the CPU, or the first accelerator, with memory allocated on demand."""
    devices = [] if device == CPU else tf.config.list_physical_devices(_ACCELERATOR)
    if device != CPU:
        check_cuda(device, tf.sysconfig.get_build_info().get("cuda_version"), len(devices))
        tf.config.experimental.set_memory_growth(devices[0], True)
    tf.config.set_visible_devices(devices[:1], _ACCELERATOR)
