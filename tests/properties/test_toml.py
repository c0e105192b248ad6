"""TOML as it is written here, read by the standard library: the same values, and the same text for the same values."""

import random
import tomllib
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlock.registry.text import toml

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
rows = st.lists(st.dictionaries(texts, values, max_size=3), max_size=3)
tables = st.builds(
    lambda table, files: {**table, "files": files}, st.dictionaries(texts, values, max_size=3), rows
) | st.dictionaries(texts, values, max_size=3)
documents = st.dictionaries(texts, tables | values, max_size=4)
ORDER, ROWS = ("name", "files"), ("files",)


@given(documents)
def test_what_is_written_is_read_back(document: dict[str, Any]) -> None:
    text = toml.dumps(document, ORDER, ROWS)
    found = tomllib.loads(text)
    assert repr(ordered(found)) == repr(ordered(document))
    assert repr(toml.loads(text)) == repr(found)


@given(documents, st.randoms(use_true_random=False))
def test_the_order_of_keys_is_no_content(document: dict[str, Any], order: random.Random) -> None:
    assert toml.dumps(shuffled(document, order), ORDER, ROWS) == toml.dumps(document, ORDER, ROWS)


def ordered(value: Any) -> Any:  # noqa: ANN401 - any parsed value
    """With sorted keys, so that ``repr`` tells true from 1, and 1 from 1.0."""
    if isinstance(value, dict):
        return {key: ordered(value[key]) for key in sorted(value)}
    return [ordered(part) for part in value] if isinstance(value, list) else value


def shuffled(value: Any, order: random.Random) -> Any:  # noqa: ANN401 - any parsed value
    if isinstance(value, list):
        return [shuffled(part, order) for part in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    order.shuffle(keys)
    return {key: shuffled(value[key], order) for key in keys}


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 17) + " = 1",
        "[" + ".".join(["a"] * 400_000) + "]",
        "[[" + " . ".join(["a"] * 400_000) + "]]",
        "x = {" + ".".join(['"a"'] * 400_000) + " = 1}",
        "x = 'a # b' # '\n" + ".".join(["'a'"] * 400_000) + " = 1",
        "a" * 4_000_000,
        "a " * 2_000_000,
        '"\\"' * 1_000_000,
        'x = """\n"""\n' + ".".join(["a"] * 400_000) + " = 1",
        "x = '''\n'''\n" + ".".join(["a"] * 400_000) + " = 1",
        "x = " + "[" * 400_000,
    ],
    ids=[
        "17",
        "table",
        "rows",
        "inline",
        "literal",
        "word",
        "words",
        "quotes",
        "multi-line",
        "literal lines",
        "nested",
    ],
)
def test_keys_of_many_parts_are_refused_before_they_cost_anything(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"."):
            toml.loads(text)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_sixteen_parts_and_dots_in_strings_are_read() -> None:
    text = ".".join(["a"] * 16) + ' = "' + ".".join(["a"] * 400) + '"  # ' + ".".join(["a"] * 400)
    assert toml.loads(text) == tomllib.loads(text)
