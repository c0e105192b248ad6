"""Models with the metadata of the Hugging Face Hub: beside a file, and in a repository of a Hub on this machine."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from onnx import ModelProto, TensorProto, helper

from benchlock.artifacts.digest import digest_bytes, to_hex
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.artifacts.sources import Hub, HubSource, NetworkPolicy, SourceAccess, parse_hub_repository
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.publishing.drafts import read_draft
from benchlock.registry.publishing.publication import publish
from benchlock.registry.scaffold.hub_model import scaffold_hub_model
from benchlock.registry.scaffold.manifest_scaffold import ManifestScaffold, scaffold_manifest
from benchlock.registry.text.yaml import read_yaml
from tests.support.registry import graphs, tflite
from tests.support.servers.hub import HubServer, serving_hub
from tests.support.servers.web import status

SWIFT = NetworkPolicy(pauses=(0.01,) * 3)
CONFIG = {"architectures": ["ViTForImageClassification"], "model_type": "vit", "id2label": {"0": "cat", "1": "dog"}}
VIT = {
    "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "ViTImageProcessor", "image_std": [0.5, 0.5, 0.5], "resample": 2,
    "rescale_factor": 0.00392156862745098, "size": {"height": 224, "width": 224},
}  # fmt: skip
RESNET = {
    "crop_pct": 0.875, "do_normalize": True, "do_resize": True, "feature_extractor_type": "ConvNextFeatureExtractor",
    "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], "resample": 3, "size": 224,
}  # fmt: skip
CLIP = {
    "crop_size": {"height": 224, "width": 224}, "do_center_crop": True, "do_convert_rgb": True, "do_normalize": False,
    "do_resize": True, "image_processor_type": "CLIPImageProcessor", "resample": 3, "rescale_factor": 0.5,
    "size": {"shortest_edge": 224}, "image_mean": [0.5, 0.5, 0.5],
}  # fmt: skip
DECODE = {"decode": {"color": "RGB"}}
FIRST = {"transpose": {"layout": "NCHW"}}
HALVES = {"normalize": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}}
CARD = b"---\nlicense: apache-2.0\ntags: [vision]\n---\n# Net\n"


def classifier(axes: tuple[str | int, ...] = ("batch_size", "num_channels", "height", "width")) -> ModelProto:
    """A graph as the Hub's exporter writes it: its axes are free, and a convolution reads the pixels."""
    given = helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, axes)
    found = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", 2])
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4, 3, 16, 16], bytes(4 * 4 * 3 * 256), raw=True)
    nodes = [
        helper.make_node("Shape", ["pixel_values"], ["sizes"]),
        helper.make_node("Cast", ["pixel_values"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Conv", ["cast", "w"], ["patches"]),
        helper.make_node("Gemm", ["patches", "w"], ["logits"]),
    ]
    graph = helper.make_graph(nodes, "net", [given], [found], initializer=[weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=7)


MODEL = classifier().SerializeToString()


def written(folder: Path, *, model: bytes = MODEL, **documents: object) -> ManifestScaffold:
    """The manifest of a model in a folder with metadata; ``preprocessor_config`` names the file with that stem."""
    (folder / "net.onnx").write_bytes(model)
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return scaffold_manifest("model", folder / "net.onnx", folder)


def manifest(scaffold: ManifestScaffold) -> Any:  # noqa: ANN401 - YAML
    return read_yaml(scaffold.text, "manifest.yaml").value


def test_the_metadata_beside_a_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(CARD)
    scaffold = written(tmp_path, config=CONFIG, preprocessor_config=VIT)
    document = manifest(scaffold)
    assert (document["task"], document["license"]) == ("image-classification", "Apache-2.0")
    assert document["framework"] == {"name": "onnxruntime", "version": ">=1.8 <2"}
    port = document["inputs"][0]
    assert (port["type"], port["layout"], port["shape"]) == ("image", "NCHW", [None, "num_channels", "height", "width"])
    assert document["outputs"] == [
        {"name": "logits", "type": "class-scores", "labels": "labels.txt", "label_offset": 0, "dtype": "float32",
         "shape": [None, 2]}
    ]  # fmt: skip
    assert document["files"][1] == {"path": "labels.txt", "role": "labels", "source": "./net.labels.txt"}
    assert scaffold.files == {"net.labels.txt": "cat\ndog\n"}
    assert [finding.path for finding in scaffold.findings if finding.todo] == ["inputs[0].steps"]  # exif
    told = {finding.path: finding.what for finding in scaffold.findings if not finding.todo}
    assert told["framework.version"] == "opset 14 and IR version 7 need onnxruntime 1.8 or newer"
    assert told["task"] == "config.json has the architecture ViTForImageClassification"


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (VIT, [
            {"resize": {"size": [224, 224], "method": "bilinear", "antialias": True}},
            {"scale": {"factor": 0.00392156862745098}}, HALVES, FIRST,
        ]),
        (VIT | {"size": 384, "do_rescale": False}, [
            {"resize": {"size": [384, 384], "method": "bilinear", "antialias": True}}, HALVES, FIRST,
        ]),
        (RESNET, [
            {"resize": {"shorter": 256, "rounding": "down", "method": "bicubic", "antialias": True}},
            {"center_crop": {"size": [224, 224], "offset": "down"}},
            {"scale": {"factor": 1 / 255}},
            {"normalize": {"mean": RESNET["image_mean"], "std": RESNET["image_std"]}}, FIRST,
        ]),
        (RESNET | {"size": {"shortest_edge": 384}, "do_normalize": False}, [
            {"resize": {"size": [384, 384], "method": "bicubic", "antialias": True}},
            {"scale": {"factor": 1 / 255}}, FIRST,
        ]),
        (CLIP, [
            {"resize": {"shorter": 224, "rounding": "down", "method": "bicubic", "antialias": True}},
            {"center_crop": {"size": [224, 224], "offset": "down"}}, {"scale": {"factor": 0.5}}, FIRST,
        ]),
        (VIT | {"do_resize": False, "do_rescale": False, "do_normalize": False},
         [{"cast": {"dtype": "float32"}}, FIRST]),
    ],
)  # fmt: skip
def test_the_settings_of_an_image_processor_become_steps(
    settings: Mapping[str, Any], steps: list[Any], tmp_path: Path
) -> None:
    document = manifest(written(tmp_path, config=CONFIG, preprocessor_config=settings))
    assert document["inputs"][0]["steps"] == [DECODE, *steps]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"image_processor_type": "NewImageProcessor"}, "the processor NewImageProcessor is not known here"),
        ({"image_processor_type": 3}, "it does not name its image processor"),
        ({"do_flip_channel_order": True, "do_pad": True}, "the settings do_flip_channel_order, do_pad"),
        ({"resample": 5}, "the resample 5"),
        ({"resample": None}, "the resample null"),
        ({"size": {"longest_edge": 10}}, 'the size {"longest_edge": 10}'),
        ({"size": {"shortest_edge": 10, "longest_edge": 20}}, "the size "),
        ({"size": True}, "the size true"),
        ({"image_mean": None}, "it does not state image_mean and image_std"),
        ({"image_std": [0, 1, 1]}, "it does not state image_mean and image_std"),
        ({"rescale_factor": "1/255"}, "the rescale_factor 1/255"),
        ({"do_resize": "yes"}, "do_resize is yes"),
        ({"image_processor_type": "CLIPImageProcessor"}, "it does not state do_center_crop"),
        ({"image_processor_type": "CLIPImageProcessor", "do_center_crop": True}, "the crop_size null"),
        ({"do_center_crop": True, "crop_size": 32}, "do_center_crop is true, which releases"),
        ({"image_processor_type": "BeitImageProcessor"}, "it does not state do_center_crop"),
        ({"image_processor_type": "CLIPImageProcessor", "do_center_crop": None}, "it does not state do_center_crop"),
        ({"image_processor_type": "ConvNextImageProcessor", "do_center_crop": True}, "do_center_crop is true, which"),
        ({"image_processor_type": "ConvNextImageProcessor"}, "the size "),
        ({"image_processor_type": "ConvNextImageProcessor", "size": 224}, "it does not state crop_pct"),
    ],
)
def test_what_is_not_known_of_an_image_processor_is_asked_for(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    scaffold = written(tmp_path, config=CONFIG, preprocessor_config={**VIT, **changes})
    assert "steps" not in manifest(scaffold)["inputs"][0]
    asked = [finding.what for finding in scaffold.findings if finding.todo and finding.path == "inputs[0].steps"]
    assert len(asked) == 1
    assert asked[0].startswith("preprocessor_config.json is not converted: ")
    assert reason in asked[0]


@pytest.mark.parametrize("dtype", [TensorProto.INT8, TensorProto.UINT8])
def test_steps_of_a_quantized_input_are_asked_for(dtype: "TensorProto.DataType", tmp_path: Path) -> None:
    """Normalized pixels would be cast to -2 … 2."""
    model = graphs.graph({"x": (dtype, ("n", 3, 224, 224))})
    scaffold = written(tmp_path, model=model, config=CONFIG, preprocessor_config=VIT)
    assert "steps" not in manifest(scaffold)["inputs"][0]
    assert "so its pixels are quantized" in scaffold.text


def test_a_processor_of_tensors_is_to_be_confirmed(tmp_path: Path) -> None:
    changed = VIT | {"image_processor_type": "ViTImageProcessorFast"}
    assert "# TODO confirm: ViTImageProcessorFast resizes by torchvision" in written(
        tmp_path, config=CONFIG, preprocessor_config=changed
    ).text  # fmt: skip


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["ViTModel"], "id2label": {"0": "cat", "1": "dog"}},
        {"id2label": {"0": "cat", "1": "dog"}, "name": "another program"},
    ],
)
def test_a_configuration_without_a_task_infers_no_scores(config: Mapping[str, Any], tmp_path: Path) -> None:
    document = manifest(written(tmp_path, config=config))
    assert "task" not in document
    assert "type" not in document["outputs"][0]
    assert [file["path"] for file in document["files"]] == ["net.onnx"]


@pytest.mark.parametrize(
    "names",
    [
        {"0": "cat"}, {"0": "cat", "2": "dog"}, {"0": "cat", "1": ""}, {"0": "cat", "1": "a\nb"}, {"0": 1, "1": 2}, [],
        {"0": "a", "1": "b", "2": "c"}, {"0": "LABEL_0", "1": "LABEL_1"},
    ],
)  # fmt: skip
def test_names_that_are_not_those_of_all_classes_are_not_written(names: object, tmp_path: Path) -> None:
    scaffold = written(tmp_path, config={**CONFIG, "id2label": names})
    assert not scaffold.files
    assert "label_offset" not in manifest(scaffold)["outputs"][0]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"a": ' + b"[" * 100_000, b'"' + b"x" * (4 << 20) + b'"', b"\xff"])
def test_damaged_metadata_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"config\.json (is not|has more)"):
        written(tmp_path)


@pytest.mark.parametrize(("operation", "type_"), [("Softmax", "class-scores"), ("Sigmoid", None), ("Identity", None)])
def test_a_softmax_at_the_end_gives_class_scores(operation: str, type_: str | None, tmp_path: Path) -> None:
    model = graphs.model(operation=operation)
    document = manifest(written(tmp_path, model=model.SerializeToString()))
    assert document["outputs"][0].get("type") == type_
    assert "label_offset" not in document["outputs"][0]


@pytest.mark.parametrize(
    ("axes", "layout"),
    [
        (("n", 3, 224, 224), "NCHW"), (("n", 224, 224, 3), "NHWC"), (("n", 1, 8, 8), "NCHW"), (("n", 8, 8, 1), "NHWC"),
        (("n", 3, 8, 3), None), (("n", 3, 1, 8), None), (("n", "c", "h", "w"), None), (("n", 8, 8, 8), None),
        (("n", 3, 8), None),
    ],
)  # fmt: skip
def test_the_layout_follows_from_the_only_axis_of_channels(
    axes: tuple[str | int, ...], layout: str | None, tmp_path: Path
) -> None:
    model = graphs.graph({"x": (TensorProto.FLOAT, axes)})
    assert manifest(written(tmp_path, model=model))["inputs"][0].get("layout") == layout


def test_the_layout_follows_from_a_transposition(tmp_path: Path) -> None:
    model = graphs.model({"x": (TensorProto.FLOAT, ["n", "a", "b", "c"])}, operation="Transpose")
    model.graph.node[0].attribute.append(helper.make_attribute("perm", [0, 3, 1, 2]))
    assert manifest(written(tmp_path, model=model.SerializeToString()))["inputs"][0]["layout"] == "NHWC"


@pytest.mark.parametrize(
    ("last", "type_", "first", "layout"),
    [(25, "class-scores", 3, "NHWC"), (14, None, 18, None), (999, None, 4, "NHWC"), (6, None, 99, None)],
)
def test_operations_of_tflite_tell_layout_and_scores(
    last: int, type_: str | None, first: int, layout: str | None, tmp_path: Path
) -> None:
    ports = [tflite.tensor("x", [1, 5, 5, 5])], [tflite.tensor("y", [1, 2])]
    (tmp_path / "net.tflite").write_bytes(tflite.graph(*ports, [(first, [0], [0]), (last, [0], [1])]))
    document = manifest(scaffold_manifest("model", tmp_path / "net.tflite", tmp_path))
    assert document["inputs"][0].get("layout") == layout
    assert document["outputs"][0].get("type") == type_


@pytest.mark.parametrize(
    ("opset", "ir_version", "domain", "version"),
    [(17, 8, "", ">=1.12 <2"), (17, 10, "", ">=1.18 <2"), (21, 8, "", ">=1.18 <2"), (99, 8, "", None),
     (17, 99, "", None), (17, 8, "com.microsoft", None), (17, 8, "ai.onnx", ">=1.12 <2")],
)  # fmt: skip
def test_the_oldest_runtime_follows_from_opset_and_format(
    opset: int, ir_version: int, domain: str, version: str | None, tmp_path: Path
) -> None:
    model = graphs.model()
    model.ir_version, model.opset_import[0].version, model.graph.node[0].domain = ir_version, opset, domain
    scaffold = written(tmp_path, model=model.SerializeToString())
    assert manifest(scaffold)["framework"].get("version") == version


@pytest.fixture
def hub() -> Iterator[HubServer]:
    """A Hub with a model: its graph in LFS, the rest in git."""
    with serving_hub() as running:
        running.repo.lfs = frozenset({"onnx/model.onnx"})
        running.repo.commits["c" * 40] = {
            "onnx/model.onnx": MODEL,
            "config.json": json.dumps(CONFIG).encode(),
            "preprocessor_config.json": json.dumps(VIT).encode(),
            "README.md": CARD,
            "training_args.bin": b"pickle",
        }
        running.repo.revisions["main"] = "c" * 40
        yield running
        huggingface_hub.close_session()


def source(hub: HubServer, text: str) -> HubSource:
    return parse_hub_repository(text, Hub(hub.web.origin), SWIFT)


def finish(text: str) -> str:
    """The manifest with an answer to the only open question."""
    return "\n".join(
        line.partition("# TODO exif")[0] + "exif: ignore" if "# TODO exif" in line else line
        for line in text.splitlines()
    )


@pytest.mark.parametrize("text", ["hf:org/net@main", "hf:org/net", "hf://org/net@main/onnx/model.onnx"])
def test_a_repository_is_pinned_and_published(
    text: str, hub: HubServer, tmp_path: Path, store: LocalStore, catalogue: Catalogue
) -> None:
    kept = list[tuple[bytes, str]]()
    scaffold = scaffold_hub_model(
        source(hub, text), tmp_path, keep=lambda path, digest: kept.append((path.read_bytes(), digest))
    )
    assert kept == [(MODEL, digest_bytes(MODEL))]
    document = manifest(scaffold)
    assert (document["name"], document["license"]) == ("net", "Apache-2.0")
    assert document["files"][0] == {
        "path": "model.onnx", "role": "graph", "source": f"hf://org/net@{'c' * 40}/onnx/model.onnx",
        "sha256": to_hex(digest_bytes(MODEL)), "size": len(MODEL),
    }  # fmt: skip
    for name, content in scaffold.files.items():
        (tmp_path / name).write_text(content)
    access = SourceAccess(SWIFT, Hub(hub.web.origin))
    draft = read_draft(finish(scaffold.text), "manifest.yaml", tmp_path / "manifest.yaml", access)
    assert publish(draft, store, catalogue).changed


def test_of_several_model_files_one_is_to_be_chosen(hub: HubServer, tmp_path: Path) -> None:
    files = hub.repo.commits["c" * 40]
    files |= {"model.safetensors": b"weights", "onnx/model_quantized.onnx": MODEL}
    with pytest.raises(InvalidInputError, match=r"3 model files: model\.safetensors, onnx/model\.onnx, ") as caught:
        scaffold_hub_model(source(hub, "hf:org/net@main"), tmp_path)
    assert caught.value.next_step == "choose one, such as hf:org/net@main/model.safetensors"
    scaffold = scaffold_hub_model(source(hub, "hf:org/net@main/onnx/model_quantized.onnx"), tmp_path)
    assert manifest(scaffold)["files"][0]["path"] == "model_quantized.onnx"


@pytest.mark.parametrize(
    ("text", "change", "error", "message"),
    [
        ("hf:org/net@v9", None, InvalidInputError, "has no revision v9"),
        ("hf:org/other@main", None, InvalidInputError, "no accessible model org/other"),
        ("hf:org/net@main/gone.onnx", None, InvalidInputError, "has no file gone.onnx"),
        ("hf:org/net@main", lambda hub: hub.repo.commits.update({"c" * 40: {"a": b""}}), InvalidInputError,
         "has no model file in a supported format"),
        ("hf:org/net@main", lambda hub: setattr(hub.web, "otherwise", status(503)), UnavailableError, "it answers 503"),
        ("hf:org/net@main",
         lambda hub: hub.repo.commits["c" * 40].update({"config.json": b" " * (5 << 20)}), InvalidInputError, "larger"),
        ("hf:org/net@main", lambda hub: hub.repo.commits.update({"c" * 40: {"../x.onnx": MODEL}}), InvalidInputError,
         "path"),
    ],
)  # fmt: skip
def test_a_repository_that_cannot_be_read_is_refused(
    text: str,
    change: Callable[[HubServer], None] | None,
    error: type[BenchlockError],
    message: str,
    hub: HubServer,
    tmp_path: Path,
) -> None:
    if change:
        change(hub)
    with pytest.raises(error, match=message):
        scaffold_hub_model(source(hub, text), tmp_path)


@pytest.mark.parametrize("text", ["hf:", "hf:net", "hf:datasets/org/net", "hf:org/net@main/../x", "hf:org/net@a@b"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_hub_repository(text, Hub(), SWIFT)
