"""The text of a token: found by who looks for lost secrets, told from what only looks like one, never shown."""

import re
from pathlib import Path
from typing import Any

import pytest

from benchlock.registry.auth.permissions import UnauthorizedError
from benchlock.registry.auth.token_format import PATTERN, Secret, mask_tokens, new_secret, parse_secret

ONE = new_secret(bytes(range(32)))
EXPECTED = "benchlock_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf436Ep5"


def test_a_token_is_the_same_text_for_the_same_bytes_and_fits_the_pattern() -> None:
    assert ONE.text == EXPECTED
    assert re.fullmatch(PATTERN, ONE.text)
    for random in (bytes(32), b"\xff" * 32):
        assert re.fullmatch(PATTERN, new_secret(random).text)
        assert parse_secret(new_secret(random).text) == new_secret(random)


def test_no_two_tokens_are_alike() -> None:
    assert len({new_secret().text for _ in range(1000)}) == 1000


@pytest.mark.parametrize("place", [0, 9, 10, 30, 52, 53, 58])
def test_a_letter_that_is_another_is_found(place: int) -> None:
    letter = "a" if ONE.text[place] != "a" else "b"
    with pytest.raises(UnauthorizedError, match="malformed token"):
        parse_secret(ONE.text[:place] + letter + ONE.text[place + 1 :])


@pytest.mark.parametrize(
    "text", ["", "benchlock_", ONE.text[:-1], ONE.text + "0", f" {ONE.text}", ONE.text + "\n", "é" * 59, "ghp_" * 15]
)
def test_what_is_no_token_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UnauthorizedError) as caught:
        parse_secret(text)
    assert len(text) < 12 or text.strip() not in str(caught.value)


def test_a_token_is_not_shown_by_what_prints_it() -> None:
    for shown in (repr(ONE), str(ONE), f"{ONE}", repr([ONE])):
        assert ONE.text[10:] not in shown
    assert Secret(ONE.text) == ONE


def test_text_is_shown_without_the_tokens_in_it() -> None:
    text = f"GET /v1/x?a={ONE.text}&b=1 and {ONE.text[:40]}, not benchlock_runs"
    assert mask_tokens(text) == "GET /v1/x?a=benchlock_…&b=1 and benchlock_…, not benchlock_runs"


def test_what_the_documentation_tells_scanners_finds_tokens_and_nothing_else() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "access.md").read_text()
    (pattern,) = re.findall(r"```\n(\\bbenchlock_.*)\n```", page)
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    found = re.findall(pattern, f"export BENCHLOCK_TOKEN={ONE.text}; benchlock_runs benchlock_{'a' * 49}")
    assert [names["is_token"](one) for one in found] == [True, False]
    assert found[0] == ONE.text
