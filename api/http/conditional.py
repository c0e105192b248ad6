"""Conditional requests (RFC 9110): an answer whose tag the client has already is not sent again."""

from typing import Final

from litestar import Response

MUST_ASK: Final = "private, no-cache"
"""May be kept, and used once the server has said that it still holds."""
FOR_EVER: Final = "private, max-age=31536000, immutable"


def tagged(
    content: bytes, tag: str, asked: str | None, caching: str = MUST_ASK, media_type: str = "application/json"
) -> Response[bytes]:
    """``content`` under its strong ``tag``; nothing but the tag where ``asked``, the If-None-Match, names it."""
    headers = {"etag": f'"{tag}"', "cache-control": caching}
    if is_known(tag, asked):
        return Response(b"", status_code=304, headers=headers, media_type=media_type)
    return Response(content, headers=headers, media_type=media_type)


def is_known(tag: str, asked: str | None) -> bool:
    """Whether the header If-None-Match names the tag, strong or weak."""
    if asked is None:
        return False
    named = {one.strip().removeprefix("W/").strip('"') for one in asked.split(",")}
    return tag in named or asked.strip() == "*"
