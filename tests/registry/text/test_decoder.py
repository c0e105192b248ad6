"""What is told of values that do not fit their types."""

import tracemalloc
from typing import Final

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.steps import Scale
from benchlock.registry.text.decoder import convert
from benchlock.registry.text.parsed_text import Document

_LONG: Final = "x" * 1_000_000


@pytest.mark.parametrize("value", [{"kind": _LONG}, {"kind": "model", _LONG: 1}], ids=["value", "key"])
def test_a_long_text_is_compared_with_known_words_in_little_memory(value: object) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match="known here"):
            convert(Document(value, ""), Manifest)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000


@pytest.mark.parametrize(
    ("value", "step"),
    [
        ("1/255", "write 0.00392156862745098 (1/255)"),
        (" -1 / 4 ", "write -0.25 (-1 / 4)"),
        ("1/0", "write a number"),
        ("1/2/3", "write a number"),
        ("half", "write a number"),
    ],
)
def test_a_fraction_is_answered_with_its_value(value: str, step: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        convert(Document({"factor": value}, ""), Scale)
    assert (raised.value.what, raised.value.next_step) == (f"expected a number, found text: {value!r}", step)
