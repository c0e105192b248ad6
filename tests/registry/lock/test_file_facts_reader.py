"""Files that a lock depends on: read in place where they are small, in a process with limits where they are not."""

import gzip
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs
from numpy.typing import NDArray
from pyarrow import parquet

from benchlock.artifacts.digest import digest_bytes, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.file_trees import TreeEntry, encode_listing
from benchlock.artifacts.isolation.isolated_calls import run_isolated
from benchlock.artifacts.isolation.resource_limits import LimitExceededError
from benchlock.registry.artifact_names import Kind
from benchlock.registry.inspection.file_facts import ComparedLabels, FileFacts, FileQuestions, ResampledField
from benchlock.registry.lock import file_facts_reader
from benchlock.registry.lock.file_facts_reader import SMALL, read_file_facts
from benchlock.registry.manifests import File, Manifest
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.resolution.locks import shelf

INDEX = FileQuestions(index="i.csv")


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that were called in a child process."""
    called = list[str]()

    def noted(function: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as it is
        called.append(function)
        return run_isolated(function, *arguments, **options)

    monkeypatch.setattr(file_facts_reader, "run_isolated", noted)
    return called


def facts(questions: FileQuestions, files: Mapping[Kind, Mapping[str, bytes]], size: int | None = None) -> FileFacts:
    """Ask about files of a model, a dataset and an image; ``size`` is that of what their trees hold."""
    store, chosen = MemoryStore(), shelf().chosen
    manifests: dict[Kind, Manifest] = {"model": chosen.model, "dataset": chosen.dataset, "image": chosen.image}
    for kind, contents in files.items():
        for content in contents.values():
            store.put(io.BytesIO(content))
        listed = tuple(
            File(path=path, sha256=to_hex(digest_bytes(content)), size=len(content) if size is None else size)
            for path, content in contents.items()
        )
        manifests[kind] = structs.replace(manifests[kind], files=listed)
    return read_file_facts(questions, manifests, store)


def test_small_files_need_no_process_and_large_ones_have_one(children: list[str]) -> None:
    index = b"path,label,mask\na.png,1,\n"
    assert facts(INDEX, {"dataset": {"i.csv": index}}).label_columns == ("label",)
    assert children == []
    index += b"b.png,2,\n" * SMALL
    assert facts(INDEX, {"dataset": {"i.csv": index}}).label_columns == ("label",)
    assert children == ["benchlock.registry.lock.file_facts_reader:answer_isolated"]


def test_compressed_files_and_files_in_trees_are_never_read_in_place(children: list[str]) -> None:
    annotations = gzip.compress(json.dumps({"images": [], "categories": [{"id": 1, "name": "b"}]}).encode())
    questions = FileQuestions(compared=(ComparedLabels(0, "l.txt", "a.json", 0, categories=True),))
    found = facts(questions, {"model": {"l.txt": b"a\nb\n"}, "dataset": {"a.json": annotations}})
    assert found.compared[0].count == 0
    inside = b"path,mask\na.png,m.png\n"
    listing = encode_listing([TreeEntry("i.csv", to_hex(digest_bytes(inside)), len(inside))])
    store_too: dict[Kind, dict[str, bytes]] = {"model": {"x": inside}, "dataset": {"t/": listing}}
    found = facts(FileQuestions(index="t/i.csv"), store_too, size=len(inside))
    assert found.label_columns == ("mask",)
    assert len(children) == 2


@pytest.mark.parametrize(
    ("values", "is_without_rate"),
    [
        (np.zeros((2, 8), "float32"), True),
        (np.zeros((2, 8, 2), ">i2"), True),
        (np.zeros((2, 8), "uint8"), False),  # may be bytes of a WAV file
        (np.array([b"RIFF", b"RIFF"]), False),
    ],
)
def test_sounds_of_an_npz_file_have_a_rate_if_they_are_files(values: NDArray[Any], *, is_without_rate: bool) -> None:
    file = io.BytesIO()
    np.savez_compressed(file, sound=values)
    questions = FileQuestions(resampled=(ResampledField(1, "t", "sound", "npz"),))
    assert facts(questions, {"dataset": {"t": file.getvalue()}}).without_rate == ((1,) if is_without_rate else ())


@pytest.mark.parametrize(
    ("values", "is_without_rate"),
    [
        (pa.array([[1.0]], pa.list_(pa.float32())), True),
        (pa.array([[1]], pa.large_list(pa.int16())), True),
        (pa.array([[[1.0, 2.0]]], pa.list_(pa.list_(pa.float64(), 2))), True),
        (pa.array([[1]], pa.list_(pa.uint8())), False),
        (pa.array([b"RIFF"]), False),
    ],
    ids=str,
)
@pytest.mark.parametrize("key", ["sound", "audio.sound"])
def test_sounds_of_a_parquet_file_have_a_rate_if_they_are_files(
    values: pa.Array, key: str, *, is_without_rate: bool
) -> None:
    file = io.BytesIO()
    column = pa.StructArray.from_arrays([values, pa.array([1.0])], ["sound", "rate"])
    parquet.write_table(pa.table({"sound": values, "audio": column}), file)
    questions = FileQuestions(resampled=(ResampledField(0, "t", key, "parquet"),))
    assert facts(questions, {"dataset": {"t": file.getvalue()}}).without_rate == ((0,) if is_without_rate else ())


def test_many_differences_are_counted_and_some_are_told() -> None:
    names = [f"n{number}" for number in range(20_000)]
    questions = FileQuestions(compared=(ComparedLabels(0, "l.txt", "l.txt", 0),))
    of_model, of_dataset = ("\n".join(some).encode() for some in (["background", *names], names))
    (found,) = facts(questions, {"model": {"l.txt": of_model}, "dataset": {"l.txt": of_dataset}}).compared
    assert (found.count, found.shift, len(found.shown)) == (20_000, 1, 1000)


def test_what_is_too_large_is_refused_with_its_path_and_artifact() -> None:
    questions = FileQuestions(compared=(ComparedLabels(0, "l.txt", "l.txt", 0),))
    with pytest.raises(InvalidInputError, match=r"l\.txt has more than 16 MiB") as caught:
        facts(questions, {"model": {"l.txt": bytes(17 << 20)}, "dataset": {"l.txt": b"a\n"}})
    assert caught.value.where == "l.txt (model/digits 1.0.0)"
    assert caught.value.next_step


def test_what_needs_more_than_the_limits_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_facts_reader, "LIMITS", structs.replace(file_facts_reader.LIMITS, memory=160 << 20))
    names = b"\n".join(b"%x" % number for number in range(1_500_000))
    questions = FileQuestions(compared=(ComparedLabels(0, "l.txt", "l.txt", 0),))
    with pytest.raises(LimitExceededError, match="160 MiB of memory") as caught:
        facts(questions, {"model": {"l.txt": names}, "dataset": {"l.txt": b"a\n"}})
    assert caught.value.where == "l.txt (model/digits 1.0.0)"


def test_what_is_missing_or_damaged_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"dataset/digits has no file i\.csv"):
        facts(INDEX, {"dataset": {"j.csv": b""}})
    listing = encode_listing([TreeEntry("j.csv", "0" * 64, 0)])
    with pytest.raises(InvalidInputError, match=r"dataset/digits 1\.0\.0 has no file t/i\.csv"):
        facts(FileQuestions(index="t/i.csv"), {"dataset": {"t/": listing}}, size=0)
    chosen = shelf().chosen
    with pytest.raises(IntegrityError, match=r"amd64/pylock\.toml is missing"):
        read_file_facts(FileQuestions(wheels=("amd64/pylock.toml",)), {"image": chosen.image}, MemoryStore())
