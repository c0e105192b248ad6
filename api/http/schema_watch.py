"""Requests are refused while the database's schema has another revision than this build needs."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from sqlalchemy import Engine

from benchlock.api.http.work import Work
from benchlock.artifacts.errors import UnavailableError
from benchlock.migrations import HEAD, revision
from benchlock.registry.catalogue.database import place_of, reading
from benchlock.registry.catalogue.revisions import SchemaRevisionError, require_revision

ANY_SCHEMA: Final = "any_schema"
"""The option of a route that answers whatever the revision."""


class SchemaWatch:
    """Compares the revision of the database at most every ``seconds``. Write transactions compare it themselves."""

    def __init__(self, database: Engine, work: Work, seconds: float) -> None:
        self._database = database
        self._work = work
        self._seconds = seconds
        self._next = time.monotonic() + seconds
        self._error: SchemaRevisionError | None = None

    async def require_schema(self) -> None:
        """Compare the revision, at most every ``seconds``.

        Raises:
            SchemaRevisionError: The revision differs.
        """
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._seconds
            with suppress(UnavailableError):  # the request itself is told that the database cannot be used
                self._error = await self._work.look_up(self._compare)
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _compare(self) -> SchemaRevisionError | None:
        with reading(self._database) as connection:
            found = revision(connection)
        try:
            require_revision(found, HEAD, place_of(self._database))
        except SchemaRevisionError as error:
            return error
        return None


def schema_guard(watch: SchemaWatch) -> Any:  # noqa: ANN401 - Litestar's own type
    """Make the guard of all routes that refuses a request while the schema has another revision."""

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
        del connection
        options: Mapping[str, Any] = route.opt
        if not options.get(ANY_SCHEMA):
            await watch.require_schema()

    return guard
