"""What wheels are chosen for: one minor version of CPython, on Linux, on one machine type and C library."""

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.tags import Tag, compatible_tags, cpython_tags

from benchlock.artifacts.errors import UnavailableError

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LEGACY_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""Older names of the tags ``manylinux_2_17``, ``_2_12`` and ``_2_5`` (PEP 600)."""
_OLDEST_GLIBC = 5


@dataclass(frozen=True, slots=True)
class Target:
    """``python`` is ``MAJOR.MINOR``, ``machine`` what ``uname -m`` says, ``glibc`` the minor number of glibc 2."""

    python: str
    machine: str
    glibc: int

    @property
    def arch(self) -> str:
        """The architecture in the words of images: amd64, arm64."""
        return _ARCHITECTURES[self.machine]

    def platforms(self) -> Iterator[str]:
        """The platform tags that run there, the most specific first (PEP 600)."""
        for minor in range(self.glibc, _OLDEST_GLIBC - 1, -1):
            yield f"manylinux_2_{minor}_{self.machine}"
            if minor in _LEGACY_NAMES:
                yield f"{_LEGACY_NAMES[minor]}_{self.machine}"
        yield f"linux_{self.machine}"

    def tags(self) -> frozenset[Tag]:
        """Every wheel tag that runs there."""
        major, minor = (int(part) for part in self.python.split("."))
        version, interpreter = (major, minor), f"cp{major}{minor}"
        abis = (interpreter,)
        return frozenset(cpython_tags(version, abis, self.platforms())) | frozenset(
            compatible_tags(version, interpreter, self.platforms())
        )


def read_target(python: str, machine: str, libc: str) -> Target:
    """The target of an interpreter that reports these (``libc`` as ``glibc 2.36``).

    Raises:
        UnavailableError: nothing is built for such a machine or C library.
    """
    name, _, version = libc.partition(" ")
    major, _, minor = version.partition(".")
    if machine not in _ARCHITECTURES or name != "glibc" or major != "2" or not minor.isdecimal():
        raise UnavailableError(
            f"no image can be built for machine {machine!r} with C library {libc!r}",
            next_step=f"use glibc 2 on one of {', '.join(_ARCHITECTURES)}",
        )
    return Target(python, machine, int(minor))


def running_python() -> str:
    """The running interpreter's ``MAJOR.MINOR``."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def host_target() -> Target:
    """The target of the running interpreter.

    Raises:
        UnavailableError: it runs on something that nothing is built for.
    """
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        raise UnavailableError(f"images are built by CPython on Linux, not {sys.implementation.name} on {sys.platform}")
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None
    return read_target(running_python(), platform.machine(), libc or "unknown")
