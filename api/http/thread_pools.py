"""Thread pools with fair shares per caller for the work of requests."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from benchlock.artifacts.atomic_files import LOCK_TIMEOUT
from benchlock.artifacts.errors import BusyError
from benchlock.artifacts.isolation.resource_limits import SLOT_CLAIM, SlotClaim
from benchlock.registry.auth.permissions import get_actor

P = ParamSpec("P")
T = TypeVar("T")


class _CallerShare:
    """The threads and requests of one caller; it is discarded with the last request."""

    def __init__(self, threads: int) -> None:
        self.threads = asyncio.Semaphore(threads)
        self.requests = 0


class FairThreadPool:
    """A thread pool for blocking work with fair shares: no caller may occupy all threads or all places in the queue."""

    def __init__(
        self,
        threads: int,
        waiting: int,
        *,
        at_once: bool,
        seconds: float | None = None,
        patience: float | None = None,
        slot_seconds: float | None = None,
        urgent: bool = False,
    ) -> None:
        """Create the threads.

        Args:
            threads: The number of threads.
            waiting: Requests that may wait for a thread.
            at_once: Whether ``look_up`` runs on the event loop: a lookup in a database file takes less time than a
                thread switch, while one on a database server would block the loop.
            seconds: Seconds after which the request fails; its work continues, but no longer waits for slots.
            patience: Seconds to wait for the store during garbage collection.
            slot_seconds: Seconds to wait for each slot of a child process.
            urgent: Whether child processes of this pool take precedence over those of others.
        """
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="work")
        self._free = threads + waiting
        self._each_threads = max(1, threads - 1)
        self._each_requests = threads + (waiting + 1) // 2
        self._shares: WeakValueDictionary[str, _CallerShare] = WeakValueDictionary()
        self._at_once = at_once
        self._seconds = seconds
        self._patience = patience
        self._slot_seconds = slot_seconds
        self._urgent = urgent
        self._futures: set[Future[Any]] = set()
        self._is_closed = False

    async def look_up(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``act``, which only reads a few rows by an index."""
        if self._at_once:
            return act(*args, **kwargs)
        return await self.do(act, *args, **kwargs)

    async def do(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``act`` in a thread, with the context of the request.

        Raises:
            BusyError: Too many requests wait for a thread, of all callers or of this one; the service shuts down; or
                the time is over.
        """
        owner = get_actor().id
        context = copy_context()
        context.run(LOCK_TIMEOUT.set, self._patience)
        deadline = None if self._seconds is None else time.monotonic() + self._seconds
        claim = SlotClaim(owner, urgent=self._urgent, deadline=deadline, timeout=self._slot_seconds)
        context.run(SLOT_CLAIM.set, claim)
        with self._count_request(owner) as share:
            timeout = asyncio.timeout(self._seconds)
            try:
                async with timeout:
                    await share.threads.acquire()
                    return await asyncio.wrap_future(self._submit(share, lambda: context.run(act, *args, **kwargs)))
            except TimeoutError as error:
                if not timeout.expired():  # raised by ``act``
                    raise
                raise BusyError(
                    f"the request takes more than {self._seconds:g} seconds",
                    next_step="request less, or try again later",
                ) from error

    @contextmanager
    def _count_request(self, owner: str) -> Iterator[_CallerShare]:
        """Count a request of a caller until it is answered."""
        self._require_open()
        if self._free < 1:
            raise BusyError("the service is overloaded", next_step="try again in a few seconds")
        share = self._shares.setdefault(owner, _CallerShare(self._each_threads))
        if share.requests >= self._each_requests:
            raise BusyError(
                f"{share.requests} requests of the same caller are already in progress",
                next_step="wait until one has finished, then try again",
            )
        self._free -= 1
        share.requests += 1
        try:
            yield share
        finally:
            self._free += 1
            share.requests -= 1

    def _submit(self, share: _CallerShare, act: Callable[[], T]) -> Future[T]:
        """Start ``act`` in a thread of the caller's share, which is freed when ``act`` ends, not when the request does.

        Raises:
            BusyError: The service shuts down.
        """
        loop = asyncio.get_running_loop()

        def release(future: Future[T]) -> None:
            self._futures.discard(future)
            with suppress(RuntimeError):  # the loop is closed, because the service has ended
                loop.call_soon_threadsafe(share.threads.release)

        try:
            self._require_open()
            future = self._pool.submit(act)
        except BaseException:
            share.threads.release()
            raise
        self._futures.add(future)
        future.add_done_callback(release)
        return future

    def _require_open(self) -> None:
        if self._is_closed:
            raise BusyError("the service is stopping", next_step="try again in a few seconds")

    @property
    def is_busy(self) -> bool:
        """Return whether work is running or waiting for a thread."""
        return bool(self._futures)

    async def end(self, seconds: float) -> None:
        """Reject new work and wait ``seconds`` for running work; what takes longer continues."""
        self._is_closed = True
        await asyncio.to_thread(wait, tuple(self._futures), seconds)
        self._pool.shutdown(wait=False, cancel_futures=True)
