"""TensorFlow's metadata as rows: a small network as it is recorded, in objects with the names of the messages."""

from collections.abc import Sequence
from types import SimpleNamespace as Message

import pytest

from benchlock.evaluator.harness.tracing.tensorflow import convert, find_constants, list_operations

FLOAT = 1
OFFSET = 1_795_462_000_000_000_000


def node(name: str, op: str, *inputs: str, **attributes: Message) -> Message:
    return Message(name=name, op=op, input=list(inputs), attr=attributes)


GRAPH = [
    node("_arg_x", "_Arg"),
    node("filter", "Const"),
    node("bias", "Const"),
    node("weights/read", "ReadVariableOp", "weights"),
    node("weights", "VarHandleOp"),
    node("conv/BiasAdd", "_MklNativeFusedConv2D", "_arg_x", "filter", "bias", "^filter"),
    node("mix", "DepthwiseConv2dNative", "conv/BiasAdd", "spread"),
    node("spread", "Const"),
    node("dense", "MatMul", "mix", "weights/read", transpose_b=Message(b=True)),
    node("_retval", "_Retval", "dense"),
]
SOURCE = [
    node("x", "Placeholder"),
    node("filter", "Const"),
    node("bias", "Const"),
    node("conv", "Conv2D", "x", "filter"),
    node("conv/BiasAdd", "BiasAdd", "conv", "bias"),
    node("mix", "DepthwiseConv2dNative", "conv/BiasAdd", "spread"),
    node("dense", "MatMul", "mix", "weights/read"),
]
SHAPES: dict[str, Sequence[int]] = {
    "_SOURCE": (), "_arg_x": (1, 8, 8, 3), "filter": (3, 3, 3, 4), "bias": (4,), "weights": (),
    "weights/read": (5, 256), "conv/BiasAdd": (1, 8, 8, 4), "spread": (3, 3, 4, 1), "mix": (1, 8, 8, 4),
    "dense": (1, 5), "_retval": (1, 5),
}  # fmt: skip
TYPES = {entry.name: entry.op for entry in GRAPH}


def stats(name: str, start: int, elapsed: int) -> Message:
    """What a device says of an operator; the label has its type."""
    shape = Message(unknown_rank=False, dim=[Message(size=size) for size in SHAPES[name]])
    is_silent = name in ("_SOURCE", "_retval")
    return Message(
        node_name=name,
        timeline_label=f"{name} = {TYPES.get(name, 'NoOp')}()",
        all_start_nanos=OFFSET + start,
        op_start_rel_nanos=40,
        op_end_rel_nanos=40 + elapsed,
        output=[] if is_silent else [Message(slot=0, tensor_description=Message(dtype=FLOAT, shape=shape))],
        memory=[Message(total_bytes=1024), Message(total_bytes=256)] if name == "conv/BiasAdd" else [],
    )


def metadata(start: int, names: Sequence[str] = tuple(SHAPES)) -> Message:
    """The metadata of a call whose operators start 100 ns after each other and take 10, 11, … ns."""
    entries = [stats(name, start + 100 * number, 10 + number) for number, name in enumerate(names)]
    return Message(
        step_stats=Message(dev_stats=[Message(node_stats=entries)]), SerializeToString=f"call {start}".encode
    )


def test_operators_are_rows_with_times() -> None:
    profile = convert([metadata(5_000), metadata(9_000)], GRAPH, SOURCE)
    assert [row.type for row in profile.rows] == [TYPES.get(name, "NoOp") for name in SHAPES]
    assert profile.starts[:, 0].tolist() == [OFFSET + 5_040, OFFSET + 9_040]
    assert profile.durations.tolist() == [list(range(10, 10 + len(SHAPES)))] * 2
    assert (profile.incomplete, profile.start_source) == (None, "measured")
    assert profile.native == b"".join(len(text).to_bytes(8, "little") + text for text in (b"call 5000", b"call 9000"))


def test_rows_have_shapes_roles_and_memory() -> None:
    rows = {row.name: row for row in convert([metadata(5_000)], GRAPH, SOURCE).rows}
    conv = rows["conv/BiasAdd"]
    assert [(tensor.shape, tensor.dtype, tensor.role) for tensor in conv.inputs] == [
        ((1, 8, 8, 3), "float32", "data"),
        ((3, 3, 3, 4), "float32", "weight"),
        ((4,), "float32", "bias"),
    ]
    assert [tensor.shape for tensor in conv.outputs] == [(1, 8, 8, 4)]
    assert (conv.attributes, conv.allocated_bytes) == ({"weight_format": "HWIO"}, 1280)
    assert rows["mix"].attributes == {"weight_format": "HWIM"}
    assert rows["dense"].attributes == {"weight_format": "OI"}
    assert rows["dense"].inputs[1].role == "weight"
    assert rows["dense"].allocated_bytes == 0


def test_a_fused_operator_names_the_operators_of_the_model() -> None:
    rows = {row.name: row.source_names for row in convert([metadata(5_000)], GRAPH, SOURCE).rows}
    assert rows["conv/BiasAdd"] == ("conv", "conv/BiasAdd")
    assert rows["mix"] == ("mix",)
    assert rows["_arg_x"] == rows["_SOURCE"] == ()


def test_another_order_of_execution_is_the_same_row_set() -> None:
    names = list(SHAPES)
    other = metadata(9_000, [names[0], *names[3:5], *names[1:3], *names[5:]])
    profile = convert([metadata(5_000), other], GRAPH, SOURCE)
    assert profile.incomplete is None
    assert profile.starts[1].tolist()[:5] == [OFFSET + start for start in (9_040, 9_340, 9_440, 9_140, 9_240)]


def test_a_call_that_lacks_an_operator_makes_the_profile_incomplete() -> None:
    calls = [metadata(5_000), metadata(6_000), metadata(7_000, list(SHAPES)[:-1])]
    profile = convert(calls, GRAPH, SOURCE)
    assert profile.incomplete == "1 of 3 calls have other rows; rows per call: [10, 11]"
    assert set(profile.starts[2].tolist()) == set(profile.durations[2].tolist()) == {-1}


def test_notes_say_whose_graph_it_is_and_that_onednn_decides_types() -> None:
    assert len(convert([metadata(5_000)], GRAPH, SOURCE).notes) == 2
    plain = [node(entry.name, entry.op.removeprefix("_MklNative"), *entry.input, **entry.attr) for entry in GRAPH]
    (note,) = convert([metadata(5_000)], plain, SOURCE).notes
    assert "rows are those of a Session" in note


def test_no_operator_is_an_error() -> None:
    with pytest.raises(ValueError, match="recorded no operator"):
        convert([metadata(5_000, [])], GRAPH, SOURCE)


def test_constants_depend_on_no_input() -> None:
    nodes = {entry.name: entry for entry in GRAPH}
    assert find_constants(nodes) == {"filter", "bias", "weights", "weights/read", "spread"}


class Shape:
    """A static shape as TensorFlow has it."""

    def __init__(self, sizes: Sequence[int | None] | None) -> None:
        self.rank = None if sizes is None else len(sizes)
        self.sizes = sizes

    def as_list(self) -> list[int | None]:
        assert self.sizes is not None
        return list(self.sizes)


def operation(entry: Message, shape: Sequence[int | None] | None) -> Message:
    outputs = [] if entry.op == "NoOp" else [Message(shape=Shape(shape), dtype=Message(name="float32"))]
    return Message(name=entry.name, node_def=entry, outputs=outputs)


def test_a_graph_lists_the_operators_of_the_model_without_constants() -> None:
    shapes: list[Sequence[int | None] | None] = [(1, 8, 8, 3), (3, 3, 3, 4), (4,), (1, 8, 8, 4), (1, 8, 8, 4)]
    operations = [operation(entry, shape) for entry, shape in zip(SOURCE, shapes, strict=False)]
    operations += [operation(node("ready", "NoOp"), None), operation(node("out", "Identity", "conv/BiasAdd"), None)]
    graph = list_operations(operations)
    assert [row.type for row in graph.rows] == ["Conv2D", "BiasAdd", "Identity"]
    assert graph.rows[0].attributes == {"weight_format": "HWIO"}
    assert graph.rows[2].outputs[0].shape is None
    assert graph.parameters == 3 * 3 * 3 * 4 + 4
    assert graph.operators == {"BiasAdd": 1, "Const": 2, "Conv2D": 1, "Identity": 1, "NoOp": 1, "Placeholder": 1}
    assert graph.framework_flops is None
