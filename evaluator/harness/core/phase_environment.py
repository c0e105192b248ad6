"""The environment of a phase: thread counts, installed packages and missing optional libraries."""

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .failures import Failure
from .job_parser import AnyJob
from .operator_job import OperatorJob
from .training_job import RecipeJob

_DISTRIBUTIONS = {"PIL": "pillow", "mlperf_loadgen": "mlcommons-loadgen"}
"""The distribution of a module, where its name differs from the module's."""
POSTSCRIPT = "EPS"
"""Pillow's name of the only format that it passes to an external program, Ghostscript."""


@contextmanager
def explain_missing_library(what: str) -> Iterator[None]:
    """Turn a failed import inside the context into a failure that names the package.

    Args:
        what: The part of the job that needs the import, for the message.

    Raises:
        Failure: ``load``: a module that is imported inside is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_library_failure(error.name or str(error), what) from error


def find_missing_library(job: AnyJob) -> Failure | None:
    """Return the failure for the first optional library that the job needs and that is not installed.

    The check runs before anything is loaded. Other jobs can still run in the same environment.
    """
    return next(
        (missing_library_failure(module, what) for module, what in _wanted(job) if find_spec(module) is None), None
    )


def _wanted(job: AnyJob) -> Iterator[tuple[str, str]]:
    """Yield each optional module that the job needs, and the part of the job that needs it."""
    if isinstance(job, OperatorJob):
        if job.operator.reference is None:
            yield "onnx", "the reference onnx"
        return
    job = job.evaluation if isinstance(job, RecipeJob) else job
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
    """Return the failure of a job for which ``what`` needs the missing ``module``."""
    top = module.partition(".")[0]
    name = _DISTRIBUTIONS.get(top, top)
    return Failure(
        "load",
        f"{what} needs {name}, which is not installed: build the image with "
        f"'benchlock image build NAME==VERSION --requirement {name}', or add it to your finished image",
    )


_NEEDED = ("numpy", "PIL", "safetensors", "mlperf_loadgen")
"""Modules that every job needs beside a framework; ``_wanted`` lists those that only some jobs need."""
_PACKAGE_ROOT = Path(__file__).absolute().parents[(__package__ or "").count(".") + 1]


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables that set the thread count of every runtime; no count is left to a default."""
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
    """Return the complete environment of a phase's process."""
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
    """Return the failure for missing required modules, as in an image that was not built by benchlock."""
    names = ", ".join(name for name in _NEEDED if find_spec(name) is None)
    return Failure("load", f"missing packages that the harness imports: {names}") if names else None


def describe_environment(threads: int, predictor_threads: Mapping[str, int], device: str | None) -> dict[str, Any]:
    """Describe the environment of a run: Python, packages, thread counts and device.

    Args:
        threads: The thread count that the job requests.
        predictor_threads: The thread counts that the predictor set, by name.
        device: The device that the predictor ran on; None where no phase reported one.
    """
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
    """Yield the name and version of each installed package.

    Only the headers of the metadata are parsed. Parsing the long description after them as well would take four times
    as long in every run.
    """
    from email.parser import HeaderParser  # noqa: PLC0415 - only the end of a run needs these
    from importlib.metadata import distributions  # noqa: PLC0415

    for distribution in distributions():
        headers = (distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "").partition("\n\n")[0]
        message = HeaderParser().parsestr(headers)
        if message["Name"]:
            yield message["Name"], message["Version"]
