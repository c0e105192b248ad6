"""Requirements of a request on the platform and on the host, and the ones that a host does not meet."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from posixpath import commonprefix

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.text.quantities import Amount, spell_bytes
from benchlock.registry.versions.semantic_version import Version
from benchlock.registry.versions.version_ranges import Constraint

AllowedValues = tuple[str, ...] | None
"""The allowed values of one key; ``None`` allows any value."""

KEYS = ("os", "arch", "device")


@dataclass(frozen=True, slots=True)
class Hardware:
    """The platforms that a request admits, key by key; ``None`` allows any value."""

    os: AllowedValues = None
    arch: AllowedValues = None
    device: AllowedValues = None

    @classmethod
    def only(cls, platform: Mapping[str, str]) -> "Hardware":
        """Return the hardware that admits only ``platform``; keys that it lacks allow any value."""
        return cls(*(None if platform.get(key) is None else (platform[key],) for key in KEYS))

    @property
    def keys(self) -> tuple[AllowedValues, AllowedValues, AllowedValues]:
        """The allowed values of os, arch and device, in this order."""
        return (self.os, self.arch, self.device)

    def admits(self, platform: Sequence[object]) -> bool:
        """Return whether a platform is admitted; its first items are os, arch and device."""
        return self.distance(platform) == 0

    def distance(self, platform: Sequence[object]) -> int:
        """Return the number of keys whose allowed values exclude the platform."""
        return sum(not is_allowed for is_allowed in starmap(_allows, zip(self.keys, platform, strict=False)))

    def likeness(self, platform: tuple[str, ...]) -> int:
        """Return how many leading characters the platform shares with allowed values.

        By this measure, cuda12 is closer to cuda13 than to cpu.
        """
        pairs = (
            (value, actual) for allowed, actual in zip(self.keys, platform, strict=False) for value in allowed or ()
        )
        return sum(len(commonprefix(pair)) for pair in pairs)

    def __str__(self) -> str:
        """Return the allowed values as OS/ARCH/DEVICE, with ``*`` for any value."""
        return "/".join("*" if allowed is None else " or ".join(allowed) for allowed in self.keys)


def _allows(allowed: AllowedValues, value: object) -> bool:
    return allowed is None or value in allowed


ANYWHERE = Hardware()
"""Every platform."""


CPU = "cpu"
"""The device that every host has."""
_NVIDIA = "cuda"
"""The prefix of device names of NVIDIA's accelerators, such as ``cuda`` and ``cuda12``."""
_LEAST_DRIVERS = {"cuda12": "525.60.13"}
"""The oldest Linux driver for binaries of a major version of CUDA: NVIDIA's table "CUDA Toolkit and Minimum Required
Driver Version for CUDA Minor Version Compatibility", in the release notes of the CUDA Toolkit."""

_WORD = re.compile(r"[^\W_]+")
_DRIVER = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?")
_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An accelerator of a host: its memory in bytes, or ``None`` if unknown, and the version of its driver."""

    name: str
    memory: int | None
    driver: str

    def __str__(self) -> str:
        """Return name and memory."""
        return f"{self.name} ({'unknown memory' if self.memory is None else spell_bytes(self.memory)})"


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The properties of a host: number of CPUs for runs, memory in bytes, and NVIDIA accelerators.

    ``without`` is the reason why no accelerator was found, if none was.
    """

    os: str
    arch: str
    cpus: int
    memory: int
    accelerators: tuple[Accelerator, ...] = ()
    without: str = ""

    @property
    def platform(self) -> str:
        """The operating system and architecture, as OS/ARCH."""
        return f"{self.os}/{self.arch}"


@dataclass(frozen=True, slots=True)
class AcceleratorCondition:
    """A condition on accelerators: at least ``count`` with every word of ``name`` and the memory, and the driver."""

    name: str | None = None
    count: int = 1
    memory: Amount | None = None
    driver: Constraint | None = None

    def fits(self, accelerator: Accelerator) -> bool:
        """Return whether an accelerator has the words of the name, in any case, and the memory."""
        if self.name is not None and not split_name(self.name) <= split_name(accelerator.name):
            return False
        return self.memory is None or (accelerator.memory or 0) >= self.memory.bytes

    def __str__(self) -> str:
        """Return the condition in words, without the driver."""
        number = "an accelerator" if self.count == 1 else f"{self.count} accelerators"
        named = "" if self.name is None else f" named {self.name}"
        return f"{number}{named}{'' if self.memory is None else f' of {self.memory} or more'}"


@dataclass(frozen=True, slots=True)
class HostConditions:
    """The minimum properties of a host. The accelerator applies only to platforms whose device is one."""

    cpus: int = 1
    memory: Amount | None = None
    accelerator: AcceleratorCondition | None = None


def explain_unfit_platform(
    platform: tuple[str, str, str], conditions: HostConditions, host: HostFacts
) -> tuple[str, ...]:
    """Return why a host cannot run a platform under the conditions; empty if it can.

    Args:
        platform: OS, architecture and device.
        conditions: The conditions of the request.
        host: The host.
    """
    os, arch, device = platform
    if (os, arch) != (host.os, host.arch):
        return (f"this host is {host.platform}",)
    return list_unmet_conditions(conditions, device, host)


def list_unmet_conditions(conditions: HostConditions, device: str, host: HostFacts) -> tuple[str, ...]:
    """Return in words what a host lacks for a device and the conditions; empty if nothing.

    Args:
        conditions: The conditions of the request.
        device: The device of the platform.
        host: The host.
    """
    lacking = [_device_lack(device, host), *_host_lacks(conditions, host)]
    if device != CPU and conditions.accelerator is not None and host.accelerators:
        lacking += _accelerator_lacks(conditions.accelerator, host.accelerators)
    return tuple(filter(None, lacking))


def select_accelerators(device: str, conditions: HostConditions, host: HostFacts) -> tuple[int, ...]:
    """Return the accelerators of a run as positions in the host's list: the first ones that meet the condition.

    Their number is that of the condition, or one without a condition. A run on the CPU gets none.

    Args:
        device: The device of the platform.
        conditions: The conditions of the request.
        host: The host.
    """
    if device == CPU:
        return ()
    condition = conditions.accelerator or AcceleratorCondition()
    return tuple(index for index, accelerator in enumerate(host.accelerators) if condition.fits(accelerator))[
        : condition.count
    ]


def split_name(name: str) -> frozenset[str]:
    """Split an accelerator's name into words of letters and digits, ignoring case; ``A100-SXM4-40GB`` has three."""
    return frozenset(_WORD.findall(name.casefold()))


def driver_version(text: str) -> Version:
    """Parse a version of NVIDIA's driver: ``535.104.05`` becomes 535.104.5, and ``550.54`` becomes 550.54.0.

    Raises:
        InvalidInputError: The text has another form.
    """
    match = _DRIVER.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"invalid driver version {text!r}")
    major, minor, patch = (int(part or 0) for part in match.groups())
    return Version(major, minor, patch)


def parse_drivers(text: str) -> Constraint:
    """Parse a constraint on driver versions, whose numbers may have leading zeros, such as ``>=535.104.05``.

    Raises:
        InvalidInputError: The text is not a constraint.
    """
    return Constraint.parse(_LEADING_ZEROS.sub("", text))


def _device_lack(device: str, host: HostFacts) -> str:
    if device == CPU:
        return ""
    if not device.startswith(_NVIDIA):
        return f"the device {device} cannot be detected on a host"
    if not host.accelerators:
        return f"needs an NVIDIA accelerator; none found ({host.without})"
    least = _LEAST_DRIVERS.get(device)
    drivers = dict.fromkeys(accelerator.driver for accelerator in host.accelerators)
    if least is None or all(_admits(parse_drivers(f">={least}"), driver) for driver in drivers):
        return ""
    return f"needs NVIDIA's driver {least} or newer; this host has {', '.join(drivers)}"


def _host_lacks(conditions: HostConditions, host: HostFacts) -> Iterator[str]:
    if conditions.cpus > host.cpus:
        yield f"requires {conditions.cpus} CPUs; this host has {host.cpus}"
    if conditions.memory is not None and conditions.memory.bytes > host.memory:
        yield f"requires {conditions.memory} of memory; this host has {spell_bytes(host.memory)}"


def _accelerator_lacks(condition: AcceleratorCondition, accelerators: tuple[Accelerator, ...]) -> Iterator[str]:
    if sum(map(condition.fits, accelerators)) < condition.count:
        counts = Counter(map(str, accelerators)).items()
        names = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts)
        yield f"requires {condition}; this host has {names}"
    drivers = dict.fromkeys(accelerator.driver for accelerator in accelerators)
    if condition.driver is not None and not all(_admits(condition.driver, driver) for driver in drivers):
        yield f"requires the driver {condition.driver}; this host has {', '.join(drivers)}"


def _admits(constraint: Constraint, driver: str) -> bool:
    try:
        return constraint.admits(driver_version(driver))
    except InvalidInputError:
        return False  # a version that cannot be compared does not count as fitting
