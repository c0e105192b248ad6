"""Durations and amounts of memory."""

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.text.quantities import Amount, parse_bytes, parse_seconds, spell_bytes


@pytest.mark.parametrize(
    ("text", "seconds"), [("10m", 600.0), ("1s", 1.0), ("250ms", 0.25), ("1.5 h", 5400.0), ("0.1s", 0.1), ("0s", 0.0)]
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GiB", 2 * 1024**3),
        ("2GB", 2 * 10**9),
        ("512 MiB", 512 * 1024**2),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("0.5KiB", 512),
        ("7B", 7),
    ],
)
def test_an_amount_is_a_number_and_a_unit(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1KiB"),
        (16 << 30, "16GiB"),
        (int(23.46 * 2**30), "23.4GiB"),
        ((64 << 30) - 1, "63.9GiB"),
        (3 << 50, "3072TiB"),
    ],
)
def test_a_size_is_spelled_to_a_tenth_and_never_up(size: int, text: str) -> None:
    assert spell_bytes(size) == text


def test_amounts_are_equal_by_their_bytes_and_keep_their_text() -> None:
    assert Amount.parse("1GiB") == Amount.parse("1024 MiB") != Amount.parse("1GB")
    assert str(Amount.parse("1024 MiB")) == "1024 MiB"


@pytest.mark.parametrize(
    "text", ["", "10", "m", "-1s", "1e3s", "10 minutes", "1d", "1S", "٣s", "1s\n", "1_0s", " 1s", ".5s"]
)
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a duration"):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["2G", "2gib", "2Gib", "2KB", "1.5B", "2 GiB of RAM"])
def test_anything_else_is_no_amount(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_bytes(text)
