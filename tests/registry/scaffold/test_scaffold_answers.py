"""Answers written into generated texts: in place of TODO lines, of values, or as new keys."""

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.scaffold.scaffold_answers import (
    CONFIRMED,
    add_file,
    find_value,
    is_confirmation,
    list_open,
    locate_todos,
    parse_answer,
    write_answers,
)
from benchlock.registry.text.collected_problems import Finding, ImportNotes
from benchlock.registry.text.yaml import read_yaml

KINDS = "write image or tensor"


def scaffold() -> tuple[str, list[Finding]]:
    notes = ImportNotes()
    text = f"""\
# A comment.
name: net
{notes.todo("task", "task", "task", "no file states it", "write one")}
inputs:
  - name: x
    {notes.todo("inputs[0].type", "input-type", "type", "unknown", KINDS)}
    shape: [null, 8]
    {notes.todo("inputs[0].shape", "inferred", "confirm", "axis 0 is dynamic", "check")}
  - name: y
    {notes.todo("inputs[1].type", "input-type", "type", "unknown", KINDS)}
    steps:
      - decode:
          color: L
splits: {{test: {{samples: 1}}}}
files:
  - path: net.onnx
"""
    return text, notes.findings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("image", "image"),
        (">=1.20 <2", ">=1.20 <2"),
        (" 7 ", 7),
        ("null", None),
        ("[{scale: {factor: 0.5}}]", [{"scale": {"factor": 0.5}}]),
        ("{a: 1}", {"a": 1}),
        ("'7'", "7"),
    ],
)
def test_a_value_is_a_plain_text_or_yaml_in_brackets_or_quotes(text: str, value: object) -> None:
    assert parse_answer(text, "--set x") == value


def test_a_broken_collection_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not YAML"):
        parse_answer("[1, 2", "--set x")


def test_an_answer_replaces_its_own_todo_line_even_if_another_reads_the_same() -> None:
    text, findings = scaffold()
    answered = write_answers(text, findings, {"inputs[1].type": "tensor"})
    assert answered.splitlines()[9] == "    type: tensor"
    assert answered.count("# TODO type") == 1
    assert answered.replace("    type: tensor", text.splitlines()[9]) == text


def test_a_confirmation_deletes_its_line_and_another_value_replaces_the_generated_one() -> None:
    text, findings = scaffold()
    confirmed = write_answers(text, findings, {"inputs[0].shape": CONFIRMED})
    corrected = write_answers(text, findings, {"inputs[0].shape": [1, 8]})
    assert [is_confirmation(text, finding) for finding in findings] == [False, False, True, False]
    assert "TODO confirm" not in confirmed + corrected
    assert ("shape: [null, 8]" in confirmed, "shape: [1, 8]" in corrected) == (True, True)


def test_null_deletes_a_todo_line_without_writing_its_key() -> None:
    text, findings = scaffold()
    answered = write_answers(text, findings, {"task": None})
    assert "task" not in read_yaml(answered, "t").value
    assert "TODO task" not in answered


def test_a_value_with_lines_below_it_is_replaced_as_a_whole_and_keys_are_added_where_they_belong() -> None:
    text, findings = scaffold()
    answers = {
        "inputs[1].steps": [],
        "inputs[0].tolerance": {"absolute": 0.1, "relative": 0},
        "family": "nets",
        "name": "other",
    }
    document = read_yaml(write_answers(text, findings, answers), "t").value
    assert {path: find_value(document, path) for path in answers} == answers
    assert document["inputs"][1] == {"name": "y", "steps": []}
    assert list(document) == ["name", "inputs", "splits", "files", "family"]


@pytest.mark.parametrize(
    "path", ["splits.test.samples", "splits.train", "inputs[0]", "outputs[0].type", "inputs[7].type"]
)
def test_a_path_without_a_line_of_its_own_is_refused(path: str) -> None:
    text, findings = scaffold()
    with pytest.raises(InvalidInputError, match="cannot set"):
        write_answers(text, findings, {path: 1})


def test_open_findings_have_no_answer_for_them_or_for_what_contains_them() -> None:
    _, findings = scaffold()
    paths = [finding.path for finding in list_open(findings, {"inputs": [], "name": "net"})]
    assert paths == ["task"]
    assert len(list_open(findings, {"inputs[1].types": 1})) == 4


def test_a_file_is_added_once() -> None:
    text, _ = scaffold()
    file = {"path": "labels.txt", "role": "labels", "source": "../labels.txt"}
    once = add_file(text, file)
    assert read_yaml(once, "t").value["files"] == [file, {"path": "net.onnx"}]
    assert add_file(once, file) == once


def test_a_value_is_found_by_its_path() -> None:
    document = {"a": [{"b": {"c": 1}}]}
    assert [find_value(document, path) for path in ("a[0].b.c", "a[1].b", "a.b", "x")] == [1, None, None, None]


def test_a_todo_line_is_located_where_its_key_belongs() -> None:
    notes = ImportNotes()
    text = f"""\
splits:
  test:
    file: x.npz
    {notes.todo("splits.fields", "fields", "fields", "x", "y")}
inputs:
  - name: x
    steps:
      {notes.todo("inputs[0].steps", "resize", "confirm", "about the resize", "check")}
      - decode:
          color: L
          {notes.todo("inputs[0].steps", "exif", "exif", "x", "write ignore or apply")}
framework:
  name: n
  {notes.todo("framework.version", "no-framework-version", "framework.version", "x", "y")}
"""
    located = locate_todos(text, notes.findings)
    assert [finding.path for finding in located] == [
        "splits.test.fields",
        "inputs[0].steps",
        "inputs[0].steps[0].decode.exif",
        "framework.version",
    ]
    confirmed = {"inputs[0].steps": CONFIRMED}
    assert [finding.path for finding in list_open(located, confirmed)][1] == "inputs[0].steps[0].decode.exif"
    answered = write_answers(text, located, confirmed | {"inputs[0].steps[0].decode.exif": "ignore"})
    document = read_yaml(answered, "t").value
    assert document["inputs"][0]["steps"] == [{"decode": {"color": "L", "exif": "ignore"}}]
    replaced = write_answers(text, located, {"inputs[0].steps": []})
    assert "TODO exif" not in replaced
