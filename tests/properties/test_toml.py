"""TOML as it is written here, read by the standard library: the same values, and the same text for the same values."""

import random
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from registry import toml

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
    found = tomllib.loads(toml.dumps(document, ORDER, ROWS))
    assert repr(ordered(found)) == repr(ordered(document))


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
