"""Libraries that some jobs need and others do not: what a job lacks is a failure that says how to have it."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from .failures import Failure
from .job import Job

_DISTRIBUTIONS = {"PIL": "pillow", "mlperf_loadgen": "mlcommons-loadgen"}
"""What brings a module, where it is called otherwise."""
POSTSCRIPT = "EPS"
"""Pillow's name of the one format that it hands to another program of the host, Ghostscript."""


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Around an import that ``what`` needs.

    Raises:
        Failure: ``load``: the environment has not what is imported inside.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise lacking(error.name or str(error), what) from error


def missing(job: Job) -> Failure | None:
    """Why the job cannot be done here, though others could; known before anything is loaded."""
    return next((lacking(module, what) for module, what in _wanted(job) if find_spec(module) is None), None)


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


def lacking(module: str, what: str) -> Failure:
    """The failure of a job for which ``what`` needs ``module``, which the environment has not."""
    top = module.partition(".")[0]
    name = _DISTRIBUTIONS.get(top, top)
    return Failure(
        "load",
        f"{what} needs {name}, which the environment lacks: make the image with "
        f"'benchlock image build NAME==VERSION --requirement {name}', or put it into the image that you finished",
    )
