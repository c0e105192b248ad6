"""The environment of a phase: thread counts, installed packages and missing optional libraries."""

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .failures import Failure
from .job import Job

_DISTRIBUTIONS = {"PIL": "pillow", "mlperf_loadgen": "mlcommons-loadgen"}
"""What brings a module, where it is called otherwise."""
POSTSCRIPT = "EPS"
"""Pillow's name of the one format that it hands to another program of the host, Ghostscript."""


@contextmanager
def explain_missing_library(what: str) -> Iterator[None]:
    """Around an import that ``what`` needs.

    Raises:
        Failure: ``load``: the environment has not what is imported inside.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_library_failure(error.name or str(error), what) from error


def find_missing_library(job: Job) -> Failure | None:
    """Why the job cannot be done here, though others could; known before anything is loaded."""
    return next(
        (missing_library_failure(module, what) for module, what in _wanted(job) if find_spec(module) is None), None
    )


def _wanted(job: Job) -> Iterator[tuple[str, str]]:
    """The modules that not every job needs, and what needs them."""
    if job.dataset.format == "parquet":
        yield "pyarrow", "a dataset in parquet"
    for metric in job.metrics:
        if metric.partition("_")[0] == "map":
            yield "pycocotools", f"the metric {metric}"
    for port in job.model.inputs:
        for step in port.steps:
            if step.name == "tokenize" and step.arguments.get("kind") == "tokenizer-json":
                yield "tokenizers", f"input {port.name}, the step tokenize of the kind tokenizer-json"


def missing_library_failure(module: str, what: str) -> Failure:
    """The failure of a job for which ``what`` needs ``module``, which the environment has not."""
    top = module.partition(".")[0]
    name = _DISTRIBUTIONS.get(top, top)
    return Failure(
        "load",
        f"{what} needs {name}, which the environment lacks: make the image with "
        f"'benchlock image build NAME==VERSION --requirement {name}', or put it into the image that you finished",
    )


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


def find_missing_packages() -> Failure | None:
    """What the harness imports, and this environment has not: a finished image's maker may not know of it."""
    names = ", ".join(name for name in _NEEDED if find_spec(name) is None)
    return Failure("load", f"the environment lacks {names}, which the harness imports") if names else None


def describe_environment(threads: int, predictor_threads: Mapping[str, int], device: str | None) -> dict[str, Any]:
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
