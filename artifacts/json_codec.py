"""JSON: the canonical encoding (RFC 8785), and decoders for untrusted text and for threads."""

import math
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
import rfc8785

from benchlock.artifacts.errors import InvalidInputError

MOST_EXACT: Final = 2**53 - 1
"""The largest whole number that every reader of JSON holds exactly."""
_SCALARS: Final = frozenset((str, bool, type(None)))
_PLAIN_FLOATS: Final = (1e-4, 1e15)
_encode = msgspec.json.Encoder(order="sorted").encode


def encode_canonical(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """The one JSON text of ``value`` (RFC 8785).

    Raises:
        InvalidInputError: a number that JSON cannot hold exactly, text that is not Unicode, nesting without end, or a
            value that is no JSON.
    """
    try:
        return _encode(value) if _is_plain(value) else rfc8785.dumps(value)
    except (ValueError, RecursionError) as error:  # the library's own errors are ValueErrors
        raise InvalidInputError(f"cannot be written as canonical JSON: {error}") from error


def _is_plain(value: Any) -> bool:  # noqa: ANN401 - as above
    """Return whether every encoder that sorts keys writes ``value`` as RFC 8785 does.

    The library for RFC 8785 is written in Python and takes many times as long.
    """
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is int:
        return bool(-MOST_EXACT <= value <= MOST_EXACT)
    if kind is float:
        low, high = _PLAIN_FLOATS
        return bool(low <= abs(value) < high and value != int(value))
    if kind is dict:
        return all(map(_is_plain_key, value)) and all(map(_is_plain, _beyond_scalars(value.values())))
    return (kind is list or kind is tuple) and all(map(_is_plain, _beyond_scalars(value)))


def _is_plain_key(key: object) -> bool:
    return type(key) is str and key.isascii()


def _beyond_scalars(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if type(value) not in _SCALARS]


T = TypeVar("T")


def prepare_decoder(kind: type[T]) -> type[T]:
    """Lets msgspec look at the type now: two threads that let it do so first at the same time end the process."""
    msgspec.json.Decoder(kind)
    return kind


LONGEST_NUMBER: Final = 64
"""Characters of a number that is not whole; 17 digits say which float it is."""


def _read_float(text: str) -> float:
    if len(text) > LONGEST_NUMBER or not math.isfinite(value := float(text)):
        raise ValueError("Number out of range")
    return value


# msgspec's own floats take up to 30 microseconds each, while no other thread of the process runs.
_DECODER: Final = msgspec.json.Decoder(float_hook=_read_float)


def decode_untyped(content: bytes | bytearray) -> Any:  # noqa: ANN401 - any JSON value
    """Decode JSON whose numbers anybody may have chosen; other threads run meanwhile.

    Raises:
        msgspec.DecodeError: It is not JSON, or has a number that is out of range or too long.
    """
    return _DECODER.decode(content)
