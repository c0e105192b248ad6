"""What a graph says is held against its manifest: names, types, shapes, external data, labels; of three formats."""

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.inspection.formats import model_graphs
from benchlock.registry.inspection.formats.graph_operations import trace_onnx, trace_tflite
from benchlock.registry.inspection.formats.model_graphs import GraphSignature, GraphTensor
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.publishing.drafts import read_draft
from benchlock.registry.publishing.publication import publish
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.registry import graphs, tflite
from tests.support.registry.digits import DIGITS

MODELS = DIGITS / "models"
MODEL = """\
schema: 1
kind: model
name: net
version: 1.0.0
license: Apache-2.0
task: image-classification
framework: {name: onnxruntime, version: "*"}
format: onnx
inputs:
  - name: x
    type: image
    dtype: float32
    shape: [null, 8, 8, 1]
    layout: NHWC
    steps: [{decode: {color: L, exif: ignore}}, {cast: {dtype: float32}}]
outputs:
  - {name: y, type: class-scores, dtype: float32, label_offset: 0}
files:
  - {path: net.onnx, role: graph, source: net.onnx}
"""
F32, I64 = TensorProto.FLOAT, TensorProto.INT64


@pytest.fixture
def found(tmp_path: Path, catalogue: Catalogue) -> Callable[..., list[BenchlockError]]:
    """Every problem of a manifest beside its files; none where it is published."""

    def publishing(text: str, **files: bytes) -> list[BenchlockError]:
        for name, content in files.items():
            (tmp_path / name.replace("_", ".")).write_bytes(content)
        try:
            draft = read_draft(text, "manifest.yaml", tmp_path / "manifest.yaml")
            publish(draft, MemoryStore(), catalogue)
        except InvalidInputError as error:
            assert catalogue.list() == ()
            return list(error.problems or (error,))
        return []

    return publishing


def told(problems: list[BenchlockError]) -> list[tuple[str, str]]:
    """Where each problem is, without the name of the file, and what it is."""
    return [(str(one.where).partition(" ")[0], one.what) for one in problems]


@pytest.mark.parametrize(
    ("inputs", "outputs", "where", "what"),
    [
        ({"z": (F32, ["n", 8, 8, 1])}, graphs.SCORES, "inputs[0].name", "the graph has no input 'x'"),
        (
            {**graphs.PICTURE, "z": (F32, [1])},
            graphs.SCORES,
            "inputs",
            "the graph has an input 'z', which the manifest",
        ),
        ({"x": (TensorProto.UINT8, ["n", 8, 8, 1])}, graphs.SCORES, "inputs[0].dtype", "is uint8, not float32"),
        ({"x": (F32, ["n", 1, 8, 8])}, graphs.SCORES, "inputs[0].shape", "[n, 1, 8, 8], not [null, 8, 8, 1]"),
        ({"x": (F32, ["n", 8, 8])}, graphs.SCORES, "inputs[0].shape", "has the shape [n, 8, 8], not"),
        ({"x": (F32, [1, 8, 8, 1])}, graphs.SCORES, "inputs[0].shape", "[1, 8, 8, 1], not [null, 8, 8, 1]"),
        (graphs.PICTURE, {"scores": (F32, ["n", 2])}, "outputs[0].name", "the graph has no output 'y'"),
        (graphs.PICTURE, {"y": (I64, ["n", 2])}, "outputs[0].dtype", "is int64, not float32"),
    ],
)
def test_a_manifest_that_its_graph_contradicts_is_refused(
    found: Callable[..., list[BenchlockError]], inputs: graphs.Ports, outputs: graphs.Ports, where: str, what: str
) -> None:
    problems = told(found(MODEL, net_onnx=graphs.graph(inputs, outputs)))
    assert any(place == where and what in said for place, said in problems), problems


@pytest.mark.parametrize(
    "inputs",
    [
        graphs.PICTURE,
        {"x": (F32, [None, None, None, None])},
        {"x": (F32, ["n", "height", "width", 1])},
        {"x": (F32, None)},
    ],
)
def test_what_a_graph_leaves_open_a_manifest_may_say(
    found: Callable[..., list[BenchlockError]], inputs: graphs.Ports
) -> None:
    assert found(MODEL, net_onnx=graphs.graph(inputs, {"y": (F32, None)})) == []


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (helper.make_sequence_type_proto(helper.make_tensor_type_proto(F32, [2])), "a sequence"),
        (helper.make_map_type_proto(I64, helper.make_tensor_type_proto(F32, [])), "a map"),
        (helper.make_optional_type_proto(helper.make_tensor_type_proto(F32, [2])), "optional"),
        (helper.make_sparse_tensor_type_proto(F32, [2]), "a sparse tensor"),
    ],
)
def test_an_output_that_is_no_tensor_is_refused(
    found: Callable[..., list[BenchlockError]], kind: onnx.TypeProto, word: str
) -> None:
    loaded = graphs.model()
    loaded.graph.output[0].type.CopyFrom(kind)
    assert told(found(MODEL, net_onnx=loaded.SerializeToString())) == [
        ("outputs[0].type", f"'y' is {word} in the graph, not a tensor")
    ]


def test_all_that_is_wrong_is_told_at_once(found: Callable[..., list[BenchlockError]]) -> None:
    """Rules of manifests, the licence and the graph; but for keys that do not fit, nothing stops the look."""
    text = MODEL.replace("name: net", "name: Net").replace("Apache-2.0", "none").replace("[null, 8, 8", "[null, 9, 8")
    text = text.replace(", label_offset: 0", "") + "  - {path: card.md, role: card, source: card.md}\n"
    problems = told(found(text, net_onnx=graphs.graph({"x": (I64, ["n", 8, 8, 1])}, {"z": (F32, ["n", 2])})))
    assert [where for where, _ in problems] == [
        "name", "outputs[0].label_offset", "files[1].source",
        "license", "inputs[0].dtype", "inputs[0].shape", "outputs[0].name",
    ]  # fmt: skip


def test_what_the_rules_of_manifests_tell_is_told_once(found: Callable[..., list[BenchlockError]]) -> None:
    text = MODEL.replace("label_offset: 0}", "label_offset: 0, labels: label.txt}")
    remote = "dvc://https://example.com/repo@v1/weights.bin"
    text += f"  - {{path: weights.bin, role: weights, source: '{remote}'}}\n"
    problems = told(found(text, net_onnx=graphs.graph(graphs.PICTURE, {"y": (F32, ["n", 2])})))
    assert [where for where, _ in problems] == ["files[1].sha256", "outputs[0].labels"]


def test_an_input_with_a_default_needs_no_feeding(found: Callable[..., list[BenchlockError]]) -> None:
    scale = helper.make_tensor("scale", F32, [1], [2.0])
    model = graphs.model({**graphs.PICTURE, "scale": (F32, [1])}, initial=[scale])
    assert found(MODEL, net_onnx=model.SerializeToString()) == []


@pytest.mark.parametrize(
    ("shape", "names", "message"),
    [
        (["n", 2], b"cat\ndog\n", None),
        (["n", 3], b"cat\ndog\n", "labels.txt has 2 class names, but the output y has 3 classes"),
        (["n", 1, 1, 2], b"cat\ndog\nindigo\n", "labels.txt has 3 class names, but the output y has 2 classes"),
        (None, b"cat\n", None),
        (["n", "classes"], b"cat\n", None),
        (["n", 2], b"\xff", "labels.txt is not UTF-8"),
    ],
)
def test_labels_are_as_many_as_the_classes(
    found: Callable[..., list[BenchlockError]], shape: list[int | str | None] | None, names: bytes, message: str | None
) -> None:
    text = MODEL.replace("label_offset: 0}", "label_offset: 0, labels: labels.txt}")
    text += "  - {path: labels.txt, role: labels, source: labels.txt}\n"
    problems = told(found(text, net_onnx=graphs.graph(outputs={"y": (F32, shape)}), labels_txt=names))
    assert [what for _, what in problems] == ([] if message is None else [message])


def external(location: str, *, offset: int = 0, length: int = 16) -> bytes:
    """A graph of one tensor of four numbers that lie elsewhere, in an inner graph of a node."""
    tensor = helper.make_tensor("w", F32, [4], np.arange(4, dtype=np.float32).tobytes(), raw=True)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    model = graphs.model()
    inner = helper.make_graph([], "inner", [], [], initializer=[tensor])
    model.graph.node.append(helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner))
    content: bytes = model.SerializeToString()
    return content


@pytest.mark.parametrize(
    ("location", "offset", "message"),
    [
        ("weights.bin", 0, None),
        ("gone.bin", 0, "the graph has weights in gone.bin, which is not in files"),
        ("../weights.bin", 0, "has a part . or .."),
        ("/etc/passwd", 0, "is absolute"),
        ("weights.bin", 8, "weights.bin has 16 bytes, but the graph reads 24 of them"),
    ],
)
def test_external_data_lies_where_the_graph_looks(
    found: Callable[..., list[BenchlockError]], location: str, offset: int, message: str | None
) -> None:
    text = MODEL + "  - {path: weights.bin, role: weights, source: weights.bin}\n"
    problems = told(found(text, net_onnx=external(location, offset=offset), weights_bin=bytes(16)))
    assert len(problems) == (message is not None), problems
    assert message is None or message in problems[0][1]


def test_a_file_that_cannot_be_taken_in_is_told_once(found: Callable[..., list[BenchlockError]]) -> None:
    text = MODEL.replace("label_offset: 0}", "label_offset: 0, labels: labels.txt}")
    text += "  - {path: labels.txt, role: labels, source: labels.txt}\n"
    assert told(found(text)) == [
        ("files[0].source", "net.onnx not found"), ("files[1].source", "labels.txt not found"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "where", "what"),
    [
        ("digits-tflite", ("serving_default_input:0", "input"), "inputs[0].name", "the graph has no input 'input'"),
        ("digits-tflite", ("[null, 8, 8, 1]", "[null, 1, 8, 8]"), "inputs[0].shape", "not [null, 1, 8, 8]"),
        ("digits-tflite", ("[null, 8, 8, 1]", "[2, 8, 8, 1]\n    batch_axis: 0"), "", ""),
        ("digits-savedmodel", ("name: scores", "name: output_0"), "outputs[0].name", "has no output 'output_0'"),
        ("digits-savedmodel", ("shape: [null, 10]", "shape: [null, 11]"), "outputs[0].shape", "not [null, 11]"),
        ("digits-savedmodel", ("serving_default", "serve"), "signature", "the SavedModel has no signature 'serve'"),
        ("digits-onnx", ("shape: [null, 10]", "shape: [null, 11]"), "outputs[0].shape", "not [null, 11]"),
    ],
)
def test_real_graphs_of_every_format_are_held_against_the_manifest(
    found: Callable[..., list[BenchlockError]], name: str, change: tuple[str, str], where: str, what: str
) -> None:
    text = (MODELS / f"{name}.yaml").read_text()
    assert change[0] in text
    text = text.replace("source: ./", f"source: {MODELS}/").replace("source: ../", f"source: {DIGITS}/")
    problems = told(found(text.replace(*change)))
    if where:
        assert any(place == where and what in said for place, said in problems), problems
    else:
        assert not any(place.startswith("inputs") for place, _ in problems), problems


@pytest.mark.parametrize(
    ("shape", "ranked", "sizes"),
    [([], False, None), (None, False, None), ([], True, ()), ([1, 10], False, (1, 10))],
    ids=["empty", "absent", "scalar", "known"],
)
def test_an_empty_shape_of_a_tflite_tensor_is_unknown_unless_it_is_a_scalar(
    shape: list[int] | None, ranked: bool, sizes: tuple[int, ...] | None
) -> None:
    content = tflite.graph([tflite.tensor("x", [1, 4])], [tflite.tensor("y", shape, ranked=ranked)])
    graph = model_graphs.read_tflite_graph(io.BytesIO(content), len(content))
    assert graph == GraphSignature((GraphTensor("x", "float32", (1, 4)),), (GraphTensor("y", "float32", sizes),))


TFLITE = """\
schema: 1
kind: model
name: net
version: 1.0.0
license: Apache-2.0
task: tensor
framework: {name: litert, version: "*"}
format: tflite
inputs: [{name: x, type: tensor, dtype: float32, shape: [null, 4]}]
outputs: [{name: y, type: tensor, dtype: float32, shape: [null, 7, 4]}]
files: [{path: net.tflite, role: graph, source: net.tflite}]
"""


def test_any_shape_is_published_where_a_tflite_graph_does_not_say_it(
    found: Callable[..., list[BenchlockError]],
) -> None:
    content = tflite.graph([tflite.tensor("x", [1, 4])], [tflite.tensor("y", [])])
    assert found(TFLITE, net_tflite=content) == []


@pytest.mark.parametrize(
    ("written", "step"),
    [
        ("[null, 99]", "write shape: [null, 10]"),
        ("[1, 99]", "write shape: [null, 10]"),
        ("[99]", "write shape: [null, 10]"),
    ],
)
def test_the_shape_to_write_is_the_one_that_the_graph_and_the_inputs_take(
    found: Callable[..., list[BenchlockError]], written: str, step: str
) -> None:
    content = tflite.graph([tflite.tensor("x", [1, 4])], [tflite.tensor("y", [1, 10])])
    problems = found(TFLITE.replace("[null, 7, 4]", written), net_tflite=content)
    assert step in [one.next_step for one in problems]
    assert found(TFLITE.replace("[null, 7, 4]", step.removeprefix("write shape: ")), net_tflite=content) == []


@pytest.mark.parametrize(
    ("sizes", "step"),
    [
        ([None, 10], "write shape: [null, 10]"),
        ([None, "time", None], "write shape: [null, time, axis_2], with null where the batch axis is"),
        ([2, "batch", 8], "write shape: [2, null, 8], with null where the batch axis is"),
        ([4, 10], "write shape: [4, 10], with batch_axis: none, or batch_axis: 0 if it is a batch of 4"),
        ([], "write shape: [], with batch_axis: none"),
    ],
)
def test_the_shape_of_an_onnx_graph_is_said_as_a_manifest_writes_it(
    found: Callable[..., list[BenchlockError]], sizes: list[Any], step: str
) -> None:
    text = MODEL.replace("float32, label_offset", "float32, shape: [null, 1, 2, 3, 4, 5], label_offset")
    problems = found(text, net_onnx=graphs.graph(outputs={"y": (F32, sizes)}))
    assert step in [one.next_step for one in problems]


def test_a_graph_is_read_without_holding_its_weights(tmp_path: Path) -> None:
    """Whatever lies behind the header of a field is passed over; so is a graph that breaks off in its weights."""
    weights = helper.make_tensor("w", F32, [1 << 16], bytes(1 << 18), raw=True)
    content = graphs.model(initial=[weights]).SerializeToString()
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with path.open("rb") as stream:
        graph = model_graphs.read_onnx_graph(stream, len(content))
    assert graph == GraphSignature(
        (GraphTensor("x", "float32", ("batch", 8, 8, 1)),), (GraphTensor("y", "float32", ("batch", 2)),)
    )
    onnx.load(path)


@pytest.mark.parametrize("end", [*range(0, 400, 7)])
def test_a_file_that_breaks_off_is_malformed_or_read(tmp_path: Path, end: int) -> None:
    readers: dict[Callable[[BinaryIO, int], object], str] = {
        model_graphs.read_onnx_graph: "digits.onnx",
        trace_onnx: "digits.onnx",
        model_graphs.read_tflite_graph: "digits.tflite",
        trace_tflite: "digits.tflite",
        model_graphs.read_signatures: "digits.savedmodel/saved_model.pb",
    }
    for reader, name in readers.items():
        content = (MODELS / name).read_bytes()
        for damaged in (content[:end], content[: end * 90], content[:end] + b"\xff\xff\xff" + content[end + 3 :]):
            (tmp_path / "damaged").write_bytes(damaged)
            with (tmp_path / "damaged").open("rb") as stream, suppress(MalformedError):
                reader(stream, len(damaged))
