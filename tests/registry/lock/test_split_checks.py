"""What a split gives a model, and whether its labels are what a metric needs: refused when a lock is made."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec import UNSET, UnsetType, structs

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.file_facts import FileFacts, LabelComparison
from benchlock.registry.inspection.label_files import find_disagreements, parse_labels, read_categories
from benchlock.registry.lock.lock_feasibility import check_answerable, check_labels, find_compared_labels
from benchlock.registry.lock.split_checks import check_labelled, check_model_inputs, fields_of
from benchlock.registry.manifests import Dataset, Model, Split
from benchlock.registry.manifests.manifest_types import AudioInput, Detections, Output
from benchlock.registry.manifests.steps import AudioStep, DecodeAudio, Resample
from benchlock.registry.resolution.conflicts import ConflictError
from tests.support.registry.authored import read_authored
from tests.support.resolution.locks import MODEL, request, shelf
from tests.support.resolution.variants import variant

COLUMNS = {"file": "t.file", "fields": {"image": "x", "label": "y"}, "samples": 2}
INDEX = {"index": "t.file", "samples": 2}
ANNOTATED = {"annotations": "t.file", "images": "t.file", "samples": 2}


def dataset(form: str, split: Mapping[str, Any]) -> Dataset:
    files = [{"path": "t.file", "source": "t"}]
    made = read_authored(
        json.dumps(
            {"schema": 1, "kind": "dataset", "name": "d", "version": "1.0.0", "license": "MIT"}
            | {"format": form, "splits": {"test": split}, "files": files}
        ),
        "manifest.yaml",
    )
    assert isinstance(made, Dataset)
    return made


def model(**of_input: object) -> Model:
    made = read_authored(MODEL.format(version="1.0.0", offset=0), "manifest.yaml")
    assert isinstance(made, Model)
    return structs.replace(made, inputs=(structs.replace(made.inputs[0], **of_input),))


def fed(by: Dataset, **of_input: object) -> None:
    check_model_inputs(model(**of_input), by, by.splits["test"])


@pytest.mark.parametrize(
    ("form", "split", "fields"),
    [
        ("image-index", INDEX, ("image",)),
        ("wav-index", INDEX, ("audio",)),
        ("coco", ANNOTATED, ("image",)),
        ("parquet", COLUMNS, ("image",)),
        ("npz", COLUMNS | {"fields": {"a": "x", "label": "y", "b": "z"}}, ("a", "b")),
    ],
)
def test_fields_are_those_of_the_format_or_those_that_are_named(
    form: str, split: dict[str, Any], fields: tuple[str, ...]
) -> None:
    found = dataset(form, split)
    assert fields_of(found, found.splits["test"]) == fields


RESAMPLING = AudioInput(
    name="sound", dtype="float32", shape=(None, 8), steps=(
        AudioStep(decode=DecodeAudio(channels="mono")), AudioStep(resample=Resample(rate=8000, method="polyphase")),
    ),
)  # fmt: skip


def test_a_sound_that_is_resampled_has_a_rate() -> None:
    listening, rows = structs.replace(model(), inputs=(RESAMPLING,)), dataset("jsonl", COLUMNS)
    with pytest.raises(InvalidInputError, match="has no sample rate") as caught:
        check_model_inputs(listening, rows, rows.splits["test"])
    assert caught.value.next_step is not None
    without = structs.replace(RESAMPLING, steps=RESAMPLING.steps[:1])
    check_model_inputs(structs.replace(listening, inputs=(without,)), rows, rows.splits["test"])
    files = dataset("wav-index", {"index": "t.file", "samples": 2})
    check_model_inputs(listening, files, files.splits["test"])


@pytest.mark.parametrize("field", [UNSET, "image"])
def test_a_lock_refuses_to_resample_an_array_of_numbers(field: str | UnsetType) -> None:
    file = io.BytesIO()
    np.savez(file, x=np.zeros((2, 8), "int16"), wav=np.zeros((2, 8), "uint8"))
    held, audio = shelf(files={"dataset": {"images.idx": file.getvalue()}}), structs.replace(RESAMPLING, field=field)
    own = structs.replace(held.chosen.model, inputs=(audio,))

    def lock(key: str) -> None:
        split = Split(samples=2, file="images.idx", fields={"image": key, "label": "y"})
        rows = structs.replace(held.chosen.dataset, format="npz", splits={"test": split})
        chosen = replace(held.chosen, model=own, dataset=rows)
        replace(held, chosen=chosen).lock(request(metrics="[latency]"))

    lock("wav")
    with pytest.raises(
        InvalidInputError, match="the input sound resamples, but the audio of dataset/digits in npz"
    ) as caught:
        lock("x")
    assert caught.value.where == "model/digits inputs[0].steps"


def test_every_input_has_a_field() -> None:
    two = dataset("npz", COLUMNS | {"fields": {"left": "x", "right": "y"}})
    fed(two, field="right")
    with pytest.raises(
        InvalidInputError, match="the input input does not name a field, and dataset/d has several: left, right"
    ):
        fed(two)
    with pytest.raises(InvalidInputError, match="reads the field 'image', but dataset/d has left, right"):
        fed(two, field="image")
    with pytest.raises(InvalidInputError, match="is in wav-index, which cannot feed the input input of type image"):
        fed(dataset("wav-index", INDEX))


SWEEP = "{name: batch_sweep, batches: [1, 8], warmup: 0}"


@pytest.mark.parametrize(
    ("of_input", "taken"),
    [
        ({"shape": (1, 8, 8, 1), "batch_axis": 0}, 1),
        ({"shape": (8, 8, 8, 1), "batch_axis": 0}, 8),
        ({"shape": (8, 8, 1), "batch_axis": "none"}, 1),
        ({"shape": ("n", 8, 8, 1), "batch_axis": 0}, None),
        ({}, None),
    ],
)
def test_a_sweep_is_of_batches_that_the_model_takes(of_input: dict[str, Any], taken: int | None) -> None:
    asked = request(scenario=SWEEP, metrics="[throughput]")
    sweeping = replace(shelf().chosen, model=model(**of_input))
    if taken is None:
        check_answerable(asked, sweeping)
        return
    others = {1: "8", 8: "1"}[taken]
    words = f"model/digits 1.0.0 accepts only batches of {taken}, but the sweep requests {others}"
    with pytest.raises(InvalidInputError, match=words) as found:
        check_answerable(asked, sweeping)
    assert found.value.where == "scenario.batches"
    check_answerable(
        request(scenario=f"{{name: batch_sweep, batches: [{taken}], warmup: 0}}", metrics="[throughput]"), sweeping
    )


@pytest.mark.parametrize(
    ("form", "split", "metric", "words"),
    [
        ("coco", ANNOTATED, "map", ""),
        ("coco", ANNOTATED, "top1", "top1 needs classes as labels; dataset/d in coco has other labels"),
        ("image-index", INDEX, "map_50", "map_50 needs boxes as labels"),
        ("wav-index", INDEX, "miou", "miou needs masks as labels"),
        ("npz", COLUMNS, "mae", ""),
        ("jsonl", COLUMNS | {"fields": {"image": "x"}}, "top5", "top5 needs labels; the split test has none"),
        ("idx", {"images": "t.file", "samples": 2}, "top1", "top1 needs labels; the split test has none"),
    ],
)
def test_labels_are_of_the_sort_that_a_metric_needs(form: str, split: dict[str, Any], metric: str, words: str) -> None:
    if not words:
        check_labelled([metric], dataset(form, split), "test")
        return
    with pytest.raises(InvalidInputError, match=words):
        check_labelled([metric], dataset(form, split), "test")


def indexed(index: str, **asked: object) -> Mapping[str, Any]:
    splits = {"test": {"index": "i.csv", "samples": 1}}
    patch: dict[str, Any] = {"format": "image-index", "splits": splits, "labels": None}
    return {
        "dataset": patch | {"files": [{"path": "i.csv"}, {"path": "a.png"}]},
        "files": {"dataset/i.csv": index, "dataset/a.png": "picture"},
        "request": asked,
    }


def test_an_index_says_at_lock_whether_it_has_labels() -> None:
    variant(indexed("path,label\na.png,1\n"))
    for index in ("path\na.png\n", "path,label\na.png,\n"):
        with pytest.raises(InvalidInputError, match="top1 needs labels; the split test has none"):
            variant(indexed(index))
        variant(indexed(index, metrics=["latency"]))


class TestCategories:
    LISTED: ClassVar = {"images": [], "categories": [{"id": 1, "name": "Zero"}, {"id": 3, "name": "one"}]}

    def check(self, offset: int, names: str) -> None:
        """Compare the labels of a model that finds boxes, which it names, with those of the annotations."""
        boxes = Detections(
            boxes="boxes", scores="scores", classes=None, count=None, box_format="xyxy-relative", background=None,
            label_offset=offset, score_threshold=0.5, nms=None, max_detections=None,
        )  # fmt: skip
        outputs = (
            Output(name="boxes", type="boxes", dtype="float32"),
            Output(name="scores", type="box-scores", dtype="float32", labels="labels.txt"),
        )
        finding = structs.replace(model(), task="object-detection", outputs=outputs, predictions=boxes)
        chosen = replace(shelf().chosen, model=finding, dataset=dataset("coco", ANNOTATED))
        (compared,) = find_compared_labels(request(), chosen)
        assert (compared.dataset, compared.categories) == ("t.file", True)
        categories = read_categories(io.BytesIO(json.dumps(self.LISTED).encode()), "t.file")
        found = find_disagreements(parse_labels(names.encode(), "labels.txt"), categories, compared.offset)
        check_labels(request(), chosen, FileFacts(compared=(LabelComparison(len(found), None, found),)))

    def test_a_model_that_names_categories_must_name_them_by_their_ids(self) -> None:
        self.check(0, "background\nzero\nx\nONE\n")
        self.check(-1, "zero\nx\none\n")
        with pytest.raises(ConflictError, match="disagree about 2 labels") as caught:
            self.check(0, "zero\none\n")
        assert caught.value.conflict["labels"] == [
            {"name": "zero", "dataset": 1, "model": 0},
            {"name": "one", "dataset": 3, "model": 1},
        ]

    def test_what_holds_no_categories_is_refused(self) -> None:
        assert read_categories(io.BytesIO(b'{"images": []}'), "i.json") == {}
        for content in (b"[]", b"\x1f\x8bbroken", b"\xff"):
            with pytest.raises(InvalidInputError, match=r"i\.json is not a valid COCO annotation file"):
                read_categories(io.BytesIO(content), "i.json")
