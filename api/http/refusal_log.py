"""Counts of repeated refusals, logged while the service runs: after the first minute, then once an hour."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from litestar import Litestar

from benchlock.api.http.logs import log
from benchlock.api.http.service import Service
from benchlock.artifacts.errors import BenchlockError
from benchlock.registry.access.actors import SERVER, act_as
from benchlock.registry.access.refusals import Refusals

_SECONDS: Final = 15.0
"""The interval between two checks for counts that are due."""


def log_refusal_counts(service: Service, refusals: Refusals) -> Any:  # noqa: ANN401 - what Litestar takes as a lifespan
    """Return a lifespan that writes the counts of repeated refusals to the service's log and to the audit log."""

    async def write(*, at_once: bool = False) -> None:
        try:
            repeated = await service.work.do(refusals.summarise, at_once=at_once)
        except BenchlockError as error:  # the first refusal of each kind is in the service's log already
            log.error("cannot write refusals to the audit log: %s", error.what)
            return
        for refusal in repeated:
            fields = {"caller": refusal.actor.id, "count": refusal.count, "told": refusal.reason}
            log.info("refused again", extra={"fields": fields})

    async def write_regularly() -> None:
        act_as(SERVER)
        while True:
            await asyncio.sleep(_SECONDS)
            await write()

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        task = asyncio.create_task(write_regularly())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await write(at_once=True)

    return lifespan
