"""Manifests of MLModelScope: golden cases in both forms, and that nothing of an original is lost or ends in a fault."""

import copy
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.scaffold.mlmodelscope.mlmodelscope_import import ImportedManifest, ImportFailure, import_all
from benchlock.registry.scaffold.mlmodelscope.model_metadata import native_name
from benchlock.registry.text.collected_problems import Code, format_original
from benchlock.registry.text.yaml import GREATEST, entry_lines, format_flow, list_todos, read_yaml, read_yaml_tolerantly
from tests.support.registry.authored import read_authored

CASES = Path(__file__).resolve().parents[3] / "cases" / "mlmodelscope"
ORIGINALS = sorted(CASES.glob("*.yml"))
GOOD = [path for path in ORIGINALS if path.with_suffix(".native.yaml").exists()]
BAD = [path for path in ORIGINALS if path.with_suffix(".error.txt").exists()]
TEXTS = {path.stem: path.read_text() for path in GOOD}
VALUES = {stem: read_yaml_tolerantly(text, stem)[0].value for stem, text in TEXTS.items()}


def imported(text: str | bytes, called: str = "original.yml") -> ImportedManifest:
    found = import_all({called: text if isinstance(text, bytes) else text.encode()})[called]
    assert isinstance(found, ImportedManifest), found.error
    return found


def document(value: object) -> str:
    """A value as JSON, which is YAML."""
    return json.dumps(value)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_an_original_becomes_the_native_text_and_the_findings_of_its_case(path: Path) -> None:
    found = imported(path.read_bytes(), path.name)
    assert found.text == path.with_suffix(".native.yaml").read_text()
    assert [one.document() for one in found.findings] == json.loads(path.with_suffix(".findings.json").read_text())


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_what_is_no_original_says_why(path: Path) -> None:
    found = import_all({path.name: path.read_bytes()})[path.name]
    assert isinstance(found, ImportFailure)
    kind = "broken" if found.broken else "other"
    assert f"{kind}: {found.error}\n" == path.with_suffix(".error.txt").read_text()


def test_the_cases_are_whole_and_show_every_kind_of_finding() -> None:
    assert len(GOOD) >= 20
    assert len(BAD) >= 3
    assert set(ORIGINALS) == {*GOOD, *BAD}
    seen = {one.code for path in GOOD for one in imported(path.read_bytes()).findings}
    assert seen == set(get_args(Code)) - {"same-name"}


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_every_open_finding_is_one_todo_line_and_nothing_else_is(path: Path) -> None:
    found = imported(path.read_bytes(), path.name)
    lines = [todo.text for todo in list_todos(found.text)]
    asked = [f"{one.what}; {one.done}" for one in found.findings if one.todo]
    assert len(lines) == found.todos > 0
    assert all(any(line.endswith(text) for text in asked) for line in lines)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_what_is_written_is_native_apart_from_what_is_open(path: Path) -> None:
    """Without its TODO lines, the first fault is a key that is missing, or empty where a TODO stood."""
    lines = imported(path.read_bytes(), path.name).text.splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("# TODO"))
    with pytest.raises(InvalidInputError) as caught:
        read_authored(text, path.name)
    assert re.search(r"is missing|found null|first step .* is decode|the steps give|'sha256'", caught.value.what)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_native_text_is_refused_at_its_first_todo(path: Path) -> None:
    found = imported(path.read_bytes(), path.name)
    first = list_todos(found.text)[0]
    with pytest.raises(InvalidInputError) as caught:
        read_authored(found.text, "native.yaml")
    assert caught.value.what == f"not finished: TODO {first.text}"
    assert caught.value.where == f"native.yaml, line {first.line}"


def test_a_base_url_without_a_graph_is_reported() -> None:
    text = (CASES / "classification.yml").read_text()
    emptied = re.sub(r"graph_path: .*", "graph_path: ''", text)
    (found,) = [one for one in imported(emptied).findings if one.code == "base-url"]
    assert found.what.endswith("is a base without a file: graph_path is empty")


def test_the_second_of_two_equal_names_is_told_of_the_first() -> None:
    text = (CASES / "paper-whole.yml").read_text()
    other = text.replace("version: 2.0.0", "version: 2.1.0")
    found = import_all(
        {"a.yml": text.encode(), "b.yml": text.replace("egret", "Egret").encode(), "c.yml": other.encode()}
    )
    first, second, third = found.values()
    assert isinstance(first, ImportedManifest)
    assert isinstance(second, ImportedManifest)
    assert isinstance(third, ImportedManifest)
    assert first.name == second.name == third.name == "egret"
    (clash,) = [one for one in second.findings if one.code == "same-name"]
    assert clash.todo
    assert "egret is also the model of a.yml" in clash.what
    assert not [one for one in (*first.findings, *third.findings) if one.code == "same-name"]
    assert "\nname:" not in second.text


@pytest.mark.parametrize(
    ("written", "native"),
    [
        ("ResNet_v1_50", "resnet_v1_50"), ("FCN-16s PASCAL", "fcn-16s-pascal"), ("a__b..c--d", "a_b.c-d"),
        (" -x- ", "x"), ("Ünder", "nder"), ("a/b", "a-b"), ("???", None), ("", None), ("x" * 129, None),
    ],
)  # fmt: skip
def test_a_name_becomes_the_nearest_by_the_rule(written: str, native: str | None) -> None:
    assert native_name(written) == native


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-GREATEST, GREATEST)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.text(max_size=20))
def test_lines_of_yaml_hold_the_value_that_was_put(value: Any, key: str) -> None:  # noqa: ANN401
    def same(found: object) -> bool:
        return document(found) == document(value)

    assert same(read_yaml("\n".join(entry_lines(key, value)), "f.yaml").value[key])
    assert same(read_yaml(f"- {format_flow(value)}", "f.yaml").value[0])


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_what_is_shown_is_one_line_of_a_comment(text: str) -> None:
    assert len(read_yaml(f"a: 1 # {format_original(text)}\nb: 2\n", "f.yaml").value) == 2


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:  # noqa: ANN401
    """The paths of all values that hold no others."""
    if isinstance(value, dict | list) and value:
        keyed = value.items() if isinstance(value, dict) else enumerate(value)
        return [leaf for key, inner in keyed for leaf in leaves(inner, (*path, key))]
    return [path]


def spelled(path: tuple[str | int, ...]) -> list[str]:
    """The path and those above it, as findings spell them."""
    texts = [""]
    for key in path:
        above = texts[-1]
        texts.append(f"{above}[{key}]" if isinstance(key, int) else f"{above}.{key}" if above else key)
    return texts[1:]


def replaced(value: Any, path: tuple[str | int, ...], new: object) -> Any:  # noqa: ANN401
    changed = copy.deepcopy(value)
    within = changed
    for key in path[:-1]:
        within = within[key]
    within[path[-1]] = new
    return changed


def removed(value: Any, path: tuple[str | int, ...]) -> Any:  # noqa: ANN401
    changed = copy.deepcopy(value)
    within = changed
    for key in path[:-1]:
        within = within[key]
    del within[path[-1]]
    return changed


def assert_nothing_is_lost(value: Any, found: ImportedManifest) -> None:  # noqa: ANN401
    """Every value of the original is used, or some finding is of it or of what holds it."""
    listed = {one.path for one in found.findings}
    for leaf in leaves(value):
        assert set(spelled(leaf)) & (found.used | listed), leaf


@pytest.mark.parametrize("stem", sorted(TEXTS))
def test_every_value_of_an_original_is_used_or_listed(stem: str) -> None:
    assert_nothing_is_lost(VALUES[stem], imported(TEXTS[stem]))


@pytest.mark.parametrize("stem", sorted(set(TEXTS) - {"empty", "bare"}))
def test_no_value_can_change_unseen(stem: str) -> None:
    """What replaces a value is in the native text or in a finding: so none is read and then dropped."""
    for leaf in leaves(VALUES[stem]):
        found = imported(document(replaced(VALUES[stem], leaf, "z1q7")))
        told = [f"{one.path} {one.what}" for one in found.findings]
        assert "z1q7" in found.text or any("z1q7" in one for one in told), leaf


STRANGE: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        "",
        " ",
        "\n# TODO x\n",
        "\0\u2028\ufeff",
        "a: b",
        "- c",
        "é" * 300,
        True,
        0,
        -1,
        1.5,
        10**15,
        [],
        {},
        [[]],
        [{}],
    ]
) | st.sampled_from([{"x": 1}, ["y"], [1, 2, 3], [3, 8, 8], "RGB", "float32", {"a.b": {"": [0]}}, "http://[", "../x"])


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_a_mutated_original_never_ends_in_a_fault_and_loses_nothing(stem: str, draw: st.DataObject) -> None:
    value = VALUES[stem]
    for _ in range(draw.draw(st.integers(1, 4))):
        paths = sorted({tuple(leaf[:end]) for leaf in leaves(value) for end in range(1, len(leaf) + 1)}, key=str)
        if not paths:
            break
        path = draw.draw(st.sampled_from(paths))
        value = removed(value, path) if draw.draw(st.booleans()) else replaced(value, path, draw.draw(STRANGE))
    found = import_all({"f.yml": document(value).encode()})["f.yml"]
    if isinstance(found, ImportedManifest):
        assert_nothing_is_lost(value, found)
        assert found.todos == len(list_todos(found.text))
        with pytest.raises(InvalidInputError):
            read_authored(found.text, "f.yaml")
        read_yaml(found.text, "f.yaml")


def test_an_unknown_method_beside_an_unclear_size_is_asked_for_too() -> None:
    value = replaced(VALUES["paper"], ("inputs", 0, "steps", 1, "resize", "method"), "newest")
    found = import_all({"f.yml": document(value).encode()})["f.yml"]
    assert isinstance(found, ImportedManifest)
    assert found.todos == len(list_todos(found.text))
    assert "# TODO method: newest is not a known method" in found.text


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_a_damaged_text_is_imported_or_says_where(stem: str, draw: st.DataObject) -> None:
    text = TEXTS[stem].encode()
    start = draw.draw(st.integers(0, len(text)))
    end = draw.draw(st.integers(start, min(start + 30, len(text))))
    junk = draw.draw(st.binary(max_size=8) | st.sampled_from([b"\t", b"\n", b": ", b"&a *a ", b"{[" * 70, b"\xff\xfe"]))
    found = import_all({"f.yml": text[:start] + junk + text[end:]})["f.yml"]
    if isinstance(found, ImportedManifest):
        read_yaml(found.text, "f.yaml")
    else:
        assert "f.yml" in str(found.error.where)


@pytest.mark.parametrize("written", ["RGB", "bgr", "L"])
def test_a_color_mode_that_a_message_would_propose_is_taken(written: str) -> None:
    found = imported(TEXTS["grey-channels"].replace("color_mode: GRAY", f"color_mode: {written}"))
    assert f"color: {written.upper()}" in found.text
    assert not any(one.code == "color" for one in found.findings)
