"""JSON: the canonical encoding (RFC 8785), and decoders for untrusted text and for threads."""

import math
from threading import Lock
from typing import Any, Final, TypeVar

import msgspec
import rfc8785

from benchlock.artifacts.errors import InvalidInputError

MAX_EXACT: Final = 2**53 - 1
"""Largest integer that every JSON reader holds exactly."""
_TEXT: Final = frozenset((str,))
_SCALARS: Final = frozenset((str, bool, type(None)))
_PLAIN_FLOATS: Final = (1e-4, 1e15)
_encode = msgspec.json.Encoder(order="sorted").encode


def encode_canonical(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Encode a value as canonical JSON (RFC 8785).

    Raises:
        InvalidInputError: The value has a number that JSON cannot hold exactly, text that is not Unicode, too deep
            nesting, or a type that JSON does not have.
    """
    try:
        if _is_plain(value) or _is_plain(value := _replace_whole_floats(value)):
            return _encode(value)
        return rfc8785.dumps(value)
    except (ValueError, RecursionError) as error:  # the library's own errors are ValueErrors
        raise InvalidInputError(f"cannot be written as canonical JSON: {error}") from error


def _is_plain(value: Any) -> bool:  # noqa: ANN401 - as above
    """Return whether every encoder that sorts keys encodes ``value`` as RFC 8785 does.

    The library for RFC 8785 is written in Python and is many times slower.
    """
    remaining, (low, high) = [value], _PLAIN_FLOATS
    for item in remaining:  # which grows meanwhile
        kind = type(item)
        if kind is dict:
            if not {*map(type, item)} <= _TEXT or not "".join(item).isascii():
                return False
            remaining += [part for part in item.values() if type(part) not in _SCALARS]
        elif kind is list or kind is tuple:
            remaining += [part for part in item if type(part) not in _SCALARS]
        elif kind is int:
            if not -MAX_EXACT <= item <= MAX_EXACT:
                return False
        elif kind is float:
            if not low <= abs(item) < high or item == int(item):
                return False
        elif kind not in _SCALARS:
            return False
    return True


def _replace_whole_floats(value: Any) -> Any:  # noqa: ANN401 - as above
    """Return ``value`` with integers in place of whole numbers of its floats, which RFC 8785 encodes alike."""
    kind = type(value)
    if kind is dict:
        return {key: _replace_whole_floats(part) for key, part in value.items()}
    if kind is list or kind is tuple:
        return [_replace_whole_floats(part) for part in value]
    return int(value) if kind is float and value.is_integer() and abs(value) < _PLAIN_FLOATS[1] else value


T = TypeVar("T")
_INSPECTED: Final = set[object]()
_INSPECTION_LOCK: Final = Lock()


def prepare_decoder(kind: type[T]) -> type[T]:
    """Let one thread inspect a type with msgspec: the first inspection by two threads at once crashes the process."""
    if kind not in _INSPECTED:
        with _INSPECTION_LOCK:
            msgspec.json.Decoder(kind)
            _INSPECTED.add(kind)
    return kind


LONGEST_NUMBER: Final = 64
"""Longest number with a fraction or exponent, in characters; 17 digits identify a float."""


def _read_float(text: str) -> float:
    if len(text) > LONGEST_NUMBER or not math.isfinite(value := float(text)):
        raise ValueError("Number out of range")
    return value


# msgspec's own parser takes up to 30 microseconds for a float, and holds the GIL meanwhile.
_DECODER: Final = msgspec.json.Decoder(float_hook=_read_float)


def decode_untyped(content: bytes | bytearray) -> Any:  # noqa: ANN401 - any JSON value
    """Decode JSON with untrusted numbers, without blocking other threads for long.

    Raises:
        msgspec.DecodeError: The content is not JSON, or has a number that is out of range or too long.
    """
    return _DECODER.decode(content)
