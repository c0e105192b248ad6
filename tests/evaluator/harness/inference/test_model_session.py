"""Several inputs and outputs, constants, states and several calls a sample, with real graphs of ONNX."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job import Model
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.core.scenarios import JobError
from benchlock.evaluator.harness.datasets import Samples
from benchlock.evaluator.harness.inference.model_session import Session, query
from benchlock.evaluator.harness.inference.pipeline import Pipeline, Prediction
from tests.evaluator.harness.predictors.reference import Reference

FLOAT = TensorProto.FLOAT
FRAMES: dict[str, Any] = {"frame": {"length": 2, "step": 2, "pad_start": 0, "pad_end": False, "calls": "each"}}
MONO: dict[str, Any] = {"decode": {"channels": "mono"}}
HEARD = [MONO, FRAMES, {"scale": {"factor": 10}}]


def graph(folder: Path, nodes: Sequence[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    """``model.onnx`` in ``folder``: ports by name, each a shape of floats."""
    given, found = (
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in ports.items()]
        for ports in (inputs, outputs)
    )
    made = helper.make_graph(nodes, "net", given, found)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")


def port(name: str, shape: list[int | None], kind: str = "tensor", **more: object) -> dict[str, Any]:
    return {"name": name, "type": kind, "dtype": "float32", "shape": shape, **more}


def model_of(job: dict[str, Any], inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> Model:
    job["model"] |= {"inputs": inputs, "outputs": outputs, "files": [{"path": "model.onnx", "role": "graph"}]}
    return parse_job({**job, "metrics": ["latency_p50"]}).model


def samples_of(**fields: NDArray[np.float32]) -> Samples:
    count = len(next(iter(fields.values())))
    names = [f"samples[{number}]" for number in range(count)]
    return Samples(
        lambda number: {name: values[number] for name, values in fields.items()}, names, None, frozenset(fields)
    )


def predicted(model: Model, folder: Path, samples: Samples, batch: int = 1) -> tuple[Session, list[Prediction]]:
    """All samples through the model, as the accuracy phase does it."""
    session = Session(Reference(folder / "model.onnx", [output.name for output in model.outputs]), model)
    pipeline = Pipeline(model, folder)
    size, found = pipeline.batch_size(batch), []
    for start in range(0, len(samples), size):
        prepared = [pipeline.prepare(samples, number) for number in range(start, min(start + size, len(samples)))]
        calls = [
            pipeline.stack([sample.calls[number] for sample in prepared]) for number in range(len(prepared[0].calls))
        ]
        answers = [pipeline.answers(tensors, len(prepared), "") for tensors in query(session, calls)]
        found += [pipeline.combine(several) for several in zip(*answers, strict=True)]
    return session, found


def mixed(job: dict[str, Any], folder: Path, rows: int | None = None, **constant: object) -> Model:
    """``sum = a * k + b`` and ``total``, the sum of ``a`` a sample."""
    nodes = [
        helper.make_node("Mul", ["a", "k"], ["scaled"]),
        helper.make_node("Add", ["scaled", "b"], ["sum"]),
        helper.make_node("ReduceSum", ["a", "axis"], ["total"], keepdims=0),
        helper.make_node("Constant", [], ["axis"], value_ints=[1]),
    ]
    nodes = [nodes[3], *nodes[:3]]
    graph(folder, nodes, {"a": ["n", 3], "b": ["n", 3], "k": None}, {"sum": ["n", 3], "total": ["n"]})
    axis: dict[str, Any] = {} if rows is None else {"batch_axis": 0}
    given = {"dtype": "float32", "shape": [], "batch_axis": "none", "value": 10, **constant}
    return model_of(
        job,
        [
            port("a", [rows, 3], field="left", **axis),
            port("b", [rows, 3], field="right", **axis),
            {"name": "k", "type": "constant", **given},
        ],
        [port("sum", [rows, 3], **axis), {"name": "total", "type": "value", "dtype": "float32"}],
    )


LEFT = np.arange(15, dtype=np.float32).reshape(5, 3)
RIGHT = np.ones((5, 3), np.float32)


@pytest.mark.parametrize(("rows", "asked", "size"), [(None, 1, 1), (None, 2, 2), (None, 8, 8), (4, 1, 4), (1, 8, 1)])
def test_several_inputs_and_outputs_whatever_the_batch(
    job: dict[str, Any], tmp_path: Path, rows: int | None, asked: int, size: int
) -> None:
    model = mixed(job, tmp_path, rows)
    assert Pipeline(model, tmp_path).batch_size(asked) == size
    _, found = predicted(model, tmp_path, samples_of(left=LEFT, right=RIGHT, other=RIGHT), asked)
    np.testing.assert_array_equal([prediction["sum"] for prediction in found], LEFT * 10 + RIGHT)
    np.testing.assert_array_equal([prediction["total"] for prediction in found], LEFT.sum(axis=1))


def test_a_constant_with_a_batch_axis_is_repeated_for_each_sample(job: dict[str, Any], tmp_path: Path) -> None:
    model = mixed(job, tmp_path, shape=[None, 3], value=[1, 0, -1], batch_axis=0)
    _, found = predicted(model, tmp_path, samples_of(left=LEFT, right=RIGHT), 2)
    np.testing.assert_array_equal([prediction["sum"] for prediction in found], LEFT * [1, 0, -1] + RIGHT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "uint8", "value": 256}, "input k, value: ValueError: 256 is not of type uint8"),
        ({"dtype": "int32", "value": 0.5}, "input k, value: ValueError: 0.5 is not of type int32"),
        ({"value": [1]}, r"its shape is \[1\], but the manifest states \[\]"),
    ],
)
def test_a_constant_that_is_not_what_its_port_says_is_refused(
    job: dict[str, Any], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    model = mixed(job, tmp_path, **change)
    with pytest.raises(Failure, match=message) as caught:
        predicted(model, tmp_path, samples_of(left=LEFT, right=RIGHT))
    assert caught.value.kind == "load"


def test_a_field_must_be_there_and_named_where_there_are_several(job: dict[str, Any], tmp_path: Path) -> None:
    model = mixed(job, tmp_path)
    with pytest.raises(Failure, match="input b: the dataset has no field 'right'; it has left"):
        predicted(model, tmp_path, samples_of(left=LEFT))
    del job["model"]["inputs"][0]["field"]
    with pytest.raises(Failure, match="input a: no field is specified, but the dataset has left, right"):
        predicted(parse_job({**job, "metrics": []}).model, tmp_path, samples_of(left=LEFT, right=RIGHT))


def remembering(job: dict[str, Any], folder: Path, reset: str, steps: Sequence[dict[str, Any]] = ()) -> Model:
    """``total``: the state and what is heard; the state is the total of the call before."""
    nodes = [helper.make_node("Add", ["x", "before"], ["total"]), helper.make_node("Identity", ["total"], ["after"])]
    graph(folder, nodes, {"x": ["n", 2], "before": ["n", 2]}, {"total": ["n", 2], "after": ["n", 2]})
    state = port("before", [None, 2], "state", **{"from": "after"}, initial="zeros", reset=reset)
    heard = port("x", [None, 2], "audio" if steps else "tensor", steps=list(steps))
    return model_of(job, [heard, state], [port("total", [None, 2]), port("after", [None, 2], "state")])


@pytest.mark.parametrize(
    ("reset", "expected"), [("never", [[1, 2], [4, 6], [9, 12]]), ("sample", [[1, 2], [3, 4], [5, 6]])]
)
def test_a_state_is_fed_back_until_it_is_reset(
    job: dict[str, Any], tmp_path: Path, reset: str, expected: list[list[int]]
) -> None:
    heard = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
    model = remembering(job, tmp_path, reset)
    # Whatever batch is asked for: the next call goes on from the last one.
    session, found = predicted(model, tmp_path, samples_of(x=heard), 8)
    assert [prediction.keys() for prediction in found] == [{"total"}] * 3
    np.testing.assert_array_equal([prediction["total"] for prediction in found], expected)
    session.restart()
    (again,) = query(session, [{"x": heard[:1]}])
    np.testing.assert_array_equal(again["total"], heard[:1])


@pytest.mark.parametrize(
    ("reset", "reduce", "expected"),
    [
        ("sample", "last", [[40, 60], [120, 140]]),
        ("sample", "max", [[40, 60], [120, 140]]),
        ("sample", "mean", [[25, 40], [85, 105]]),
        ("sample", "none", [[[10, 20], [40, 60]], [[50, 70], [120, 140]]]),
        ("never", "last", [[40, 60], [160, 200]]),
    ],
)
def test_each_frame_is_a_call_that_goes_on_from_the_last_one(
    job: dict[str, Any], tmp_path: Path, reset: str, reduce: str, expected: list[Any]
) -> None:
    """The steps behind the frames see one of them."""
    model = remembering(job, tmp_path, reset, HEARD)
    job["model"]["outputs"][0]["reduce"] = reduce
    model = parse_job({**job, "metrics": []}).model
    sounds = np.asarray([[1, 2, 3, 4], [5, 7, 7, 7]], np.float32)
    _, found = predicted(model, tmp_path, samples_of(x=sounds), 8)
    np.testing.assert_array_equal([prediction["total"] for prediction in found], expected)


def test_an_input_without_frames_gives_the_same_to_every_call(job: dict[str, Any], tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "y"], ["sum"])]
    graph(tmp_path, nodes, {"x": ["n", 2], "y": ["n", 2]}, {"sum": ["n", 2]})
    ports = [port("x", [None, 2], "audio", field="x", steps=[MONO, FRAMES]), port("y", [None, 2], field="y")]
    model = model_of(job, ports, [port("sum", [None, 2])])
    samples = samples_of(x=np.arange(6, dtype=np.float32).reshape(1, 6), y=np.asarray([[10, 20]], np.float32))
    _, (found,) = predicted(model, tmp_path, samples)
    # Without a reduction all calls are kept, on the first axis.
    np.testing.assert_array_equal(found["sum"], [[10, 21], [12, 23], [14, 25]])


def test_inputs_with_frames_have_as_many_and_a_sample_has_one(job: dict[str, Any], tmp_path: Path) -> None:
    ports = [port(name, [None, 2], "audio", field=name, steps=[MONO, FRAMES]) for name in ("x", "y")]
    model = model_of(job, ports, [port("sum", [None, 2])])
    pipeline = Pipeline(model, tmp_path)
    for width, message in ((4, r"3 frames \(x\), 2 frames \(y\)"), (0, "no frame of 2 in 0 samples")):
        samples = samples_of(x=np.zeros((1, 6), np.float32), y=np.zeros((1, width), np.float32))
        with pytest.raises(Failure, match=message) as caught:
            pipeline.prepare(samples, 0)
        assert caught.value.kind == "step"


@pytest.mark.parametrize(
    ("dtype", "reduce", "expected", "found"),
    [
        ("int8", "mean", [1.5, 3], "float32"),
        ("int8", "max", [3, 4], "int8"),
        ("float64", "mean", [1.5, 3], "float64"),
        ("float32", "last", [3, 4], "float32"),
    ],
)
def test_a_reduction_keeps_the_type_but_for_the_mean_of_integers(
    job: dict[str, Any], tmp_path: Path, dtype: str, reduce: str, expected: list[float], found: str
) -> None:
    ports = [port("x", [None, 2], "audio", steps=[MONO, FRAMES])]
    model = model_of(job, ports, [{"name": "y", "type": "tensor", "dtype": dtype, "reduce": reduce}])
    calls = [{"y": np.asarray(values, dtype)} for values in ([0, 2], [3, 4])]
    reduced = Pipeline(model, tmp_path).combine(calls)["y"]
    assert (reduced.tolist(), str(reduced.dtype)) == (expected, found)


def test_answers_of_several_shapes_are_no_prediction(job: dict[str, Any], tmp_path: Path) -> None:
    ports = [port("x", [None, 2], "audio", steps=[MONO, FRAMES])]
    model = model_of(job, ports, [{"name": "y", "type": "tensor", "dtype": "float32", "reduce": "max"}])
    with pytest.raises(Failure, match=r"output y, the answers to 2 calls: ValueError") as caught:
        Pipeline(model, tmp_path).combine([{"y": np.zeros(2)}, {"y": np.zeros(3)}])
    assert caught.value.kind == "predict"


def test_a_tensor_is_fed_by_numbers_alone(job: dict[str, Any], tmp_path: Path) -> None:
    model = model_of(job, [port("x", [None, 2])], [port("y", [None, 2])])
    for source, message in ((b"RIFF", "an encoded file"), ("words", "a text")):
        samples = Samples(lambda _number, given=source: {"x": given}, ["a"], None, frozenset(("x",)))  # type: ignore[misc]
        with pytest.raises(Failure, match=f"input x: its type is tensor, but the dataset has {message}"):
            Pipeline(model, tmp_path).prepare(samples, 0)


def test_a_state_that_changes_its_shape_is_refused(job: dict[str, Any], tmp_path: Path) -> None:
    model = remembering(job, tmp_path, "never")
    nodes = [helper.make_node("Add", ["x", "before"], ["total"]), helper.make_node("Shape", ["x"], ["after"])]
    graph(tmp_path, nodes, {"x": ["n", 2], "before": ["n", 2]}, {"total": ["n", 2]})
    with pytest.raises(ValueError, match=r"output after is int64 \[2\], but state before is float32 \[1, 2\]"):
        predicted(model, tmp_path, samples_of(x=np.ones((2, 2), np.float32)))


def test_a_state_has_no_free_axis_and_comes_from_a_state(job: dict[str, Any], tmp_path: Path) -> None:
    model = remembering(job, tmp_path, "never")
    job["model"]["inputs"][1]["shape"] = [None, "width"]
    with pytest.raises(Failure, match="input before: a state starts as zeros, so its shape cannot have a dynamic axis"):
        Session(Reference(tmp_path / "model.onnx", ["total"]), parse_job({**job, "metrics": []}).model)
    job["model"]["inputs"][1]["from"] = "total"
    with pytest.raises(JobError, match=r"model.inputs\[1\].from: 'total' is not an output of type state"):
        parse_job({**job, "metrics": []})
    assert model.prediction_outputs[0].name == "total"


def test_between_a_plain_models_caller_and_its_predictor_is_nothing(job: dict[str, Any], tmp_path: Path) -> None:
    model = mixed(job, tmp_path)
    predictor = Reference(tmp_path / "model.onnx", ["sum"])
    plain = parse_job({**job, "metrics": []} | {"model": job["model"] | {"inputs": job["model"]["inputs"][:2]}}).model
    assert Session(predictor, plain).predict == predictor.predict
    assert Session(predictor, model).predict != predictor.predict
