"""What is read of an output folder that untrusted code wrote, and what a failure is called."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.core.phase_reports import write_json
from benchlock.evaluator.runner.run_outcome import (
    RESULT,
    Ending,
    Failure,
    ReportedFailure,
    Result,
    failure_of,
    open_output,
    read_result,
)

DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "harness": "1",
    "outcome": "done",
    "failure": None,
    "quality": {"top1": {"correct": 3, "n": 4}},
    "performance": None,
    "loadgen": None,
    "environment": {"python": "3.11.2", "packages": [{"name": "numpy", "version": "2.0"}], "threads": {}},
    "timings": {"accuracy": 1.5},
    "of a newer minor version": True,
}


def write(folder: Path, **changes: Any) -> None:  # noqa: ANN401 - any JSON value
    (folder / RESULT).write_text(json.dumps(DOCUMENT | changes))


def result(**changes: Any) -> Result:  # noqa: ANN401 - fields of any type
    import msgspec  # noqa: PLC0415

    return msgspec.structs.replace(msgspec.convert(DOCUMENT, Result), **changes)


def test_a_result_is_read_with_what_is_new_in_it(tmp_path: Path) -> None:
    write(tmp_path)
    found = read_result(tmp_path)
    assert found is not None
    assert (found[0].quality["top1"].correct, found[0].timings) == (3, {"accuracy": 1.5})
    assert found[1] == DOCUMENT


def test_no_result_is_none(tmp_path: Path) -> None:
    assert read_result(tmp_path) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "of schema 2; this version reads 1"),
        ({"schema": None}, "of schema None"),
        ({"outcome": "splendid"}, "that is none"),
        ({"outcome": "failed"}, "contradict each other"),
        ({"failure": {"class": "load", "message": "x"}}, "contradict each other"),
        ({"outcome": "failed", "failure": {"class": "mine", "message": "x"}}, "that is none"),
        ({"quality": {"top1": {"correct": -1, "n": 4}}}, "that is none"),
        ({"quality": {"top1": {"correct": 5, "n": 4}}}, "5 of 4 are correct"),
        ({"quality": {"top1": {"correct": 3, "value": 0.7, "n": 4}}}, "either a count or a value"),
        ({"quality": {"map": {"n": 4}}}, "either a count or a value"),
        ({"timings": {"a": "b"}}, "that is none"),
    ],
)
def test_a_result_that_is_none_is_said(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write(tmp_path, **changes)
    with pytest.raises(InvalidInputError, match=message):
        read_result(tmp_path)


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b'"text"', b"\xff"])
def test_bytes_that_are_no_result_are_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / RESULT).write_bytes(content)
    with pytest.raises(InvalidInputError, match="that is none"):
        read_result(tmp_path)


@pytest.mark.parametrize("depth", [100, 100_000])
def test_a_result_that_is_nested_too_deeply_is_said(tmp_path: Path, depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    (tmp_path / RESULT).write_bytes(json.dumps(DOCUMENT)[:-1].encode() + b', "more": ' + nested + b"}")
    with pytest.raises(InvalidInputError, match="that is none: it is nested more than 64 levels deep"):
        read_result(tmp_path)
    (tmp_path / RESULT).write_bytes(json.dumps(DOCUMENT)[:-1].encode() + b', "more": [[[[1]]]]}')
    assert read_result(tmp_path) is not None


def test_a_report_with_half_a_character_can_be_read_again(tmp_path: Path) -> None:
    """As a step's exception may have it in its message."""
    message = "the step failed: \ud800 and \u00e9 \U0001f600"
    write_json(tmp_path / RESULT, DOCUMENT | {"outcome": "failed", "failure": {"class": "step", "message": message}})
    found = read_result(tmp_path)
    assert found is not None
    assert found[0].failure == ReportedFailure("step", "the step failed: ? and \u00e9 \U0001f600")


def test_a_result_beyond_all_bounds_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / RESULT).open("wb") as stream:
        stream.write(bytes((16 << 20) + 1))
    with pytest.raises(InvalidInputError, match="more than 16777216 bytes"):
        read_result(tmp_path)


def test_a_sparse_file_is_not_opened(tmp_path: Path) -> None:
    """However small: what has a hole is none of the harness's files, and a copy of it takes more of the disk."""
    with (tmp_path / "samples.safetensors").open("wb") as stream:
        stream.write(b"x")
        stream.truncate(1 << 24)
    assert open_output(tmp_path, "samples.safetensors") is None
    (tmp_path / "samples.safetensors").write_bytes(bytes(1 << 20))
    opened = open_output(tmp_path, "samples.safetensors")
    assert opened is not None
    with opened:
        assert len(opened.read()) == 1 << 20


def test_links_pipes_and_folders_are_not_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    output = tmp_path / "out"
    output.mkdir()
    (output / "link").symlink_to(secret)
    (output / "folder").symlink_to(tmp_path)
    (output / "real").mkdir()
    os.mkfifo(output / "pipe")
    for path in ("link", "folder/secret", "real", "pipe", "absent", "absent/file"):
        assert open_output(output, path) is None, path
    (output / "real" / "file").write_text("content")
    stream = open_output(output, "real/file")
    assert stream is not None
    with stream:
        assert stream.read() == b"content"


def ending(code: int | None = 0, *, out_of_memory: bool = False, log: bytes = b"") -> Ending:
    return Ending(code, out_of_memory, log, 0.1, 1.0, 0.0)


# As Python 3.11 writes it: a thread that waits, then the one that died.
DUMP = b"""a warning
Fatal Python error: Segmentation fault

Thread 0x00007f11 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait

Current thread 0x00007f22 (most recent call first):
  File "/job/model/steps.py", line 11 in die
  File "/job/model/steps.py", line 15 in prepare
  File "harness/steps/code.py", line 30 in step
  File "harness/pipeline.py", line 211 in _follow
  File "harness/main.py", line 46 in main
  File "<frozen runpy>", line 88 in _run_code

Extension modules: numpy.core._multiarray_umath, numpy.random.mtrand (total: 2)
"""
DEEPEST = (
    'why: Fatal Python error: Segmentation fault | File "/job/model/steps.py", line 11 in die | '
    'File "/job/model/steps.py", line 15 in prepare | File "harness/steps/code.py", line 30 in step | '
    'File "harness/pipeline.py", line 211 in _follow'
)
TRACE = b"""Traceback (most recent call last):
  File "harness/main.py", line 46 in main
BlockingIOError: [Errno 11] Resource temporarily unavailable
"""

FAILED = {
    kind: result(outcome="failed", failure=ReportedFailure(kind, "why")) for kind in ("load", "crash", "out-of-memory")
}


@pytest.mark.parametrize(
    ("how", "left", "kind", "message"),
    [
        (ending(None), result(), "timeout", "time limit of 9 s exceeded"),
        (ending(None, out_of_memory=True), None, "timeout", "time limit"),
        (ending(137, out_of_memory=True), None, "out-of-memory", "memory limit exceeded"),
        (ending(0, out_of_memory=True), FAILED["crash"], "out-of-memory", "memory limit exceeded"),
        (ending(0, out_of_memory=True), FAILED["load"], "load", "why"),
        (ending(0), FAILED["out-of-memory"], "out-of-memory", "why"),
        (ending(137), None, "crash", "was killed by SIGKILL and left no result"),
        (ending(-11), None, "crash", "was killed by SIGSEGV"),
        (ending(3), None, "crash", "ended with exit code 3 and left no result"),
        (ending(1, log=b"a\n\nb\n"), None, "crash", "left no result: a | b"),
        (ending(0, log=b"terminate called\n"), FAILED["crash"], "crash", "why: terminate called"),
        (
            ending(0, log=DUMP),
            FAILED["crash"],
            "crash",
            DEEPEST,
        ),
        (ending(0, log=DUMP + TRACE), FAILED["crash"], "crash", "| BlockingIOError: [Errno 11] Resource temporarily"),
        (
            ending(0, log=b"Fatal Python error: init failed\n"),
            FAILED["crash"],
            "crash",
            "why: Fatal Python error: init",
        ),
    ],
)
def test_a_failure_is_called_by_its_cause(how: Ending, left: Result | None, kind: str, message: str) -> None:
    found = failure_of(how, left, None, 9)
    assert found is not None
    assert found.kind == kind
    assert message in found.message


@pytest.mark.parametrize("left", [None, FAILED["out-of-memory"]])
def test_the_limit_that_was_reached_is_named(left: Result | None) -> None:
    found = failure_of(ending(137, out_of_memory=left is None), left, None, 9, 48 << 20)
    assert found is not None
    assert found.message.endswith(" (limits.memory is 48MiB)")


def test_a_result_that_could_not_be_read_is_a_crash() -> None:
    assert failure_of(ending(), None, "it is of schema 2", 9) == Failure("crash", "it is of schema 2")


def test_what_is_done_is_no_failure() -> None:
    assert failure_of(ending(), result(), None, 9) is None
    assert failure_of(ending(out_of_memory=True), result(), None, 9) is None
