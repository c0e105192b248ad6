"""Models of TensorFlow, and TFLite graphs made by it, as ``trying`` says."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors.numpy import save_file
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow_threads import loaded_with
from trying import OUT, Batch, broken, described, floats, lite_tried, operated, port, tried, write

# What the predictor sets, before TensorFlow makes the models: it can be set once in a process.
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)

SAVED, KERAS, HDF5 = ("tensorflow", "savedmodel"), ("tensorflow", "keras"), ("tensorflow", "hdf5")
FROZEN, LITE = ("tensorflow", "frozen-graph"), ("tensorflow", "tflite")
TENSORS = ("tensorflow", "safetensors")
BUILD = """
import tensorflow as tf


def build(weights):
    network = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(2)])
    for variable in network.weights:
        variable.assign(weights[variable.path])
    return network


def build_without_input(weights):
    return tf.keras.Sequential([tf.keras.layers.Dense(2)])


def build_layer(weights):
    return tf.keras.layers.Dense(2)


def leave(weights):
    raise SystemExit(3)
"""
X = [port("x", None, 2)]
TWO = [port("a", None, 2), port("b", None, 2, dtype="int32")]
PAIR: Batch = {"a": floats(2, 2), "b": np.full((2, 2), 3, np.int32)}


class Both(tf.Module):
    """Two inputs of two types, two outputs."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "a"), tf.TensorSpec([None, 2], tf.int32, "b")])
    def __call__(self, a: tf.Tensor, b: tf.Tensor) -> dict[str, tf.Tensor]:
        whole = tf.cast(b, tf.float32)
        return {"sum": a + whole, "least": tf.minimum(a, whole)}


def saved() -> dict[str, Any]:
    both = Both()
    tf.saved_model.save(both, str(OUT / "both"), signatures=both.__call__)
    given = {"signature": "serving_default"}
    missing = [port("a", None, 2)]
    return {
        "savedmodel": tried(SAVED, "both/", TWO, ["least", "sum"], PAIR, **given),
        "savedmodel, its file": tried(SAVED, "both/saved_model.pb", TWO, ["sum"], PAIR, **given),
        "savedmodel, no signature": tried(SAVED, "both/", TWO, ["sum"], PAIR, signature="other"),
        "savedmodel, an input left out": tried(SAVED, "both/", missing, ["sum"], PAIR, **given),
        "savedmodel, no such output": tried(SAVED, "both/", TWO, ["product"], PAIR, **given),
        "savedmodel, another type": tried(
            SAVED, "both/", TWO, ["sum"], {"a": floats(2, 2), "b": floats(2, 2)}, **given
        ),
        "savedmodel, no folder": tried(SAVED, "nothing/", TWO, ["sum"], PAIR, **given),
    }


def keras() -> dict[str, Any]:
    a, b = tf.keras.Input((2,), name="a"), tf.keras.Input((2,), name="b", dtype="int32")
    whole = tf.keras.ops.cast(b, "float32")
    outputs = {"sum": tf.keras.layers.Add()([a, whole]), "least": tf.keras.layers.Minimum()([a, whole])}
    tf.keras.Model({"b": b, "a": a}, outputs).save(OUT / "named.keras")
    tf.keras.Model([a, b], [outputs["sum"], outputs["least"]]).save(OUT / "listed.keras")
    x = tf.keras.Input((2,), name="x")
    layers = [tf.keras.layers.Dense(1, kernel_initializer="ones", name="y"), tf.keras.layers.Dropout(0.5)]
    dense = tf.keras.Model(x, layers[1](layers[0](x)))
    dense.save(OUT / "dense.keras")
    dense.save(OUT / "dense.h5")
    dense.save_weights(OUT / "alone.weights.h5")
    (OUT / "dense.hdf5.bin").write_bytes((OUT / "dense.h5").read_bytes())
    tf.keras.Model(x, tf.keras.layers.Lambda(lambda values: values * 2)(x)).save(OUT / "lambda.keras")
    one = {"x": floats(1, 2)}
    return {
        "keras, named": tried(KERAS, "named.keras", TWO, ["least", "sum"], PAIR),
        "keras, listed": tried(KERAS, "listed.keras", TWO, ["sum", "least"], PAIR),
        "keras": tried(KERAS, "dense.keras", X, ["y"], one, {"x": floats(3, 2)}),
        "keras, an input too many": tried(KERAS, "dense.keras", TWO, ["y"], PAIR),
        "hdf5": tried(HDF5, "dense.h5", X, ["y"], one, {"x": floats(3, 2)}),
        "hdf5, called otherwise": tried(HDF5, "dense.hdf5.bin", X, ["y"], one),
        "hdf5, weights alone": tried(HDF5, "alone.weights.h5", X, ["y"], one),
        "lambda": tried(KERAS, "lambda.keras", X, ["y"], one),
        "lambda, unsafe": tried(KERAS, "lambda.keras", X, ["y"], one, unsafe=True),
        **broken(KERAS, OUT / "dense.keras", X, ["y"], one),
        **broken(HDF5, OUT / "dense.h5", X, ["y"], one),
    }


def weights() -> dict[str, Any]:
    (OUT / "network.py").write_text(BUILD)
    kernel, bias = np.array([[1, 3], [2, 4]], np.float32), np.array([1, -1], np.float32)
    for name, values in (("kernel", kernel), ("bias", bias)):
        save_file({f"sequential/dense/{name}": values}, OUT / f"{name}.safetensors")
    files, batch = ["kernel.safetensors", "bias.safetensors"], {"x": floats(2, 2)}

    def coded(function: str, files: list[str]) -> Any:  # noqa: ANN401 - JSON
        return tried(TENSORS, files, X, ["y"], batch, code={"file": "network.py", "function": function})

    return {
        "safetensors": coded("build", files),
        "safetensors, again": coded("build", files),
        "safetensors twice": coded("build", [files[0], files[0]]),
        "safetensors, one missing": coded("build", files[:1]),
        "no input": coded("build_without_input", files),
        "no network": coded("build_layer", files),
        "leaves": coded("leave", files),
        **broken(
            TENSORS, OUT / "kernel.safetensors", X, ["y"], batch, code={"file": "network.py", "function": "build"}
        ),
    }


def trained() -> dict[str, Any]:
    """Two steps of SGD at half the rate of the warm-up; initial weights; a network that adds a loss of its own."""
    from harness.core.job import Code  # noqa: PLC0415 - trying adds it to the path
    from harness.training.tensorflow_training import TensorFlowTrainer, build  # noqa: PLC0415 - trying adds it to the path

    settings = {"name": "sgd", "lr": 1.0, "momentum": 0.5, "weight_decay": 0.25}

    def begin(**options: object) -> Any:  # noqa: ANN401 - of the harness
        layers = [tf.keras.Input((2,)), tf.keras.layers.Dense(2, kernel_initializer="ones", name="y", **options)]
        model = described(TENSORS, [], X, ["y"])
        trainer = TensorFlowTrainer(tf.keras.Sequential(layers, name="network"), model, settings, 1)
        trainer.warm_up(iter((2, 1)), iter((2,)))
        return trainer

    def read(trainer: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
        return {name: values.tolist() for name, values in trainer.weights().items()}

    split = SimpleNamespace(split={"samples": 2})
    job: Any = SimpleNamespace(
        device="cpu",
        threads=1,
        deterministic=False,
        initial=("kernel.safetensors", "bias.safetensors"),
        network=Code("network.py", "build"),
        settings={"batch": 2, "optimizer": settings, "sampler": {"last": "drop"}, "evaluate": {"batch": 2}},
        dataset=split,
        evaluation=SimpleNamespace(model=described(TENSORS, [], [port("x", None, 2, axis=0)], ["y"]), dataset=split),
    )
    initial = read(build(job, OUT, 1))
    trainer = begin()
    states, losses = [read(trainer)], []
    trainer.scale_rate(0.5)  # the step was traced with another rate
    for _ in range(2):
        losses.append(trainer.step({"x": floats(2, 2)}, np.array([0, 1])))
        states.append(read(trainer))
    try:
        begin(kernel_regularizer="l2")
    except ValueError as error:
        refused = str(error)
    return {"training": {"states": states, "losses": losses, "refused": refused, "initial": initial}}


def frozen() -> dict[str, Any]:
    weights = tf.Variable([[1.0], [2.0]])

    def freeze(name: str, rows: int | None) -> None:
        function = tf.function(lambda x, y: (tf.matmul(x, weights), tf.reduce_sum(y, axis=1)))
        specs = (tf.TensorSpec([rows, 2], tf.float32, "x"), tf.TensorSpec([rows, 2], tf.int32, "y"))
        graph = convert_variables_to_constants_v2(function.get_concrete_function(*specs)).graph.as_graph_def()
        for node in graph.node:
            node.device = "/device:GPU:3"
        (OUT / name).write_bytes(graph.SerializeToString())

    freeze("frozen.pb", None)
    freeze("frozen-four.pb", 4)
    inputs = [port("x:0", None, 2), port("y", None, 2, dtype="int32")]
    batch: Batch = {"x:0": floats(1, 2), "y": np.full((1, 2), 3, np.int32)}
    four: Batch = {"x:0": floats(4, 2), "y": np.full((4, 2), 3, np.int32)}
    outputs = ["Identity_1", "Identity:0"]
    return {
        "frozen": tried(FROZEN, "frozen.pb", inputs, outputs, batch, four),
        "frozen, fixed": tried(FROZEN, "frozen-four.pb", inputs, outputs, four),
        "frozen, another batch": tried(FROZEN, "frozen-four.pb", inputs, outputs, batch),
        "frozen, no input": tried(FROZEN, "frozen.pb", [port("z", None, 2)], outputs, batch),
        "frozen, no output": tried(FROZEN, "frozen.pb", inputs, ["scores:0"], batch),
        "frozen, an input left out": tried(FROZEN, "frozen.pb", inputs[:1], outputs, {"x:0": floats(1, 2)}),
        "frozen, another type": tried(FROZEN, "frozen.pb", inputs, outputs, batch | {"y": floats(1, 2)}),
        **broken(FROZEN, OUT / "frozen.pb", inputs, outputs, batch),
    }


def lite() -> dict[str, Any]:
    tables = {}
    for name, rows in (("lite-free.tflite", None), ("lite-four.tflite", 4)):

        @tf.function(input_signature=[tf.TensorSpec([rows, 2], tf.float32, "x")])
        def network(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.matmul(x, [[1.0], [2.0]]), tf.reduce_max(x, axis=1)

        converter = tf.lite.TFLiteConverter.from_concrete_functions([network.get_concrete_function()])
        (OUT / name).write_bytes(converter.convert())
        interpreter = tf.lite.Interpreter(model_path=str(OUT / name))
        tables[name] = [
            [entry["name"] for entry in details]
            for details in (interpreter.get_input_details(), interpreter.get_output_details())
        ]
    (OUT / "tables.json").write_text(json.dumps(tables))
    return lite_tried(LITE, tables)


def whole_numbers() -> dict[str, Any]:
    """``whole.tflite``, int8 from end to end; its ports with their scales and zero points."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def network(x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, [[1.0, -1.0], [2.0, 0.5]])

    converter = tf.lite.TFLiteConverter.from_concrete_functions([network.get_concrete_function()])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([tf.constant([[a, b]])] for a in (0.0, 8.0) for b in (0.0, 8.0))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    (OUT / "whole.tflite").write_bytes(converter.convert())
    interpreter = tf.lite.Interpreter(model_path=str(OUT / "whole.tflite"))
    (given,), (made,) = interpreter.get_input_details(), interpreter.get_output_details()
    return {"whole": [[entry["name"], *map(float, entry["quantization"])] for entry in (given, made)]}


def by_threads() -> dict[str, Any]:
    """With one thread here, with two in a process of its own: TensorFlow's are set once in a process."""
    script = Path(__file__).with_name("tensorflow_threads.py")
    done = subprocess.run([sys.executable, "-B", script, *sys.argv[1:]], stdout=subprocess.PIPE, check=True)
    two = json.loads(done.stdout.splitlines()[-1])
    return {name: found | two[name] for name, found in loaded_with(1).items()}


def operator() -> dict[str, Any]:
    from harness.operators import tensorflow_operators  # noqa: PLC0415 - trying adds it to the path

    arguments = {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2}
    return {"operator": operated(tensorflow_operators, "Gemm", {"A": (3, 2), "B": (4, 3), "C": (4,)}, arguments)}


write(
    {
        **saved(),
        **keras(),
        **weights(),
        **frozen(),
        **lite(),
        **whole_numbers(),
        **by_threads(),
        **trained(),
        **operator(),
    }
)
