"""The outcome of a run: the harness's result, the failure class, and device and version checks."""

import itertools
import os
import signal
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
from msgspec import Meta, Struct

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.evaluator.harness.core.distributed_job import MAX_PROCESSES, RANK, SINGLE
from benchlock.evaluator.harness.core.scenarios import MAX_NETWORKS
from benchlock.evaluator.harness.core.training_job import MAX_REPEATS
from benchlock.evaluator.runner.job_folder import SCHEMA
from benchlock.registry.lock.lockfile import LockedPlatform
from benchlock.registry.manifests import Framework
from benchlock.registry.requests.hardware_requirements import CPU
from benchlock.registry.text.quantities import spell_bytes
from benchlock.registry.versions.semantic_version import from_pep440, parse_version

RESULT = "result.json"


def weights_role(repeat: int) -> str:
    """Return the role of the weights of a repeat of a training."""
    return f"weights-{repeat}"


def outputs_role(place: int) -> str:
    """Return the role of the outputs of a batch, by the place of its number of parts in the scenario's list."""
    return f"outputs-{place}"


RANK_ROLES = (SINGLE, *(f"{RANK}{rank}" for rank in range(MAX_PROCESSES)))
"""The roles of the samples of a distributed training: of its reference and of each rank."""
FILES = {
    "result": RESULT,
    "predictions": "predictions.safetensors",
    "samples": "samples.safetensors",
    "reference": "reference.safetensors",
    "quality": "quality.safetensors",
    "pipeline-samples": "pipeline-samples.safetensors",
    "loadgen-summary": "loadgen/mlperf_log_summary.txt",
    "loadgen-detail": "loadgen/mlperf_log_detail.txt",
    "pipeline-loadgen-summary": "loadgen-pipeline/mlperf_log_summary.txt",
    "pipeline-loadgen-detail": "loadgen-pipeline/mlperf_log_detail.txt",
    "peak-loadgen-detail": "peak-loadgen-detail.txt",
    "trace": "trace.safetensors",
    "trace-native": "trace-native.zip",
    "breakdown": "breakdown.safetensors",
    **{f"outputs-{place}": f"outputs-{place}.safetensors" for place in range(MAX_NETWORKS)},
    **{f"weights-{repeat}": f"weights-{repeat}.safetensors" for repeat in range(MAX_REPEATS)},
    **{role: f"{role}.safetensors" for name in RANK_ROLES for role in (name, f"weights-{name}")},
}
"""The files of a run that are stored, by role: their paths in the output folder."""

LARGEST_RESULT = 16 << 20
DEEPEST_RESULT = 64
"""The maximum depth of nested tables and lists in a result."""

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
    "desync",
    "engine",
    "output",
]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]


class ReportedFailure(Struct, frozen=True, rename={"kind": "class"}):
    """The failure that the harness reports, with one of our classes."""

    kind: FailureClass
    message: str


class ReportedQuality(Struct, frozen=True):
    """A quality metric of ``n`` decisions: the number of correct ones, or a value that is not a count."""

    n: Count
    correct: Count | None = None
    value: float | None = None

    def __post_init__(self) -> None:
        """Check that there is either a count or a value."""
        if (self.correct is None) == (self.value is None):
            raise ValueError("a quality metric has either a count or a value")
        if self.correct is not None and self.correct > self.n:
            raise ValueError(f"{self.correct} of {self.n} are correct")


class ReportedPhase(Struct, frozen=True):
    """A timed phase; ``duration_s`` are the seconds from its first issue to its last answer."""

    queries: Count
    samples_per_query: Annotated[int, Meta(ge=1)]
    duration_s: Seconds


class ReportedPeak(Struct, frozen=True):
    """A peak search: the highest rate in queries a second that passed, the lowest that failed, and all probes."""

    qps: Annotated[float, Meta(gt=0)]
    failed_qps: Annotated[float, Meta(gt=0)]
    probes: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1)]


class Package(Struct, frozen=True):
    """An installed package."""

    name: Annotated[str, Meta(min_length=1)]
    version: Annotated[str, Meta(min_length=1)]


class Surroundings(Struct, frozen=True):
    """The environment that the harness reports.

    ``device`` is where the predictor ran; None if the harness supports CPUs alone or loaded no predictor.
    """

    python: str
    packages: tuple[Package, ...]
    threads: dict[str, Any]
    device: str | None = None


@prepare_decoder
class Result(Struct, frozen=True):
    """The content of ``result.json``; keys of a newer minor version are ignored."""

    schema: Literal[1]
    outcome: Literal["done", "failed"]
    failure: ReportedFailure | None
    quality: dict[str, ReportedQuality]
    performance: ReportedPhase | None
    environment: Surroundings
    timings: dict[str, Seconds]
    pipeline: ReportedPhase | None = None
    peak: ReportedPeak | None = None


def read_result(output: Path) -> tuple[Result, dict[str, Any]] | None:
    """Read the result, and the same as plain values; None if the harness left none.

    Raises:
        InvalidInputError: The file has another schema, or is malformed or too large.
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
        InvalidInputError: It is malformed, or has another schema.
    """
    try:
        document = msgspec.json.decode(content, type=dict[str, Any])
        _check_nesting(document)
        if document.get("schema") != SCHEMA:
            schema = document.get("schema")
            raise InvalidInputError(f"the harness left a {RESULT} of schema {schema!r}; this version reads {SCHEMA}")
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
        parts = (
            part for container in level for part in (container.values() if isinstance(container, dict) else container)
        )
        level = [part for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise InvalidInputError(_TOO_DEEP)


def open_output(output: Path, path: str) -> BinaryIO | None:
    """Open a regular file below the output folder; None if there is none.

    No link is followed in any part of the path, because it could lead to any file of the host. A sparse file counts as
    missing: the harness leaves no such file, and a copy of it could fill the disk.
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
    """Return whether the file has a hole; without one ``SEEK_HOLE`` finds its end."""
    size = os.fstat(descriptor).st_size
    if not size:
        return False
    hole = os.lseek(descriptor, 0, os.SEEK_HOLE)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return hole < size


_LINES_OF_LOG = 5
# Lines of faulthandler. In Python's own traces the last line has the cause; here the first frame has the place.
_FATAL = "Fatal Python error: "
_DEEPEST_FIRST = "(most recent call first):"
_OWN_THREAD = "Current thread"
_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a container or process.

    Attributes:
        code: The exit code; None if it was stopped because its time was over.
        out_of_memory: Whether the engine saw that the kernel killed a process for its memory.
        log: The console output.
        started_in: The seconds until it had started.
        ran: The seconds from there to its end.
        watched: The CPU seconds of this waiting process meanwhile, which the run could not use.
        excess: How the output exceeds its quota; then nothing of it is read.
        fault: What is wrong with the files of a stage that reports success.
        cpu: The CPU seconds that the control group of a container counted; None if nobody counted.
    """

    code: int | None
    out_of_memory: bool
    log: bytes
    started_in: float
    ran: float
    watched: float
    excess: str | None = None
    fault: str | None = None
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The class and the message of a failure."""

    kind: FailureClass
    message: str


def failure_of(
    ending: Ending, result: Result | None, fault: str | None, seconds: float, memory: int | None = None
) -> Failure | None:
    """Return why the run failed; None if it is done.

    A run that exceeded its time has no valid result. Otherwise the failure that the harness reports comes first, except
    for deaths that only the engine can explain.

    Args:
        ending: The end of the container or process.
        result: The result; None if there is none that can be read.
        fault: Why a result could not be read.
        seconds: The limit of time.
        memory: The limit of memory in bytes; None if it was not enforced.
    """
    if ending.excess is not None:
        return Failure("output", f"output limit exceeded: {ending.excess}; the run was stopped")
    if ending.code is None:
        return Failure("timeout", f"time limit of {seconds:g} s exceeded; the run was stopped")
    return _failure_of_harness(ending, ending.code, result, fault or ending.fault, memory)


def _failure_of_harness(
    ending: Ending, code: int, result: Result | None, fault: str | None, memory: int | None
) -> Failure | None:
    reported = None if result is None else result.failure
    if ending.out_of_memory and (result is None or (reported is not None and reported.kind == "crash")):
        return Failure("out-of-memory", f"the kernel killed a process: memory limit exceeded{_limit(memory)}")
    if reported is not None:
        addition = {"crash": _quote_last_lines(ending.log), "out-of-memory": _limit(memory)}.get(reported.kind, "")
        return Failure(reported.kind, reported.message + addition)
    if fault is not None:
        return Failure("crash", fault)
    if result is None:
        return Failure("crash", f"the harness {_describe_exit(code)} and left no result{_quote_last_lines(ending.log)}")
    if code != 0:  # the harness exits with 0 after it wrote its result, so something else wrote this one
        return Failure("crash", f"the harness {_describe_exit(code)} beside a result{_quote_last_lines(ending.log)}")
    return None


def _describe_exit(code: int) -> str:
    """Describe an exit code; above 128 for a container, or below 0 for a process, it is a signal."""
    number = -code if code < 0 else code - _SIGNALLED
    if number in set(signal.Signals):
        return f"was killed by {signal.Signals(number).name}"
    return f"ended with exit code {code}"


def _limit(memory: int | None) -> str:
    return "" if memory is None else f" (limits.memory is {spell_bytes(memory)})"


def _quote_last_lines(log: bytes) -> str:
    lines = [line.strip() for line in log.decode(errors="replace").splitlines() if line.strip()]
    words = _find_dump(lines) or lines[-_LINES_OF_LOG:]
    return ": " + " | ".join(words) if words else ""


def _find_dump(lines: list[str]) -> list[str]:
    """Return the cause of death and the deepest frames of its thread; empty if the lines end without a dump."""
    fatal = max((number for number, line in enumerate(lines) if line.startswith(_FATAL)), default=None)
    if fatal is None or any("(most recent call last):" in line for line in lines[fatal:]):
        return []
    heads = [number for number in range(fatal, len(lines)) if lines[number].endswith(_DEEPEST_FIRST)]
    own = [number for number in heads if lines[number].startswith(_OWN_THREAD)] or heads
    if not own:
        return []
    frames = itertools.takewhile(lambda line: line.startswith("File "), lines[own[0] + 1 :])
    return [lines[fatal], *itertools.islice(frames, _LINES_OF_LOG - 1)]


def find_mismatch(result: Result, platform: LockedPlatform, framework: Framework) -> Failure | None:
    """Return why device or framework are not the locked ones; None if they are.

    An image that is built from wheels has the resolved framework. A finished image has the one that its manifest names.
    """
    ran = result.environment.device
    if platform.device not in (CPU, ran):
        return Failure("load", f"the model ran on device {ran or CPU}, but {platform.device} is locked")
    if not platform.finished:
        return None
    installed = [package for package in result.environment.packages if package.name in framework.distributions]
    if any(_is_version(package, framework.version) for package in installed):
        return None
    has = (
        ", ".join(f"{package.name} {package.version}" for package in installed)
        or f"none of {', '.join(framework.distributions)}"
    )
    return Failure(
        "load", f"the manifest of the image states {framework.name} {framework.version}, but the image has {has}"
    )


def _is_version(package: Package, version: str) -> bool:
    try:
        return from_pep440(package.version) == parse_version(version)
    except InvalidInputError:
        return False
