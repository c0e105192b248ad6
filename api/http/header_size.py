"""The size of a request's headers, counted with its request line."""

from typing import Final

from litestar.types import HTTPScope

from benchlock.artifacts.errors import InvalidInputError

_REQUEST_LINE: Final = len("  HTTP/1.1\r\n\r\n")
_HEADER_LINE: Final = len(": \r\n")


class HeadersTooLargeError(InvalidInputError):
    """The request line and the headers of a request are larger than the limit."""

    code = "head-too-large"


def header_size(scope: HTTPScope) -> int:
    """Return the bytes of the request line and the headers as HTTP/1.1 has them, with single spaces."""
    target = len(scope["raw_path"]) + (len(scope["query_string"]) + 1 if scope["query_string"] else 0)
    headers = sum(len(name) + len(value) + _HEADER_LINE for name, value in scope["headers"])
    return len(scope["method"]) + target + _REQUEST_LINE + headers
