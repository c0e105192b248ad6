"""Parsing of request bodies, pagination parameters and pages."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from litestar import Request
from litestar.di import NamedDependency
from litestar.exceptions import SerializationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.params import Parameter, SkipValidation

from benchlock.api.http.openapi import encode_example
from benchlock.api.http.service_settings import Settings
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import decode_untyped
from benchlock.artifacts.size_limits import PAGE
from benchlock.artifacts.uploads.upload_file import TooLargeError
from benchlock.registry.database.ids_and_timestamps import DIGITS, SHORTEST_PREFIX

T = TypeVar("T")
PREFIX_PATTERN: Final = rf"^([a-z]+/)?[0-9a-hjkmnp-tv-z]{{{SHORTEST_PREFIX},{DIGITS}}}$"
Injected: TypeAlias = NamedDependency[SkipValidation[T]]
"""A parameter of a handler that the application provides under the parameter's name."""
_JSON: Final = "application/json"
LONG_BODY: Final = 1 << 18
"""Bodies with more bytes need a slot of their own."""
_SHORT_BODY: Final = 1 << 13
"""Bodies with at most so many bytes are decoded immediately, longer ones in a thread, one after another."""
MAX_BODY: Final = 1 << 20
"""Default limit of bytes in a body that is read into memory."""
MAX_RECORD: Final = 16 << 20
"""Limit of bytes in a body with a lock or the end of a run."""
MAX_PUBLICATION: Final = 8 << 20
"""Limit of bytes in a publication, a manifest with its text."""
MAX_VALUES: Final = 100_000
"""Default limit of values in a body (``most_values``); decoded values take forty times their bytes."""
MAX_LOCK_VALUES: Final = 400_000
"""Limit of values in a body with texts of locks, whose punctuation is counted too."""
MAX_RUN_VALUES: Final = 200_000
"""Limit of values in a body with the end of a run."""


class UnreadableError(InvalidInputError):
    """A body that is not in the form of its Content-Type."""

    code = "malformed"


class OtherFormError(InvalidInputError):
    """A Content-Type that the service does not accept."""

    code = "unsupported-media"


class JsonRequest(Request[Any, Any, Any]):
    """A request whose body may be JSON in UTF-8."""

    async def body(self) -> bytes:
        """Read the whole body.

        Raises:
            TooLargeError: It is larger than the route's limit.
        """
        try:
            return await super().body()
        except RequestEntityTooLarge:
            limit = self.route_handler.resolve_request_max_body_size()
            raise TooLargeError(f"the body has more than {limit} bytes", next_step="send a smaller body") from None

    async def json(self) -> Any:  # noqa: ANN401 - Litestar's own signature
        """Decode the body; without a Content-Type, JSON is assumed.

        Raises:
            OtherFormError: The Content-Type is not JSON.
            TooLargeError: The body has more values than the route's limit.
            UnreadableError: The body is not UTF-8, or is one JSON string. Litestar reports every other error as a 400.
        """
        form = self.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
        if form != _JSON and not form.endswith("+json"):
            raise OtherFormError(
                f"the body has the media type {form[:100]!r}; expected JSON",
                where="Content-Type",
                next_step=f"send JSON, with Content-Type: {_JSON}",
            )
        body = await self.body() or b"null"
        try:
            if len(body) > _SHORT_BODY:
                document = await self.app.state.service.decode.do(self._decode, body)
            else:
                document = self._decode(body)
        except msgspec.DecodeError as error:
            raise SerializationException(str(error)) from error
        except UnicodeDecodeError as error:
            raise UnreadableError(
                f"the body is not UTF-8: {error.reason} at byte {error.start}", next_step="send JSON in UTF-8"
            ) from None
        if isinstance(document, str):
            raise UnreadableError("the body is a JSON string", next_step="send a JSON object")
        self._connection_state.json = document
        return document

    def drop_document(self) -> None:
        """Empty the decoded document, which Litestar's validation errors would keep in a reference cycle."""
        document = self._connection_state.json
        if isinstance(document, dict | list):
            document.clear()

    def _decode(self, body: bytes) -> Any:  # noqa: ANN401 - any JSON value
        """Decode the body after counting its values: a list of empty objects takes forty times its bytes."""
        limit = self.route_handler.opt.get("most_values", MAX_VALUES)
        if sum(body.count(mark) for mark in (b",", b"[", b"{")) > limit:
            raise TooLargeError(
                f"the body has more than {limit} values", next_step="send fewer; list the files of a folder as one tree"
            )
        return decode_untyped(body)


Item = TypeVar("Item", bound=msgspec.Struct)

Cursor = Annotated[
    str | None,
    Parameter(
        description="The `next` of the previous page; absent for the first page.", required=False, max_length=1024
    ),
]
Limit = Annotated[
    int | None,
    Parameter(
        description="The maximum number of entries; the server may return fewer.",
        required=False,
        ge=1,
        le=1_000_000,
        examples=[encode_example(100)],
    ),
]


Prefix = Annotated[
    str | None,
    Parameter(
        description="Only ids that begin with these characters, with or without the part up to `/`.",
        required=False,
        pattern=PREFIX_PATTERN,
        max_length=32,
        examples=[encode_example("01kam1v3")],
    ),
]


def complete_prefix(kind: str, prefix: str | None) -> str:
    """Return the first characters of ids of a kind, such as ``run/``; without ``prefix``, those of every id."""
    return kind + (prefix or "").removeprefix(kind)


def bound_page_size(limit: int | None, settings: Settings) -> int:
    """Return the number of items of a page for the client's ``limit``."""
    return settings.usual_page if limit is None else min(limit, settings.largest_page)


def fit_page(
    items: Sequence[Item], limit: int, cursor: Callable[[Item], str]
) -> tuple[tuple[Item, ...], str | msgspec.UnsetType]:
    """Return the items that fit into one page, and the cursor of the rest.

    Args:
        items: The items, one more than ``limit`` if there are more.
        limit: The maximum number of items.
        cursor: Makes the cursor of the page after an item.

    Returns:
        As many items as fit into ``size_limits.PAGE`` bytes, at least one, and the cursor, unset on the last page.
    """
    count = 0
    left = PAGE
    for item in items[:limit]:
        left -= len(msgspec.json.encode(item))
        if left < 0 and count:
            break
        count += 1
    page = tuple(items[:count])
    return page, cursor(page[-1]) if len(items) > count else msgspec.UNSET
