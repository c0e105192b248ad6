"""NVIDIA's accelerators of this host, as ``nvidia-smi`` lists them: the only module that calls it."""

import shutil
import subprocess
from dataclasses import dataclass

from benchlock.registry.hosts import Accelerator

_TOOL = "nvidia-smi"
_QUERY = (_TOOL, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
_SECONDS = 20
_FIELDS = 3
_MIB = 1 << 20  # the unit of memory.total
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Found:
    """The accelerators in the tool's order, or the ``reason`` why there are none."""

    accelerators: tuple[Accelerator, ...]
    reason: str = ""


def read_accelerators(seconds: float = _SECONDS) -> Found:
    """What the tool lists now. A tool that is absent, fails, or takes longer than ``seconds`` is a reason."""
    if shutil.which(_TOOL) is None:
        return Found((), f"{_TOOL} is not there")
    try:
        answer = subprocess.run(_QUERY, check=False, capture_output=True, text=True, timeout=seconds, errors="replace")
    except subprocess.TimeoutExpired:
        return Found((), f"{_TOOL} did not answer within {seconds:g} s")
    except OSError as error:
        return Found((), f"{_TOOL} does not start: {error.strerror}")
    if answer.returncode != 0:
        said = " ".join((answer.stdout + answer.stderr).split())[:_SHOWN]
        return Found((), f"{_TOOL} ended with {answer.returncode}: {said or 'it said nothing'}")
    return _parsed(answer.stdout)


def _parsed(text: str) -> Found:
    """One line each: the name, MiB of memory or ``[N/A]``, the driver; a name may hold commas."""
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        fields = [field.strip() for field in line.rsplit(",", _FIELDS - 1)]
        if len(fields) != _FIELDS or not all(fields):
            return Found((), f"{_TOOL} says what is not understood: {line[:_SHOWN]}")
        name, memory, driver = fields
        found.append(Accelerator(name, int(memory) * _MIB if memory.isdecimal() else None, driver))
    return Found(tuple(found), "" if found else f"{_TOOL} lists none")
