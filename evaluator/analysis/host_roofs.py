"""The measured roofs of a host: how fast this machine multiplies matrices and copies memory.

Nothing here is computed from a data sheet or /proc/cpuinfo. A child process measures, because the number of threads of
a matrix library is fixed when it loads.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter
from typing import Annotated, Final

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from benchlock.artifacts.errors import UnavailableError

_SECONDS: Final = 0.25
"""How long each size is repeated."""
_MATRICES: Final = (128, 256, 512, 1024)
_WORKING_SETS: Final = (1 << 18, 1 << 20, 1 << 23, 1 << 25, 1 << 28)
_LEAST_COPIED: Final = 1 << 23
"""The bytes of one repetition at least, so that starting threads takes little of its time."""
_LIMIT: Final = 60
_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_MODULE: Final = "benchlock.evaluator.analysis.host_roofs"
Floats = NDArray[np.float32]
_Positive = Annotated[float, Meta(gt=0)]


class Roof(Struct, frozen=True, kw_only=True):
    """The best and the median rate of ``n`` repetitions, in flop/s or bytes/s, which touch ``working_set`` bytes."""

    name: str
    working_set: Annotated[int, Meta(gt=0)]
    best: _Positive
    median: _Positive
    n: Annotated[int, Meta(ge=1)]


class Roofs(Struct, frozen=True, kw_only=True):
    """The roofs of a host at a number of threads: float32 products, and copies by working set in ascending order."""

    threads: Annotated[int, Meta(ge=1)]
    compute: Annotated[tuple[Roof, ...], Meta(min_length=1)]
    bandwidth: Annotated[tuple[Roof, ...], Meta(min_length=1)]
    seconds: float = 0.0

    @property
    def peak(self) -> float:
        """The best measured rate, in flop/s."""
        return max(roof.best for roof in self.compute)

    def bandwidth_for(self, working_set: int) -> Roof:
        """Return the roof of the smallest measured working set that is as large, else the largest measured one."""
        return next((roof for roof in self.bandwidth if roof.working_set >= working_set), self.bandwidth[-1])


def measure_roofs(threads: int) -> Roofs:
    """Measure the roofs of this host in a child process, within a few seconds.

    Raises:
        UnavailableError: The child process fails.
    """
    command = [sys.executable, "-m", _MODULE, str(threads)]
    environment = {**os.environ, **dict.fromkeys(_VARIABLES, str(threads))}
    try:
        done = subprocess.run(command, check=True, capture_output=True, env=environment, timeout=_LIMIT)
        return msgspec.json.decode(done.stdout, type=Roofs)
    except (subprocess.SubprocessError, msgspec.DecodeError, OSError) as error:
        raise UnavailableError(
            f"cannot measure the roofs of this host: {error}",
            next_step="check that this machine has 1 GiB of free memory, and measure again",
        ) from error


def _measure(threads: int) -> Roofs:
    began = perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        bandwidth = tuple(_measure_copy(pool, threads, size) for size in _WORKING_SETS)
    compute = tuple(map(_measure_product, _MATRICES))
    return Roofs(threads=threads, compute=compute, bandwidth=bandwidth, seconds=perf_counter() - began)


def _measure_product(size: int) -> Roof:
    """Measure the product of two square float32 matrices."""
    left, right, result = (np.ones((size, size), np.float32) for _ in range(3))
    work, bytes_ = 2 * size**3, 3 * left.nbytes
    return _repeat(f"sgemm {size}", bytes_, work, lambda: np.matmul(left, right, out=result))


def _measure_copy(pool: ThreadPoolExecutor, threads: int, working_set: int) -> Roof:
    """Measure copies between two halves of a working set, which each thread shares equally; a copy counts twice."""
    length, repeats = working_set // 8 // threads, max(1, _LEAST_COPIED // working_set)
    parts = [(np.ones(length, np.float32), np.zeros(length, np.float32)) for _ in range(threads)]

    def copy(part: tuple[Floats, Floats]) -> None:
        for _ in range(repeats):
            np.copyto(part[1], part[0])

    return _repeat(f"copy {working_set} B", working_set, working_set * repeats, lambda: list(pool.map(copy, parts)))


def _repeat(name: str, working_set: int, work: int, run: Callable[[], object]) -> Roof:
    run()
    rates: list[float] = []
    end = perf_counter() + _SECONDS
    while perf_counter() < end or not rates:
        began = perf_counter()
        run()
        rates.append(work / (perf_counter() - began))
    return Roof(name=name, working_set=working_set, best=max(rates), median=median(rates), n=len(rates))


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_measure(int(sys.argv[1]))))
