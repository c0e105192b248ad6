"""Values of records as text: ids that sort by creation time, timestamps, and canonical JSON."""

import secrets
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical

DIGITS = 26
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base32: no letter looks like a digit
_RANDOM_BITS = 80
_STEP_BITS = 64
SHORTEST_PREFIX: Final = 4
"""The minimum number of characters that stand for an id, without the part up to ``/`` or ``:``."""
SHOWN_CANDIDATES: Final = 10
"""The maximum number of ids in the error for an ambiguous prefix."""


class _Tails:
    """Generator of the random part of ids: within a millisecond, each is larger than the last by a random step."""

    def __init__(self) -> None:
        self._own = threading.Lock()
        self._last = (0, 0)

    def after(self, millisecond: int) -> int:
        with self._own:
            last, tail = self._last
            tail += 1 + secrets.randbits(_STEP_BITS)
            if millisecond != last or tail >> _RANDOM_BITS:  # it overflows after tens of thousands in a millisecond
                tail = secrets.randbits(_RANDOM_BITS - 1)
            self._last = (millisecond, tail)
            return tail


_tails = _Tails()


def new_id(at: datetime, random: bytes | None = None) -> str:
    """Create an id that sorts by creation time; within a millisecond, the ids of one process sort in order."""
    millisecond = to_milliseconds(at)
    tail = int.from_bytes(random) if random is not None else _tails.after(millisecond)
    number = millisecond << _RANDOM_BITS | tail
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(DIGITS)))


def is_id(text: str) -> bool:
    """Return whether ``text`` has the form of an id."""
    return len(text) == DIGITS and set(text) <= set(_ALPHABET)


def ambiguous_prefix_error(prefix: str, candidates: Sequence[tuple[str, str]]) -> InvalidInputError:
    """Return the error for a prefix of several ids, which lists at most ``SHOWN_CANDIDATES`` of them.

    Args:
        prefix: The first characters of the ids.
        candidates: Each id and a description that distinguishes it.
    """
    shown = [f"{id_} ({description})" for id_, description in candidates[:SHOWN_CANDIDATES]]
    more = ["and more"] * (len(candidates) > SHOWN_CANDIDATES)
    return InvalidInputError(
        f"ambiguous id {prefix}", where="; ".join([*shown, *more]), next_step="write more characters of the id"
    )


def parse_id_time(id_: str) -> int:
    """Return the creation time of an id in milliseconds since the epoch."""
    number = 0
    for digit in id_:
        number = number << 5 | _ALPHABET.index(digit)
    return number >> _RANDOM_BITS


def to_milliseconds(at: datetime) -> int:
    """Return a time in milliseconds since the epoch, as ids contain it."""
    return int(at.timestamp() * 1000)


def format_time(time: datetime) -> str:
    """Return an aware time as the text in the database and in documents, whose length is fixed."""
    if time.tzinfo is None:
        raise ValueError(f"a time without its zone: {time}")
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def as_json(value: object) -> str:
    """Return the canonical JSON text of a value."""
    return encode_canonical(value).decode()
