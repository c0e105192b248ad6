"""JSON of unknown senders, decoded without a type."""

import math
from typing import Any, Final

import msgspec

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
