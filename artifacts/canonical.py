"""RFC 8785 canonical JSON: the bytes whose digest identifies a manifest, a tree or a lockfile."""

from typing import Any

import rfc8785

from artifacts.errors import InvalidInputError


def canonical(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """The one JSON text of ``value`` (RFC 8785).

    Raises:
        InvalidInputError: a number that JSON cannot hold exactly, text that is not Unicode, nesting without end, or a
            value that is no JSON.
    """
    try:
        return rfc8785.dumps(value)
    except (ValueError, RecursionError) as error:  # the library's own errors are ValueErrors
        raise InvalidInputError(f"cannot be written as canonical JSON: {error}") from error
