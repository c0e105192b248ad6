"""Jobs over HTTP: who watches one hears of what changes."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import msgspec
import pytest

from api.http.app import create_app
from api.http.routes import jobs
from api.http.service import Service
from api.wiring import Registry
from artifacts.digest import digest_bytes
from evaluator.dispatch.queue import Job, Queue, parse_job_id
from evaluator.dispatch.states import Tally

ID = parse_job_id("job/01kam1v3mz4w0q3d5g7h9j2k4m")
DELAYED = Job(
    id=ID,
    lock=digest_bytes(b"lock"),
    state="delayed",
    phase=None,
    machine=None,
    run=None,
    tally=Tally(),
    cancel_asked=False,
    failure=None,
    reason="the engine does not answer",
    due=10.0,
    submitted_at=datetime(2026, 11, 21, 12, tzinfo=UTC),
)
SEEN = [
    DELAYED,
    *(replace(DELAYED, due=due) for due in (9.5, 9.0, 0.0)),
    replace(DELAYED, state="queued", due=None),
    replace(DELAYED, state="cancelled", due=None),
]


class Looks:
    """Has one job, which is another at each look."""

    def __init__(self) -> None:
        self._left = list(SEEN)

    def job(self, _: object) -> Job:
        return self._left.pop(0)


def test_who_watches_a_job_that_waits_hears_nothing_until_something_changes(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_LOOKS", 0.0)
    service: Service = create_app(registry).state.service

    async def watched() -> list[dict[str, object]]:
        events = jobs._events(service, cast("Queue", Looks()), ID)
        found = [msgspec.json.decode(str(event.data)) async for event in events]
        await service.work.end(60)
        return found

    told = asyncio.run(watched())
    seen = [(one["state"], one["again_in"]) for one in told]
    assert seen == [("delayed", 10.0), ("queued", None), ("cancelled", None)]
