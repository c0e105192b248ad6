"""Requests that stay open: event streams of running jobs, and machines that wait for a job; one reader serves all."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from benchlock.api.http.service_state import Service
from benchlock.api.service_log import log
from benchlock.artifacts.errors import BenchlockError
from benchlock.evaluator.queue.queue_texts import describe_line
from benchlock.evaluator.queue.queue_types import TERMINAL, JobId, LiveJob, ProgressLine
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.registry.database.commit_signals import Signal

T = TypeVar("T")

POLL_SECONDS: Final = 0.2
"""Seconds between two reads of all jobs that are watched."""
PING_SECONDS: Final = 15.0
"""Seconds without an event after which a comment is sent, to notice a disconnect."""
LISTEN_SECONDS: Final = 1.0
"""Seconds between two checks of the listening thread whether a request still waits."""
READ_SECONDS: Final = 2.0
"""Seconds between two reads of the queue without a signal: the delay of a job may have ended."""
_BEGIN: Final = b"retry: 500\n\n"
_PING: Final = b": still watching\n\n"
_DONE: Final = b"event: done\ndata:\n\n"


class LiveJobs:
    """The jobs that streams of this process watch. It is for the thread of the event loop."""

    def __init__(self, service: Service, queue: SqlQueue) -> None:
        """Watch no job."""
        self._service, self._queue = service, queue
        self._jobs: dict[JobId, LiveJob | None] = {}
        self._changes: dict[JobId, asyncio.Event] = {}
        self._task: asyncio.Task[None] | None = None
        self.streams: Counter[JobId] = Counter()
        """The number of open streams of each watched job."""

    async def stream(self, job: JobId, fence: int, after: int) -> AsyncGenerator[bytes]:
        """Yield events: ``state`` at first and for each change, ``line`` for each line, and ``done`` at the end.

        Args:
            job: The job.
            fence: The lease whose lines the page shows; after a change of lease the page has to be loaded again.
            after: The number of the last line that the client has.
        """
        with self._watch(job):
            key = ""
            yield _BEGIN
            while self._task is not None and not self._service.ending.is_set():  # else nothing would wake the stream
                live, change, events = self._jobs[job], self._changes[job], b""
                if live is not None and live.fence == fence:
                    events = b"".join(_format_line(line) for line in live.lines if line.number > after)
                    after = max(after, live.last)
                if live is not None and live.key != key:
                    key = live.key
                    events += f"event: state\ndata: {key}\n\n".encode()
                if live is not None and live.state in TERMINAL:
                    yield events + _DONE
                    return
                if events:
                    yield events
                try:
                    async with asyncio.timeout(PING_SECONDS):
                        await change.wait()
                except TimeoutError:
                    yield _PING

    @contextmanager
    def _watch(self, job: JobId) -> Iterator[None]:
        if not self.streams[job]:
            self._jobs[job], self._changes[job] = None, asyncio.Event()
        self.streams[job] += 1
        if self._task is None:
            # Without the context of the request: its caller does not pay for the reads of others.
            self._task = asyncio.get_running_loop().create_task(self._poll(), context=Context())
        try:
            yield
        finally:
            self.streams[job] -= 1
            if not self.streams[job]:
                del self.streams[job], self._jobs[job], self._changes[job]

    async def _poll(self) -> None:
        has_failed = False
        try:
            while self._jobs and not self._service.ending.is_set():
                try:
                    self._take(await self._service.work.do(self._queue.live, dict(self._jobs)))
                    has_failed = False
                except BenchlockError:  # the database is locked, or the service is busy: read again soon
                    pass
                except Exception as error:  # noqa: BLE001 - an internal error must not end the loop
                    if not has_failed:  # one entry for errors that follow each other, not five a second
                        log.error("an error during the read of watched jobs", exc_info=error)
                    has_failed = True
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._task = None
            for job in self._changes:
                self._wake(job)

    def _take(self, read: dict[JobId, LiveJob]) -> None:
        """Take over what was read, and wake the streams of jobs that changed."""
        for job, live in read.items():
            before = self._jobs.get(job)
            if job in self._jobs and (before is None or (before.key, before.last) != (live.key, live.last)):
                self._jobs[job] = live
                self._wake(job)

    def _wake(self, job: JobId) -> None:
        """Wake the streams of a job. Later they wait for another event: one that is set would not let them wait."""
        change, self._changes[job] = self._changes[job], asyncio.Event()
        change.set()


@lru_cache(1024)
def _format_line(line: ProgressLine) -> bytes:
    data = msgspec.json.encode({"text": describe_line(line), "done": line.done, "total": line.total})
    return b"id: %d\nevent: line\ndata: %s\n\n" % (line.number, data)


class JobWakeUps:
    """Wakes the requests of this process that wait for a job. It is for the thread of the event loop."""

    def __init__(self, service: Service, signal: Signal) -> None:
        """Listen to ``signal`` while a request waits."""
        self._service, self._signal = service, signal
        self._change = asyncio.Event()
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None

    async def wait_for(self, read: Callable[[], T], seconds: float) -> T:
        """Call ``read`` in a thread until its result is true, for ``seconds`` at most; return its last result."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        self._waiting += 1
        try:
            while True:
                change = self._change  # taken before the read, so that a job that is queued during it wakes the request
                result = await self._service.work.do(read)
                remaining = until - loop.time()
                if result or remaining <= 0 or self._service.ending.is_set():
                    return result
                await self._sleep(change, min(remaining, READ_SECONDS))
        finally:
            self._waiting -= 1

    async def _sleep(self, change: asyncio.Event, seconds: float) -> None:
        if self._task is None:
            # Without the context of the request, which is not the one that listens for the others.
            self._task = asyncio.get_running_loop().create_task(self._listen(), context=Context())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await change.wait()

    async def _listen(self) -> None:
        try:
            while self._waiting and not self._service.ending.is_set():
                if await asyncio.to_thread(self._signal.wait, LISTEN_SECONDS):
                    self._wake()
        except Exception as error:  # noqa: BLE001 - without signals, requests still look every few seconds
            log.error("an error while listening for jobs", exc_info=error)
            await asyncio.sleep(READ_SECONDS)
        finally:
            self._task = None
            self._signal.close()
            self._wake()

    def _wake(self) -> None:
        """Wake all requests. Later ones wait for another event: one that is set would not let them wait."""
        change, self._change = self._change, asyncio.Event()
        change.set()
