"""Rules that are broken are told beside keys that are missing, and none that the missing keys might mend."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.manifests.authored_manifests import find_certain_problems
from benchlock.registry.manifests.manifest_checks import check
from benchlock.registry.manifests.manifest_types import Manifest
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.decoder import convert
from benchlock.registry.text.parsed_text import Document, Place
from benchlock.registry.text.yaml import read_yaml
from tests.support.registry.authored import read_authored

GOOD = sorted((Path(__file__).resolve().parents[2] / "cases" / "manifests" / "good").glob("*.yaml"))

MODEL = """\
schema: 1
kind: model
name: spoken-word
version: 1.0.0
license: Apache-2.0
task: audio-classification
framework: {name: onnxruntime, version: "*"}
format: onnx
inputs:
  - name: input
    type: audio
    dtype: float32
    shape: [null, 576]
    steps:
      - decode: {channels: mono}
      - frame: {length: 512, step: 512, pad_start: 64, pad_end: false, calls: each}
  - {name: state, type: state, dtype: float32, shape: [2, null, 128], from: memory, initial: zeros, reset: sample}
  - {name: rate, type: constant, dtype: int64, shape: [], batch_axis: none, value: 1.5}
outputs:
  - {name: output, type: class-scores, dtype: float32, shape: [null, 1]}
  - {name: memory_out, type: state, dtype: float32}
files:
  - {path: net.onnx, role: graph, source: net.onnx}
"""
RULES = {
    "inputs[0].shape",  # frames of 512, and not of 576
    "inputs[1].from",
    "inputs[2].value",
    "outputs[0].label_offset",
    "outputs[0].threshold",
    "outputs[0].reduce",
}


def places(text: str) -> set[str]:
    with pytest.raises(InvalidInputError) as caught:
        read_authored(text, "manifest.yaml")
    return {str(one.where).partition(" ")[0] for one in caught.value.problems or (caught.value,)}


def test_every_rule_of_the_model_is_broken() -> None:
    assert places(MODEL) == RULES


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        (["license: Apache-2.0\n"], {"license"}),
        (["task: audio-classification\n", "version: 1.0.0\n", "license: Apache-2.0\n"], {"task", "version", "license"}),
        (["format: onnx\n"], {"format"}),
        (['framework: {name: onnxruntime, version: "*"}\n'], {"framework"}),
    ],
)
def test_rules_are_told_beside_keys_that_are_missing(lines: list[str], missing: set[str]) -> None:
    text = MODEL
    for line in lines:
        assert line in text
        text = text.replace(line, "")
    assert places(text) == RULES | missing


def test_rules_are_told_beside_values_that_do_not_fit() -> None:
    text = MODEL.replace("schema: 1", "schema: 2").replace("reset: sample", "reset: often").replace("mono", "stereo")
    wrong = {"schema", "inputs[1].reset", "inputs[0].steps[0].decode.channels"}
    assert places(text) == RULES - {"inputs[0].shape", "outputs[0].reduce"} | wrong


def test_rules_of_other_parts_are_told_beside_what_an_input_lacks() -> None:
    told = places(MODEL.replace("    type: audio\n", ""))
    assert {"inputs[0].type", "inputs[1].from", "inputs[2].value", "outputs[0].label_offset"} <= told
    assert "outputs[0].reduce" not in places(
        MODEL.replace("    type: audio\n", "").replace("shape: [null, 1]", "reduce: max")
    )


def test_a_todo_line_stands_for_the_rules_of_its_key() -> None:
    text = MODEL.replace("license: Apache-2.0\n", "# TODO license: none; write one\n")
    text = text.replace("files:\n", "# TODO outputs[0].label_offset: unknown; write it\nfiles:\n")
    assert places(text) == (RULES - {"outputs[0].label_offset"}) | {"manifest.yaml,"}


def test_rules_of_a_long_text_are_told_beside_keys_that_are_missing() -> None:
    files = "".join(f"  - {{path: file-{number}, role: card, source: file-{number}}}\n" for number in range(900))
    assert places(MODEL.replace("license: Apache-2.0\n", "") + files) == RULES | {"license"}


@pytest.mark.parametrize(
    ("right", "wrong", "place"), [("kind: model", "kind: modle", "kind"), ("kind: model", "kid: model", "kid")]
)
def test_rules_and_types_of_all_kinds_are_told_beside_an_unknown_kind(right: str, wrong: str, place: str) -> None:
    text = MODEL.replace(right, wrong).replace("1.0.0", "one").replace("license:", "licence:")
    assert places(text) == {place, "version", "licence"}


PICTURES = """\
schema: 1
kind: model
name: two-pictures
version: 1.0.0
license: Apache-2.0
task: image-classification
framework: {name: onnxruntime, version: "*"}
format: onnx
inputs:
  - name: left
    type: image
    dtype: float32
    shape: [null, 32, 32, 3]
    layout: NHWC
    steps:
      - decode: {color: RGB, exif: ignore}
      - resize: {size: [64, 64], method: bilinear, antialias: true}
      - center_crop: {size: [32, 32]}
      - cast: {dtype: float32}
outputs:
  - {name: output, type: class-scores, dtype: float32, shape: [null, 10], label_offset: 0}
files:
  - {path: net.onnx, role: graph, source: net.onnx}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "place"),
    [
        ("size: [64, 64]", "size: [64]", "inputs[0].steps[1].resize.size"),
        ("size: [64, 64]", "size: [-64, 64]", "inputs[0].steps[1].resize.size[0]"),
        ("size: [64, 64]", "siz: [64, 64]", "inputs[0].steps[1].resize.siz"),
        ("resize:", "resise:", "inputs[0].steps[1].resise"),
        ("layout:", "laiout:", "inputs[0].laiout"),
        ("label_offset:", "label_ofset:", "outputs[0].label_ofset"),
        ("shape: [null, 10]", "shape: [null, [10]]", "outputs[0].shape[1]"),
        ("role: graph", "rol: graph", "files[0].rol"),
        ("source: net", "sorce: net", "files[0].sorce"),
    ],
)
def test_a_wrong_key_or_value_is_the_only_problem(right: str, wrong: str, place: str) -> None:
    read_authored(PICTURES, "manifest.yaml")
    assert PICTURES.count(right) == 1
    assert places(PICTURES.replace(right, wrong)) == {place}


def test_rules_of_other_parts_are_told_beside_an_unknown_key() -> None:
    text = PICTURES.replace("resize:", "resise:").replace("[null, 10]", "[null, 1]").replace("1.0.0", "one")
    assert places(text) == {"inputs[0].steps[1].resise", "outputs[0].threshold", "version"}


def paths_of(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all keys and elements of a document."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key)
            yield from paths_of(inner, (*path, key))


def without(value: object, path: tuple[str | int, ...]) -> None:
    """Remove what is at a path, if it is still there."""
    *above, last = path
    for key in above:
        if isinstance(value, dict) and key not in value:
            return
        assert isinstance(value, dict | list)
        value = value[key]  # type: ignore[index]
    if isinstance(value, dict):
        value.pop(last, None)


def misspell(value: object, path: tuple[str | int, ...]) -> None:
    """Rename the key at a path."""
    *above, last = path
    for key in above:
        value = value[key]  # type: ignore[index]
    assert isinstance(value, dict)
    value[f"{last}x"] = value.pop(last)


def is_required(value: object, path: tuple[str | int, ...]) -> bool:
    """Whether the keys of a manifest do not fit once the one at a path is removed."""
    value = deepcopy(value)
    without(value, path)
    try:
        convert(Document(value, "manifest.yaml"), Manifest)
    except InvalidInputError:
        return True
    return False


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_no_rule_is_told_of_a_manifest_that_lacks_keys_alone(path: Path) -> None:
    """A good manifest without some of its keys has a completion that breaks no rule: itself."""
    original = read_yaml(path.read_bytes(), path.name)
    paths = [one for one in paths_of(original.value) if is_required(original.value, one)]
    choose = Random(path.stem)
    for _ in range(8):
        value = deepcopy(original.value)
        for one in choose.sample(paths, choose.randint(1, 4)):
            without(value, one)
        problems = find_certain_problems(Document(value, path.name))
        assert not problems, value


def misspellings(value: object, name: str) -> Iterator[tuple[Document, set[str]]]:
    """Documents with one misspelled key each, and the places of the key as it is and as it was."""
    for path in paths_of(value):
        if isinstance(path[-1], str):
            misspelled = deepcopy(value)
            misspell(misspelled, path)
            document = Document(misspelled, name)
            above = Place(document).at(*path[:-1])
            yield document, {above.at(path[-1]).path, above.at(f"{path[-1]}x").path}


def places_of(problems: Problems) -> set[str]:
    return {str(one.where).partition(" (")[0] for one in problems.found}


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_misspelled_key_of_a_good_manifest_is_the_only_problem(path: Path) -> None:
    refused = 0
    for document, key in misspellings(read_yaml(path.read_bytes(), path.name).value, path.name):
        problems = Problems()
        with problems.noted():
            convert(document, Manifest)
        if problems.found:  # a name of a split or field may be any
            refused += 1
            assert places_of(problems) <= key
            assert not find_certain_problems(document), key
    assert refused


def test_a_misspelled_key_adds_no_problem_to_a_manifest_that_breaks_rules() -> None:
    value = read_yaml(MODEL, "manifest.yaml").value
    with pytest.raises(InvalidInputError) as caught:
        check(convert(Document(value, "manifest.yaml"), Manifest), Document(value, "manifest.yaml"), published=False)
    broken = {(one.what, one.where) for one in caught.value.problems}
    for document, key in misspellings(value, "manifest.yaml"):
        assert {(one.what, one.where) for one in find_certain_problems(document)} <= broken, key
