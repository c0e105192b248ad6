"""Events of a running job: each line once, from where the client stopped, and nothing left when clients have gone."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Mapping
from threading import Semaphore
from types import AsyncGeneratorType
from typing import Any

import pytest
from litestar import Litestar

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.http import live_jobs
from benchlock.api.http.live_jobs import LiveJobs
from benchlock.api.http.routes.app import create_app
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.evaluator.queue.queue_types import JobId, Lease, LiveJob, ProgressLine
from benchlock.evaluator.queue.sql_queue import SqlQueue
from tests.support.evaluator.queues import BOOT, facts, keep_lock, machine, wish

STREAMS = 25


@pytest.fixture
def queue(registry: LocalRegistry) -> SqlQueue:
    keep_lock(registry.database)
    return open_queue(registry)


def leased(queue: SqlQueue) -> Lease:
    queue.submit(wish())
    queue.enrol(machine(1), BOOT, facts())
    lease = queue.lease(machine(1), BOOT)
    assert lease is not None
    return lease


def report(queue: SqlQueue, lease: Lease, *numbers: int) -> None:
    queue.report(lease.fence, [ProgressLine(number, "golden\u202e", number, 9) for number in numbers])


class Client:
    """A client of the application itself, which leaves when it has read enough."""

    def __init__(self, app: Litestar, path: str, last: str | None = None) -> None:
        path, _, query = path.partition("?")
        headers = [(b"host", b"127.0.0.1"), *([(b"last-event-id", last.encode())] if last else [])]
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self._app, self.text, self.left, self._asked = app, "", asyncio.Event(), False
        self._news = asyncio.Event()

    async def receive(self) -> Any:  # noqa: ANN401 - a message of ASGI
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:  # noqa: ANN401 - a message of ASGI
        self.text += message.get("body", b"").decode()
        self._news.set()
        if not message.get("more_body", True):
            self.left.set()  # a server ends ``receive`` with the response

    async def run(self) -> None:
        await self._app(self._scope, self.receive, self.send)  # type: ignore[arg-type] # a scope of HTTP

    async def read(self, part: str) -> None:
        async with asyncio.timeout(60):
            while part not in self.text:
                self._news.clear()
                await self._news.wait()

    @property
    def numbers(self) -> list[int]:
        return [int(line.removeprefix("id: ")) for line in self.text.splitlines() if line.startswith("id: ")]


def run(app: Litestar, act: Callable[[], Awaitable[None]]) -> None:
    async def served() -> None:
        async with app.lifespan():
            await act()

    asyncio.run(served())


def address(job: JobId, **query: int) -> str:
    return f"/jobs/{job.removeprefix('job/')}/events?" + "&".join(f"{name}={value}" for name, value in query.items())


def test_each_line_comes_once_also_to_a_client_that_was_cut_off(registry: LocalRegistry, queue: SqlQueue) -> None:
    app, lease = create_app(registry), leased(queue)
    report(queue, lease, 1, 2)

    async def act() -> None:
        whole = Client(app, address(lease.job, fence=lease.fence))
        resumed = Client(app, address(lease.job, fence=lease.fence, after=1), last="2")
        other = Client(app, address(lease.job, fence=lease.fence + 1))
        async with asyncio.TaskGroup() as group:
            for client in (whole, resumed, other):
                group.create_task(client.run())
            await whole.read("id: 2")
            await asyncio.to_thread(report, queue, lease, 2, 3)
            await whole.read("id: 3")
            await asyncio.to_thread(report, queue, lease, 4)
            await asyncio.to_thread(queue.release, lease.fence, "invalid", "no machine can")
        assert (whole.numbers, resumed.numbers, other.numbers) == ([1, 2, 3, 4], [3, 4], [])
        for client in (whole, resumed, other):
            assert client.text.startswith("retry: 500\n\n")
            assert client.text.count("event: state") == 2  # as it was, and as it ended
            assert client.text.endswith("event: done\ndata:\n\n")
        assert r'"text":"golden\\u202e: 4 of 9 samples","done":4,"total":9' in whole.text  # escaped as on the page

    run(app, act)


def test_nothing_is_left_when_all_clients_have_gone(
    registry: LocalRegistry, queue: SqlQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_jobs, "PING_SECONDS", 0.05)
    app, lease = create_app(registry), leased(queue)

    async def act() -> None:
        clients = [Client(app, address(lease.job, fence=lease.fence)) for _ in range(STREAMS)]
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run())
            for client in clients:
                await client.read("event: state")
            assert streams() == STREAMS
            await clients[0].read(": still watching")
            for client in clients:
                client.left.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*polls())
        gc.collect()
        assert streams() == 0
        assert app.state.service.metrics.in_flight._value.get() == 0

    run(app, act)


@pytest.mark.parametrize("failures", [1, 1 << 30])
def test_streams_go_on_when_a_read_fails(
    registry: LocalRegistry,
    queue: SqlQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failures: int,
) -> None:
    reads, live = Semaphore(0), SqlQueue.live
    remaining = iter(range(failures))

    def fail(self: SqlQueue, known: Mapping[JobId, LiveJob | None]) -> dict[JobId, LiveJob]:
        reads.release()
        if next(remaining, None) is not None:
            raise RuntimeError("can't start new thread")
        return live(self, known)

    monkeypatch.setattr(SqlQueue, "live", fail)
    monkeypatch.setattr(live_jobs, "PING_SECONDS", 0.05)
    monkeypatch.setattr(live_jobs, "POLL_SECONDS", 0.01)
    app, lease = create_app(registry), leased(queue)

    async def act() -> None:
        client = Client(app, address(lease.job, fence=lease.fence))
        async with asyncio.TaskGroup() as group:
            group.create_task(client.run())
            if failures == 1:
                await client.read("event: state")
            else:
                await client.read(": still watching\n\n" * 5)
                for _ in range(3):
                    assert await asyncio.to_thread(reads.acquire, timeout=60)
            client.left.set()

    run(app, act)
    messages = [record.message for record in caplog.records]
    assert messages.count("an error during the read of watched jobs") == 1


def test_streams_end_with_the_task_that_reads(registry: LocalRegistry, queue: SqlQueue) -> None:
    app, lease = create_app(registry), leased(queue)

    async def act() -> None:
        client = Client(app, address(lease.job, fence=lease.fence))
        async with asyncio.TaskGroup() as group:
            group.create_task(client.run())
            await client.read("event: state")
            for task in polls():
                task.cancel()
        assert not client.text.endswith("event: done\ndata:\n\n")  # the browser opens another one

    run(app, act)


def polls() -> list[asyncio.Task[Any]]:
    """The tasks that read for streams."""
    return [task for task in asyncio.all_tasks() if task.get_coro().__name__ == "_poll"]  # type: ignore[union-attr]


def streams() -> int:
    """The number of streams that have not ended."""
    code = LiveJobs.stream.__code__
    generators = (one for one in gc.get_objects() if type(one) is AsyncGeneratorType)
    return sum(one.ag_code is code and one.ag_frame is not None for one in generators)
