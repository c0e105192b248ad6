"""What publishing holds against the files of a dataset: samples counted, fields and labels there."""

import gzip
import io
import json
import struct
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.inspection.formats.parquet import read_footer
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.tensor_files import read_arrays
from benchlock.registry.publishing.drafts import Draft
from tests.registry.inspection.test_executable_code import Attack, arrays
from tests.registry.inspection.test_file_inspection import problems_of
from tests.registry.publishing.test_publication import DATASET, PICTURES

Author = Callable[..., Draft]

NPZ = """\
schema: 1
kind: dataset
name: features
version: 1.0.0
license: MIT
format: npz
splits: {test: {file: test.npz, fields: {image: x, label: y}, samples: 3}}
files: [{path: test.npz, source: test.npz}]
"""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (arrays(x=np.zeros((3, 8)), y=np.zeros(3)), ""),
        (arrays(x=np.array(["a", "b", "c"]), y=np.array(["a", "b", "c"])), ""),
        (
            arrays(x=np.zeros((3, 8)), y=np.zeros(3, complex)),
            "the array 'y' of test.npz has the type '<c16', which is not valid for labels",
        ),
        (arrays(x=np.zeros(3, "datetime64[s]"), y=np.zeros(3)), "numbers or texts are expected"),
        (arrays(x=np.array(3), y=np.zeros(3)), "the array 'x' of test.npz has no axis of samples"),
        (arrays(x=np.zeros((4, 8)), y=np.zeros(4)), "has 4 samples, not 3"),
        (arrays(x=np.zeros((3, 8)), y=np.zeros(4)), "differ in their number of samples: x 3, y 4"),
        (arrays(x=np.zeros((3, 8))), "has no array 'y'"),
        (arrays(x=np.array([Attack()] * 3, object), y=np.zeros(3)), "contains objects, a pickle that executes code"),
        (b"no archive", "is not a valid npz file"),
        (b"<!DOCTYPE html>", "is not a valid npz file: it is an HTML or XML page"),
    ],
)
def test_arrays_are_counted_and_hold_no_objects(
    author: Author, catalogue: Catalogue, content: bytes, words: str
) -> None:
    found = problems_of(author, catalogue, NPZ, {"test.npz": content})
    assert len(found) == bool(words), found
    assert not words or words in found[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"x": 1, "y": 2}\n\n{"x": 1, "y": 2}\n{"x": 1, "y": 2}', ""),
        (b'{"x": 1, "y": 2}\n', "has 1 sample, not 3"),
        (b'{"x": 1}\n', "line 1 has no 'y'"),
        (b'{"x": null, "y": 2}\n', "line 1: 'x' is not a text, number or list of numbers"),
        (b'{"x": "a", "y": "cat"}\n', "line 1: 'cat' is neither an index nor a name of the labels, and not a number"),
        (b'{"x": "a", "y": {}}\n', "line 1: {} is neither"),
        (b'{"x": "a", "y": null}\n{"x": "a", "y": 1}\n', "line 2: some samples have a label and some do not"),
        (b'{"x": "a", "y": [[0, 1]]}\n{"x": [1], "y": 1.5}\n{"x": 2, "y": "7"}', ""),
        (b"{\n", "line 1 is not valid JSON"),
        (b"\x1f\x8bbroken", "cannot be unpacked"),
    ],
)
def test_lines_are_counted(author: Author, catalogue: Catalogue, content: bytes, words: str) -> None:
    text = NPZ.replace("npz", "jsonl")
    found = problems_of(author, catalogue, text, {"test.jsonl": content})
    assert len(found) == bool(words), found
    assert not words or words in found[0]


PARQUET = NPZ.replace("npz", "parquet").replace("image: x", "image: x.bytes")


def table(rows: int = 3, **columns: object) -> bytes:
    given = {"x": [{"bytes": b"1", "path": "1"}] * rows, "y": list(range(rows))} | columns
    stream = io.BytesIO()
    parquet.write_table(pa.table(given), stream, row_group_size=2)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (table(), ""),
        (table(4), "has 4 samples, not 3"),
        (table(x=[[1], [2], [3]]), "test.parquet has no column 'x.bytes'"),
        (table(y=[{"a": 1}, {"a": 2}, {"a": 3}]), "the column 'y' of test.parquet is nested"),
        (table()[:-1], "is not a valid parquet file: its end is missing"),
        (b"PAR1" + b"\xff" * 40 + struct.pack("<I", 40) + b"PAR1", "is not a valid parquet file"),
        (
            b"PAR1" + b"\x19" * 3000 + struct.pack("<I", 3000) + b"PAR1",
            "is not a valid parquet file: its footer is nested too deep",
        ),
        (b"PAR1" + b"\x19\xfc" * 20 + struct.pack("<I", 40) + b"PAR1", "is not a valid parquet file"),
        (b"", "is not a valid parquet file: its first bytes do not match"),
    ],
)
def test_rows_and_columns_are_read_from_the_footer(
    author: Author, catalogue: Catalogue, content: bytes, words: str
) -> None:
    found = problems_of(author, catalogue, PARQUET, {"test.parquet": content})
    assert len(found) == bool(words), found
    assert not words or words in found[0]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_footer_is_told_as_one(data: st.DataObject) -> None:
    good = bytearray(table(1))
    (length,) = struct.unpack("<I", good[-8:-4])
    at = data.draw(st.integers(len(good) - 8 - length, len(good) - 9))
    good[at] = data.draw(st.integers(0, 255))
    with suppress(MalformedError):
        read_footer(io.BytesIO(good))


COCO = """\
schema: 1
kind: dataset
name: boxes
version: 1.0.0
license: MIT
format: coco
splits: {val: {annotations: instances.json, images: val/, samples: 2}}
files: [{path: instances.json, source: instances.json}, {path: val/, source: val}]
"""


@pytest.mark.parametrize(
    ("names", "annotated", "words"),
    [
        (["1.jpg", "2.jpg"], 1, []),
        (["1.jpg"], 1, ["has 1 sample, not 2"]),
        (["1.jpg", "gone.jpg"], 1, ["val/gone.jpg is not in files"]),
        (["../instances.json", "/etc/passwd"], 1, ["has a part . or ..", "is absolute"]),
        (["1.jpg", "2.jpg"], 9, ["an annotation references the image 9"]),
    ],
)
def test_pictures_of_annotations_are_files(
    author: Author, catalogue: Catalogue, names: list[str], annotated: int, words: list[str]
) -> None:
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    boxes = [{"image_id": annotated, "category_id": 3, "bbox": [1, 2.5, 3, 4]}] if len(names) > 1 else []
    listed = json.dumps({"images": images, "annotations": boxes, "categories": [{"id": 3, "name": "face"}]})
    found = problems_of(
        author, catalogue, COCO, {"instances.json": listed.encode(), "val/1.jpg": b"1", "val/2.jpg": b"2"}
    )
    assert len(found) == len(words), found
    assert all(word in one for word, one in zip(words, found, strict=True))


@pytest.mark.parametrize(
    ("annotation", "labels", "words"),
    [
        ({}, "Face \ncar\n", ""),
        ({"category_id": 4}, None, "an annotation references the category 4, which is not listed"),
        ({"bbox": [1, 2, 3]}, None, "invalid box [1.0, 2.0, 3.0] in an annotation"),
        ({"bbox": [1, 2, -3, 4]}, None, "invalid box"),
        ({"bbox": "none"}, None, "is not a valid COCO annotation file"),
        ({}, "car\n", "the category 'face' is not a name of the labels"),
    ],
)
def test_annotations_are_boxes_of_categories(
    author: Author, catalogue: Catalogue, annotation: dict[str, object], labels: str | None, words: str
) -> None:
    document = {
        "images": [{"id": number, "file_name": f"{number}.jpg"} for number in (1, 2)],
        "annotations": [{"image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4]} | annotation],
        "categories": [{"id": 3, "name": "face"}],
    }
    text = COCO
    if labels is not None:
        text = text.replace("files: [", "labels: l.txt\nfiles: [{path: l.txt, source: l.txt}, ")
    files = {"instances.json": json.dumps(document).encode(), "val/1.jpg": b"1", "val/2.jpg": b"2"}
    found = problems_of(author, catalogue, text, files | {"l.txt": (labels or "").encode()})
    assert len(found) == bool(words), found
    assert not words or words in found[0]


def test_annotations_whose_compression_is_damaged_are_told_as_such(author: Author, catalogue: Catalogue) -> None:
    """``zlib`` has an error of its own, which is none of a file."""
    damaged = gzip.compress(b'{"images": []}')[:10] + b"\xff" * 30
    files = {"instances.json": damaged, "val/1.jpg": b"1", "val/2.jpg": b"2"}
    (found,) = problems_of(author, catalogue, COCO, files)
    assert "is not a valid COCO annotation file: Error -3 while decompressing" in found


def test_arrays_whose_compression_is_damaged_are_told_as_such() -> None:
    stream = io.BytesIO()
    np.savez_compressed(stream, x=np.zeros(3))
    content = bytearray(stream.getvalue())
    at = content.index(b"x.npy") + len("x.npy")
    at += struct.unpack("<H", content[28:30])[0]  # what stands between a name and its bytes
    content[at : at + 20] = b"\xff" * 20
    with pytest.raises(MalformedError):
        read_arrays(io.BytesIO(content))


INDEX = (
    NPZ.replace("format: npz", "format: FORMAT")
    .replace("{test: {file: test.npz, fields: {image: x, label: y}, samples: 3}}", "{test: {index: i.csv, samples: 2}}")
    .replace("{path: test.npz, source: test.npz}", "{path: i.csv, source: i.csv}, {path: d/, source: d}")
)
WAV = b"RIFF\0\0\0\0WAVEfmt "


@pytest.mark.parametrize(
    ("form", "rows", "words"),
    [
        ("wav-index", ["path,label", "d/a.wav,1.5", "d/b.wav,-2"], []),
        ("wav-index", ["path,label", "d/a.wav,1", "d/c.png,2"], ["d/c.png is not a WAV file"]),
        ("image-index", ["path,mask", "d/a.wav,d/c.png", "d/b.wav,d/c.png"], []),
        ("image-index", ["path,mask", "d/a.wav,d/c.png", "d/b.wav,d/e.png"], ["d/e.png is not in files"]),
        ("image-index", ["path,mask", "d/a.wav,d/c.png", "d/b.wav,"], ["some samples have a mask and some do not"]),
        ("image-index", ["path", " d/a.wav", "d/b.wav "], [" d/a.wav is not in", "d/b.wav  is not in files"]),
        ("image-index", ["path,mask", "d/a.wav, d/c.png", "d/b.wav,d/c.png "], []),
        ("image-index", ["path,label", "d/a.wav,inf", "d/b.wav,1"], ["'inf' is neither an index nor a name"]),
        (
            "image-index",
            ["path, Label", "d/a.wav,1", "d/b.wav,1"],
            ["i.csv has an unknown column ' Label'"],
        ),
        ("image-index", ["path,lable", "d/a.wav,1", "d/b.wav,1"], ["i.csv has an unknown column 'lable'"]),
        ("image-index", ["path,part,batch,task", "d/a.wav,1,2,3", "d/b.wav,1,2,3"], []),
        ("image-index", ["path,label,label2", "d/a.wav,1,2", "d/b.wav,1,2"], []),
    ],
)
def test_an_index_names_files_and_labels_of_every_sort(
    author: Author, catalogue: Catalogue, form: str, rows: list[str], words: list[str]
) -> None:
    files = {"i.csv": "\n".join(rows).encode(), "d/a.wav": WAV, "d/b.wav": WAV, "d/c.png": b"png"}
    found = problems_of(author, catalogue, INDEX.replace("FORMAT", form), files)
    assert len(found) == len(words), found
    assert all(word in one for word, one in zip(words, found, strict=True))


def test_lines_of_an_index_are_told_one_by_one_up_to_a_number(author: Author, catalogue: Catalogue) -> None:
    rows = "".join(f"images/{number}.png,dog\n" for number in range(30))
    found = problems_of(author, catalogue, DATASET, PICTURES | {"index.csv": f"path,label\n{rows}".encode()})
    assert found[0] == "images/0.png is not in files"
    assert found[-2:] == ["10 more lines of index.csv are wrong", "the split has 30 samples, not 3"]
    assert len(found) == 22
