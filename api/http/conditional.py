"""Conditional requests (RFC 9110): an answer whose tag the client has already is not sent again."""

from collections.abc import Mapping
from typing import Final

from litestar.types import Receive, Scope, Send

JSON: Final = "application/json"
_NOT_MODIFIED: Final = 304
MUST_ASK: Final = "private, no-cache"
"""May be kept, and used once the server has said that it still holds."""
FOR_EVER: Final = "private, max-age=31536000, immutable"


class Encoded:
    """An answer of bytes, as an ASGI application: nothing of it is left to be worked out."""

    __slots__ = ("_content", "_headers", "_status")

    def __init__(self, content: bytes, media_type: str, headers: Mapping[str, str], status: int = 200) -> None:
        """``headers`` have names in lower case; of a 304 none speaks of the content."""
        self._content, self._status = content, status
        described = {} if status == _NOT_MODIFIED else {"content-type": media_type, "content-length": str(len(content))}
        self._headers = [(name.encode(), value.encode()) for name, value in {**headers, **described}.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._content, "more_body": False})


def tagged(
    content: bytes,
    tag: str,
    asked: str | None,
    caching: str = MUST_ASK,
    media_type: str = JSON,
    vary: str | None = None,
) -> Encoded:
    """``content`` under its strong ``tag``; nothing but the tag where ``asked``, the If-None-Match, names it."""
    headers = {"etag": f'"{tag}"', "cache-control": caching} | ({} if vary is None else {"vary": vary})
    if is_known(tag, asked):
        return Encoded(b"", media_type, headers, _NOT_MODIFIED)
    return Encoded(content, media_type, headers)


def is_known(tag: str, asked: str | None) -> bool:
    """Whether the header If-None-Match names the tag, strong or weak."""
    if asked is None:
        return False
    named = {one.strip().removeprefix("W/").strip('"') for one in asked.split(",")}
    return tag in named or asked.strip() == "*"
