"""Durations and amounts of memory."""

import pytest

from artifacts.errors import InvalidInputError
from registry.quantities import parse_bytes, parse_seconds


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
    "text", ["", "10", "m", "-1s", "1e3s", "10 minutes", "1d", "1S", "٣s", "1s\n", "1_0s", " 1s", ".5s"]
)
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a duration"):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["2G", "2gib", "2Gib", "2KB", "1.5B", "2 GiB of RAM"])
def test_anything_else_is_no_amount(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_bytes(text)
