"""Samples of every format beside indices of pictures and idx files, as an independent writer wrote them."""

import gzip
import io
import json
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from PIL import Image
from pyarrow import parquet

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job import Dataset
from benchlock.evaluator.harness.datasets import Boxes, Samples, open_samples


def opened(
    folder: Path, form: str, split: dict[str, Any], *, labels: str | None = None, task: str | None = None
) -> Samples:
    if labels is not None:
        (folder / "labels.txt").write_text(labels, encoding="utf-8")
    return open_samples(Dataset(form, split, "labels.txt" if labels is not None else None), folder, task)


def refusal(folder: Path, form: str, split: dict[str, Any], **named: str | None) -> str:
    with pytest.raises(Failure) as caught:
        opened(folder, form, split, **named)
    assert caught.value.kind == "load"
    return caught.value.message


def test_sounds_are_of_the_field_audio(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    (tmp_path / "i.csv").write_text("path,label\na.wav,yes\n")
    samples = opened(tmp_path, "wav-index", {"index": "i.csv", "samples": 1}, labels="no\nyes\n")
    assert samples.read(0) == {"audio": b"RIFF"}
    assert (samples.labels, sorted(samples.fields)) == ((1,), ["audio"])


@pytest.mark.parametrize("task", ["regression", None])
def test_labels_may_be_numbers(tmp_path: Path, task: str | None) -> None:
    (tmp_path / "i.csv").write_text("path,label\na,1.5\nb,-2\nc,3e-1\n")
    assert opened(tmp_path, "image-index", {"index": "i.csv", "samples": 3}, task=task).labels == (1.5, -2, 0.3)


@pytest.mark.parametrize(
    ("label", "names", "words"),
    [
        ("nan", None, "line 2: 'nan' is neither a label index"),
        ("inf", None, "line 2: 'inf' is neither a label index nor a label name, nor a number"),
        ("1.5", "a\nb\n", "line 2: '1.5' is neither a label index nor a label name"),
        ("2", "a\nb\n", "line 2: label 2 is out of range: the labels file has 2"),
        ("-1", "a\nb\n", "label -1 is out of range: the labels file has 2"),
    ],
)
def test_a_label_that_means_nothing_is_refused(tmp_path: Path, label: str, names: str | None, words: str) -> None:
    (tmp_path / "i.csv").write_text(f"path,label\na,{label}\nb,1\n")
    split = {"index": "i.csv", "samples": 2}
    assert words in refusal(tmp_path, "image-index", split, labels=names)


def grey(bits: int) -> bytes:
    """A PNG of four pixels of so few bits of grey (PNG, section 11.2), which Pillow does not write."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", 4, 1, bits, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" + bytes(bits // 2))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


class TestMasks:
    GREY = np.array([[0, 1, 255], [2, 2, 0]], np.uint8)

    def index(self, folder: Path, header: str = "path,mask", rows: str = "p.png,m.png") -> dict[str, Any]:
        (folder / "i.csv").write_text(f"{header}\n{rows}\n")
        (folder / "p.png").write_bytes(b"picture")
        return {"index": "i.csv", "samples": len(rows.splitlines())}

    @pytest.mark.parametrize("mode", ["L", "P", "I;16", "1"])
    def test_pixels_are_classes_in_every_form_of_one_number_a_pixel(self, tmp_path: Path, mode: str) -> None:
        values = {"I;16": self.GREY.astype(np.uint16) * 200, "1": self.GREY.astype(bool)}.get(mode, self.GREY)
        picture = Image.fromarray(values)
        if mode == "P":
            picture.putpalette([channel for index in range(256) for channel in (255 - index, index, 7)])
        picture.save(tmp_path / "m.png")
        with Image.open(tmp_path / "m.png") as kept:
            assert kept.mode == mode
        samples = opened(tmp_path, "image-index", self.index(tmp_path), task="semantic-segmentation")
        assert samples.labels is not None
        found = samples.labels[0]
        assert isinstance(found, np.ndarray)
        assert found.dtype.kind in "iu"
        np.testing.assert_array_equal(found, values)

    def test_colours_are_no_classes(self, tmp_path: Path) -> None:
        Image.new("RGB", (2, 2)).save(tmp_path / "m.png")
        words = refusal(tmp_path, "image-index", self.index(tmp_path), task="semantic-segmentation")
        assert "m.png: a mask has mode RGB, expected one integer per pixel" in words

    @pytest.mark.parametrize("form", ["png", "tiff", "jpeg"])
    @pytest.mark.parametrize("orientation", [2, 3, 6, 8])
    def test_a_mask_that_asks_to_be_turned_is_refused(self, tmp_path: Path, form: str, orientation: int) -> None:
        """Pillow turns a TIFF when it reads it, and nothing else; a picture is turned as its model says."""
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(self.GREY).save(tmp_path / "m.png", form, exif=exif)
        words = refusal(tmp_path, "image-index", self.index(tmp_path), task="semantic-segmentation")
        assert f"m.png: a mask has EXIF orientation {orientation}" in words

    @pytest.mark.parametrize("form", ["png", "tiff"])
    @pytest.mark.parametrize("mode", ["L", "P", "I;16"])
    def test_a_mask_that_says_that_it_stands_upright_is_taken(self, tmp_path: Path, form: str, mode: str) -> None:
        exif = Image.Exif()
        exif[0x0112] = 1
        values = self.GREY.astype(np.uint16) * 200 if mode == "I;16" else self.GREY
        picture = Image.fromarray(values)
        if mode == "P":
            picture.putpalette([channel for index in range(256) for channel in (255 - index, index, 7)])
        picture.save(tmp_path / "m.png", form, exif=exif)
        samples = opened(tmp_path, "image-index", self.index(tmp_path), task="semantic-segmentation")
        assert samples.labels is not None
        np.testing.assert_array_equal(np.asarray(samples.labels[0]), values)

    @pytest.mark.parametrize("bits", [2, 4])
    def test_a_palette_may_have_few_bits_and_grey_may_not(self, tmp_path: Path, bits: int) -> None:
        values = self.GREY % 3
        picture = Image.fromarray(values)
        picture.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
        picture.save(tmp_path / "m.png", bits=bits)
        samples = opened(tmp_path, "image-index", self.index(tmp_path), task="semantic-segmentation")
        assert samples.labels is not None
        np.testing.assert_array_equal(np.asarray(samples.labels[0]), values)
        (tmp_path / "m.png").write_bytes(grey(bits))
        words = refusal(tmp_path, "image-index", self.index(tmp_path), task="semantic-segmentation")
        assert f"m.png: a mask has {bits} bits of gray" in words

    def test_masks_are_read_when_they_are_asked_for(self, tmp_path: Path) -> None:
        samples = opened(tmp_path, "image-index", self.index(tmp_path))  # there is no m.png
        assert samples.labels is not None
        with pytest.raises(Failure, match=r"the label of m\.png: FileNotFoundError") as caught:
            samples.labels[0]
        assert caught.value.kind == "load"
        with pytest.raises(IndexError):
            samples.labels[1]

    def test_the_task_decides_between_label_and_mask(self, tmp_path: Path) -> None:
        Image.fromarray(self.GREY).save(tmp_path / "m.png")
        split = self.index(tmp_path, "path,label,mask", "p.png,7,m.png")
        assert opened(tmp_path, "image-index", split, task="image-classification").labels == (7,)
        masks = opened(tmp_path, "image-index", split, task="semantic-segmentation").labels
        assert masks is not None
        np.testing.assert_array_equal(masks[0], self.GREY)

    def test_one_without_a_mask_is_told(self, tmp_path: Path) -> None:
        split = self.index(tmp_path, "path,mask", "p.png,m.png\np.png,")
        assert "i.csv line 3: mask missing, but other samples have one" in refusal(tmp_path, "image-index", split)


class TestArrays:
    def npz(self, folder: Path, **arrays: NDArray[Any]) -> None:
        np.savez(folder / "a.npz", allow_pickle=True, **arrays)

    def split(self, samples: int, **fields: str) -> dict[str, Any]:
        return {"file": "a.npz", "fields": fields, "samples": samples}

    def test_rows_keep_their_type(self, tmp_path: Path) -> None:
        values = np.arange(12, dtype=">f4").reshape(2, 3, 2)
        self.npz(tmp_path, x=values, t=np.array(["ä b", "c"]), y=np.array([3, 1]))
        samples = opened(tmp_path, "npz", self.split(2, signal="x", text="t", label="y"))
        row = samples.read(1)
        assert (row["text"], sorted(samples.fields)) == ("c", ["signal", "text"])
        assert samples.labels == (3, 1)
        signal = row["signal"]
        assert isinstance(signal, np.ndarray)
        assert signal.dtype == np.float32
        np.testing.assert_array_equal(signal, values[1])

    def test_a_row_of_one_number_is_a_tensor_without_axes(self, tmp_path: Path) -> None:
        self.npz(tmp_path, x=np.array([1.5, 2.5]))
        found = opened(tmp_path, "npz", self.split(2, x="x")).read(1)["x"]
        assert isinstance(found, np.ndarray)
        assert (found.shape, float(found)) == ((), 2.5)

    def test_labels_may_be_names_and_masks(self, tmp_path: Path) -> None:
        self.npz(tmp_path, x=np.zeros((2, 1)), y=np.array(["dog", "cat"]), m=np.ones((2, 4, 4), np.uint8))
        assert opened(tmp_path, "npz", self.split(2, x="x", label="y"), labels="cat\ndog\n").labels == (1, 0)
        masks = opened(tmp_path, "npz", self.split(2, x="x", label="m"), task="semantic-segmentation").labels
        assert masks is not None
        assert [np.asarray(mask).shape for mask in masks] == [(4, 4), (4, 4)]

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"x": "gone"}, "no array 'gone'; it has x, o, n, y"),
            ({"x": "o"}, "Object arrays cannot be loaded"),
            ({"x": "n"}, "array 'n' is int64 [], which has no samples"),
            ({"x": "x", "label": "y"}, "its fields have different numbers of samples: [2, 3]"),
        ],
    )
    def test_what_is_no_split_says_why(self, tmp_path: Path, fields: dict[str, str], words: str) -> None:
        self.npz(tmp_path, x=np.zeros((2, 1)), o=np.array([{}, None]), n=np.array(3), y=np.zeros(3, int))
        assert words in refusal(tmp_path, "npz", self.split(2, **fields))


class TestLines:
    def write(self, folder: Path, *records: object, packed: bool = False) -> dict[str, Any]:
        content = "\n\n".join(json.dumps(record) for record in records).encode() + b"\n"
        (folder / "a.jsonl").write_bytes(gzip.compress(content) if packed else content)
        return {"file": "a.jsonl", "fields": {"text": "t", "ids": "i", "label": "y"}, "samples": len(records)}

    @pytest.mark.parametrize("packed", [False, True])
    def test_texts_numbers_and_lists(self, tmp_path: Path, packed: bool) -> None:
        split = self.write(tmp_path, {"t": "ä", "i": [1, 2], "y": 1}, {"t": "", "i": [0.5], "y": "0"}, packed=packed)
        samples = opened(tmp_path, "jsonl", split, task="text-classification")
        assert (samples.labels, samples.names[1], samples.read(1)["text"]) == ((1, 0), "a.jsonl line 3", "")
        kinds = [samples.read(number)["ids"] for number in range(2)]
        assert [(str(found.dtype), found.tolist()) for found in kinds if isinstance(found, np.ndarray)] == [
            ("int64", [1, 2]),
            ("float64", [0.5]),
        ]

    def test_without_any_label_it_is_unlabelled(self, tmp_path: Path) -> None:
        split = self.write(tmp_path, {"t": "a", "i": 1, "y": None})
        assert opened(tmp_path, "jsonl", split).labels is None

    @pytest.mark.parametrize(
        ("record", "words"),
        [
            ({"t": "a"}, "a.jsonl line 3 has no 'i'"),
            ({"t": "a", "i": [[1], [1, 2]]}, "a.jsonl line 3: lists differ in length"),
            ({"t": "a", "i": ["a"]}, "a.jsonl line 3: expected a text, a number or lists of numbers"),
            ({"t": "a", "i": None}, "a.jsonl line 3: expected a text"),
            ([1], "a.jsonl line 3 has no"),
        ],
    )
    def test_a_sample_that_cannot_be_read_says_where(self, tmp_path: Path, record: object, words: str) -> None:
        split = self.write(tmp_path, {"t": "a", "i": 1}, record)
        split["fields"].pop("label")
        samples = opened(tmp_path, "jsonl", split)
        with pytest.raises(ValueError, match=re.escape(words)):
            samples.read(1)

    def test_a_label_of_another_sort(self, tmp_path: Path) -> None:
        split = self.write(tmp_path, {"t": "a", "i": 1, "y": 1}, {"t": "a", "i": 1, "y": {}})
        assert "a.jsonl line 3: {} is neither a label index" in refusal(tmp_path, "jsonl", split)


class TestParquet:
    ROWS: ClassVar[dict[str, Any]] = {
        "picture": pa.array([{"bytes": b"one", "path": "1.png"}, {"bytes": b"two", "path": None}, None]),
        "ids": pa.array([[1, 2], [3], []], pa.list_(pa.int32())),
        "grid": pa.array([[[1.0], [2.0]]] * 3, pa.list_(pa.list_(pa.float16()), 2)),
        "text": ["a", "ß", "c"],
        "dotted.name": pa.array([1, 2, 3], pa.uint8()),
        "y": pa.array([2, 0, 1], pa.int8()),
        "when": pa.array([0, 1, 2], pa.timestamp("ms")),
        "gaps": pa.array([[1], [None], [2]]),
    }

    def split(self, folder: Path, **fields: str) -> dict[str, Any]:
        parquet.write_table(pa.table(self.ROWS), folder / "a.parquet", row_group_size=2)
        return {"file": "a.parquet", "fields": fields, "samples": 3}

    def test_columns_of_every_type(self, tmp_path: Path) -> None:
        fields = {"image": "picture.bytes", "ids": "ids", "grid": "grid", "text": "text", "n": "dotted.name"}
        samples = opened(tmp_path, "parquet", self.split(tmp_path, **fields, label="y"), task="image-classification")
        assert (samples.labels, samples.names[2], samples.fields) == ((2, 0, 1), "a.parquet[2]", frozenset(fields))
        row = samples.read(1)
        assert (row["image"], row["text"]) == (b"two", "ß")
        arrays = {name: np.asarray(row[name]) for name in ("ids", "grid", "n")}
        assert {name: (str(found.dtype), found.tolist()) for name, found in arrays.items()} == {
            "ids": ("int32", [3]),
            "grid": ("float16", [[1.0], [2.0]]),
            "n": ("uint8", 2),
        }

    @pytest.mark.parametrize("shape", [(2, 3, 4), (5, 4, 3), (2, 2, 3, 2), (2, 0), (2, 3, 0), (0, 0)])
    def test_lists_in_lists_keep_their_shape(self, tmp_path: Path, shape: tuple[int, ...]) -> None:
        values = np.arange(np.prod(shape)).reshape(shape)
        of: Any = pa.int64()
        for _ in shape:
            of = pa.list_(of)
        rows = [(values + number).tolist() for number in range(2)]
        parquet.write_table(pa.table({"x": pa.array(rows, of)}), tmp_path / "a.parquet")
        split = {"file": "a.parquet", "fields": {"x": "x"}, "samples": 2}
        found = np.asarray(opened(tmp_path, "parquet", split).read(1)["x"])
        assert found.tolist() == rows[1]
        assert found.shape == shape if found.size else found.ndim == len(shape)

    def test_rows_are_read_in_any_order(self, tmp_path: Path) -> None:
        samples = opened(tmp_path, "parquet", self.split(tmp_path, text="text"))
        assert [samples.read(number)["text"] for number in (2, 0, 1, 2)] == ["c", "a", "ß", "c"]

    @pytest.mark.parametrize(
        ("key", "words"),
        [
            ("gone", "no column 'gone'; it has picture, ids"),
            ("picture", "'picture' has several parts: choose one of picture.bytes, picture.path"),
            ("picture.pixels", "column 'picture' has no part 'pixels'"),
            ("text.part", "column 'text' has no part 'part'"),
        ],
    )
    def test_a_key_that_is_no_column(self, tmp_path: Path, key: str, words: str) -> None:
        assert words in refusal(tmp_path, "parquet", self.split(tmp_path, x=key))

    @pytest.mark.parametrize(
        ("key", "number", "words"),
        [
            ("picture.bytes", 2, "a.parquet[2] has no 'picture.bytes'"),
            ("when", 0, "column 'when' is timestamp[ms], expected text, bytes or numbers"),
            ("gaps", 1, "a list has null where a number is expected"),
        ],
    )
    def test_a_value_that_is_none(self, tmp_path: Path, key: str, number: int, words: str) -> None:
        samples = opened(tmp_path, "parquet", self.split(tmp_path, x=key))
        with pytest.raises(ValueError, match=re.escape(words)):
            samples.read(number)

    def test_labels_may_be_encoded_masks(self, tmp_path: Path) -> None:
        mask = np.arange(6, dtype=np.uint8).reshape(2, 3)
        stream = io.BytesIO()
        Image.fromarray(mask).save(stream, "png")
        parquet.write_table(pa.table({"x": [1], "m": [stream.getvalue()]}), tmp_path / "a.parquet")
        split = {"file": "a.parquet", "fields": {"x": "x", "label": "m"}, "samples": 1}
        labels = opened(tmp_path, "parquet", split, task="semantic-segmentation").labels
        assert labels is not None
        np.testing.assert_array_equal(labels[0], mask)

    def test_without_pyarrow_it_says_what_to_do(self, tmp_path: Path) -> None:
        split = self.split(tmp_path, text="text")
        code = f"""
import sys
from pathlib import Path
sys.modules["pyarrow"] = None
from benchlock.evaluator.harness.datasets import open_samples
from benchlock.evaluator.harness.core.job import Dataset
from benchlock.evaluator.harness.core.failures import Failure
try:
    open_samples(Dataset("parquet", {split!r}, None), Path({str(tmp_path)!r}))
except Failure as error:
    print(error.kind, error.message)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "load a dataset in parquet needs pyarrow, which is not installed" in done.stdout
        assert "image build NAME==VERSION --requirement pyarrow" in done.stdout


class TestCoco:
    DOCUMENT: ClassVar[dict[str, Any]] = {
        "images": [{"id": 9, "file_name": "b.jpg"}, {"id": 4, "file_name": "sub/a.jpg"}],
        "annotations": [
            {"image_id": 4, "category_id": 90, "bbox": [1.5, 2, 3, 4], "area": 7.5, "iscrowd": 1},
            {"image_id": 4, "category_id": 1, "bbox": [0, 0, 2, 5]},
        ],
        "categories": [{"id": 1, "name": "Person "}, {"id": 90, "name": "toothbrush"}],
    }

    def coco(self, folder: Path, **changed: object) -> dict[str, Any]:
        (folder / "val" / "sub").mkdir(parents=True)
        for name in ("b.jpg", "sub/a.jpg"):
            (folder / "val" / name).write_bytes(name.encode())
        document = {key: value for key, value in (self.DOCUMENT | changed).items() if value is not None}
        (folder / "i.json").write_text(json.dumps(document))
        return {"annotations": "i.json", "images": "val/", "samples": 2}

    def test_boxes_by_the_category_id(self, tmp_path: Path) -> None:
        samples = opened(tmp_path, "coco", self.coco(tmp_path), task="object-detection")
        assert [samples.read(number) for number in range(2)] == [{"image": b"b.jpg"}, {"image": b"sub/a.jpg"}]
        assert samples.labels is not None
        nothing, boxes = samples.labels
        assert isinstance(nothing, Boxes)
        assert isinstance(boxes, Boxes)
        assert (nothing.xyxy.shape, nothing.classes.shape) == ((0, 4), (0,))
        assert (boxes.classes.tolist(), boxes.areas.tolist(), boxes.crowd.tolist()) == (
            [90, 1],
            [7.5, 10],
            [True, False],
        )
        assert boxes.xyxy.tolist() == [[1.5, 2, 4.5, 6], [0, 0, 2, 5]]

    def test_with_labels_names_are_matched(self, tmp_path: Path) -> None:
        samples = opened(tmp_path, "coco", self.coco(tmp_path), labels="toothbrush\ncat\nperson\n")
        assert samples.labels is not None
        boxes = samples.labels[1]
        assert isinstance(boxes, Boxes)
        assert boxes.classes.tolist() == [0, 2]

    def test_a_category_without_a_label(self, tmp_path: Path) -> None:
        words = refusal(tmp_path, "coco", self.coco(tmp_path), labels="person\n")
        assert "i.json, sub/a.jpg: category 90 is not in the labels" in words

    def test_without_annotations_it_is_unlabelled(self, tmp_path: Path) -> None:
        assert opened(tmp_path, "coco", self.coco(tmp_path, annotations=None)).labels is None

    @pytest.mark.parametrize("box", [[0, 0, -1, 2], [0, 0, 1], [0, 0, "nan", 1]])
    def test_a_box_that_is_none(self, tmp_path: Path, box: list[Any]) -> None:
        found = [{"image_id": 4, "category_id": 1, "bbox": box}]
        assert refusal(tmp_path, "coco", self.coco(tmp_path, annotations=found)).startswith("dataset: ValueError")

    def test_a_name_that_leaves_the_folder(self, tmp_path: Path) -> None:
        images = [{"id": 1, "file_name": "../../x.jpg"}, {"id": 2, "file_name": "b.jpg"}]
        assert "outside the dataset" in refusal(tmp_path, "coco", self.coco(tmp_path, images=images, annotations=[]))


@pytest.mark.parametrize(
    ("label", "task", "words"),
    [
        ("1.5", "image-classification", "its label is the number 1.5, but task image-classification needs classes"),
        ("1", "semantic-segmentation", "its label is the number 1, but task semantic-segmentation needs masks"),
        ("1", "object-detection", "its label is the number 1, but task object-detection needs boxes"),
    ],
)
def test_labels_are_of_the_kind_that_the_task_compares(tmp_path: Path, label: str, task: str, words: str) -> None:
    (tmp_path / "i.csv").write_text(f"path,label\na,{label}\n")
    split = {"index": "i.csv", "samples": 1}
    assert words in refusal(tmp_path, "image-index", split, task=task)
    assert opened(tmp_path, "image-index", split).labels == (float(label),)
