"""Lines that count refusals, while the service runs: one when the first minute is over, then one an hour."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from litestar import Litestar

from api.http.logs import log
from api.http.service import Service
from artifacts.errors import BenchlockError
from registry.access.actors import SERVER, act_as
from registry.access.refusals import Refusals

_SECONDS: Final = 15.0
"""Seconds between two looks for refusals to count."""


def counting(service: Service, refusals: Refusals) -> Any:  # noqa: ANN401 - what Litestar takes as a lifespan
    """Return a lifespan that writes the counts of repeated refusals to the service's log and to the audit log."""

    async def write(*, at_once: bool = False) -> None:
        try:
            repeated = await service.work.do(refusals.summarise, at_once=at_once)
        except BenchlockError as error:  # the service's log has the refusals that came first
            log.error("refusals are not written down: %s", error.what)
            return
        for one in repeated:
            fields = {"caller": one.actor.id, "count": one.count, "told": one.reason}
            log.info("refused again", extra={"fields": fields})

    async def again_and_again() -> None:
        act_as(SERVER)
        while True:
            await asyncio.sleep(_SECONDS)
            await write()

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        task = asyncio.create_task(again_and_again())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await write(at_once=True)

    return lifespan
