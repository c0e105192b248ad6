"""The YAML that manifests and requests are written in: version 1.2, core schema."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.text.parsed_text import Place
from benchlock.registry.text.yaml import DEEPEST, GREATEST, list_todos, read_yaml, read_yaml_tolerantly


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no", "no"), ("on", "on"), ("yes", "yes"), ("y", "y"),
        ("true", True), ("FALSE", False), ("tRUE", "tRUE"),
        ("null", None), ("~", None), ("", None), ("none", "none"),
        ("12", 12), ("-3", -3), ("+4", 4), ("0777", 777), ("0o17", 15), ("0x1F", 31),
        ("1_000", "1_000"), ("0b1", "0b1"),
        ("3.10", 3.1), ("1.", 1.0), (".5", 0.5), ("1e3", 1000.0), ("-1.5E-3", -0.0015), (".", "."), ("1.2.3", "1.2.3"),
        ("2026-11-20", "2026-11-20"), ("12:30:00", "12:30:00"), ("'12'", "12"), ('"true"', "true"), ("<<", "<<"),
    ],
)  # fmt: skip
def test_a_scalar_is_what_the_core_schema_says(text: str, expected: object) -> None:
    """YAML 1.2.2, section 10.3.2."""
    value = read_yaml(f"key: {text}\n", "f.yaml").value["key"]
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("a: 1\nb: 2\na: 3", "duplicate key 'a'", "a (f.yaml, line 3)"),
        ("x:\n  - {c: 1, c: 2}", "duplicate key 'c'", "x[0].c (f.yaml, line 2)"),
        ("a: 1\n'a': 2", "duplicate key 'a'", "a (f.yaml, line 2)"),
        ("a: &x 1\nb: *x", "aliases are not supported", "b (f.yaml, line 2)"),
        ("a: &x 1\n*x : 2", "a key must be text, not an alias, a list or a mapping", "f.yaml, line 2"),
        ("? [a]\n: 1", "a key must be text, not an alias, a list or a mapping", "f.yaml, line 1"),
        ("1: 2", "the key 1 must be text", "f.yaml, line 1"),
        ("null: 2", "the key null must be text", "f.yaml, line 1"),
        ("a: !!int '1'", "the tag tag:yaml.org,2002:int is not supported", "a (f.yaml, line 1)"),
        ("a: !own {b: 1}", "the tag !own is not supported", "a (f.yaml, line 1)"),
        ("!!str a: 1", "the tag tag:yaml.org,2002:str is not supported", "f.yaml, line 1"),
        ("a: .nan", ".nan is not a finite number", "a (f.yaml, line 1)"),
        ("a: 1e999", "the number 1e999 is too large", "a (f.yaml, line 1)"),
        (f"a: {GREATEST + 1}", f"the number {GREATEST + 1} is too large", "a (f.yaml, line 1)"),
        ("a: " + "9" * 5000, "the number " + "9" * 40 + " is too large", "a (f.yaml, line 1)"),
        ('a: "\\ud800"', "not valid Unicode: lone surrogate", "a (f.yaml, line 1)"),
        ("a: [1\nb: 2", "not YAML: expected ',' or ']', but got ':'", "f.yaml, line 2"),
        ("a: \x07", "not YAML: unacceptable character #x0007: special characters are not allowed", "f.yaml"),
        ("--- 1\n--- 2", "several YAML documents in one file", "f.yaml, line 2"),
        ("# nothing\n", "no YAML document found", "f.yaml, line 2"),
        ("%YAML 1.1\n---\na: no", "unsupported YAML version", "f.yaml, line 2"),
    ],
)
def test_what_is_refused_says_where(text: str, what: str, where: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_yaml(text, "f.yaml")
    assert (caught.value.what, caught.value.where) == (what, where)


def test_everything_that_is_refused_is_told_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_yaml("a: [!x 1, !y 2]\nb: &c 3\nd: *c\n", "f.yaml")
    whats = ["the tag !x is not supported", "the tag !y is not supported", "aliases are not supported"]
    assert [one.what for one in caught.value.problems] == whats


def test_bytes_are_utf_8() -> None:
    assert read_yaml("\ufeffä: ö".encode(), "f.yaml").value == {"ä": "ö"}
    with pytest.raises(InvalidInputError) as caught:
        read_yaml(b"a: 1\nb: \xff", "f.yaml")
    assert caught.value.where == "f.yaml, line 2"


def test_deep_nesting_ends_in_an_error() -> None:
    assert read_yaml("[" * DEEPEST + "]" * DEEPEST, "f.yaml").value
    with pytest.raises(InvalidInputError, match="nested deeper than"):
        read_yaml("[" * 5000, "f.yaml")


def test_a_place_knows_the_line_of_its_key_or_of_the_nearest_above() -> None:
    place = Place(read_yaml("a:\n  b:\n    - c: 1\n      d:\n        3.10\n", "f.yaml"))
    assert str(place.at("a", "b", 0, "d").error("wrong").where) == "a.b[0].d (f.yaml, line 4)"
    assert str(place.at("a", "b", 0, "d", "e").error("wrong").where) == "a.b[0].d.e (f.yaml, line 4)"
    assert str(place.at("x").error("wrong").where) == "x (f.yaml, line 1)"
    assert place.at("a", "b", 0, "d").spelling == "3.10"


KEYS = st.text(max_size=80)
"""An implicit key has 1,024 characters at most (YAML 1.2.2, section 7.4.2), and an escaped one twelve for one."""
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-GREATEST, GREATEST)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_json_is_yaml(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """YAML 1.2.2, section 1.3: every JSON file is also a valid YAML file; escapes spare what YAML cannot hold raw."""
    assert read_yaml(json.dumps(value), "f.yaml").value == value


@given(st.text(alphabet=st.sampled_from("ab:- \n[]{}'\"&*!#|>%@`,?~.0"), max_size=30))
def test_any_text_gives_a_value_or_an_error(text: str) -> None:
    refused = refusal(text)
    assert refused is None or refused.where


def refusal(text: str) -> InvalidInputError | None:
    try:
        read_yaml(text, "f.yaml")
    except InvalidInputError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("text", "value", "oddity"),
    [
        ("a: 1\na: 2", {"a": 2}, ("a", 2, "duplicate key 'a'")),
        ("a: &x 1\nb: *x", {"a": 1, "b": None}, ("b", 2, "aliases are not supported")),
        ("a: !!str 1.0", {"a": 1.0}, ("a", 1, "the tag tag:yaml.org,2002:str is not supported")),
        ("1: 2", {"1": 2}, ("", 1, "the key 1 must be text")),
        ("a: .nan", {"a": ".nan"}, ("a", 1, ".nan is not a finite number")),
        ("a: 1e999", {"a": "1e999"}, ("a", 1, "the number 1e999 is too large")),
        ('a: "\\ud800"', {"a": "?"}, ("a", 1, "not valid Unicode: lone surrogate")),
        ("--- {a: 1}\n--- 2", {"a": 1}, ("", 2, "several YAML documents in one file")),
        ("%YAML 1.1\n---\na: no", {"a": "no"}, ("", 2, "unsupported YAML version")),
    ],
)
def test_the_tolerant_reader_goes_on_and_says_what_it_passed_over(
    text: str, value: object, oddity: tuple[str, int, str]
) -> None:
    document, oddities = read_yaml_tolerantly(text, "f.yaml")
    assert document.value == value
    assert [(one.path, one.line, one.what) for one in oddities] == [oddity]


@given(st.text(alphabet=st.sampled_from("ab:- \n[]{}'\"&*!#|>%@`,?~.0"), max_size=30))
def test_the_tolerant_reader_reads_what_the_strict_one_does(text: str) -> None:
    if refusal(text) is None:
        document, oddities = read_yaml_tolerantly(text, "f.yaml")
        assert document == read_yaml(text, "f.yaml")
        assert not oddities


def test_a_todo_is_a_comment_line_and_no_line_of_a_text() -> None:
    text = """# TODO first: one
a: |
  # TODO of a text

  more
# TODO second
b: "quoted
  # TODO of another text"
c: value # TODO at the end of a line
  # TODO: third
d: >-
  folded
  # TODO of a third text"""
    assert [(todo.line, todo.text) for todo in list_todos(text)] == [(1, "first: one"), (6, "second"), (10, "third")]


LINES = st.lists(
    st.sampled_from(
        ["# TODO x", "  # TODO y", "a: |", "  b: 1", "c: >-", "  text", "- |", "d: 'e", "  f'", "", "g: 1"]
    ),
    max_size=8,
)


@given(LINES)
@settings(max_examples=400)
def test_todos_can_be_deleted_without_changing_the_value(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if refusal(text) is None:
        todos = {todo.line for todo in list_todos(text)}
        rest = "".join(f"{line}\n" for number, line in enumerate(lines, 1) if number not in todos)
        assert read_yaml(rest or "~", "f.yaml").value == read_yaml(text, "f.yaml").value


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"k{number}: 1\n" for number in range(200_000)),
        "[" + "1," * 200_000 + "1]",
        b"a: " + b"x" * (5 << 20),
    ],
)
def test_a_text_that_would_take_long_is_not_parsed(text: bytes | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchlock.registry.text.yaml.read_events", None)
    for reader in (read_yaml, read_yaml_tolerantly):
        with pytest.raises(InvalidInputError, match="the text has more than") as raised:
            reader(text, "m.yaml")
        assert raised.value.where == "m.yaml"
