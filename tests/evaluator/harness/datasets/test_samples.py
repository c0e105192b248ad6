"""Samples and labels from an index of files and from idx files."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job import Dataset
from benchlock.evaluator.harness.datasets import open_samples

TYPES = {"uint8": 0x08, "int32": 0x0C, "float32": 0x0D}


def idx(values: NDArray[Any]) -> bytes:
    header = struct.pack(">BBBB", 0, 0, TYPES[str(values.dtype)], values.ndim)
    return (
        header
        + struct.pack(f">{values.ndim}I", *values.shape)
        + values.astype(values.dtype.newbyteorder(">")).tobytes()
    )


def index(folder: Path, text: str, samples: int, labels: str | None = None) -> Dataset:
    (folder / "test.csv").write_text(text)
    return Dataset("image-index", {"index": "test.csv", "samples": samples}, labels)


def test_an_index_is_read_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"X")
    (tmp_path / "y.png").write_bytes(b"Y")
    samples = open_samples(index(tmp_path, "label,path\n7,y.png\n3,a/x.png\n", 2), tmp_path)
    assert (samples.names, samples.labels) == (["y.png", "a/x.png"], (7, 3))
    assert [samples.read(number) for number in range(2)] == [{"image": b"Y"}, {"image": b"X"}]
    assert samples.fields == {"image"}


def test_paths_are_relative_to_the_index(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "x.png").write_bytes(b"X")
    (tmp_path / "tree" / "test.csv").write_text("path,label\nx.png,1\n")
    samples = open_samples(Dataset("image-index", {"index": "tree/test.csv", "samples": 1}, None), tmp_path)
    assert samples.read(0) == {"image": b"X"}


def test_a_label_is_an_index_or_a_name(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\ndog\n3\ncat\n", encoding="utf-8")
    samples = open_samples(index(tmp_path, "path,label\na,dog\nb,0\nc,cat\nd,3\n", 4, "labels.txt"), tmp_path)
    # Digits are an index even where a name is spelt like them; of equal names the first counts.
    assert samples.labels == (1, 0, 0, 3)


@pytest.mark.parametrize("text", ["path\na\nb\n", "path,label\na,\nb,\n"])
def test_a_split_without_labels_is_unlabelled(tmp_path: Path, text: str) -> None:
    assert open_samples(index(tmp_path, text, 2), tmp_path).labels is None


@pytest.mark.parametrize(
    ("text", "samples", "message"),
    [
        ("path,label\na,1\n", 2, "has 1 samples, but its manifest states 2"),
        ("path,label\n", 0, "no samples"),
        ("path,label\na,1\nb,bird\n", 2, "test.csv line 3: 'bird' is neither a label index nor a label name"),
        ("path,label\na,1\nb,\n", 2, "line 3: label missing, but other samples have one"),
        ("picture,label\na,1\n", 1, "no column 'path'"),
        ("path,label\n../../etc/passwd,1\n", 1, "outside the dataset"),
    ],
)
def test_an_index_that_is_wrong_says_where(tmp_path: Path, text: str, samples: int, message: str) -> None:
    with pytest.raises(Failure, match=message) as caught:
        open_samples(index(tmp_path, text, samples), tmp_path)
    assert caught.value.kind == "load"


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_gzip_or_not_by_their_content(tmp_path: Path, packed: bool) -> None:
    pictures = np.random.default_rng(1).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    classes = np.array([3, 1, 4, 1, 5], np.int32)
    for name, values in (("images", pictures), ("labels", classes)):
        (tmp_path / name).write_bytes(gzip.compress(idx(values)) if packed else idx(values))
    samples = open_samples(Dataset("idx", {"images": "images", "labels": "labels", "samples": 5}, None), tmp_path)
    assert samples.labels == (3, 1, 4, 1, 5)
    np.testing.assert_array_equal(
        np.stack([np.asarray(samples.read(number)["image"]) for number in range(5)]), pictures
    )
    assert samples.names[2] == "images[2]"


def test_idx_pictures_without_labels_are_unlabelled(tmp_path: Path) -> None:
    (tmp_path / "images").write_bytes(idx(np.zeros((2, 4, 4, 3), np.uint8)))
    assert open_samples(Dataset("idx", {"images": "images", "samples": 2}, None), tmp_path).labels is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(np.zeros((2, 4, 4), np.uint8))[:-1], "bytes, but its header states"),
        (gzip.compress(idx(np.zeros((2, 4, 4), np.uint8)))[:-9], "EOFError"),
        (b"\x89PNG", "not an idx file"),
        (b"", "not an idx file"),
        (idx(np.zeros((2, 4, 4), np.float32)), "float32 .* is not an array of 8-bit pictures"),
        (idx(np.zeros(2, np.uint8)), "is not an array of 8-bit pictures"),
    ],
    ids=["cut", "cut-gzip", "png", "empty", "floats", "one-axis"],
)
def test_an_idx_file_that_is_wrong_says_how(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "images").write_bytes(content)
    with pytest.raises(Failure, match=message):
        open_samples(Dataset("idx", {"images": "images", "samples": 2}, None), tmp_path)


def test_a_label_a_picture(tmp_path: Path) -> None:
    (tmp_path / "images").write_bytes(idx(np.zeros((2, 4, 4), np.uint8)))
    (tmp_path / "labels").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(Failure, match=r"labels: uint8 \[3\] for 2 pictures"):
        open_samples(Dataset("idx", {"images": "images", "labels": "labels", "samples": 2}, None), tmp_path)


def test_a_format_that_is_not_built_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="'tfrecord' is not supported"):
        open_samples(Dataset("tfrecord", {"samples": 1}, None), tmp_path)
