"""Identifiers in paths: `/v1/jobs/job/ID` is `/v1/jobs/ID`, since a job is called `job/ID` in every response."""

import re
from typing import Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

_PREFIXED: Final = re.compile(r"(/v1/(job|run|token)s/)\2/(?=[0-9a-z]{26}(?:/|$))")


def accept_full_identifiers(app: ASGIApp) -> ASGIApp:
    """Wrap an application so that paths may name a job, a run or a token by its whole identifier.

    Clients made from the OpenAPI document send the slash as ``%2F``, which the server has decoded by then.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            prefixed = _PREFIXED.match(scope["path"])
            if prefixed is not None:
                scope["path"] = prefixed[1] + scope["path"][prefixed.end() :]
        await app(scope, receive, send)

    return call
