"""No text forges a line, and what is escaped is visible."""

import json
import sys

from hypothesis import given
from hypothesis import strategies as st

from benchlock.artifacts.user_output import escape_json, escape_line

TEXTS = st.text(st.characters(codec=None, exclude_categories=()))
NAMED = "\x00\x1b\x7f\x85\x9b\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ud800\udfff\ufeff\n\r\t"


def test_what_a_terminal_obeys_is_escaped_visibly() -> None:
    assert escape_line("top1\n  1.0\x1b[2K") == r"top1\n  1.0\x1b[2K"
    for one in NAMED:
        assert escape_line(one).startswith("\\"), hex(ord(one))
    assert escape_line("é 数 🙂") == "é 数 🙂"


def test_every_character_is_on_one_line_and_can_be_written() -> None:
    for code in range(sys.maxunicode + 1):
        shown = escape_line(chr(code))
        assert shown.isprintable()
        shown.encode()


@given(TEXTS)
def test_json_is_the_same_document(text: str) -> None:
    written = escape_json(json.dumps({"a": [text]}, indent=2, ensure_ascii=False))
    assert all(line.isprintable() for line in written.split("\n"))
    assert len(written.split("\n")) == 5
    found = json.loads(written)["a"][0]
    assert found.encode("utf-16", "surrogatepass") == text.encode("utf-16", "surrogatepass")
