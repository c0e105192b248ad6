"""LoadGen's logs, mutated in every way: a figure never changes, and a refusal is always one that says why and where."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.evaluator.evidence.loadgen_checks import check_settings, read_detail_log, read_probe_logs
from benchlock.evaluator.evidence.timed_phases import PERFORMANCE, PhaseReader
from benchlock.evaluator.harness.performance.loadgen_traces import (
    SEPARATOR,
    Log,
    compare_log,
    describe_account,
    describe_phase,
    read_log,
)
from benchlock.evaluator.statistics.time_metrics import Performance
from tests.support.evaluator.loadgen_logs import LOGS, columns_of_log, lock_of_log

REAL = (LOGS / "single_stream.txt").read_bytes()
MARK = b":::MLLOG "
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 10**400, -(2**63), 2**63, 1e308, 0.5,
    "", "VALID", "1", "\u2028", [], [[1]], {}, {"is_error": True},
)  # fmt: skip
LITERALS = (b"NaN", b"Infinity", b"1e999", b"-0", b"{", b'"', b"[" * 5000, b"\\ud800", b"\xff\xfe", b"true")


LOCK = lock_of_log("single_stream")
COLUMNS = columns_of_log("single_stream")


def read(content: bytes, *, is_stated: bool = True) -> Performance | None:
    """Read the performance phase with another log; with ``is_stated``, beside what the harness says of the real one."""
    log = read_log(LOGS / "single_stream.txt")
    account = describe_account(log, COLUMNS, compare_log(log, COLUMNS, "single_stream"))
    with tempfile.TemporaryDirectory() as folder:
        files = {"samples": Path(folder) / "samples", "loadgen-detail": Path(folder) / "log"}
        save_file(COLUMNS, files["samples"])
        files["loadgen-detail"].write_bytes(content)
        stated = {**describe_phase(COLUMNS, 1), "warmup_calls": 3}
        return PhaseReader(LOCK, files, 5).read(PERFORMANCE, stated, account if is_stated else {})


def mutate_value(content: bytes, line: int, part: str, value: Any) -> bytes:  # noqa: ANN401 - JSON
    lines = content.split(b"\n")
    number = line % (len(lines) - 1)
    entry = json.loads(lines[number].removeprefix(MARK))
    if part == "line":
        entry = value
    elif part == "is_error":
        entry["metadata"]["is_error"] = value
    else:
        entry[part] = value
    lines[number] = MARK + json.dumps(entry).encode()
    return b"\n".join(lines)


def mutate_bytes(content: bytes, at: int, size: int, literal: bytes) -> bytes:
    at %= len(content)
    return content[:at] + literal + content[at + size :]


def move_line(content: bytes, line: int, to: int) -> bytes:
    lines = content.split(b"\n")
    lines.insert(to % len(lines), lines[line % len(lines)])
    return b"\n".join(lines)


MUTATIONS = st.one_of(
    st.tuples(
        st.just(mutate_value),
        st.integers(0, 200),
        st.sampled_from(("key", "value", "metadata", "is_error", "line")),
        st.sampled_from(ODD),
    ),
    st.tuples(
        st.just(mutate_bytes),
        st.integers(0, len(REAL)),
        st.integers(0, 300),
        st.one_of(st.sampled_from(LITERALS), st.binary(max_size=4)),
    ),
    st.tuples(st.just(move_line), st.integers(0, 200), st.integers(0, 200)),
    st.tuples(st.just(lambda content, size: content[: size % len(content)]), st.integers(0, len(REAL))),
)


def figures(found: Performance | None) -> tuple[Any, ...]:
    assert found is not None
    return found.samples.latency.tolist(), found.samples_per_query, found.duration


REAL_FIGURES = figures(read(REAL))


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(MUTATIONS, min_size=1, max_size=3), st.booleans())
def test_a_mutated_log_gives_the_same_figures_or_a_reason(mutations: list[Any], is_stated: bool) -> None:
    content = REAL
    for change, *arguments in mutations:
        try:
            content = change(content, *arguments)
        except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, IndexError, RecursionError):
            continue  # a mutation before it left nothing that this one can change
    try:
        found = read(content, is_stated=is_stated)
    except BenchlockError:
        return
    assert figures(found) == REAL_FIGURES


def changed(key: str, value: str) -> bytes:
    """Return the real log with another value, as JSON, of a key."""
    lines = REAL.split(b"\n")
    numbers = [number for number, line in enumerate(lines) if f'"key": "{key}"'.encode() in line]
    entry = json.loads(lines[numbers[0]].removeprefix(MARK))
    before = json.dumps(entry["value"])
    lines[numbers[0]] = lines[numbers[0]].replace(f'"value": {before},'.encode(), f'"value": {value},'.encode())
    return b"\n".join(lines)


def test_a_seed_is_compared_exactly() -> None:
    scenario = {"name": "single_stream", "min_duration": 1.0}
    found = {"scenario": "SingleStream", "test_mode": "PerformanceOnly", "qsl_rng_seed": 3066443479}
    log = Log("4.1", valid=True, errors=(), settings=found, results={})
    with pytest.raises(
        InvalidInputError, match="LoadGen ran with qsl_rng_seed 3066443479, but the lock has 3066443478"
    ):
        check_settings("log", log, scenario | {"seeds": {"qsl": 3066443478, "sample_index": 1, "schedule": 1}})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (changed("result_query_count", "NaN"), "invalid character"),
        (changed("result_query_count", '"many"'), "result_query_count is not a number"),
        (changed("result_query_count", "1e300"), "result_query_count is out of range"),
        (changed("result_query_count", "[1]"), "result_query_count is a list or a table"),
        (changed("result_min_duration_met", "1"), "result_min_duration_met is neither true nor false"),
        (REAL.replace(b'"metadata": {', b'"metadata": 7, "other": {', 1), "Expected `object`, got `int`"),
        (REAL.replace(b'"is_error": false', b'"is_error": "no"', 1), "Expected `bool`, got `str`"),
        (REAL[: REAL.index(b'"result_validity"') + 30], "truncated"),
        (REAL.replace(b"loadgen.cc", b"\xff", 1), "not UTF-8"),
        (MARK + b'{"key": "a", "metadata": {}, "value": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_malformed_line_is_named(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(
        InvalidInputError, match=r"^loadgen-detail, line \d+: malformed entry of LoadGen's log: "
    ) as told:
        read_detail_log("loadgen-detail", tmp_path / "log")
    assert reason in told.value.what
    assert told.value.where == told.value.what.split(": malformed")[0]
    assert told.value.next_step


def test_a_log_without_a_verdict_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"")
    with pytest.raises(InvalidInputError, match="loadgen-detail: LoadGen wrote no result_validity"):
        read_detail_log("loadgen-detail", tmp_path / "log")


@pytest.mark.parametrize("content", [b"", REAL, SEPARATOR, SEPARATOR + b"\xff", SEPARATOR * 200], ids=range(5))
def test_logs_of_probes_that_are_none_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "logs").write_bytes(content)
    with pytest.raises(InvalidInputError, match="peak-loadgen-detail"):
        read_probe_logs("peak-loadgen-detail", tmp_path / "logs")


def test_logs_of_probes_are_read_in_their_order(tmp_path: Path) -> None:
    server = (LOGS / "server.txt").read_bytes()
    (tmp_path / "logs").write_bytes(SEPARATOR + server + SEPARATOR + REAL)
    found = read_probe_logs("peak-loadgen-detail", tmp_path / "logs")
    assert [log.settings["scenario"] for log in found] == ["Server", "SingleStream"]
