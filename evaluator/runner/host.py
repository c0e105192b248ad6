"""What this host is: the platform that it offers, and its fingerprint for the record of a run."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.runner.accelerators import read_accelerators
from benchlock.registry.hosts import Accelerator, HostFacts

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_CPUINFO = Path("/proc/cpuinfo")
_GOVERNORS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Host:
    """``cpus`` are the numbers of those that this process may use; ``memory`` is in bytes; flags are sorted.

    ``without``: why no accelerator was found, where none was.
    """

    os: str
    arch: str
    cpu_model: str
    cpu_flags: tuple[str, ...]
    cpus: tuple[int, ...]
    memory: int
    kernel: str
    governor: str | None
    accelerators: tuple[Accelerator, ...] = ()
    without: str = ""

    @property
    def facts(self) -> HostFacts:
        """What the conditions of a lock are held against."""
        return HostFacts(self.os, self.arch, len(self.cpus), self.memory, self.accelerators, self.without)

    def fingerprint(self, engine: str | None) -> dict[str, Any]:
        """The facts of a run's record; ``engine`` says which engine ran it, if any.

        Of several accelerators the names are joined, and ``accelerator_memory`` has the bytes of each.
        """
        return {
            "cpu_model": self.cpu_model,
            "cpu_flags": list(self.cpu_flags),
            "cores": len(self.cpus),
            "memory": self.memory,
            "kernel": self.kernel,
            "governor": self.governor,
            "engine": engine,
            "accelerator": "; ".join(one.name for one in self.accelerators) or None,
            "accelerator_memory": [one.memory for one in self.accelerators],
            "driver": ", ".join(dict.fromkeys(one.driver for one in self.accelerators)) or None,
            "no_accelerator": self.without or None,
            "runner_python": platform.python_version(),
        }


def this_host() -> Host:
    """What the kernel and the tools say of the host, now."""
    cpu = _cpuinfo(_CPUINFO.read_text(encoding="utf-8") if _CPUINFO.is_file() else "")
    machine = platform.machine().lower()
    found = read_accelerators()
    return Host(
        os=platform.system().lower(),
        arch=_ARCHITECTURES.get(machine, machine),
        cpu_model=cpu.get("model name") or platform.processor() or machine,
        cpu_flags=tuple(sorted((cpu.get("flags") or cpu.get("Features") or "none").split())),
        cpus=available_cpus(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
        governor=_governor(_GOVERNORS),
        accelerators=found.accelerators,
        without=found.reason,
    )


def available_cpus() -> tuple[int, ...]:
    """The numbers of the CPUs that this process may use, in ascending order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def choose_cpus(available: Sequence[int], count: int) -> tuple[int, ...]:
    """The ``count`` lowest numbers: the same ones at every run.

    Raises:
        UnavailableError: there are fewer.
    """
    if len(available) < count:
        raise UnavailableError(
            f"the lock asks for {count} CPUs, {len(available)} may be used here",
            where="limits.cpus",
            next_step="run on a larger host, or lock a request with fewer cpus",
        )
    return tuple(sorted(available)[:count])


def _cpuinfo(text: str) -> Mapping[str, str]:
    """The keys of the first processor."""
    first = text.split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _governor(folder: Path) -> str | None:
    """How the kernel chooses frequencies; several where CPUs differ, None where it does not say (virtual machines)."""
    found = {path.read_text(encoding="ascii").strip() for path in folder.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return ", ".join(sorted(found)) or None
