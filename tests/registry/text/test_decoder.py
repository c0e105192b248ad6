"""What is told of values that do not fit their types."""

import tracemalloc
from typing import Final

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.manifests import Manifest
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
