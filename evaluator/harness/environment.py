"""The environment of a phase: its thread counts, set before it starts, and the packages that it can import."""

import os
import platform
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .failures import Failure

_NEEDED = ("numpy", "PIL", "safetensors", "mlperf_loadgen")
"""What the harness imports beside a framework, whatever the job; ``libraries`` knows what only some jobs need."""
_PACKAGE_ROOT = Path(__file__).absolute().parents[(__package__ or "").count(".") + 1]


def thread_variables(threads: int) -> dict[str, str]:
    """What every runtime reads at its start; no count is left to a default."""
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "BLIS_NUM_THREADS": count,
        "NUMEXPR_NUM_THREADS": count,
        "TF_NUM_INTRAOP_THREADS": count,
        "TF_NUM_INTEROP_THREADS": "1",
    }


def phase_variables(threads: int) -> dict[str, str]:
    """The whole environment of a phase's process."""
    path = [str(_PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        **thread_variables(threads),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "KERAS_BACKEND": "tensorflow",
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONHASHSEED": "0",
    }


def lacking() -> Failure | None:
    """What the harness imports, and this environment has not: a finished image's maker may not know of it."""
    names = ", ".join(name for name in _NEEDED if find_spec(name) is None)
    return Failure("load", f"the environment lacks {names}, which the harness imports") if names else None


def description(threads: int, predictor_threads: Mapping[str, int], device: str | None) -> dict[str, Any]:
    """Python, every package with its version, the thread counts that were set, the device that the predictor ran on."""
    packages = set(_packages())
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "packages": [{"name": name, "version": version} for name, version in sorted(packages)],
        "threads": {
            "requested": threads,
            "variables": thread_variables(threads),
            "predictor": dict(predictor_threads),
        },
        "device": device,
    }


def _packages() -> Iterator[tuple[str, str]]:
    """Name and version of what is installed.

    Only the headers of its metadata are parsed: what follows is a long description, and with it every run would take
    four times as long for this.
    """
    from email.parser import HeaderParser  # noqa: PLC0415 - only the end of a run needs these
    from importlib.metadata import distributions  # noqa: PLC0415

    for found in distributions():
        headers = (found.read_text("METADATA") or found.read_text("PKG-INFO") or "").partition("\n\n")[0]
        message = HeaderParser().parsestr(headers)
        if message["Name"]:
            yield message["Name"], message["Version"]
