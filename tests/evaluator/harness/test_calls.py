"""Several inputs and outputs, constants, states and several calls a sample, with real graphs of ONNX."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from evaluator.harness.calling import Session, query
from evaluator.harness.datasets import Samples
from evaluator.harness.failures import Failure
from evaluator.harness.job import Model
from evaluator.harness.pipeline import Pipeline, Prediction
from evaluator.harness.reading import parse_job
from evaluator.harness.tables import JobError
from tests.evaluator.harness.predictors.reference import Reference

FLOAT = TensorProto.FLOAT
FRAMES: dict[str, Any] = {"frame": {"length": 2, "step": 2, "pad_start": 0, "pad_end": False, "calls": "each"}}


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
        ({"dtype": "uint8", "value": 256}, "input k, value: ValueError: 256 is no uint8"),
        ({"dtype": "int32", "value": 0.5}, "input k, value: ValueError: 0.5 is no int32"),
        ({"value": [1]}, r"its shape is \[1\], the manifest says \[\]"),
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
    with pytest.raises(Failure, match="input a: it names no field, and the dataset has left, right"):
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


def test_a_state_that_changes_its_shape_is_refused(job: dict[str, Any], tmp_path: Path) -> None:
    model = remembering(job, tmp_path, "never")
    nodes = [helper.make_node("Add", ["x", "before"], ["total"]), helper.make_node("Shape", ["x"], ["after"])]
    graph(tmp_path, nodes, {"x": ["n", 2], "before": ["n", 2]}, {"total": ["n", 2]})
    with pytest.raises(ValueError, match=r"output after gives int64 \[2\], and the state before is float32 \[1, 2\]"):
        predicted(model, tmp_path, samples_of(x=np.ones((2, 2), np.float32)))


def test_a_state_has_no_free_axis_and_comes_from_a_state(job: dict[str, Any], tmp_path: Path) -> None:
    model = remembering(job, tmp_path, "never")
    job["model"]["inputs"][1]["shape"] = [None, "width"]
    with pytest.raises(Failure, match="input before: a state begins with zeros, and its shape has a free axis"):
        Session(Reference(tmp_path / "model.onnx", ["total"]), parse_job({**job, "metrics": []}).model)
    job["model"]["inputs"][1]["from"] = "total"
    with pytest.raises(JobError, match=r"model.inputs\[1\].from: 'total' is no output of type state"):
        parse_job({**job, "metrics": []})
    assert model.predicted[0].name == "total"


def test_between_a_plain_models_caller_and_its_predictor_is_nothing(job: dict[str, Any], tmp_path: Path) -> None:
    model = mixed(job, tmp_path)
    predictor = Reference(tmp_path / "model.onnx", ["sum"])
    plain = parse_job({**job, "metrics": []} | {"model": job["model"] | {"inputs": job["model"]["inputs"][:2]}}).model
    assert Session(predictor, plain).predict == predictor.predict
    assert Session(predictor, model).predict != predictor.predict
