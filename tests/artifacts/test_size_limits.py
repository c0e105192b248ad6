"""Limits are in bytes of UTF-8, and what is truncated says so and fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.size_limits import TooLongError, check_count, check_document, check_text, shorten, truncate


def test_a_text_is_measured_in_bytes() -> None:
    check_text("é" * 5, 10, "reason")
    with pytest.raises(TooLongError, match="reason has 12 bytes; the limit is 10"):
        check_text("é" * 6, 10, "reason")


def test_a_lone_surrogate_is_no_text() -> None:
    with pytest.raises(InvalidInputError, match="surrogate at character 1"):
        check_text("a\ud800", 10, "reason")


def test_a_document_is_measured_as_json() -> None:
    check_document({"a": "é"}, 10, "details")
    with pytest.raises(TooLongError, match="details has 10 bytes"):
        check_document({"a": "é"}, 9, "details")


def test_items_are_counted() -> None:
    check_count(("a",), 1, "metrics")
    with pytest.raises(TooLongError, match="2 items"):
        check_count({"a": 1, "b": 2}, 1, "metrics")


@given(st.text(), st.integers(1, 100))
def test_what_is_truncated_fits(text: str, limit: int) -> None:
    kept = truncate(text, limit)
    assert len(kept.encode()) <= limit
    assert kept == text or "…"[:1] in kept or limit < 3
    assert truncate(kept, limit) == kept


def test_the_mark_tells_how_long_the_text_was() -> None:
    assert truncate("é" * 40, 41) == "é" * 8 + "… [truncated: 80 bytes]"
    assert truncate("a\ud800b\udc00", 100) == "a\ufffdb\ufffd"


def test_what_a_list_shows_is_short() -> None:
    assert (shorten("abc", 3), shorten("abcd", 3)) == ("abc", "ab…")
