"""Where the work of a request is done: on the loop what is over at once, in a few threads all the rest."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar

from artifacts.errors import UnavailableError
from artifacts.locking import PATIENCE

P = ParamSpec("P")
T = TypeVar("T")


class BusyError(UnavailableError):
    """Too much is asked at once; what is asked may be well."""

    code = "busy"


class Work:
    """Threads for what reads files, writes to the database or computes; so many may be ``waiting`` for one.

    ``at_once``: reading a few rows takes less time than handing it to a thread, as from a database in a file; where
    the database is a server, nobody waits for it on the loop. Whoever asked hears that it takes more than ``seconds``,
    where that is given; what is being done goes on. ``patience`` is for the store while its garbage is collected.
    """

    def __init__(
        self, threads: int, waiting: int, *, at_once: bool, seconds: float | None = None, patience: float | None = None
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="work")
        self._free = threads + waiting
        self._at_once = at_once
        self._seconds = seconds
        self._patience = patience
        self._doing: set[Future[Any]] = set()
        self._ended = False

    async def look_up(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what reads a few rows by an index, and nothing else."""
        if self._at_once:
            return act(*args, **kwargs)
        return await self.do(act, *args, **kwargs)

    async def do(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do anything else, in a thread, with the context of the request.

        Raises:
            BusyError: too many requests wait for a thread already, or the service ends; or it takes too long.
        """
        if self._ended:
            raise BusyError("the service is about to end", next_step="try again in a few seconds")
        if self._free < 1:
            raise BusyError("the service has too much to do", next_step="try again in a few seconds")
        context = copy_context()
        context.run(PATIENCE.set, self._patience)
        self._free -= 1
        doing = self._pool.submit(lambda: context.run(act, *args, **kwargs))
        self._doing.add(doing)
        doing.add_done_callback(self._doing.discard)
        done = asyncio.wrap_future(doing)
        done.add_done_callback(self._freed)
        try:
            async with asyncio.timeout(self._seconds):
                return await done
        except TimeoutError as error:
            if not done.cancelled():  # it is what was done that raised it
                raise
            raise BusyError(
                f"it takes more than {self._seconds:g} seconds", next_step="ask for less, or later"
            ) from error

    def _freed(self, _: "asyncio.Future[Any]") -> None:
        self._free += 1

    @property
    def is_busy(self) -> bool:
        """Whether something is being done, or waits for a thread."""
        return bool(self._doing)

    async def end(self, seconds: float) -> None:
        """Begin nothing more, and let what is being done come to its end; what takes longer goes on after that."""
        self._ended = True
        await asyncio.to_thread(wait, tuple(self._doing), seconds)
        self._pool.shutdown(wait=False, cancel_futures=True)
