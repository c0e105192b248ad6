"""Request and response bodies of the HTTP API, used by the server and its clients, and opaque pagination cursors."""

import base64
import binascii

import msgspec

from benchlock.artifacts.errors import InvalidInputError

_LONGEST = 1024


def encode_cursor(key: tuple[str, ...]) -> str:
    """Encode the cursor of the page after the row with that key."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def decode_cursor(cursor: str, parts: int) -> tuple[str, ...]:
    """Decode the key of a cursor, which has ``parts`` parts.

    Raises:
        InvalidInputError: It is not a cursor of a page.
    """
    try:
        text = base64.b64decode(cursor[:_LONGEST] + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        key = msgspec.json.decode(text, type=tuple[str, ...])
    except (ValueError, binascii.Error):
        key = ()
    if len(key) != parts or any("\0" in part for part in key):
        raise InvalidInputError(
            "invalid cursor", where="cursor", next_step="use the `next` of the previous page, or omit the cursor"
        )
    return key
