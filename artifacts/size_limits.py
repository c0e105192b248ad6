"""Size limits of the texts and documents that clients send, in bytes of UTF-8.

The server's requests, the checks of records and the triggers of the database use these limits. Longer input of a client
is rejected. Longer texts of benchlock itself are truncated (``truncate``), so that no run is lost.
"""

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical

NAME: Final = 128
"""A name, a version, the id of a token, or the actor of a change."""
WORD: Final = 255
"""A short text of a record: the name of a metric, package or phase, and the values with it."""
ROLE: Final = 64
"""The role of a blob of a run."""
MACHINE: Final = 64
"""The name of a machine, its boot id, and the nonce of a request for work."""
TASK: Final = 64
"""The name of a task in the progress of a job."""
TARGET: Final = 400
"""An artifact with its kind, name and version, as written in a request."""
CONSTRAINT: Final = 4000
PATH: Final = 4096
"""A path inside an artifact."""
SOURCE: Final = 64 << 10
"""The source of a file of an artifact."""
REASON: Final = 4000
"""The reason why a version is yanked, a record is hidden, a machine is drained, or a lease is returned."""
AUDIT_TEXT: Final = 500
"""A text in a line of the audit log."""
FAILURE_MESSAGE: Final = 16 << 10
SCOPES: Final = 16 << 10
"""All scopes of a token together."""

PLATFORM: Final = 16 << 10
PROCESS: Final = 16 << 10
HOST: Final = 64 << 10
MACHINE_FACTS: Final = 16 << 10
TIMINGS: Final = 64 << 10
LACKS: Final = 64 << 10
"""The requirements that a machine does not meet for a class of jobs, as JSON."""
REQUEST: Final = 256 << 10
WANTS: Final = 1 << 20
"""The requirements of a job on a machine, as JSON: a part of its request, and its platforms."""
PART_OF: Final = 16 << 10
"""The turn of a job in an interleaved comparison, as JSON."""
DETAILS: Final = 1 << 20
LOCK: Final = 4 << 20
MANIFEST: Final = 16 << 20
"""Each of: the content of a manifest, the text of its author, and the sources of its files."""

METRICS: Final = 1000
"""Metrics of a run. This limit and the following ones count items."""
PACKAGES: Final = 10_000
BLOBS: Final = 1000
PHASES: Final = 1000
"""Timings of a run."""
PREFERENCES: Final = 1000
"""Versions that a request for a lock prefers."""

SUMMARY: Final = 200
"""Characters of a text in a list; the resource of the item has the whole text."""
PAGE: Final = 4 << 20
"""The items of one page of a list, in bytes."""

_MARK: Final = "… [truncated: {} bytes]"


class TooLongError(InvalidInputError):
    """A text or a document exceeds its limit."""

    code = "too-long"


def limit_text(limit: int, example: str | None = None, pattern: str | None = None) -> Meta:
    """Limit a text to ``limit`` bytes of UTF-8, and so to as many characters.

    Args:
        limit: Bytes of UTF-8.
        example: An example for the OpenAPI document.
        pattern: A regular expression that the text has to match.
    """
    return Meta(
        max_length=limit,
        pattern=pattern,
        description=f"At most {limit} bytes of UTF-8.",
        examples=None if example is None else [example],
    )


def limit_document(limit: int) -> Meta:
    """Limit an object to ``limit`` bytes of JSON."""
    return Meta(description=f"At most {limit} bytes as JSON.")


Word = Annotated[str, limit_text(WORD)]


def check_text(text: str, limit: int, where: str) -> None:
    """Raise unless ``text`` is Unicode text of at most ``limit`` bytes.

    Args:
        text: The text of a client.
        limit: Bytes of UTF-8.
        where: The name of the text in the message, such as ``reason``.

    Raises:
        TooLongError: The text has more bytes.
        InvalidInputError: The text has a lone surrogate, which no database stores.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{where} is not valid Unicode: lone surrogate at character {error.start}",
            where=where,
            next_step="remove it",
        ) from None
    if size > limit:
        raise _make_length_error(where, size, limit)


def check_document(document: object, limit: int, where: str) -> None:
    """Raise unless ``document`` has at most ``limit`` bytes as canonical JSON, the stored form.

    Args:
        document: The document of a client.
        limit: Bytes of canonical JSON.
        where: The name of the document in the message, such as ``facts``.

    Raises:
        TooLongError: The document has more bytes.
    """
    size = len(encode_canonical(document))
    if size > limit:
        raise _make_length_error(where, size, limit)


def check_count(items: "Mapping[str, object] | tuple[object, ...]", limit: int, where: str) -> None:
    """Raise unless there are at most ``limit`` items.

    Args:
        items: The items of a client.
        limit: The number of items.
        where: The name of the items in the message, such as ``metrics``.

    Raises:
        TooLongError: There are more items.
    """
    if len(items) > limit:
        raise TooLongError(f"{where} has {len(items)} items; the limit is {limit}", where=where, next_step="send fewer")


def truncate(text: str, limit: int) -> str:
    """Truncate ``text`` to ``limit`` bytes, with a visible mark that has the original size.

    Lone surrogates are replaced, because no database stores them.
    """
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    whole = text.encode()
    if len(whole) <= limit:
        return text
    mark = _MARK.format(len(whole))
    beginning = whole[: max(0, limit - len(mark.encode()))].decode(errors="ignore")
    return (beginning + mark).encode()[:limit].decode(errors="ignore")


def shorten(text: str, limit: int) -> str:
    """Shorten ``text`` for a list to at most ``limit`` characters, with an ellipsis if it was longer."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _make_length_error(where: str, size: int, limit: int) -> TooLongError:
    return TooLongError(f"{where} has {size} bytes; the limit is {limit}", where=where, next_step="shorten it")
