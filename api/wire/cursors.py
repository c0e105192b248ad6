"""Cursors of pages: the key of the last row that was shown, as a word that nobody should read."""

import base64
import binascii

import msgspec

from benchlock.artifacts.errors import InvalidInputError

_LONGEST = 1024


def cursor_of(key: tuple[str, ...]) -> str:
    """The cursor of what follows the row with that key."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def key_of(cursor: str, parts: int) -> tuple[str, ...]:
    """The key of a cursor, which has ``parts``.

    Raises:
        InvalidInputError: it is none that a page gave.
    """
    try:
        text = base64.b64decode(cursor[:_LONGEST] + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        key = msgspec.json.decode(text, type=tuple[str, ...])
    except (ValueError, binascii.Error):
        key = ()
    if len(key) != parts or any("\0" in part for part in key):
        raise InvalidInputError(
            "this is no cursor", where="cursor", next_step="take `next` of the page before, or leave it out"
        )
    return key
