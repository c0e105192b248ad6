"""Parsing of request bodies, pagination parameters and pages."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
from litestar import Request
from litestar.exceptions import SerializationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.params import Parameter

from benchlock.api.http.openapi import encode_example
from benchlock.api.http.service_settings import Settings
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import decode_untyped
from benchlock.artifacts.size_limits import PAGE
from benchlock.artifacts.uploads.upload_file import TooLargeError

_JSON: Final = "application/json"
LONG_BODY: Final = 1 << 18
"""Bytes of a body that is long: it has a place of its own."""
_SHORT_BODY: Final = 1 << 13
"""Bytes of a body that is decoded at once; longer ones are decoded in a thread, one after another."""
MAX_VALUES: Final = 100_000
"""Values of a body, where the route does not say ``most_values``. Decoding them takes forty times their bytes."""
MAX_LOCK_VALUES: Final = 400_000
"""Values of a body with texts of locks, whose punctuation is counted, too."""
MAX_RUN_VALUES: Final = 200_000
"""Values of a body with the end of a run."""


class UnreadableError(InvalidInputError):
    """The body is not in the form that the request says."""

    code = "malformed"


class OtherFormError(InvalidInputError):
    """The request says that its body is in a form that is not read here."""

    code = "unsupported-media"


class JsonRequest(Request[Any, Any, Any]):
    """A request whose body may be JSON in UTF-8."""

    async def body(self) -> bytes:
        """All of the body.

        Raises:
            TooLargeError: it is larger than the route takes.
        """
        try:
            return await super().body()
        except RequestEntityTooLarge:
            most = self.route_handler.resolve_request_max_body_size()
            raise TooLargeError(f"the body has more than {most} bytes", next_step="send less at once") from None

    async def json(self) -> Any:  # noqa: ANN401 - as Litestar says it
        """What the body says; one whose form the request does not say is taken for JSON.

        Raises:
            OtherFormError: the request says that it is something else.
            TooLargeError: it has more values than the route takes.
            UnreadableError: it is not UTF-8, or one text. Litestar makes an error of the sender's of everything else.
        """
        form = self.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
        if form != _JSON and not form.endswith("+json"):
            raise OtherFormError(
                f"the body is in the form {form[:100]!r}, and JSON is read here",
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
            raise UnreadableError("the body is a JSON text", next_step="send a JSON object")
        self._connection_state.json = document
        return document

    def drop_document(self) -> None:
        """Empty the document that the body was decoded into: Litestar's errors about its values keep it in a cycle."""
        document = self._connection_state.json
        if isinstance(document, dict | list):
            document.clear()

    def _decode(self, body: bytes) -> Any:  # noqa: ANN401 - any JSON value
        """Bound the values of a body before they are made: a list of empty mappings takes forty times its bytes."""
        most = self.route_handler.opt.get("most_values", MAX_VALUES)
        if sum(body.count(mark) for mark in (b",", b"[", b"{")) > most:
            raise TooLargeError(
                f"the body has more than {most} values", next_step="send fewer; list the files of a folder as one tree"
            )
        return decode_untyped(body)


Item = TypeVar("Item", bound=msgspec.Struct)

Cursor = Annotated[
    str | None,
    Parameter(description="`next` of the page before; absent for the first.", required=False, max_length=1024),
]
Limit = Annotated[
    int | None,
    Parameter(
        description="How many at most; the server gives fewer where it has a smaller bound.",
        required=False,
        ge=1,
        le=1_000_000,
        examples=[encode_example(100)],
    ),
]


def bound_page_size(limit: int | None, settings: Settings) -> int:
    """How many are given."""
    return settings.usual_page if limit is None else min(limit, settings.largest_page)


def fit_page(
    items: Sequence[Item], most: int, cursor: Callable[[Item], str]
) -> tuple[tuple[Item, ...], str | msgspec.UnsetType]:
    """Return the items that one page takes, and the cursor of the rest.

    Args:
        items: What was found: one more than the page may have, where there are more.
        most: The largest number of items.
        cursor: Makes the cursor of what follows an item.

    Returns:
        As many items as fit into ``limits.PAGE`` bytes, at least one; and the cursor, unset where nothing follows.
    """
    shown = 0
    left = PAGE
    for item in items[:most]:
        left -= len(msgspec.json.encode(item))
        if left < 0 and shown:
            break
        shown += 1
    page = tuple(items[:shown])
    return page, cursor(page[-1]) if len(items) > shown else msgspec.UNSET
