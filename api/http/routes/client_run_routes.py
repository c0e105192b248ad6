"""Routes for runs executed by a client: start, hold and end; cleanup of abandoned runs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any

from litestar import Controller, Litestar, post, put
from litestar.params import Body

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.http.openapi import describe_body, describe_responses, encode_example
from benchlock.api.http.request_authorization import RUN
from benchlock.api.http.request_limits import END, WHILE_FULL
from benchlock.api.http.request_parsing import MAX_RECORD, MAX_RUN_VALUES, Injected
from benchlock.api.http.routes.run_routes import (
    RUN_END_EXAMPLE,
    RUN_EXAMPLE,
    RUN_START_EXAMPLE,
    RunIn,
    check_run_end,
    check_run_start,
)
from benchlock.api.http.service_state import Service
from benchlock.api.local.local_registry import now
from benchlock.api.schemas import run_schemas as wire
from benchlock.api.service_log import log
from benchlock.artifacts.errors import BenchlockError
from benchlock.evaluator.queue.client_runs import ClientRuns
from benchlock.evaluator.queue.lease_times import Times
from benchlock.evaluator.records.run_types import Run, RunEnd, RunId, RunStart, fit_run, parse_run_id
from benchlock.registry.auth.permissions import SERVER, act_as
from benchlock.registry.publishing.remote_publication import require_blobs

_HOLD = {"run": RUN_START_EXAMPLE["id"], "seconds": 60.0}

BegunIn = Annotated[RunStart, Body(examples=[encode_example(RUN_START_EXAMPLE)])]
OverIn = Annotated[RunEnd, Body(examples=[encode_example(RUN_END_EXAMPLE)])]


class RunRecorder:
    """The runs that clients execute, started, held and ended in the threads of a service."""

    def __init__(self, service: Service) -> None:
        """Record the runs of the service's registry."""
        self._service, self._registry = service, service.registry
        self.runs = ClientRuns(service.registry.database, now, Times(service.settings.lease_seconds))

    async def start(self, start: RunStart) -> wire.Hold:
        """Record a start that matches its lock."""
        await self._service.prompt.do(self._check_and_start, start)
        return wire.Hold(run=start.id, seconds=self.runs.times.lease)

    async def renew(self, run: RunId) -> wire.Hold:
        """Renew the hold of a run."""
        await self._service.prompt.do(self.runs.renew, run)
        return wire.Hold(run=run, seconds=self.runs.times.lease)

    async def end(self, run: RunId, end: RunEnd) -> Run:
        """Record an end that agrees with its evidence, and return the run."""
        return await self._service.ends.do(self._check_and_end, run, end)

    def _check_and_start(self, start: RunStart) -> None:
        check_run_start(self._registry, start)
        self.runs.start(start)

    def _check_and_end(self, run: RunId, end: RunEnd) -> Run:
        with self._registry.store.writing():
            require_blobs({blob.digest: f"{run} {role}" for role, blob in end.blobs.items()}, self._registry.store)
            recorded = self.runs.finish(run, end, partial(check_run_end, self._registry))
            return fit_run(self._registry.examiner.examine(recorded))


class ClientRunController(Controller):
    """Routes ``POST /v1/runs``, ``PUT /v1/runs/{id}/hold`` and ``PUT /v1/runs/{id}/end``."""

    tags = ("runs",)
    request_max_body_size = MAX_RECORD

    @post(
        "/runs",
        opt=RUN,
        status_code=201,
        summary="Start a run on the client",
        responses=describe_responses(
            "unknown-name",
            "refused",
            "integrity",
            body=True,
            success={201: describe_body(wire.Hold, "The run is recorded and held.", _HOLD)},
        ),
    )
    async def begin_run(self, recorder: Injected[RunRecorder], data: BegunIn) -> wire.Hold:
        """Record the start of a run on the client's machine, of a stored lock. Repeating the request has no effect."""
        return await recorder.start(data)

    @put(
        "/runs/{run_id:str}/hold",
        opt=RUN | WHILE_FULL,
        summary="Renew the hold of a run",
        responses=describe_responses(
            "unknown-name",
            "refused",
            "invalid-input",
            success={200: describe_body(wire.Hold, "The hold is renewed.", _HOLD)},
        ),
    )
    async def renew_run(self, recorder: Injected[RunRecorder], run_id: RunIn) -> wire.Hold:
        """Renew the hold of a run. If it had expired, the run is recorded as abandoned and the response is 409."""
        return await recorder.renew(parse_run_id(f"run/{run_id}"))

    @put(
        "/runs/{run_id:str}/end",
        opt=RUN | END | WHILE_FULL | {"most_values": MAX_RUN_VALUES},
        summary="End a run",
        responses=describe_responses(
            "unknown-name",
            "refused",
            "missing-blobs",
            "integrity",
            body=True,
            success={200: describe_body(Run, "The run as recorded.", RUN_EXAMPLE)},
        ),
    )
    async def end_run(self, recorder: Injected[RunRecorder], run_id: RunIn, data: OverIn) -> Run:
        """Record the final end of a run; its blobs are uploaded before. Repeating the request has no effect."""
        return await recorder.end(parse_run_id(f"run/{run_id}"), data)


def reap_abandoned_runs(service: Service) -> Any:  # noqa: ANN401 - Litestar's own type of a lifespan
    """Make a lifespan that regularly records runs whose hold or lease has expired as abandoned."""
    client_runs = ClientRuns(service.registry.database, now, Times(service.settings.lease_seconds))
    queue = open_queue(service.registry)

    def reap() -> bool:
        for run in client_runs.reap() if client_runs.is_any() else ():
            log.warning("abandoned", extra={"fields": {"run": run}})
        return False

    async def again_and_again() -> None:
        act_as(SERVER)
        while True:
            await asyncio.sleep(min(times.grace - times.beat for times in (client_runs.times, queue.times)))
            for ends in (queue.settle, reap, queue.cancel_token_work):
                await _reap_once(service, ends)

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


async def _reap_once(service: Service, ends: Callable[[], bool]) -> None:
    """Call ``ends`` until it has no more work; an error is logged and affects nothing else."""
    try:
        while await service.prompt.do(ends):
            pass
    except BenchlockError as error:
        log.error("expired runs could not be checked", extra={"fields": {"code": error.code, "reason": error.what}})
    except Exception as error:  # noqa: BLE001 - an internal error must not end the loop
        log.error("an error during the check of expired runs", exc_info=error)
