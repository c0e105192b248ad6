"""The operators and constants of an ONNX file, compared with those that the library onnx reads."""

from pathlib import Path

import onnx
import pytest

from benchlock.evaluator.harness.tracing.onnx_file import read_onnx

DIGITS = Path(__file__).parents[4] / "examples" / "digits" / "models" / "digits.onnx"


def test_nodes_and_sizes_are_those_of_the_library() -> None:
    graph = onnx.load(DIGITS).graph
    nodes, parameters = read_onnx(DIGITS)
    assert [(node.name, node.type, node.inputs, node.outputs) for node in nodes] == [
        (node.name, node.op_type, tuple(node.input), tuple(node.output)) for node in graph.node
    ]
    assert parameters == sum(onnx.numpy_helper.to_array(tensor).size for tensor in graph.initializer)


@pytest.mark.parametrize(
    "content", [b"", b"\x3a\xff\x01abc", b"no model", b"\x3a"], ids=["empty", "cut", "text", "tag"]
)
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not an ONNX file"):
        read_onnx(path)


@pytest.mark.parametrize(
    ("name", "nodes", "parameters"),
    [
        ("resnet8_cifar10/resnet8_float.tf2onnx.onnx", {"Conv": 9, "Relu": 7, "Add": 4, "MatMul": 1}, 77_708),
        ("mobilenet_v1_025_224/mobilenet_v1_0.25_224_float.tf2onnx.onnx", {"Conv": 28, "Clip": 27}, 467_601),
        ("resnet8_cifar10/resnet8.nchw.onnx", {"Constant": 56, "Pad": 7, "Transpose": 7}, 77_706),
    ],
)
def test_real_models_have_their_published_operators(
    cases: Path, name: str, nodes: dict[str, int], parameters: int
) -> None:
    found, values = read_onnx(cases / "models" / name)
    types = [node.type for node in found]
    assert {kind: types.count(kind) for kind in nodes} == nodes
    assert values == parameters
