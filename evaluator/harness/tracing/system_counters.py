"""Counters of the processor and of the operating system over the calls of an experiment.

Hardware counters come from perf_event_open(2). Where the host has no performance monitoring unit, as most virtual
machines, or does not permit it, they are unknown, with the reason. getrusage(2) and pressure stall information need
no privilege.
"""

import ctypes
import errno
import os
import platform
import resource
import struct
from pathlib import Path
from typing import Any, Final

_SYSCALLS: Final = {"x86_64": 298, "aarch64": 241}
"""The number of perf_event_open by machine."""
_EVENTS: Final = {"cycles": 0, "instructions": 1, "cache_references": 2, "cache_misses": 3}
"""PERF_COUNT_HW_* by name."""
_ATTRIBUTES = struct.Struct("IIQQQQQIIQ")  # perf_event_attr, version 0: type, size, config, period, ..., flags, ...
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_NO_PMU = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL)
_PRESSURE = Path("/proc/pressure/cpu")
_COUNTED: Final = {
    "voluntary_switches": "ru_nvcsw",
    "involuntary_switches": "ru_nivcsw",
    "minor_faults": "ru_minflt",
    "major_faults": "ru_majflt",
}
_NANOSECONDS = 1e9


class SystemCounters:
    """Counters that run only between ``begin`` and ``end``; create them before the threads that they count."""

    def __init__(self) -> None:
        """Open the hardware counters of this thread and of the threads that it will start."""
        self._files: dict[str, int] = {}
        self._reason: str | None = None
        for name, event in _EVENTS.items():
            try:
                self._files[name] = _open(event)
            except OSError as error:
                self._reason = _explain(error)
        self._sums = dict.fromkeys(self._files, 0)
        self._pressure = _read_pressure()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._totals = dict.fromkeys([*_COUNTED, "task_clock_ns"], 0)

    def begin(self) -> None:
        """Begin to count."""
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._add(-1)

    def end(self) -> None:
        """Add what happened since ``begin``."""
        self._add(1)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        for name, field in _COUNTED.items():
            self._totals[name] += getattr(usage, field) - getattr(self._usage, field)
        seconds = usage.ru_utime + usage.ru_stime - self._usage.ru_utime - self._usage.ru_stime
        self._totals["task_clock_ns"] += round(seconds * _NANOSECONDS)

    def clear(self) -> None:
        """Forget the counts, such as those of warm-up calls."""
        self._sums = dict.fromkeys(self._sums, 0)
        self._totals = dict.fromkeys(self._totals, 0)
        self._pressure = _read_pressure()

    def read(self) -> dict[str, Any]:
        """Return the counts, None for those that are unknown, whose ``reason`` is given."""
        pressure = _read_pressure()
        waited = None if pressure is None or self._pressure is None else pressure - self._pressure
        hardware: dict[str, Any] = {name: self._sums.get(name) for name in _EVENTS}
        return {**hardware, "reason": self._reason, **self._totals, "cpu_pressure_us": waited}

    def _add(self, sign: int) -> None:
        for name, file in self._files.items():
            self._sums[name] += sign * int.from_bytes(os.read(file, 8), "little")


def _open(event: int) -> int:
    """Open a hardware counter of this thread, without the kernel's own work, which needs a privilege.

    Raises:
        OSError: The host has no such counter, or does not permit it.
    """
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENODEV, f"unknown machine {platform.machine()}")
    flags = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    attributes = _ATTRIBUTES.pack(0, _ATTRIBUTES.size, event, 0, 0, 0, flags, 0, 0, 0)
    library = ctypes.CDLL(None, use_errno=True)
    file = int(library.syscall(number, attributes, 0, -1, -1, 0))
    if file < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return file


def _explain(error: OSError) -> str:
    if error.errno in _NO_PMU:
        return f"PMU not available ({error.strerror})"
    return f"performance events are not permitted ({error.strerror}): lower kernel.perf_event_paranoid to 2"


def _read_pressure() -> int | None:
    """Return the microseconds that some task of the host waited for a CPU; None where the kernel does not count it."""
    try:
        line = _PRESSURE.read_text(encoding="ascii").splitlines()[0]
        return int(line.rpartition("total=")[2])
    except (OSError, ValueError, IndexError):
        return None
