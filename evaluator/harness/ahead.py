"""Work done ahead in threads, while its results so far are used: bounded, and handed over in order."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_Made = TypeVar("_Made")


class Ahead(Generic[_Made]):
    """``make(0)``, ``make(1)``, … up to ``count``, in that order, however many ``threads`` make them.

    At most ``depth`` are begun and not yet handed over. With no thread each is made when it is asked for. ``busy`` is
    the seconds spent making, summed over the threads; ``waited`` those that the caller waited for what was not ready.
    What ``make`` raises is raised where its result would be handed over, and nothing more is begun.
    """

    def __init__(self, make: Callable[[int], _Made], count: int, threads: int, depth: int) -> None:
        self.busy = 0.0
        self.waited = 0.0
        self._make = make
        self._count = count
        self._threads = threads
        self._depth = max(depth, threads)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[_Made]:
        if self._threads == 0:
            yield from map(self._timed, range(self._count))
            return
        begun: deque[Future[_Made]] = deque()
        numbers = iter(range(self._count))
        with ThreadPoolExecutor(self._threads, "ahead") as pool:
            try:
                for number in numbers:
                    begun.append(pool.submit(self._timed, number))
                    if len(begun) == self._depth:
                        yield self._next(begun)
                while begun:
                    yield self._next(begun)
            finally:
                for future in begun:
                    future.cancel()

    def _timed(self, number: int) -> _Made:
        start = time.perf_counter()
        try:
            return self._make(number)
        finally:
            seconds = time.perf_counter() - start
            with self._lock:
                self.busy += seconds

    def _next(self, begun: deque[Future[_Made]]) -> _Made:
        start = time.perf_counter()
        made = begun.popleft().result()
        self.waited += time.perf_counter() - start
        return made
