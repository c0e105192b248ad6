"""This host's platform and accelerators, and the choice among a lock's platforms and isolations."""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET

from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.isolation.resource_limits import find_memory
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.records.run_types import Isolation
from benchlock.evaluator.runner.container_engine import Engine
from benchlock.registry.lock.lockfile import Lock, LockedPlatform
from benchlock.registry.manifests import Evaluated, Model, Operator, Recipe
from benchlock.registry.manifests.manifest_types import Code
from benchlock.registry.requests.evaluation_request import conditions_of
from benchlock.registry.requests.hardware_requirements import (
    CPU,
    Accelerator,
    HostConditions,
    HostFacts,
    explain_unfit_platform,
    select_accelerators,
)
from benchlock.registry.text.quantities import spell_bytes

_TOOL = "nvidia-smi"
_QUERY = (_TOOL, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
_SECONDS = 20
_FIELDS = 3
_MIB = 1 << 20  # the unit of memory.total
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class HostTurn:
    """The exclusive use of a host by one run at a time.

    Attributes:
        name: The name of the container, which allows only one at a time.
        labels: The labels of the container, which tell its owner.
        inherited: Descriptors that a process inherits and keeps open as long as a part of it lives.
        enter: Called when the measurement begins, and when its end is about to be recorded.
    """

    name: str
    labels: Mapping[str, str]
    inherited: tuple[int, ...]
    enter: Callable[[Literal["measuring", "storing"]], None]


@dataclass(frozen=True, slots=True)
class AcceleratorList:
    """The accelerators in the order of ``nvidia-smi``, or the ``reason`` why there are none."""

    accelerators: tuple[Accelerator, ...]
    reason: str = ""


def read_accelerators(seconds: float = _SECONDS) -> AcceleratorList:
    """List the accelerators that ``nvidia-smi`` reports now.

    If the tool is absent, fails, or takes longer than ``seconds``, the list is empty with that reason.
    """
    if shutil.which(_TOOL) is None:
        return AcceleratorList((), f"{_TOOL} not found")
    try:
        answer = subprocess.run(_QUERY, check=False, capture_output=True, text=True, timeout=seconds, errors="replace")
    except subprocess.TimeoutExpired:
        return AcceleratorList((), f"{_TOOL} did not answer within {seconds:g} s")
    except OSError as error:
        return AcceleratorList((), f"cannot start {_TOOL}: {error.strerror}")
    if answer.returncode != 0:
        message = " ".join((answer.stdout + answer.stderr).split())[:_SHOWN]
        return AcceleratorList((), f"{_TOOL} exited with code {answer.returncode}: {message or 'no output'}")
    return _parse_listing(answer.stdout)


def _parse_listing(text: str) -> AcceleratorList:
    """Parse one line for each accelerator: name, memory in MiB or ``[N/A]``, driver. A name may contain commas."""
    accelerators = []
    for line in filter(None, map(str.strip, text.splitlines())):
        fields = [field.strip() for field in line.rsplit(",", _FIELDS - 1)]
        if len(fields) != _FIELDS or not all(fields):
            return AcceleratorList((), f"unexpected output of {_TOOL}: {line[:_SHOWN]}")
        name, memory, driver = fields
        accelerators.append(Accelerator(name, int(memory) * _MIB if memory.isdecimal() else None, driver))
    return AcceleratorList(tuple(accelerators), "" if accelerators else f"{_TOOL} lists no GPU")


_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_CPUINFO = Path("/proc/cpuinfo")
_GOVERNORS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Host:
    """The facts of a host.

    Attributes:
        os: The operating system.
        arch: The CPU architecture, in the words of OCI.
        cpu_model: The model of the CPU.
        cpu_flags: Its flags, sorted.
        cpus: The numbers of the CPUs that this process may use.
        memory: The memory in bytes that this process may use.
        kernel: The name and the release of the kernel.
        governor: The frequency governor; None if there is none.
        accelerators: The accelerators.
        without: Why there are no accelerators, if there are none.
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
        """The facts that the conditions of a lock refer to."""
        return HostFacts(self.os, self.arch, len(self.cpus), self.memory, self.accelerators, self.without)

    def fingerprint(self, engine: str | None) -> dict[str, Any]:
        """Return the host's facts for a run's record; ``engine`` is the engine that ran it, if any.

        The names of several accelerators are joined, and ``accelerator_memory`` has the bytes of each.
        """
        return {
            "cpu_model": self.cpu_model,
            "cpu_flags": list(self.cpu_flags),
            "cores": len(self.cpus),
            "memory": self.memory,
            "kernel": self.kernel,
            "governor": self.governor,
            "engine": engine,
            "accelerator": "; ".join(accelerator.name for accelerator in self.accelerators) or None,
            "accelerator_memory": [accelerator.memory for accelerator in self.accelerators],
            "driver": ", ".join(dict.fromkeys(accelerator.driver for accelerator in self.accelerators)) or None,
            "no_accelerator": self.without or None,
            "runner_python": platform.python_version(),
        }


def this_platform() -> dict[str, str]:
    """Return the platform of this host without its accelerators: os, arch and device."""
    machine = platform.machine().lower()
    return {"os": platform.system().lower(), "arch": _ARCHITECTURES.get(machine, machine), "device": CPU}


def this_host() -> Host:
    """Read the facts of this host from the kernel and the tools."""
    cpu = parse_cpuinfo(_CPUINFO.read_text(encoding="utf-8") if _CPUINFO.is_file() else "")
    machine = platform.machine().lower()
    listing = read_accelerators()
    return Host(
        os=this_platform()["os"],
        arch=this_platform()["arch"],
        cpu_model=cpu.get("model name") or platform.processor() or machine,
        cpu_flags=tuple(sorted((cpu.get("flags") or cpu.get("Features") or "none").split())),
        cpus=available_cpus(),
        memory=find_memory(),
        kernel=f"{platform.system()} {platform.release()}",
        governor=read_governor(_GOVERNORS),
        accelerators=listing.accelerators,
        without=listing.reason,
    )


def available_cpus() -> tuple[int, ...]:
    """Return the numbers of the CPUs that this process may use, in ascending order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def limit_cpus(count: int) -> None:
    """Restrict this thread, and the threads and processes that it starts, to the ``count`` lowest of its CPUs.

    Raises:
        UnavailableError: The operating system cannot restrict them.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise UnavailableError(
            "this operating system cannot restrict the CPUs", next_step="start the worker without a limit of CPUs"
        )
    os.sched_setaffinity(0, available_cpus()[:count])


def choose_cpus(available: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the ``count`` lowest numbers, which are the same in every run.

    Raises:
        UnavailableError: There are fewer.
    """
    if len(available) < count:
        raise UnavailableError(
            f"the lock requires {count} CPUs, but only {len(available)} are available",
            where="limits.cpus",
            next_step="run on a larger host, or lower `cpus` in the request and lock it again",
        )
    return tuple(sorted(available)[:count])


def parse_cpuinfo(text: str) -> Mapping[str, str]:
    """Return the keys and values of the first processor."""
    first = text.split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def read_governor(folder: Path) -> str | None:
    """Return the frequency governor; several if CPUs differ, None if there is none, as in virtual machines."""
    governors = {path.read_text(encoding="ascii").strip() for path in folder.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return ", ".join(sorted(governors)) or None


_NO_ENGINE = "no container engine responds"
_WITH_ENGINE = "start Docker (or set DOCKER_HOST to another engine)"
_WITH_LAYERS = "build the image with layers and lock the request again"

SUPPORTED_DEVICES = frozenset((CPU, "cuda12"))
"""The devices on which the harness's predictors run a model, or report that they cannot."""

EXPORTED = "torch-export"
"""A format that contains code: ``torch.export.load`` evaluates the guards and sizes of a program as Python."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen platform.

    Attributes:
        platform: The platform.
        word: A message about the choice; None if there was nothing to choose.
        accelerators: The accelerators of the run, as positions in the host's list.
    """

    platform: LockedPlatform
    word: str | None = None
    accelerators: tuple[int, ...] = ()


def choose_platform(
    lock: Lock, host: HostFacts, original: str | None = None, *, driven: Collection[str] = SUPPORTED_DEVICES
) -> Choice:
    """Choose the platform of the lock that runs on ``host``: ``original`` if it fits, else the first that fits.

    An accelerator comes before the CPU; other devices are ordered by name.

    Args:
        lock: The lock.
        host: The facts of the host.
        original: The platform of the run that this one repeats.
        driven: The devices on which models can be run.

    Raises:
        UnavailableError: No platform fits; the message says why for each.
        InvalidInputError: The form of the lock's hardware conditions is unknown.
    """
    conditions = conditions_of(lock.request)
    reasons = {
        candidate: _reasons(candidate, conditions, host, driven)
        for candidate in sorted(lock.image.platforms, key=_precedence)
    }
    fitting = [candidate for candidate, why_not in reasons.items() if not why_not]
    if not fitting:
        lines = (f"{candidate}: {'; '.join(why_not)}" for candidate, why_not in reasons.items())
        has = f"{host.platform}/{CPU}, {format_count(host.cpus, 'CPU')}, {spell_bytes(host.memory)} of memory"
        raise UnavailableError(
            "\n  ".join(("no platform of the lock matches this host:", *lines)),
            where="image.platforms",
            next_step=f"run on a matching host, or change the request to what this host has: {has}",
        )
    chosen = next((candidate for candidate in fitting if str(candidate) == original), fitting[0])
    return Choice(chosen, _word(chosen, reasons, host, original), select_accelerators(chosen.device, conditions, host))


def _precedence(platform: LockedPlatform) -> tuple[bool, str]:
    return (platform.device == CPU, platform.device)


def _reasons(
    platform: LockedPlatform, conditions: HostConditions, host: HostFacts, driven: Collection[str]
) -> tuple[str, ...]:
    reasons = explain_unfit_platform((platform.os, platform.arch, platform.device), conditions, host)
    if reasons or platform.device in driven:
        return reasons
    return (f"device {platform.device} is not supported yet",)


def _word(
    chosen: LockedPlatform, reasons: Mapping[LockedPlatform, tuple[str, ...]], host: HostFacts, original: str | None
) -> str | None:
    """Return a message on the choice that lists the other platforms for hosts like this one, and the original."""
    others = {
        str(candidate): "; ".join(why_not) or "matches, too"
        for candidate, why_not in reasons.items()
        if candidate is not chosen
        and (str(candidate) == original or (candidate.os, candidate.arch) == (host.os, host.arch))
    }
    if not others:
        return None
    return "\n  ".join((f"running on {chosen}; other platforms of the lock", *map(": ".join, others.items())))


def choose_isolation(
    requested: Isolation | None, platform: LockedPlatform, engine: Engine | None
) -> tuple[Isolation, str | None]:
    """Choose the isolation: the requested one, else a container if image and engine allow it, else a process.

    Returns:
        The isolation, and a message on a choice that was not requested.

    Raises:
        UnavailableError: A container is requested, and the image or the engine does not allow it.
    """
    if platform.finished:
        return _require_container(requested, platform, engine)
    obstacles: dict[str, str] = {}
    if platform.layers is UNSET or platform.image_id is UNSET:
        obstacles["the image has no layers"] = _WITH_LAYERS
    if engine is None:
        obstacles[_NO_ENGINE] = _WITH_ENGINE
    if requested == "process":
        return "process", None
    if not obstacles:
        return "container", None
    why_not = ", and ".join(obstacles)
    if requested == "container":
        raise UnavailableError(
            f"the lock cannot run in a container: {why_not}",
            where=str(platform),
            next_step=f"{'; '.join(obstacles.values())}; or run as a process",
        )
    return "process", (
        f"running as a process because {why_not}: limits on memory, processes and network are not enforced, and "
        "timings are not comparable with those of a container"
    )


def _require_container(
    requested: Isolation | None, platform: LockedPlatform, engine: Engine | None
) -> tuple[Isolation, None]:
    """Return the isolation of a finished image: it has no list of wheels from which a process could be made."""
    if engine is not None and requested != "process":
        return "container", None
    why_not = _NO_ENGINE if engine is None else "it cannot run as a process"
    raise UnavailableError(
        f"the lock has a finished image, which runs only in a container: {why_not}",
        where=f"{platform}: {platform.reference}",
        next_step=f"{_WITH_ENGINE}, and run in a container",
    )


class CodeNotAllowedError(UnavailableError):
    """Code of a model would run outside of a container without permission."""


def check_code(model: Evaluated, isolation: Isolation, *, allow_code: bool) -> None:
    """Raise if code of the model would run outside of a container without permission.

    Raises:
        CodeNotAllowedError: It would run as a process.
    """
    if isolation == "container":
        return
    if _is_unsafe(model):
        raise CodeNotAllowedError(
            "the model's files execute code when loaded (unsafe: true), so it runs only in a container",
            next_step=_WITH_ENGINE,
        )
    carried = _code(model)
    if carried and not allow_code:
        raise CodeNotAllowedError(
            f"the {model.kind} contains code ({carried}), which runs only in a container",
            next_step=f"{_WITH_ENGINE}, or allow its code to run without one if you trust its author",
        )


def carries_code(model: Evaluated) -> bool:
    """Return whether the model brings code that runs with it."""
    return _is_unsafe(model) or _code(model) is not None


def _is_unsafe(model: Evaluated) -> bool:
    return isinstance(model, Model) and model.unsafe is True


def is_confined(model: Evaluated, *, allow_code: bool) -> bool:
    """Return whether the model must run in a container."""
    return _is_unsafe(model) or (_code(model) is not None and not allow_code)


def _code(model: Evaluated) -> str | None:
    """Return where the model's code is referenced; None if it has none."""
    if isinstance(model, Operator):
        return "reference" if isinstance(model.reference, Code) else None
    if isinstance(model, Recipe):
        return "network"
    return _attached_code(model) or (f"format: {EXPORTED}" if model.format == EXPORTED else None)


def is_code_by_format(model: Evaluated) -> bool:
    """Return whether the model has code only by its format; earlier builds recorded no mark on its metrics."""
    return isinstance(model, Model) and carries_code(model) and not _is_unsafe(model) and _attached_code(model) is None


def _attached_code(model: Model) -> str | None:
    if model.code is not UNSET:
        return "code"
    for kind, ports in (("inputs", model.inputs), ("outputs", model.outputs)):
        for index, port in enumerate(ports):
            steps = getattr(port, "steps", UNSET)
            for number, step in enumerate(() if steps is UNSET else steps):
                if step.name == "python":
                    return f"{kind}[{index}].steps[{number}].python"
    return None
