"""The head of a request: its request line and its headers."""

from typing import Final

from litestar.types import HTTPScope

from artifacts.errors import InvalidInputError

_REQUEST_LINE: Final = len("  HTTP/1.1\r\n\r\n")
_HEADER_LINE: Final = len(": \r\n")


class HeadTooLargeError(InvalidInputError):
    """The head of a request has more bytes than are read."""

    code = "head-too-large"


def head_size(scope: HTTPScope) -> int:
    """Return the bytes of the head as it is written in HTTP/1.1, with one space where several may be."""
    target = len(scope["raw_path"]) + (len(scope["query_string"]) + 1 if scope["query_string"] else 0)
    headers = sum(len(name) + len(value) + _HEADER_LINE for name, value in scope["headers"])
    return len(scope["method"]) + target + _REQUEST_LINE + headers
