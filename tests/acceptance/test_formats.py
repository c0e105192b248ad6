"""Every format of models, loaded and called by the harness's own predictors in the images that ``image build`` makes.

The scripts in ``inside`` make models, whole and broken ones, and call them; what they must answer stands here.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from safetensors.numpy import load_file

from tests.acceptance.image_scripts import Found, inside
from tests.support.api.commands import Commands
from tests.support.registry.digits import DIGITS, locked, request, written

pytestmark = [pytest.mark.engine, pytest.mark.image]

DAMAGES = ("empty", "cut", "begun", "noise", "zeros", "text")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of PyTorch's models."""
    return _empty(tmp_path_factory)


@pytest.fixture(scope="module")
def pytorch(images: Commands, made: Path) -> Found:
    return inside(images, "digits-torchscript", "pytorch_models", made)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of TensorFlow's models."""
    return _empty(tmp_path_factory)


@pytest.fixture(scope="module")
def tensorflow(images: Commands, converted: Path) -> Found:
    return inside(images, "digits-savedmodel", "tensorflow_models", converted)


@pytest.fixture(scope="module")
def litert(images: Commands, tensorflow: Found, converted: Path, tmp_path_factory: pytest.TempPathFactory) -> Found:
    assert tensorflow  # whose graphs these are
    folder = _empty(tmp_path_factory)
    for path in (*converted.glob("lite-*.tflite"), converted / "tables.json"):
        shutil.copy(path, folder / path.name)
    return inside(images, "digits-litert", "litert_models", folder)


@pytest.fixture(scope="module")
def onnxruntime(images: Commands, tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = _empty(tmp_path_factory)
    _write_graphs(folder)
    return inside(images, "digits-onnx", "onnxruntime_models", folder)


def _empty(factory: pytest.TempPathFactory) -> Path:
    folder = factory.mktemp("formats") / "models"
    folder.mkdir()
    return folder


def _write_graphs(folder: Path) -> None:
    """Two inputs and outputs of two types; free axes; a batch fixed at 4; bytes that stand for numbers."""
    info, number = helper.make_tensor_value_info, TensorProto.FLOAT
    scale = helper.make_tensor("scale", number, [], [0.5])
    zero = helper.make_tensor("zero", TensorProto.UINT8, [], [128])
    _write(
        folder / "two.onnx",
        [info("a", number, ["n", 2]), info("b", TensorProto.INT64, ["n", 2])],
        [info("whole", TensorProto.INT64, ["n", 2]), info("sum", number, ["n", 2])],
        [
            helper.make_node("Cast", ["a"], ["whole"], to=TensorProto.INT64),
            helper.make_node("Cast", ["b"], ["real"], to=number),
            helper.make_node("Add", ["a", "real"], ["sum"]),
        ],
    )
    for name, shape in (("free", ["n", "width"]), ("fixed", [4, 2])):
        node = helper.make_node("Identity", ["x"], ["y"])
        _write(folder / f"{name}.onnx", [info("x", number, shape)], [info("y", number, shape)], [node])
    node = helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["y"])
    given, made = [info("x", TensorProto.UINT8, ["n", 2])], [info("y", number, ["n", 2])]
    _write(folder / "quantised.onnx", given, made, [node], [scale, zero])


def _write(path: Path, given: list[Any], made: list[Any], nodes: list[Any], initial: Sequence[Any] = ()) -> None:
    graph = helper.make_graph(nodes, path.stem, given, made, initializer=list(initial))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def failing(found: Found, name: str, kind: str, words: str) -> None:
    """It failed with that class, in one line that says ``words``."""
    assert found[name][0] == kind, found[name]
    assert words in found[name][1]
    assert "\n" not in found[name][1]
    assert len(found[name][1]) < 700


def test_pytorch_calls_every_kind_of_file(pytorch: Found) -> None:
    assert pytorch["two"] == [{"sum": [[4, 5], [6, 7]], "least": [[1, 2], [3, 3]]}]
    assert pytorch["fixed"] == [{"y": [[3], [7], [11], [15]]}]
    assert pytorch["export"] == [{"y": [[3]]}, {"y": [[3], [7], [11]]}]
    assert pytorch["export, fixed"] == [{"y": [[3], [7], [11]]}]
    assert pytorch["state-dict"] == pytorch["safetensors"] == [{"y": [[6, 10], [12, 24]]}]


def test_a_network_that_changes_its_input_and_its_answer_harms_no_other_call(pytorch: Found) -> None:
    assert pytorch["changing"] == [{"y": [[2, 4]]}, {"y": [[4, 8]]}, {"y": [[6, 12]]}]
    assert pytorch["changing: its input"] == [[1, 2]]


def test_a_pickled_module_is_read_where_the_manifest_says_unsafe_and_nowhere_else(pytorch: Found) -> None:
    assert pytorch["a module, unsafe"] == [{"y": [[3, 3], [7, 7]]}]
    failing(pytorch, "a module", "load", "module.pth contains more than weights: Unsupported global")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("fixed, another batch", "predict", "shape '[4, 2]' is invalid for input of size 2"),
        ("export, another batch", "predict", "input.size()[0] == 3"),
        ("too many outputs", "predict", "the model returns 2 tensors, but the manifest lists 1"),
        ("no tensor", "predict", "the model returns list at position 1, which is not a tensor"),
        ("safetensors twice", "load", "tensor 'fc.weight' is in fc.weight.safetensors and in another file"),
        ("safetensors, one missing", "load", 'Missing key(s) in state_dict: "0.bias"'),
        ("no function", "load", "network.py has no function 'absent'"),
        ("no module", "load", "weights_back returned dict, expected torch.nn.Module"),
        ("fails", "load", "layer1.weight"),
        ("leaves", "load", "leaves exited with 3"),
        ("no file", "load", "elsewhere.py"),
    ],
)
def test_pytorch_says_what_is_wrong(pytorch: Found, name: str, kind: str, words: str) -> None:
    failing(pytorch, name, kind, words)


def test_the_code_of_an_optimizer_never_ends_the_harness(pytorch: Found) -> None:
    failing(pytorch, "optimizer, exits", "load", "the optimizer: ValueError: exits exited with 3")
    failing(pytorch, "optimizer, wrong", "load", "wrong returned dict, expected torch.optim.Optimizer")
    failing(pytorch, "optimizer, exits later", "predict", "ValueError: the optimizer exited with 4")


def test_tensorflow_calls_every_kind_of_file(tensorflow: Found) -> None:
    both = {"sum": [[4, 5], [6, 7]], "least": [[1, 2], [3, 3]]}
    assert tensorflow["savedmodel"] == tensorflow["keras, named"] == tensorflow["keras, listed"] == [both]
    assert tensorflow["savedmodel, its file"] == [{"sum": both["sum"]}]
    batches = [{"y": [[3]]}, {"y": [[3], [7], [11]]}]
    assert tensorflow["keras"] == tensorflow["hdf5"] == batches
    assert tensorflow["hdf5, called otherwise"] == batches[:1]
    four = {"Identity_1": [6, 6, 6, 6], "Identity:0": [[5], [11], [17], [23]]}
    assert tensorflow["frozen"] == [{"Identity_1": [6], "Identity:0": [[5]]}, four]
    assert tensorflow["frozen, fixed"] == [four]
    assert tensorflow["safetensors"] == tensorflow["safetensors, again"] == [{"y": [[6, 10], [12, 24]]}]


def test_a_training_in_tensorflow_steps_as_pytorch_defines_sgd(tensorflow: Found) -> None:
    x, labels = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0, 1])
    state = {"network/y/kernel": np.ones((2, 2)), "network/y/bias": np.zeros(2)}
    velocity = {name: np.zeros_like(values) for name, values in state.items()}
    training = tensorflow["training"]
    for number, found in enumerate(training["states"]):  # the first is that after the warm-up
        for name, values in state.items():
            np.testing.assert_allclose(found[name], values, atol=1e-6)
        scores = x @ state["network/y/kernel"] + state["network/y/bias"]
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        if number < len(training["losses"]):
            assert training["losses"][number] == pytest.approx(-np.log(shares[[0, 1], labels]).mean(), abs=1e-6)
        errors = (shares - np.eye(2)[labels]) / 2
        for name, gradient in (("network/y/kernel", x.T @ errors), ("network/y/bias", errors.sum(axis=0))):
            velocity[name] = 0.5 * velocity[name] + gradient + 0.25 * state[name]
            state[name] = state[name] - 0.5 * velocity[name]
    assert (len(training["states"]), len(training["losses"])) == (3, 2)
    assert "the network adds losses" in training["refused"]
    assert training["initial"] == {"sequential/dense/kernel": [[1, 3], [2, 4]], "sequential/dense/bias": [1, -1]}


def test_code_in_a_keras_file_is_run_where_the_manifest_says_unsafe_and_nowhere_else(tensorflow: Found) -> None:
    assert tensorflow["lambda, unsafe"] == [{"y": [[2, 4]]}]
    failing(tensorflow, "lambda", "load", "Lambda")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("savedmodel, no signature", "load", "no signature 'other'; the SavedModel has serving_default"),
        ("savedmodel, an input left out", "load", "the graph has input 'b', which the manifest does not list"),
        ("savedmodel, no such output", "load", "the graph has no output 'product'; it has"),
        ("savedmodel, another type", "predict", "int32"),
        ("savedmodel, no folder", "load", "SavedModel file does not exist"),
        ("keras, an input too many", "load", "the network takes 1 tensors, but the manifest lists 2"),
        ("hdf5, weights alone", "load", "No model config found"),
        ("safetensors twice", "load", "tensor 'sequential/dense/kernel' is in kernel.safetensors and in another file"),
        ("safetensors, one missing", "load", "sequential/dense/bias"),
        ("no input", "load", "build_without_input returned a network without weights; begin it with keras.Input"),
        ("no network", "load", "build_layer returned Dense, expected tf.keras.Model"),
        ("leaves", "load", "leave exited with 3"),
        ("frozen, no input", "load", "the graph has no input 'z'; it takes x:0, y:0"),
        ("frozen, no output", "load", "the graph has no output 'scores:0'"),
        ("frozen, an input left out", "load", "placeholder"),
        ("frozen, another type", "predict", "int32"),
    ],
)
def test_tensorflow_says_what_is_wrong(tensorflow: Found, name: str, kind: str, words: str) -> None:
    failing(tensorflow, name, kind, words)


def test_litert_profiles_a_graph_with_signatures_at_any_batch_size(
    small_images: Commands, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The batch of the digits' graph is dynamic, and LiteRT knows the shape of its output only after a call."""
    folder = _empty(tmp_path_factory)
    shutil.copy(DIGITS / "models" / "digits.tflite", folder)
    profiles = inside(small_images, "digits-litert", "litert_profiles", folder)
    for size in (1, 4):
        conv, pool = ("Convolution", "CONV_2D"), ("Max Pooling", "MAX_POOL_2D")
        rows = [
            [*conv, [[size, 8, 8, 16]]],
            [*conv, [[size, 8, 8, 32]]],
            [*pool, [[size, 4, 4, 32]]],
            [*conv, [[size, 4, 4, 32]]],
            [*pool, [[size, 2, 2, 32]]],
            ["SHAPE", None, [[4]]],
            ["STRIDED_SLICE", None, [[]]],
            ["PACK", None, [[2]]],
            ["RESHAPE", None, [[size, 128]]],
            ["Static Reshape", None, []],
            ["Fully Connected", "FULLY_CONNECTED", [[size, 10]]],
        ]
        expected = {"rows": rows, "times": [3, len(rows)], "incomplete": None, "equal": [True] * 3}
        assert profiles[str(size)] == expected


@pytest.mark.parametrize("library", ["tensorflow", "litert"])
def test_a_tflite_graph_takes_any_batch_and_nothing_else(library: str, request: pytest.FixtureRequest) -> None:
    found: Found = request.getfixturevalue(library)
    one = {"Identity": [[5]], "Identity_1": [2]}
    four = {"Identity": [[5], [11], [17], [23]], "Identity_1": [2, 4, 6, 8]}
    for name in ("lite-free.tflite", "lite-four.tflite"):
        assert found[name] == [four, one, four]
        failing(found, f"{name}, a wider sample", "predict", "but got [1, 3]")
        failing(found, f"{name}, another type", "predict", "Got value of type INT8 but expected type FLOAT32")
        failing(found, f"{name}, no output", "load", "the graph has no output 'scores'; it has Identity, Identity_1")


def whole(*shape: int) -> NDArray[np.float64]:
    """What ``floats`` of the scripts is."""
    return np.arange(1.0, 1 + np.prod(shape)).reshape(shape)


def test_an_operator_of_pytorch_has_a_window_that_is_padded_unevenly(pytorch: Found) -> None:
    x, weights = np.pad(whole(1, 2, 5, 5), ((0, 0), (0, 0), (1, 0), (0, 1))), whole(3, 2, 3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2]
    expected = np.einsum("nchwij,ocij->nohw", windows, weights)
    np.testing.assert_array_equal(pytorch["operator"]["output"], expected)
    assert pytorch["operator"]["gradient_error"] < 1e-6


def test_an_operator_of_tensorflow_has_transposed_and_scaled_factors(tensorflow: Found) -> None:
    expected = 0.5 * whole(3, 2).T @ whole(4, 3).T + 2 * whole(4)
    np.testing.assert_array_equal(tensorflow["operator"]["output"], expected)
    assert tensorflow["operator"]["gradient_error"] < 1e-6


POINTS = np.asarray([[1, 2], [3, 4], [8, 0], [0, 5]], np.float32)
COUNTS = np.asarray([[1, 2], [3, 4], [5, 6], [7, 8]], np.int32)


def _locked(images: Commands, folder: Path, model: dict[str, Any], **files: str) -> Path:
    """The lock of a model and all points, from its manifest in ``folder``."""
    name = f"made-{model['format']}"
    rest = {"version": "1.0.0", "license": "MIT", "schema": 1}
    listed = [{"path": path, "role": role, "source": f"./{path}"} for path, role in files.items()]
    np.savez(folder / "points.npz", x=POINTS, counts=COUNTS)
    split = {"file": "points.npz", "fields": {"x": "x", "counts": "counts"}, "samples": len(POINTS)}
    kept = [{"path": "points.npz", "source": "./points.npz"}]
    data = {"kind": "dataset", "name": name, "format": "npz", "splits": {"test": split}, "files": kept}
    manifest = {"kind": "model", "name": name, "task": "tensor", "files": listed, **model}
    images.done(
        "publish", written(folder / "data.yaml", {**rest, **data}), written(folder / "model.yaml", {**rest, **manifest})
    )
    scenario = {"name": "accuracy", "batch": 2, "warmup": 1}
    asked = request(name, name, memory="3GiB") | {"scenario": scenario, "metrics": []}
    asked["limits"] |= {"processes": 256}
    return locked(images, folder, asked)


def _ran(images: Commands, folder: Path, model: dict[str, Any], **files: str) -> dict[str, NDArray[Any]]:
    """What a model answers of all points, from its manifest in ``folder`` to a run in a container."""
    lock = _locked(images, folder, model, **files)
    run = images.done("run", lock, "--isolation", "container")
    assert (run["end"]["outcome"], run["start"]["isolation"]) == ("done", "container"), run
    images.done("get", run["run"], "-o", folder / f"{lock.stem}.out")
    found: dict[str, NDArray[Any]] = load_file(folder / f"{lock.stem}.out" / "predictions.safetensors")
    return found


def _port(name: str, field: str, dtype: str = "float32", **more: object) -> dict[str, Any]:
    return {"name": name, "type": "tensor", "field": field, "dtype": dtype, "shape": [None, 2], **more}


def _answer(name: str, *shape: int, dtype: str = "float32", **more: object) -> dict[str, Any]:
    return {"name": name, "type": "tensor", "dtype": dtype, "shape": [None, *shape], **more}


def _framework(name: str, form: str) -> dict[str, Any]:
    return {"framework": {"name": name, "version": "*"}, "format": form}


def test_files_go_from_a_manifest_to_a_lock(
    images: Commands, pytorch: Found, made: Path, tensorflow: Found, converted: Path
) -> None:
    """The harness calls them all above; examples of other formats, int8 and promoted models go to a run."""
    assert pytorch  # whose weights these are
    assert tensorflow  # whose network and graph these are
    code = {"file": "network.py", "function": "build"}
    ports = {"inputs": [_port("x", "x")], "outputs": [_answer("y", 2)], "code": code}
    files = {"weights.pth": "weights", "network.py": "code"}
    assert _locked(images, made, _framework("pytorch", "state-dict") | ports, **files).exists()
    ports = {"inputs": [_port("x", "x")], "outputs": [_answer("y", 1)]}
    assert _locked(images, converted, _framework("tensorflow", "hdf5") | ports, **{"dense.h5": "graph"}).exists()
    ports = {
        "inputs": [_port("x:0", "x"), _port("y:0", "counts", "int32")],
        "outputs": [_answer("Identity:0", 1), _answer("Identity_1:0", dtype="int32")],
    }
    frozen = _framework("tensorflow", "frozen-graph") | ports
    assert _locked(images, converted, frozen, **{"frozen.pb": "graph"}).exists()


def test_a_graph_of_int8_goes_from_a_manifest_to_a_run(images: Commands, tensorflow: Found, converted: Path) -> None:
    """Within two steps of the output: one for the inputs, which are rounded too, one for its own rounding."""
    (given, scale, zero), (answered, step, middle) = tensorflow["whole"]
    first = {"quantize": {"scale": scale, "zero_point": int(zero), "dtype": "int8"}}
    last = {"dequantize": {"scale": step, "zero_point": int(middle), "dtype": "float32"}}
    ports = {
        "inputs": [_port(given, "x", "int8", steps=[first])],
        "outputs": [_answer(answered, 2, dtype="int8", steps=[last])],
    }
    found = _ran(images, converted, _framework("litert", "tflite") | ports, **{"whole.tflite": "graph"})
    np.testing.assert_allclose(found[answered], POINTS @ [[1, -1], [2, 0.5]], atol=2 * step)


def test_onnx_runtime_calls_every_kind_of_graph(onnxruntime: Found) -> None:
    assert onnxruntime["two"] == [{"whole": [[1, 2], [3, 4]], "sum": [[4, 5], [6, 7]]}]
    assert onnxruntime["free"] == [{"y": [[1, 2]]}, {"y": [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]}]
    assert onnxruntime["fixed"] == [{"y": [[1, 2], [3, 4], [5, 6], [7, 8]]}]
    assert onnxruntime["quantised"] == [{"y": [[1.5, 1.5]]}]


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("an input left out", "load", "the graph has input 'b', which the manifest does not list"),
        ("no output", "load", "the graph has no output 'product'; it has whole, sum"),
        ("another type", "predict", "tensor(int64)"),
        ("fixed, another batch", "predict", "Expected: 4"),
    ],
)
def test_onnx_runtime_says_what_is_wrong(onnxruntime: Found, name: str, kind: str, words: str) -> None:
    failing(onnxruntime, name, kind, words)


@pytest.mark.parametrize(
    ("library", "name", "settings"),
    [
        ("onnxruntime", "threads", ["intra_op_num_threads", "inter_op_num_threads"]),
        ("pytorch", "threads", ["num_threads", "num_interop_threads"]),
        ("tensorflow", "threads", ["intra_op_parallelism_threads", "inter_op_parallelism_threads"]),
        ("tensorflow", "threads, lite", ["num_threads"]),
        ("litert", "threads", ["num_threads"]),
    ],
)
def test_a_runtime_has_the_threads_that_it_is_given_and_they_are_recorded(
    library: str, name: str, settings: list[str], request: pytest.FixtureRequest
) -> None:
    found: Found = request.getfixturevalue(library)[name]
    assert found.keys() == {"1", "2"}
    for count in (1, 2):
        values = [count, 1][: len(settings)]
        assert found[str(count)]["recorded"] == dict(zip(settings, values, strict=True))
        if len(settings) > 1:
            assert found[str(count)]["runtime"] == values
        if library == "litert":  # it does not say; beside the caller it has all but one
            assert found[str(count)]["runtime"] == [count - 1]


def test_onnx_runtimes_threads_sleep_and_preempt_no_others_that_prepare_samples(onnxruntime: Found) -> None:
    alone, two = (onnxruntime["threads, shared"][count] for count in ("1", "2"))
    assert alone["recorded"] == {"intra_op_num_threads": 1, "inter_op_num_threads": 1}
    assert two["recorded"] == {"intra_op_num_threads": 2, "inter_op_num_threads": 1, "intra_op_allow_spinning": 0}
    assert two["runtime"] == ["0", os.SCHED_OTHER, 1]


@pytest.mark.parametrize(
    ("library", "form"),
    [
        ("pytorch", "torchscript"),
        ("pytorch", "torch-export"),
        ("pytorch", "state-dict"),
        ("pytorch", "safetensors"),
        ("tensorflow", "keras"),
        ("tensorflow", "hdf5"),
        ("tensorflow", "frozen-graph"),
        ("tensorflow", "tflite"),
        ("tensorflow", "safetensors"),
        ("litert", "tflite"),
        ("onnxruntime", "onnx"),
    ],
)
def test_a_broken_file_fails_to_load_with_a_reason_in_one_line(
    library: str, form: str, request: pytest.FixtureRequest
) -> None:
    found: Found = request.getfixturevalue(library)
    for damage in DAMAGES:
        name = f"{form}: {damage}"
        failing(found, name, "load", f"format {form}: ")
        assert found[name][1].partition(f"format {form}: ")[2].partition(": ")[2], found[name]
