"""Manifests outlined from files: golden texts, and each publishes once its TODO lines are done."""

import gzip
import io
import json
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pytest
from onnx import TensorProto, helper
from pyarrow import parquet
from safetensors.numpy import save

from benchlock.artifacts.digest import digest_bytes, to_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.artifact_names import Kind
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.publishing.drafts import read_draft
from benchlock.registry.publishing.publication import publish
from benchlock.registry.scaffold.manifest_scaffold import scaffold_manifest, suggest_file
from benchlock.registry.text.yaml import list_todos
from tests.support.registry import graphs, tflite
from tests.support.registry.digits import DIGITS
from tests.support.registry.idx_files import idx_file

CASES = Path(__file__).resolve().parents[2] / "cases" / "init"
STEPS = "steps: [{decode: {color: L, exif: ignore}}, {cast: {dtype: float32}}]"
NETWORK = "def network(weights):\n    raise NotImplementedError\n"


def digits(name: str) -> Callable[[Path], Path]:
    """A file or folder of the digits example, in the folder of a test."""

    def copied(folder: Path) -> Path:
        source = DIGITS / "models" / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
        return folder / name

    return copied


def external(folder: Path) -> Path:
    """A graph whose weights lie in another file."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4], np.arange(4, dtype=np.float32).tobytes(), raw=True)
    model = graphs.model(initial=[weights])
    onnx.save_model(model, folder / "tiny.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    return folder / "tiny.onnx"


def weights(folder: Path) -> Path:
    (folder / "tiny.safetensors").write_bytes(save({"w": np.ones((2, 3), np.float32), "b": np.ones(3, np.float16)}))
    (folder / "network.py").write_text(NETWORK)
    return folder / "tiny.safetensors"


def pictures(folder: Path) -> Path:
    (folder / "images").mkdir()
    for name in ("a.png", "b.png", "c.png"):
        (folder / "images" / name).write_bytes(name.encode())
    (folder / "test.csv").write_text("path,label\nimages/a.png,cat\nimages/b.png,dog\nimages/c.png,cat\n")
    (folder / "labels.txt").write_text("cat\ndog\n")
    return folder / "test.csv"


def folder_of_pictures(folder: Path, names: Sequence[str] = ("a.png", "b.png")) -> Path:
    for name in names:
        (folder / "animals" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "animals" / name).write_bytes(name.encode())
    (folder / "index.csv").write_text("path,label\nanimals/a.png,0\nanimals/b.png,1\n")
    return folder / "animals"


def folders_of_pictures(folder: Path) -> Path:
    return folder_of_pictures(folder, ("train/cat/a.png", "train/dog/b.png", "test/cat/c.png", "test/readme.txt"))


def hub_table(folder: Path) -> Path:
    """A table as the Hub's folders of pictures have it."""
    pictures = folder_of_pictures(folder)
    (folder / "index.csv").unlink()
    (pictures / "metadata.csv").write_text("file_name,label\na.png,0\nb.png,1\n")
    return pictures / "metadata.csv"


def coco_folder(folder: Path) -> Path:
    """The usual folders of COCO: annotations beside pictures."""
    annotations = coco(folder)
    (folder / "coco" / "annotations").mkdir(parents=True)
    annotations.rename(folder / "coco" / "annotations" / annotations.name)
    (folder / "val").rename(folder / "coco" / "val")
    return folder / "coco"


def idx(folder: Path) -> Path:
    for name, sizes in (("test-images.idx3.gz", (5, 8, 8)), ("test-labels.idx1.gz", (5,))):
        (folder / name).write_bytes(gzip.compress(idx_file(*sizes), mtime=0))
    return folder / "test-images.idx3.gz"


def arrays(folder: Path) -> Path:
    out = io.BytesIO()
    np.savez(out, x_test=np.zeros((4, 8), np.float32), y_test=np.zeros(4, np.int64))
    (folder / "features.npz").write_bytes(out.getvalue())
    return folder / "features.npz"


def lines(folder: Path) -> Path:
    (folder / "reviews.jsonl").write_text('{"text": "good", "label": 1}\n{"text": "bad", "label": 0}\n')
    return folder / "reviews.jsonl"


def columns(folder: Path) -> Path:
    table = pa.table({"image": [{"bytes": b"one", "path": "1.png"}], "label": [3]})
    parquet.write_table(table, folder / "val.parquet")
    return folder / "val.parquet"


def coco(folder: Path) -> Path:
    (folder / "val").mkdir()
    (folder / "val" / "1.jpg").write_bytes(b"one")
    listed = {
        "images": [{"id": 1, "file_name": "1.jpg"}],
        "annotations": [{"image_id": 1, "category_id": 3, "bbox": [0, 0, 1, 1]}],
        "categories": [{"id": 3, "name": "face"}],
    }
    (folder / "instances_val.json").write_text(json.dumps(listed))
    return folder / "instances_val.json"


def wheel(folder: Path) -> Path:
    (folder / "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl").write_bytes(b"wheel")
    return folder / "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl"


def locked_wheels(folder: Path) -> Path:
    (folder / "wheels").mkdir()
    name = wheel(folder / "wheels").name
    digest = to_hex(digest_bytes(b"wheel"))
    (folder / "pylock.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "hand"\n\n[[packages]]\nname = "onnxruntime"\nversion = "1.31.1"\n'
        f'wheels = [{{path = "wheels/{name}", size = 5, hashes = {{sha256 = "{digest}"}}}}]\n'
    )
    return folder / "pylock.toml"


MODEL = {
    "license": "license: Apache-2.0",
    "task": "task: image-classification",
    "framework.version": 'version: "*"',
    "confirm": "",
    "type": "type: image",
    "layout": "layout: NHWC",
    "steps": STEPS,
    "outputs.type": "type: class-scores\n    label_offset: 0",
    "code": "code: {file: network.py, function: network}",
    "batch_axis": "batch_axis: 0",
}
LICENSE = {"license": "license: MIT", "confirm": ""}
GIVEN: Mapping[str, tuple[Kind, Callable[[Path], Path], Mapping[str, str]]] = {
    "onnx": ("model", digits("digits.onnx"), MODEL | {
        "steps": STEPS.replace("}}]", "}}, {transpose: {layout: NCHW}}]"),
    }),
    "onnx-external": ("model", external, MODEL),
    "savedmodel": ("model", digits("digits.savedmodel"), MODEL),
    "tflite": ("model", digits("digits.tflite"), MODEL | {"framework": 'framework: {name: litert, version: "*"}'}),
    "safetensors": ("model", weights, MODEL | {
        "framework": 'framework: {name: pytorch, version: "*"}',
        "inputs": f"inputs: [{{name: x, type: image, dtype: float32, shape: [null, 8, 8, 1], layout: NHWC, {STEPS}}}]",
        "outputs": "outputs: [{name: y, type: class-scores, dtype: float32, label_offset: 0}]",
    }),
    "keras": ("model", digits("digits.keras"), MODEL | {
        "inputs": f"inputs: [{{name: x, type: image, dtype: float32, shape: [null, 8, 8, 1], layout: NHWC, {STEPS}}}]",
        "outputs": "outputs: [{name: y, type: class-scores, dtype: float32, label_offset: 0}]",
    }),
    "torchscript": ("model", digits("digits.torchscript.pt"), MODEL | {
        "inputs": f"inputs: [{{name: x, type: image, dtype: float32, shape: [null, 8, 8, 1], layout: NHWC, {STEPS}}}]",
        "outputs": "outputs: [{name: y, type: class-scores, dtype: float32, label_offset: 0}]",
    }),
    "image-index": ("dataset", pictures, LICENSE),
    "pictures": ("dataset", folder_of_pictures, LICENSE | {"splits": "splits: {all: {index: index.csv, samples: 2}}"}),
    "picture-folders": ("dataset", folders_of_pictures, LICENSE),
    "hub-table": ("dataset", hub_table, LICENSE),
    "coco-folder": ("dataset", coco_folder, LICENSE),
    "idx": ("dataset", idx, LICENSE),
    "npz": ("dataset", arrays, LICENSE | {"fields": "fields: {image: x_test, label: y_test}"}),
    "jsonl": ("dataset", lines, LICENSE | {"fields": "fields: {text: text, label: label}"}),
    "parquet": ("dataset", columns, LICENSE | {"fields": "fields: {image: image.bytes, label: label}"}),
    "coco": ("dataset", coco, LICENSE),
    "framework": ("framework", wheel, LICENSE),
    "image": ("image", locked_wheels, LICENSE | {
        "name": "name: onnxruntime-cpu",
        "provides": "provides: {framework: onnxruntime, version: 1.31.1}",
        "os, arch, device, python": 'os: linux\n    arch: amd64\n    device: cpu\n    python: "3.11"',
    }),
}  # fmt: skip


def outline(name: str, folder: Path) -> str:
    kind, make, _ = GIVEN[name]
    scaffold = scaffold_manifest(kind, make(folder), folder)
    for path, text in scaffold.files.items():
        (folder / path).write_text(text)
    return scaffold.text


def finished(text: str, answers: Mapping[str, str]) -> str:
    """The manifest as its author leaves it: each TODO line replaced by what it asks for."""
    found, section = [], ""
    for line in text.splitlines():
        section = line.rstrip(":") if re.fullmatch(r"\w+:", line) else section
        todo = re.fullmatch(r"(\s*)# TODO ([^:]+): .*", line)
        if todo:
            answer = answers.get(f"{section}.{todo[2]}", answers.get(todo[2]))
            assert answer is not None, line
            line = todo[1] + answer if answer else ""  # noqa: PLW2901 - the line that stands there now
        found.append(line)
    extra = {"code": "  - {path: network.py, role: code, source: ./network.py}"}
    if "splits" in answers:
        extra["splits"] = "  - {path: index.csv, source: ./index.csv}"
    return "\n".join([*found, *(line for key, line in extra.items() if f"# TODO {key}:" in text)]) + "\n"


@pytest.mark.parametrize("name", GIVEN)
def test_an_outline_is_that_of_its_case(name: str, tmp_path: Path) -> None:
    assert outline(name, tmp_path) == (CASES / f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", GIVEN)
def test_an_outline_publishes_once_its_todo_lines_are_done(
    name: str, tmp_path: Path, store: LocalStore, catalogue: Catalogue
) -> None:
    folder = tmp_path / "authored"
    folder.mkdir()
    text, path = outline(name, folder), folder / "manifest.yaml"
    with pytest.raises(InvalidInputError, match="not finished: TODO") as caught:
        read_draft(text, "manifest.yaml", path)
    told = [error.what for error in caught.value.problems or (caught.value,)]
    assert all(what.startswith("not finished: TODO") for what in told), told
    assert len(told) == len(list_todos(text))
    draft = read_draft(finished(text, GIVEN[name][2]), "manifest.yaml", path)
    assert publish(draft, store, catalogue).changed


def test_the_batch_of_a_state_is_the_axis_that_its_graph_leaves_free(tmp_path: Path) -> None:
    """A recurrent network: sizes of [layers, batch, width]; the 2 layers are no batch."""
    ports: graphs.Ports = {
        "x": (TensorProto.FLOAT, [None, None]),
        "state": (TensorProto.FLOAT, [2, None, 128]),
        "rate": (TensorProto.INT64, []),
    }
    found: graphs.Ports = {"y": (TensorProto.FLOAT, [None, 1]), "state_out": (TensorProto.FLOAT, [None, None, None])}
    (tmp_path / "net.onnx").write_bytes(graphs.graph(ports, found))
    text = scaffold_manifest("model", tmp_path / "net.onnx", tmp_path).text
    shapes = [line.strip() for line in text.splitlines() if line.strip().startswith("shape:")]
    assert shapes == ["shape: [null, axis_1]", "shape: [2, null, 128]", "shape: []", "shape: [null, 1]",
                      "shape: [2, null, 128]"]  # fmt: skip
    assert "batch of 2" not in text
    assert "a state from: OUTPUT, initial: zeros" in text


def test_a_shape_that_tflite_does_not_say_is_not_written(tmp_path: Path) -> None:
    content = tflite.graph([tflite.tensor("x", [1, 4])], [tflite.tensor("y", [])])
    (tmp_path / "net.tflite").write_bytes(content)
    outputs = scaffold_manifest("model", tmp_path / "net.tflite", tmp_path).text.partition("outputs:")[2]
    assert "name: y" in outputs
    assert "shape:" not in outputs


def test_an_output_without_classes_leaves_nothing_to_delete(tmp_path: Path) -> None:
    answers = {**GIVEN["onnx"][2], "outputs.type": "type: value", "task": "task: regression"}
    assert "label_offset" not in finished(outline("onnx", tmp_path), answers)


@pytest.mark.parametrize("kind", ["model", "dataset", "framework", "image"])
def test_without_a_file_every_key_is_asked_for(kind: Kind, tmp_path: Path) -> None:
    found = scaffold_manifest(kind, None, tmp_path)
    assert found.todos == len(list_todos(found.text)) > 3
    with pytest.raises(InvalidInputError) as caught:
        read_draft(found.text, "manifest.yaml", tmp_path / "manifest.yaml")
    assert len(caught.value.problems) == found.todos


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("model", "net.onnx", b"no graph", "net.onnx is not a valid ONNX model"),
        ("model", "net.tflite", b"no graph at all", "net.tflite is not a valid TFLite graph"),
        ("model", "net.safetensors", b"", "net.safetensors is not a valid safetensors file"),
        ("model", "saved_model.pb", b"", "saved_model.pb is not a valid SavedModel: it does not contain a graph"),
        ("dataset", "test.csv", b"title,label\n", "no column 'path'"),
        ("dataset", "test.csv", b"file,label\ngone.png,0\n", "no column 'path'; it has file, label"),
        ("dataset", "test.csv", b"path,label\n" + b"x" * (17 << 20), "has a line of more than 16 MiB"),
        ("dataset", "test.csv", b"path,label\n", "test.csv has no samples"),
        ("dataset", "test.jsonl", b"\n", "test.jsonl has no samples"),
        ("dataset", "test.json", b'{"images": []}', "test.json has no samples"),
        ("dataset", "test.idx", b"PNG", "unknown file type: test.idx"),
        ("dataset", "labels.idx", b"\0\0\x08\x01\0\0\0\x05" + bytes(5), "contains 5 labels, but no pictures"),
        ("dataset", "test.npz", b"", "is not a valid npz file"),
        ("dataset", "test.parquet", b"", "is not a valid parquet file"),
        ("dataset", "test.json", b"[]", "not a valid COCO annotation file"),
        ("dataset", "test.jsonl", b"{", "not JSON Lines"),
        ("framework", "torch.zip", b"", "is not a wheel file name"),
        ("image", "pylock.toml", b"", "is not a valid wheels lock"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(
    kind: Kind, name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        scaffold_manifest(kind, tmp_path / name, tmp_path)
    with pytest.raises(InvalidInputError, match="not found"):
        scaffold_manifest(kind, tmp_path / "gone", tmp_path)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("a/x.png", "a/y.png"), "all are in one folder, a: classification needs at least two classes"),
        (("a/x.png", "b/y.png", "z.png"), "not every file is in the folder of a class"),
        (("train/x.png", "test/y.png"), "not every file is in the folder of a class"),
        (("a /x.png", "b/y.png"), "the name of a folder has spaces at its ends"),
        (("1/x.png", "2/y.png"), "folders with numbers for names"),
        (tuple(f"{number}/x.png" for number in range(11)), "folders with numbers for names"),
        (("0/x.png", "b/y.png"), "folders with numbers for names"),
        (("a/x.png", "b/y.png", ".cache/x.png"), "the folder .cache is one that a program hides"),
        (("a/x.png", "b/y.png", "__MACOSX/a/x.png"), "the folder __MACOSX is one"),
    ],
)
def test_folders_that_may_not_be_classes_are_asked_for(names: Sequence[str], reason: str, tmp_path: Path) -> None:
    scaffold = scaffold_manifest("dataset", folder_of_pictures(tmp_path, names), tmp_path)
    assert not scaffold.files
    asked = [finding.what for finding in scaffold.findings if finding.path == "splits" and finding.todo]
    assert len(asked) == 1
    assert reason in asked[0]


@pytest.mark.parametrize(
    ("names", "empty"), [(("a/x.png", "c/y.png"), "b"), (("train/a/x.png", "train/c/y.png"), "train/b")]
)
def test_a_folder_without_samples_may_be_a_class(names: Sequence[str], empty: str, tmp_path: Path) -> None:
    """It would shift the indices of the classes behind it."""
    folder = folder_of_pictures(tmp_path, names)
    (folder / empty).mkdir()
    scaffold = scaffold_manifest("dataset", folder, tmp_path)
    assert not scaffold.files
    assert "the folder b has no samples, but may be a class" in scaffold.text


def test_folders_of_digits_are_their_own_labels(tmp_path: Path) -> None:
    names = [f"{digit}/x.png" for digit in (1, 0, 2)]
    scaffold = scaffold_manifest("dataset", folder_of_pictures(tmp_path, names), tmp_path)
    assert scaffold.files == {
        "animals.all.csv": "path,label\nanimals/0/x.png,0\nanimals/1/x.png,1\nanimals/2/x.png,2\n",
        "animals.labels.txt": "0\n1\n2\n",
    }


def test_classes_keep_the_order_of_a_labels_file_beside_them(tmp_path: Path) -> None:
    source = folder_of_pictures(tmp_path, ("cat/a.png", "dog/b.png"))
    (tmp_path / "labels.txt").write_text("dog\ncat\n")
    scaffold = scaffold_manifest("dataset", source, tmp_path)
    assert list(scaffold.files) == ["animals.all.csv"]
    assert 'source: "./labels.txt"' in scaffold.text


def test_of_several_annotations_one_is_to_be_chosen(tmp_path: Path) -> None:
    folder = coco_folder(tmp_path)
    shutil.copy(folder / "annotations" / "instances_val.json", folder / "annotations" / "instances_train.json")
    (folder / "annotations" / "notes.json").write_text("[]")
    with pytest.raises(InvalidInputError, match=r"2 files of annotations: instances_train\.json, instances_val\.json"):
        scaffold_manifest("dataset", folder, tmp_path)


def test_every_case_is_tested() -> None:
    assert {path.stem for path in CASES.iterdir()} == set(GIVEN)


def test_of_a_folder_of_idx_files_the_pictures_are_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    (folder / "t10k-images.gz").write_bytes(gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", 2, 1, 1) + b"ab"))
    (folder / "t10k-labels").write_bytes(b"\0\0\x08\x01" + struct.pack(">I", 2) + b"ab")
    (folder / "broken.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(InvalidInputError, match=r"mnist contains idx .*: t10k-images\.gz\n") as caught:
        scaffold_manifest("dataset", folder, tmp_path)
    assert caught.value.next_step == "choose one of these files"


def test_a_pictures_network_that_pytorch_exported_is_asked_for_torchvisions_steps(tmp_path: Path) -> None:
    model = graphs.model({"x": (TensorProto.FLOAT, ["batch", 3, 224, 224])})
    path = tmp_path / "net.onnx"
    for producer, proposed in (("pytorch", True), ("other", False)):
        model.producer_name = producer
        path.write_bytes(model.SerializeToString())
        text = scaffold_manifest("model", path, tmp_path).text
        assert ("rounding: down" in text and "offset: half_even" in text) is proposed


def test_a_torchscript_of_torchvision_is_asked_for_its_steps(tmp_path: Path) -> None:
    for code, proposed in (("torchvision/models/resnet.py", True), ("net.py", False)):
        path = tmp_path / "net.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("net/constants.pkl", b"")
            archive.writestr(f"net/code/__torch__/{code}", b"")
        text = scaffold_manifest("model", path, tmp_path).text
        assert ("rounding: down" in text) is proposed
        assert "format: torchscript" in text


@pytest.mark.parametrize(
    ("path", "name", "reason"),
    [
        ("resnet/model.onnx", "resnet", "the name of the folder resnet, since many files are called model.onnx"),
        ("exp7/weights/best.onnx", "exp7", "the name of the folder exp7, since many files are called best.onnx"),
        ("resnet/tiny.onnx", "tiny", "the name of tiny.onnx"),
        ("---/model.onnx", "model", "the name of model.onnx"),
    ],
)
def test_a_file_with_a_usual_name_has_the_name_of_its_folder(path: str, name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    shutil.copy(DIGITS / "models" / "digits.onnx", tmp_path / path)
    scaffold = scaffold_manifest("model", tmp_path / path, tmp_path)
    findings = [(finding.what, finding.done) for finding in scaffold.findings if finding.path == "name"]
    assert findings == [(reason, f"written as {name}")]
    assert f"\nname: {name}\n" in scaffold.text


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("modle.onnx", "HERE has no modle.onnx; did you mean model.onnx?"),
        ("modles/model.onnx", "HERE has no modles; did you mean models?"),
        ("models/tset", "HERE/models has no tset; did you mean models/test?"),
        ("models/x.onnx", "HERE/models has no x.onnx; give an existing file or folder"),
        ("modle", ""),
        ("acme/modle", ""),
    ],
)
def test_the_nearest_file_is_suggested_for_a_path(
    text: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "test").mkdir(parents=True)
    (tmp_path / "model.onnx").touch()
    monkeypatch.chdir(tmp_path)
    assert suggest_file(text) == step.replace("HERE", str(tmp_path))
