"""Work on every core, for steps that wait for other processes, the disk or zlib."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


def parallel(action: Callable[[_Argument], _Result], arguments: Iterable[_Argument]) -> Iterator[_Result]:
    """The results of ``action`` on each argument, in the order in which they come.

    The first failure, or an interruption, is raised after what already runs; nothing else is started.
    """
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        for done in as_completed([pool.submit(action, argument) for argument in arguments]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)
