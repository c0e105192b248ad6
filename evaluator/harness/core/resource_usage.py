"""Resources of a run: peak memory, and CPU time, faults, switches and bytes read of the timed calls."""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PROCESS = Path("/proc/self")
_GROUPS = Path("/sys/fs/cgroup")
_FORGET_PEAK = "5"
"""The order to ``/proc/self/clear_refs`` (proc(5)) that resets ``VmHWM`` to the present size."""
_PEAKS = ("memory.peak", "memory/memory.max_usage_in_bytes")
"""The peak of a container's memory under its control group: version 2, and version 1."""


@contextmanager
def measure_usage(process: Path = _PROCESS) -> Iterator[dict[str, Any]]:
    """Measure what this process uses inside the context, with all of its threads.

    Args:
        process: The folder of this process in ``/proc``.

    Yields:
        A table that is filled at the end: ``seconds``, ``cpu_seconds``, the number of ``cpus`` that the process may
        use, ``cpu_utilization`` (CPU seconds divided by seconds and CPUs), ``minor_faults``, ``major_faults``,
        ``voluntary_switches``, ``involuntary_switches``, ``read_bytes`` from storage, and ``process_peak_bytes``, the
        peak of resident memory since the start of the process. None for what the kernel does not show.
    """
    usage: dict[str, Any] = {}
    before = _count(process)
    yield usage
    for name, end in _count(process).items():
        start = before[name]
        usage[name] = None if start is None or end is None else end - start
    cpus = len(os.sched_getaffinity(0))
    usage |= {
        "cpus": cpus,
        "cpu_utilization": usage["cpu_seconds"] / (usage["seconds"] * cpus),
        "process_peak_bytes": read_peak(process),
    }


def _count(process: Path) -> dict[str, float | None]:
    """Return the counters of the process up to now, and the time."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": time.perf_counter(),
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
        "voluntary_switches": usage.ru_nvcsw,
        "involuntary_switches": usage.ru_nivcsw,
        "read_bytes": _read_field(process / "io", "read_bytes"),
    }


def reset_peak(process: Path = _PROCESS) -> bool:
    """Let the kernel forget the peak of this process's resident memory; return False where that is refused."""
    try:
        (process / "clear_refs").write_text(_FORGET_PEAK, "ascii")
    except OSError:
        return False
    return True


def read_peak(process: Path = _PROCESS) -> int | None:
    """Return the peak of this process's resident memory in bytes, file pages included; None if it cannot be read."""
    peak = _read_field(process / "status", "VmHWM")
    return None if peak is None else peak * 1024


def _read_field(path: Path, name: str) -> int | None:
    """Return the number after ``NAME:`` in a file of the kernel; None if it cannot be read."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)
    except (OSError, ValueError, IndexError):
        return None


def read_peak_memory(isolation: str, root: Path = _GROUPS) -> dict[str, Any]:
    """Return the peak of memory up to now.

    Args:
        isolation: ``container``, whose control group has no other processes; or ``process``.
        root: The mounted control groups.

    Returns:
        ``bytes`` with their ``source`` and ``scope``: the ``container``, page cache and output folder included; or the
        ``largest process`` of this one and those that it waited for. Otherwise ``unavailable``: the reason.
    """
    if isolation != "container":
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return {"bytes": peak * 1024, "source": "ru_maxrss", "scope": "largest process"}
    for name in _PEAKS:
        try:
            return {"bytes": int((root / name).read_text("ascii")), "source": name, "scope": "container"}
        except (OSError, ValueError):
            continue
    return {"unavailable": f"the container shows neither {' nor '.join(_PEAKS)}"}
