"""What this host is: the platform that it offers, and its fingerprint for the record of a run."""

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.errors import UnavailableError

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_CPUINFO = Path("/proc/cpuinfo")
_GOVERNORS = Path("/sys/devices/system/cpu")
_GPU_QUERY = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
_GPU_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Accelerator:
    """The accelerators of a host: their names, joined where there are several, and the driver's version."""

    name: str
    driver: str


@dataclass(frozen=True, slots=True)
class Host:
    """``cpus`` are the numbers of those that this process may use; ``memory`` is in bytes; flags are sorted."""

    os: str
    arch: str
    cpu_model: str
    cpu_flags: tuple[str, ...]
    cpus: tuple[int, ...]
    memory: int
    kernel: str
    governor: str | None
    accelerator: Accelerator | None

    @property
    def devices(self) -> tuple[str, ...]:
        return ("cpu",) if self.accelerator is None else ("cpu", "cuda")

    def fingerprint(self, engine: str | None) -> dict[str, Any]:
        """The facts of a run's record; ``engine`` says which engine ran it, if any."""
        return {
            "cpu_model": self.cpu_model,
            "cpu_flags": list(self.cpu_flags),
            "cores": len(self.cpus),
            "memory": self.memory,
            "kernel": self.kernel,
            "governor": self.governor,
            "engine": engine,
            "accelerator": self.accelerator.name if self.accelerator else None,
            "driver": self.accelerator.driver if self.accelerator else None,
            "runner_python": platform.python_version(),
        }


def this_host() -> Host:
    """What the kernel and the tools say of the host, now."""
    cpu = _cpuinfo(_CPUINFO.read_text(encoding="utf-8") if _CPUINFO.is_file() else "")
    machine = platform.machine().lower()
    return Host(
        os=platform.system().lower(),
        arch=_ARCHITECTURES.get(machine, machine),
        cpu_model=cpu.get("model name") or platform.processor() or machine,
        cpu_flags=tuple(sorted((cpu.get("flags") or cpu.get("Features") or "none").split())),
        cpus=available_cpus(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
        governor=_governor(_GOVERNORS),
        accelerator=_accelerator(),
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


def _accelerator() -> Accelerator | None:
    if shutil.which(_GPU_QUERY[0]) is None:
        return None
    try:
        answer = subprocess.run(_GPU_QUERY, check=True, capture_output=True, text=True, timeout=_GPU_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None  # the tool is there, a driver or device is not
    rows = [line.split(",") for line in answer.stdout.splitlines() if line.count(",") == 1]
    if not rows:
        return None
    return Accelerator("; ".join(name.strip() for name, _ in rows), rows[0][1].strip())
