"""The difference of two locks, as a person reads it and as a script does: golden cases, and what holds of any two."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from benchlock.registry.lock.lock_diff import Change, diff
from benchlock.registry.lock.lockfile import Lock, read
from benchlock.registry.lock.manifest_diff import find_content_changes
from tests.support.registry.authored import read_authored
from tests.support.resolution.locks import request, shelf
from tests.support.resolution.variants import variant

ROOT = Path(__file__).resolve().parents[2] / "cases"
CASES = sorted((ROOT / "diffs").glob("*.json"))
MANIFEST = ROOT / "manifests" / "good" / "everything-else.yaml"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_difference_is_told_as_the_case_says(path: Path) -> None:
    case = json.loads(path.read_text())
    before, after = variant(case["before"]), variant(case["after"])
    known = {
        digest: manifest
        for digest, manifest in {**before.manifests, **after.manifests}.items()
        if manifest.kind not in case.get("unknown", ())
    }
    changes = diff(before.lock, after.lock, known)
    assert [line for change in changes for line in str(change).split("\n")] == case["prose"]
    assert json.loads(encode(changes)) == case["changes"]
    back = diff(after.lock, before.lock, known)
    assert {change.subject for change in back} == {change.subject for change in changes}
    assert diff(before.lock, before.lock, known) == diff(after.lock, after.lock, known) == ()


def test_the_cases_are_many_and_each_says_what_it_is() -> None:
    assert len(CASES) >= 12
    assert len({json.loads(path.read_text())["says"] for path in CASES}) == len(CASES)


def places(value: Any, *above: str | int) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401 - any parsed value
    """Where a whole number or a digest stands."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], *above, key)
    elif isinstance(value, int) or (isinstance(value, str) and len(value.removeprefix("sha256:")) == 64):
        yield above


def changed(document: dict[str, Any], place: tuple[str | int, ...]) -> Lock:
    document = deepcopy(document)
    found: Any = document
    for key in place[:-1]:
        found = found[key]
    value = found[place[-1]]
    found[place[-1]] = value + 1 if isinstance(value, int) else value[:-1] + ("0" if value[-1] != "0" else "1")
    return read(document, "changed")


LOCK = shelf().lock(request())


@pytest.mark.parametrize("place", list(places(LOCK.document)), ids=lambda place: ".".join(map(str, place)))
def test_no_change_of_a_lock_goes_unsaid(place: tuple[str | int, ...]) -> None:
    """Whatever number or digest differs, something under its table's name is told."""
    changes = diff(LOCK, changed(LOCK.document, place), {})
    assert changes
    assert all(str(place[0]) in change.subject for change in changes)


def test_what_is_long_is_told_line_by_line() -> None:
    short = Change("model/x", "1.0.0", "1.1.0", ("weights changed", "labels the same"))
    assert str(short) == "model/x 1.0.0 → 1.1.0: weights changed, labels the same"
    long = Change("model/x", "1.0.0", "1.1.0", ("a" * 60, "b" * 60))
    assert str(long) == f"model/x 1.0.0 → 1.1.0:\n  {'a' * 60}\n  {'b' * 60}"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("iou: 0.5", "iou: 0.6", "detections changed: predictions.nms.iou 0.5 → 0.6"),
        ("nms: {iou: 0.5, per_class: true}", "nms: null", "detections changed: predictions.nms {…} → null"),
        ("label_offset: 1", "label_offset: 0", "detections changed: predictions.label_offset 1 → 0"),
        ("function: build", "function: build_small", "code.function build → build_small"),
        ("unsafe: true\n", "", "unsafe removed: true"),
        ("format: safetensors", "format: safetensors\ndescription: Words.", "description changed"),
        ("rate: 16000, mels", "rate: 8000, mels", "preprocessing changed: inputs[0].steps[4].mfcc.rate 16000 → 8000"),
        ("absolute: 0,", "absolute: 0.1,", "tolerance changed: inputs[0].tolerance.absolute 0.0 → 0.1"),
        ("[[1, 0], [0, 1]]", "[[1, 0], [0, 2]]", "inputs changed: inputs[4].value [[1, 0], [0, 1]] → [[1, 0], [0, 2]]"),
        ("topk: {k: 5}", "topk: {k: 3}", "postprocessing changed: outputs[2].steps[0].topk.k 5 → 3"),
        (", reduce: max", "", "outputs changed: outputs[2].reduce removed: max"),
        ('"^2.13"', '"^2.14"', "required framework: framework.version ^2.13 → ^2.14"),
    ],
)
def test_whatever_a_model_says_otherwise_is_told_by_what_it_does(old: str, new: str, told: str) -> None:
    text = MANIFEST.read_text()
    assert text.count(old) == 1
    before, after = (read_authored(one, "manifest.yaml") for one in (text, text.replace(old, new)))
    (found,) = find_content_changes(before, after)
    assert found == told.replace("{…}", "{iou: 0.5, per_class: true}")
    assert [*find_content_changes(before, before)] == []
