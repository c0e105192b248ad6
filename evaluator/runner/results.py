"""What the harness left in the output folder. It is written by what ran inside, and read without trust."""

import os
import stat
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
from msgspec import Meta, Struct

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.readable import readable
from benchlock.evaluator.runner.jobs import SCHEMA

RESULT = "result.json"
FILES = {
    "result": RESULT,
    "predictions": "predictions.safetensors",
    "samples": "samples.safetensors",
    "quality": "quality.safetensors",
    "pipeline-samples": "pipeline-samples.safetensors",
    "loadgen-summary": "loadgen/mlperf_log_summary.txt",
    "loadgen-detail": "loadgen/mlperf_log_detail.txt",
    "pipeline-loadgen-summary": "loadgen-pipeline/mlperf_log_summary.txt",
    "pipeline-loadgen-detail": "loadgen-pipeline/mlperf_log_detail.txt",
    "peak-loadgen-detail": "peak-loadgen-detail.txt",
}
"""What is kept of a run, by role: where the harness leaves it."""

LARGEST_RESULT = 16 << 20
DEEPEST_RESULT = 64
"""How deeply tables and lists of a result may lie in one another."""

FailureClass = Literal[
    "out-of-memory",
    "timeout",
    "crash",
    "load",
    "step",
    "predict",
    "non-finite",
    "golden",
    "loadgen-invalid",
    "engine",
    "output",
]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]


class Failed(Struct, frozen=True, rename={"kind": "class"}):
    """Why the harness could not finish; a class of its own choosing, within ours."""

    kind: FailureClass
    message: str


class Judged(Struct, frozen=True):
    """A quality metric of ``n`` decisions: so many right ones, or a value that is no such count."""

    n: Count
    correct: Count | None = None
    value: float | None = None

    def __post_init__(self) -> None:
        if (self.correct is None) == (self.value is None):
            raise ValueError("a quality metric has either a count or a value")
        if self.correct is not None and self.correct > self.n:
            raise ValueError(f"{self.correct} of {self.n} are correct")


class Timed(Struct, frozen=True):
    """A phase that was timed; ``duration_s`` from its first issue to its last answer."""

    queries: Count
    samples_per_query: Annotated[int, Meta(ge=1)]
    duration_s: Seconds


class Peaked(Struct, frozen=True):
    """Queries a second that were answered within the bound, and that were not; one probe after the other."""

    qps: Annotated[float, Meta(gt=0)]
    failed_qps: Annotated[float, Meta(gt=0)]
    probes: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1)]


class Package(Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1)]
    version: Annotated[str, Meta(min_length=1)]


class Surroundings(Struct, frozen=True):
    """``device`` is where the predictor ran; None of a harness that knew CPUs alone, or that got no predictor."""

    python: str
    packages: tuple[Package, ...]
    threads: dict[str, Any]
    device: str | None = None


@readable
class Result(Struct, frozen=True):
    """``result.json``; keys that a newer minor version adds are left alone."""

    schema: Literal[1]
    outcome: Literal["done", "failed"]
    failure: Failed | None
    quality: dict[str, Judged]
    performance: Timed | None
    environment: Surroundings
    timings: dict[str, Seconds]
    pipeline: Timed | None = None
    peak: Peaked | None = None


def read_result(output: Path) -> tuple[Result, dict[str, Any]] | None:
    """The result, and the same as plain values; None where the harness left none.

    Raises:
        InvalidInputError: there is one that is none: of another schema, malformed, or far too large.
    """
    stream = open_output(output, RESULT)
    if stream is None:
        return None
    with stream:
        content = stream.read(LARGEST_RESULT + 1)
    if len(content) > LARGEST_RESULT:
        raise InvalidInputError(f"the harness left a {RESULT} of more than {LARGEST_RESULT} bytes")
    return parse_result(content)


def parse_result(content: bytes) -> tuple[Result, dict[str, Any]]:
    """Parse a ``result.json``; return it also as plain values.

    Raises:
        InvalidInputError: It is malformed, or of another schema.
    """
    try:
        document = msgspec.json.decode(content, type=dict[str, Any])
        _check_nesting(document)
        if document.get("schema") != SCHEMA:
            found = document.get("schema")
            raise InvalidInputError(f"the harness left a {RESULT} of schema {found!r}; this version reads {SCHEMA}")
        result = msgspec.convert(document, Result)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"the harness left a {RESULT} that is none: {error}") from error
    except RecursionError as error:
        raise InvalidInputError(_TOO_DEEP) from error
    if (result.outcome == "failed") != (result.failure is not None):
        raise InvalidInputError(f"the harness left a {RESULT} whose outcome and failure contradict each other")
    return result, document


_TOO_DEEP = f"the harness left a {RESULT} that is none: it is nested more than {DEEPEST_RESULT} levels deep"


def _check_nesting(document: dict[str, Any]) -> None:
    level: list[Any] = [document]
    for _ in range(DEEPEST_RESULT):
        parts = (part for one in level for part in (one.values() if isinstance(one, dict) else one))
        level = [part for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise InvalidInputError(_TOO_DEEP)


def open_output(output: Path, path: str) -> BinaryIO | None:
    """A regular file below the output folder, or None where there is none.

    No link is followed, on no part of the path: it could lead to any file of the host. A sparse file counts as none:
    the harness leaves no such file, and a copy of it would fill the disk.
    """
    folder = os.open(output, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *folders, name = path.split("/")
        for step in folders:
            inner = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode) or _is_sparse(descriptor):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def _is_sparse(descriptor: int) -> bool:
    """Whether the file has a hole; what a seek for one finds is its end otherwise."""
    size = os.fstat(descriptor).st_size
    if not size:
        return False
    hole = os.lseek(descriptor, 0, os.SEEK_HOLE)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return hole < size
