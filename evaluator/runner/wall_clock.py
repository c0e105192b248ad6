"""The wall-clock time of a command, split into parts that add up to the whole."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

OTHER = "other"
"""The part for time outside of every named part."""


_START_TIME = 19  # of the fields of /proc/self/stat after the command's name


def process_start() -> float:
    """Return when this process started, on the clock ``time.perf_counter``; now if the system does not tell."""
    now = time.perf_counter()
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        started = int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - max(0.0, age)


class WallClock:
    """The time since a start, divided into parts; time in nested parts belongs to the innermost one.

    It must be used by one thread.
    """

    def __init__(self, start: float | None = None, now: Callable[[], float] = time.perf_counter) -> None:
        """Start at ``start`` on the clock ``now``, in seconds; by default at once."""
        self._now = now
        self._start = self._last = now() if start is None else start
        self._part = OTHER
        self._seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Charge the time inside the context to ``name``."""
        self._charge()
        outer, self._part = self._part, name
        try:
            yield
        finally:
            self._charge()
            self._part = outer

    def begin(self, name: str) -> None:
        """Charge the time since the last part to ``name``."""
        part, self._part = self._part, name
        self._charge()
        self._part = part

    def move(self, source: str, target: str, seconds: float) -> None:
        """Charge ``seconds`` of ``source`` to ``target`` instead; at most what ``source`` has."""
        moved = max(0.0, min(seconds, self._seconds.get(source, 0.0)))
        if moved:
            self._seconds[source] -= moved
            self._seconds[target] = self._seconds.get(target, 0.0) + moved

    def account(self) -> Mapping[str, float]:
        """Return the seconds of each part until now, ``other`` last; their sum is the whole."""
        self._charge()
        parts = {name: seconds for name, seconds in self._seconds.items() if name != OTHER}
        return parts | {OTHER: self._seconds.get(OTHER, 0.0)}

    def _charge(self) -> None:
        now = self._now()
        self._seconds[self._part] = self._seconds.get(self._part, 0.0) + now - self._last
        self._last = now


_PHASES = ("golden", "accuracy", "performance", "pipeline", "peak")
"""The phases that load a model."""


def move_phases(clock: WallClock, stage: str, timings: Mapping[str, float]) -> None:
    """Divide a stage into the phases that its harness timed, and these into loading, warm-up and the rest.

    A harness is not trusted: a phase gets at most what is left of its stage, and unknown phases get nothing.
    """
    for phase in (name for name in timings if name in _PHASES and f"{name}.load" in timings):
        clock.move(stage, phase, timings[phase])
        for inner in ("load", "warmup", "audit"):
            if f"{phase}.{inner}" in timings:
                clock.move(phase, f"{phase}.{inner}", timings[f"{phase}.{inner}"])
