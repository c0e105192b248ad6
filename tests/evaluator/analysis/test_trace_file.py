"""Trace files are read whole or refused with what is wrong, where, and what to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.analysis import trace_file
from benchlock.evaluator.analysis.trace_file import read_trace
from tests.support.evaluator.traces import LAYERS, make_trace, write_trace

Change = Callable[[dict[str, Any], dict[str, Any]], object]


def test_a_trace_has_its_rows_and_times(tmp_path: Path) -> None:
    trace = make_trace(tmp_path, fingerprint="ab" * 32)
    framework = trace.experiments["framework"]
    assert list(trace.experiments) == ["none", "model", "framework"]
    assert [row.name for row in framework.header.rows[3:]] == [row["name"] for row in LAYERS]
    assert framework.durations.shape == (200, 3 + len(LAYERS))
    assert trace.experiments["none"].durations.shape == (200, 0)
    assert trace.lock_fingerprint == "ab" * 32
    assert trace.header.graph is not None


def test_a_key_of_a_later_version_is_ignored(tmp_path: Path) -> None:
    assert make_trace(tmp_path, color="red", graph=()).header.level == "framework"


def shorten(_: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["framework.block"] = tensors["framework.block"][:-1]


def drop(_: dict[str, Any], tensors: dict[str, Any]) -> None:
    del tensors["framework.preempted"]


def scatter(_: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["framework.block"][-1] = 10**9


def retype(_: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["framework.start"] = tensors["framework.start"].astype(np.float64)


def overflow(_: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["framework.duration"][0, 0] = 1 << 50


def below(_: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["framework.duration"][0, 0] = -2


def misnumber(document: dict[str, Any], _: dict[str, Any]) -> None:
    document["experiments"][2]["rows"][4]["index"] = 7


def turn(document: dict[str, Any], _: dict[str, Any]) -> None:
    document["experiments"][2]["rows"][4]["parent"] = 5


def repeat(document: dict[str, Any], _: dict[str, Any]) -> None:
    document["experiments"][1]["deepest"] = "none"


def negate(document: dict[str, Any], _: dict[str, Any]) -> None:
    document["graph"]["rows"][0]["inputs"][0]["shape"] = [1, -3]


def nest(document: dict[str, Any], _: dict[str, Any]) -> None:
    document["caps"] = "x" * 10


def renumber(_: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["framework.block"] = tensors["framework.block"][::-1].copy()


def flatten(_: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["framework.block"] = np.zeros((), np.int64)


def stop(_: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["none.call_duration"][3] = 0


def deepen(document: dict[str, Any], _: dict[str, Any]) -> None:
    row = document["graph"]["rows"][0]
    document["graph"]["rows"] = [row | {"index": n, "parent": n - 1 if n else None} for n in range(20)]


def relayout(document: dict[str, Any], _: dict[str, Any]) -> None:
    document["graph"]["rows"][0]["attributes"] = {"weight_format": "MHWX"}


def inflate(document: dict[str, Any], _: dict[str, Any]) -> None:
    document["graph"]["rows"][0]["inputs"][0]["shape"] = [1 << 39] * 20


def stretch(document: dict[str, Any], _: dict[str, Any]) -> None:
    document["graph"]["rows"][0]["inputs"][0]["shape"] = [1] * 40


CHANGES: dict[str, tuple[Change, str]] = {
    "a tensor is too short": (shorten, r"tensor framework.block has shape \[199\], expected \[200\]"),
    "a block of its own": (scatter, "the blocks of framework are not numbered from 0"),
    "a tensor is missing": (drop, "tensor framework.preempted is missing"),
    "a tensor of another type": (retype, r"tensor framework.start is F64 \[200, 9\], expected int64 with 2 axes"),
    "a number instead of a tensor": (flatten, r"tensor framework.block is I64 \[\], expected int64 with 1 axes"),
    "a call of no time": (stop, "tensor none.call_duration is out of range: it must be at least 1"),
    "rows in rows in rows": (deepen, "is nested 17 levels deep; the maximum is 16"),
    "unknown axes of weights": (relayout, "has the unknown weight format 'MHWX'"),
    "weights beyond every memory": (inflate, "has a tensor of more than 281474976710656 elements"),
    "more axes than a tensor has": (stretch, "invalid metadata `trace`"),
    "a duration of days": (overflow, "tensor framework.duration is out of range"),
    "a negative duration": (below, "tensor framework.duration is out of range"),
    "blocks in another order": (renumber, "the blocks of framework are not numbered from 0"),
    "a row with another number": (misnumber, "has the index 7"),
    "a parent after its child": (turn, "and parent 5"),
    "two experiments of a level": (repeat, "an experiment occurs twice"),
    "a negative size": (negate, "invalid metadata `trace`"),
    "another type of a key": (nest, "invalid metadata `trace`"),
    "a newer schema": (lambda document, _: document.update(schema=2), "it has schema 2, but this version"),
    "an older schema": (lambda document, _: document.update(schema=0), "unknown schema 0"),
    "no experiments": (lambda document, _: document.update(experiments=[]), "invalid metadata `trace`"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_contradiction_is_refused(name: str, tmp_path: Path) -> None:
    change, message = CHANGES[name]
    path = write_trace(tmp_path / "trace", change=change)
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_trace(path, "run/1 trace")
    assert caught.value.where == "run/1 trace"
    assert caught.value.next_step


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"{}", b"\xff" * 9])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(content)
    with pytest.raises(InvalidInputError, match="not a safetensors file"):
        read_trace(tmp_path / "trace")


def test_budgets_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_trace(tmp_path / "trace")
    for limit, message in (
        ("LARGEST_FILE", "bytes; the max"),
        ("LARGEST_ROWS", "rows; the max"),
        ("LARGEST_CALLS", "200 calls; the max"),
        ("LARGEST_SPANS", "spans"),
        ("LARGEST_CALLS", "calls; the max"),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(trace_file, limit, 10)
            with pytest.raises(InvalidInputError, match=message):
                read_trace(path)


@pytest.mark.parametrize("text", ["", "[]", "1", "{", "[" * 100_000, '{"caps":' * 100_000, '{"schema": "x"}'])
def test_metadata_that_are_no_header_are_refused(text: str, tmp_path: Path) -> None:
    save_file({}, tmp_path / "trace", {"trace": text})
    with pytest.raises(InvalidInputError, match="invalid metadata `trace`"):
        read_trace(tmp_path / "trace")
