"""Counters of the host: the energy of its CPU packages by RAPL, never an estimate, and which others it has."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ENERGY: Final = "energy"
"""The key of a record's details with the energy."""
_ROOT: Final = Path("/sys/class/powercap")
_MOST_WATTS: Final = 2000.0
"""More than a package takes: a counter that could have wrapped twice at this power is not used."""


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """Counters at one time: by package its microjoules and the count at which they wrap; or the reason for none."""

    at: float
    counters: Mapping[str, tuple[int, int]]
    reason: str | None


def read_energy(root: Path = _ROOT) -> EnergyReading:
    """Read the counter of every package."""
    counters, reason = dict[str, tuple[int, int]](), f"no RAPL package in {root}" if root.is_dir() else f"no {root}"
    try:
        for zone in sorted(root.glob("*-rapl:*")):
            name = (zone / "name").read_text("ascii").strip()
            if name.startswith("package"):
                counters[name] = (_read_count(zone / "energy_uj"), _read_count(zone / "max_energy_range_uj"))
    except OSError as error:
        counters, reason = {}, f"{root}: {error.strerror}"
    except ValueError:
        counters, reason = {}, f"{root}: not a number"
    return EnergyReading(time.perf_counter(), counters, None if counters else reason)


def _read_count(path: Path) -> int:
    return int(path.read_text("ascii"))


def describe_energy(before: EnergyReading, after: EnergyReading) -> dict[str, Any]:
    """Return the joules by package between two readings, or why they are unavailable."""
    reason, seconds = before.reason or after.reason, after.at - before.at
    longest = min((wrap for _, wrap in before.counters.values()), default=0) / 1e6 / _MOST_WATTS
    if reason is None and before.counters.keys() != after.counters.keys():
        reason = "the packages changed during the run"
    elif reason is None and seconds > longest:
        reason = f"the counters may have wrapped twice in {seconds:.0f} s; the limit is {longest:.0f} s"
    if reason is not None:
        return {"unavailable": reason}
    joules = {
        name: ((after.counters[name][0] - count) % (wrap + 1)) / 1e6 for name, (count, wrap) in before.counters.items()
    }
    return {"joules": joules, "seconds": seconds, "source": "RAPL", "scope": "host, during all stages of the run"}


def describe_counters(system: Path = Path("/sys")) -> dict[str, str]:
    """Return which counters this host has, each available or the reason why not; ``system`` is its ``/sys``."""
    units, groups = system / "bus/event_source/devices", system / "fs/cgroup"
    peaks = ("memory.peak", "*/memory.peak", "memory/memory.max_usage_in_bytes")
    has_counters = any(any(units.glob(name)) for name in ("cpu*", "armv8*"))
    has_peak = any(any(groups.glob(name)) for name in peaks)
    reasons = {
        "PMU": "" if has_counters else "the kernel shows no hardware counters",
        "energy": read_energy(system / "class/powercap").reason,
        "peak memory": "" if has_peak else "control groups have neither memory.peak nor memory.max_usage_in_bytes",
    }
    return {name: f"unavailable: {reason}" if reason else "available" for name, reason in reasons.items()}
