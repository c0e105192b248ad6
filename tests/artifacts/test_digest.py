"""Digests, canonical JSON and errors: the words that every room shares."""

import io
from typing import Any

import msgspec
import pytest

from benchlock.artifacts.digest import CHUNK, Descriptor, describe, digest_bytes, from_hex, parse_digest, to_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical

# FIPS 180-2, appendix B.1
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_digest_of_bytes() -> None:
    assert digest_bytes(b"abc") == f"sha256:{ABC}" == parse_digest(f"sha256:{ABC}") == from_hex(ABC)
    assert to_hex(from_hex(ABC)) == ABC


@pytest.mark.parametrize(
    "text", ["", ABC, f"sha256:{ABC.upper()}", f"sha256:{ABC}0", f"sha256:{ABC}\n", "sha512:" + ABC * 2]
)
def test_what_is_no_digest(text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid digest"):
        parse_digest(text)
    with pytest.raises(msgspec.ValidationError, match="digest"):
        msgspec.convert({"digest": text, "size": 3}, Descriptor)


@pytest.mark.parametrize("text", ["", ABC[1:], ABC.upper(), f"{ABC}\n", f"sha256:{ABC}"])
def test_what_are_no_hex_digits(text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid SHA-256"):
        from_hex(text)


def test_describe_reads_the_rest_in_pieces() -> None:
    content = b"x" + bytes(2 * CHUNK + 1)
    stream, steps = io.BytesIO(content), list[int]()
    stream.read(1)
    assert describe(stream, steps.append) == Descriptor(digest_bytes(content[1:]), 2 * CHUNK + 1)
    assert steps == [CHUNK, CHUNK, 1]


def test_canonical_json() -> None:
    """RFC 8785: keys sorted by UTF-16 units, the shortest numbers, no escapes but those needed."""
    value = {"\ufb33": 1, "😀": 1.0, "b": [True, None, 1e-7, 0.1, 1e21], "a": "é\n\x7f"}
    assert encode_canonical(value) == '{"a":"é\\n\x7f","b":[true,null,1e-7,0.1,1e+21],"😀":1,"\ufb33":1}'.encode()


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**53, "\ud800", {"\ud800": 1}, {1: 2}, {1, 2}, b"bytes", nested(100_000)],
    ids=["nan", "infinity", "large", "surrogate", "surrogate key", "number key", "set", "bytes", "deep"],
)
def test_what_has_no_canonical_json(value: object) -> None:
    with pytest.raises(InvalidInputError, match="cannot be written as canonical JSON"):
        encode_canonical(value)


def test_an_error_says_what_where_and_what_next() -> None:
    error = InvalidInputError("no such file", where="a/b", next_step="name one")
    assert str(error) == "no such file\n  where: a/b\n  next: name one"
    assert str(InvalidInputError("no such file")) == "no such file"
