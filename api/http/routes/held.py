"""Runs that a client runs on its own machine and records here: a start, a hold that it renews, an end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any

from litestar import Litestar, Router, post, put
from litestar.params import Body

from benchlock.api.dispatching import open_queue
from benchlock.api.http.asked import MOST_RUN_VALUES
from benchlock.api.http.documented import answers, content, example
from benchlock.api.http.guards import RUN
from benchlock.api.http.logs import log
from benchlock.api.http.places import END
from benchlock.api.http.routes.runs import BEGUN, OVER, RunIn, check_begun, check_ended
from benchlock.api.http.routes.runs import RUN as RUN_EXAMPLE
from benchlock.api.http.service import Service
from benchlock.api.http.space import WHILE_FULL
from benchlock.api.wire import runs as wire
from benchlock.api.wiring import Registry, now
from benchlock.artifacts.errors import BenchlockError
from benchlock.evaluator.dispatch.held import HeldRuns
from benchlock.evaluator.dispatch.times import Times
from benchlock.evaluator.records.runs import RunStart, parse_run_id
from benchlock.registry.accepting import refuse_missing
from benchlock.registry.access.actors import SERVER, act_as

_HOLD = {"run": BEGUN["id"], "seconds": 60.0}

BegunIn = Annotated[wire.RunBegun, Body(examples=[example(BEGUN)])]
OverIn = Annotated[wire.RunOver, Body(examples=[example(OVER)])]


def routes(service: Service) -> Router:
    """``POST /v1/runs``, ``PUT /v1/runs/{id}/hold`` and ``PUT /v1/runs/{id}/end``."""
    registry = service.registry
    held = HeldRuns(registry.database, now, Times(service.settings.lease_seconds))

    @post(
        "/runs",
        opt=RUN,
        status_code=201,
        summary="Begin a run of one's own",
        responses=answers(
            "unknown-name",
            "refused",
            "integrity",
            body=True,
            success={201: content(wire.Hold, "It is recorded and held.", _HOLD)},
        ),
    )
    async def begin_run(data: BegunIn) -> wire.Hold:
        """Records that a run starts on the client's machine; its lock is here. The same again changes nothing."""
        await service.prompt.do(_begun, registry, held, wire.start_of(data))
        return wire.Hold(run=data.id, seconds=held.times.lease)

    @put(
        "/runs/{run_id:str}/hold",
        opt=RUN | WHILE_FULL,
        summary="Go on with it",
        responses=answers(
            "unknown-name", "refused", "invalid-input", success={200: content(wire.Hold, "It is held.", _HOLD)}
        ),
    )
    async def renew_run(run_id: RunIn) -> wire.Hold:
        """Renews the hold; a run whose hold has ended is recorded as abandoned, and 409 says so."""
        id_ = parse_run_id(f"run/{run_id}")
        await service.prompt.do(held.renew, id_)
        return wire.Hold(run=id_, seconds=held.times.lease)

    @put(
        "/runs/{run_id:str}/end",
        opt=RUN | END | WHILE_FULL | {"most_values": MOST_RUN_VALUES},
        summary="End it",
        responses=answers(
            "unknown-name",
            "refused",
            "missing-blobs",
            "integrity",
            body=True,
            success={200: content(wire.RunOnWire, "The run, as it is recorded.", RUN_EXAMPLE)},
        ),
    )
    async def end_run(run_id: RunIn, data: OverIn) -> wire.RunOnWire:
        """Records how it ended, once and for all; its blobs are sent before. The same again changes nothing."""
        return await service.ends.do(_ended, registry, held, run_id, data)

    return Router(
        "",
        route_handlers=[begin_run, renew_run, end_run],
        tags=["runs"],
        request_max_body_size=service.settings.largest_body,
    )


def _begun(registry: Registry, held: HeldRuns, start: RunStart) -> None:
    check_begun(registry, start)
    held.start(start)


def _ended(registry: Registry, held: HeldRuns, run_id: str, data: wire.RunOver) -> wire.RunOnWire:
    id_, end = parse_run_id(f"run/{run_id}"), wire.end_of(data)
    with registry.store.writing():
        refuse_missing({blob.digest: f"{id_} {role}" for role, blob in end.blobs.items()}, registry.store)
        return wire.run_on_wire(registry.examiner.examine(held.finish(id_, end, partial(check_ended, registry))))


def reaping(service: Service) -> Any:  # noqa: ANN401 - what Litestar takes as a lifespan
    """While the service runs, again and again, runs whose hold or whose lease has ended are recorded as abandoned."""
    held = HeldRuns(service.registry.database, now, Times(service.settings.lease_seconds))
    queue = open_queue(service.registry)

    def reap() -> bool:
        for run in held.reap() if held.is_any() else ():
            log.warning("abandoned", extra={"fields": {"run": run}})
        return False

    async def again_and_again() -> None:
        act_as(SERVER)
        while True:
            await asyncio.sleep(min(one.grace - one.beat for one in (held.times, queue.times)))
            for ends in (queue.settle, reap, queue.cancel_token_work):
                await _look(service, ends)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        task = asyncio.create_task(again_and_again())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    return lifespan


async def _look(service: Service, ends: Callable[[], bool]) -> None:
    """As often as there may be more; what fails here fails nothing else."""
    try:
        while await service.prompt.do(ends):
            pass
    except BenchlockError as error:
        log.error("runs could not be looked at", extra={"fields": {"code": error.code, "reason": error.what}})
    except Exception as error:  # noqa: BLE001 - a fault of ours now is none in a minute
        log.error("a fault in looking at runs", exc_info=error)
