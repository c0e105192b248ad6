"""A request as it is read here: what its body is not is the sender's fault."""

from typing import Any

from litestar import Request

from artifacts.errors import InvalidInputError


class UnreadableError(InvalidInputError):
    """The body is not in the form that the request says."""

    code = "malformed"


class Asked(Request[Any, Any, Any]):
    """A request whose body may be JSON in UTF-8."""

    async def json(self) -> Any:  # noqa: ANN401 - as Litestar says it
        """What the body says.

        Raises:
            UnreadableError: it is not UTF-8. Litestar makes an error of the sender's of everything else.
        """
        try:
            return await super().json()
        except UnicodeDecodeError as error:
            raise UnreadableError(
                f"the body is not UTF-8: {error.reason} at byte {error.start}",
                next_step="send JSON in UTF-8",
            ) from None
