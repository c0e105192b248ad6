"""LoadGen's verdict and results are believed only where the samples and the rest of the log say the same."""

import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from safetensors.numpy import save_file

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence.loadgen_checks import check_results, check_samples, check_verdict
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.evidence.timed_phases import PERFORMANCE, PhaseReader
from benchlock.evaluator.harness.performance.loadgen_traces import SEPARATOR, Log, describe_phase, read_log
from benchlock.evaluator.runner.self_reported_times import InvalidLoadError
from benchlock.registry.lock.lockfile import dump
from benchlock.registry.manifests.manifest_content import content
from tests.support.evaluator.evidence import CURRENT, IDX, QUERIES, make_run, single_stream_results
from tests.support.evaluator.loadgen_logs import LOGS, columns_of_log, lock_of_log
from tests.support.resolution.variants import variant

MARK = ":::MLLOG "
SCENARIOS = ("single_stream", "server")
TEXTS = ("early_stopping_result", "result_invalid_reason")
Changes = dict[str, Any]
SLOW: Changes = {
    "effective_target_latency_ns": 1_000_000,
    "result_overlatency_query_count": 92,
    "result_perf_constraints_met": False,
}
"""The real log of ``server`` for a target that none of its queries met."""
FORGED: Changes = {"result_validity": "VALID", "result_invalid_reason": None}


def real(name: str) -> bytes:
    return (LOGS / f"{name}.txt").read_bytes()


def change_log(log: bytes, changes: Changes) -> bytes:
    """Return the log with other values of some keys, and without those whose value is None."""
    lines = []
    for line in log.decode().splitlines():
        entry = json.loads(line.removeprefix(MARK))
        entry["value"] = changes.get(entry["key"], entry["value"])
        lines += [] if entry["value"] is None else [f"{MARK}{json.dumps(entry)}\n"]
    return "".join(lines).encode()


def read(folder: Path, name: str, log: bytes, summary: str | None = None, **scenario: object) -> None:
    """Read the performance phase that the samples of the real log are of."""
    columns = columns_of_log(name)
    files = {role: folder / role for role in ("samples", "loadgen-detail")}
    save_file(columns, files["samples"])
    files["loadgen-detail"].write_bytes(log)
    if summary is not None:
        files["loadgen-summary"] = folder / "loadgen-summary"
        files["loadgen-summary"].write_text(summary)
    stated = {**describe_phase(columns, 1), "warmup_calls": 3}
    PhaseReader(lock_of_log(name, **scenario), files, 5).read(PERFORMANCE, stated, {})


def read_probe(folder: Path, log: bytes, rate: float, **scenario: object) -> None:
    (folder / "probes").write_bytes(SEPARATOR + log)
    files = {"peak-loadgen-detail": folder / "probes"}
    PhaseReader(lock_of_log("server", **scenario), files, 5).read_probes([rate])


def forge_value(key: str, value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return another value, a better one where it is a number."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return "INVALID" if value == "VALID" else "VALID"
    return value // 2 if value and key.endswith("_ns") else value * 2 + 1


def results() -> Iterator[tuple[str, str, Any]]:
    for name in SCENARIOS:
        for key, value in read_log(LOGS / f"{name}.txt").results.items():
            yield name, key, None
            if key not in TEXTS:
                yield name, key, forge_value(key, value)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_real_log_agrees_with_its_samples(name: str, tmp_path: Path) -> None:
    verdict = "VALID" if name == "single_stream" else "INVALID"
    read(tmp_path, name, real(name), f"Scenario : any\nResult is : {verdict}\n  Min queries satisfied : Yes\n")
    read_probe(tmp_path, real("server"), 400.0)


@pytest.mark.parametrize(("name", "key", "value"), [one for one in results() if one[1] != "early_stopping_result"])
def test_a_result_that_is_removed_or_edited_is_refused(name: str, key: str, value: Any, tmp_path: Path) -> None:  # noqa: ANN401 - JSON
    with pytest.raises(InvalidInputError, match=r"LoadGen|log of the performance phase are malformed"):
        read(tmp_path, name, change_log(real(name), {key: value}))


def queried(name: str) -> tuple[Changes, dict[str, Any]]:
    """Return the results that LoadGen logs of valid queries of ``multi_stream`` or ``offline``, and their samples."""
    before = np.full(QUERIES, 2000, np.int64)
    latency = 1_000_000 + 1000 * (np.arange(QUERIES, dtype=np.int64) * 37 % QUERIES)
    end = np.cumsum(before + latency)
    start = end - before - latency
    columns = {"start_ns": start, "end_ns": end, "before_ns": before, "latency_ns": latency, "index": start}
    if name == "offline":
        whole = int(end[-1])
        found = single_stream_results(np.full(QUERIES, whole), start)
        found |= {"result_query_count": 1, "result_samples_per_second": QUERIES * 1e9 / whole}
    else:
        found = single_stream_results(before + latency, start)
        found |= {
            key.replace("latency_ns", "per_query_latency_ns" if "percentile" in key else "query_latency_ns"): value
            for key, value in found.items()
            if key.endswith("latency_ns")
        }
    unknown = ("result_qps_", "early_stopping_latency_ss", *(("early_stopping_latency",) if name == "offline" else ()))
    return {key: value for key, value in found.items() if not key.startswith(unknown)}, columns


@pytest.mark.parametrize("name", ["multi_stream", "offline"])
def test_forged_results_of_the_other_scenarios_are_refused(name: str) -> None:
    results, columns = queried(name)

    def check(results: Changes) -> None:
        log = Log("6.0.17", valid=True, errors=(), settings={}, results=results)
        check_verdict("log", log, name)
        check_results("log", log, {"name": name})
        check_samples("log", log, {"name": name}, columns)

    check(results)
    for key, value in results.items():
        for forged in (
            {**results, key: forge_value(f"{key}_ns", value)},
            {one: other for one, other in results.items() if one != key},
        ):
            with pytest.raises((InvalidInputError, KeyError), match=f"LoadGen|{key}"):
                check(forged)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, None),
        (FORGED, "result_validity is 'VALID'; in the log: result_perf_constraints_met, early_stopping_met"),
        ({**FORGED, "early_stopping_met": True, "result_perf_constraints_met": True}, "early_stopping_met is True"),
        ({"result_perf_constraints_met": True}, "result_perf_constraints_met contradicts its 99.00 percentile"),
        ({"result_overlatency_query_count": 0}, "that 0 of 92 queries exceed 1000000 ns"),
        ({"effective_target_latency_percentile": 0.01}, "target_latency_percentile 0.01"),
    ],
    ids=["honest", "verdict", "conditions", "bound", "count", "percentile"],
)
def test_a_verdict_follows_from_the_latencies(changes: Changes, word: str | None, tmp_path: Path) -> None:
    """All 92 queries of the phase, and of a probe of a peak, took longer than the target."""
    log = change_log(real("server"), SLOW | changes)
    for check in (partial(read, tmp_path, "server", log), partial(read_probe, tmp_path, log, 400.0)):
        if word is None:
            check(target_latency=0.001)
            continue
        with pytest.raises(InvalidInputError) as told:
            check(target_latency=0.001)
        assert word in told.value.what


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "result_scheduled_samples_per_sec is 444.802, and its target 1e+06"),
        ({"result_scheduled_samples_per_sec": 1e6}, "result_completed_samples_per_sec is 442.232, which contradicts"),
        (
            {"result_scheduled_samples_per_sec": 1e6, "result_completed_samples_per_sec": 9e5},
            "result_completed_samples_per_sec is 900000.0, which contradicts",
        ),
    ],
)
def test_the_rate_of_a_probe_is_the_one_that_its_log_measured(changes: Changes, word: str, tmp_path: Path) -> None:
    log = change_log(real("server"), {"effective_target_qps": 1e6, **changes})
    with pytest.raises(InvalidInputError) as told:
        read_probe(tmp_path, log, 1e6)
    assert word in told.value.what


def test_a_result_that_stands_twice_is_refused(tmp_path: Path) -> None:
    log = real("single_stream")
    (line,) = (one for one in log.splitlines(keepends=True) if b'"result_mean_latency_ns"' in one)
    with pytest.raises(InvalidInputError, match="result_mean_latency_ns is there twice"):
        read(tmp_path, "single_stream", log + line)


@pytest.mark.parametrize("summary", ["", "Result is : INVALID\n", "Result is : VALID\nResult is : INVALID\n"])
def test_a_summary_has_the_verdict_of_its_log(summary: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidLoadError, match="loadgen-summary: LoadGen's summary says"):
        read(tmp_path, "single_stream", real("single_stream"), summary)


def without_percentiles(results: Changes) -> Changes:
    forged = {"result_mean_latency_ns": 5, "result_max_latency_ns": 7, "result_min_latency_ns": 1}
    return forged | {key: None for key in results if "percentile" in key}


@pytest.mark.parametrize("harness", [CURRENT, {"harness.version": "1.1.0"}], ids=["current", "1.1"])
@pytest.mark.parametrize("forge", [without_percentiles, lambda _: {"early_stopping_met": False}])
def test_a_record_of_forged_results_is_contradicted(
    tmp_path: Path, forge: Callable[[Changes], Changes], harness: dict[str, str]
) -> None:
    """Log, result and record say the same, and the samples something else."""
    store = LocalStore(tmp_path / "blobs")
    made = variant({"lock": harness, "files": IDX, "request": {"metrics": ["top1", "latency", "throughput"]}})
    for manifest in made.manifests.values():
        for blob in (content(manifest), *made.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    examiner, run = Examiner(store, tmp_path, lambda _: dump(made.lock)), make_run(made.lock, store)
    assert examiner.compare(run).state == "verified"
    assert run.end is not None
    parts = {role: store.path(run.end.blobs[role].digest).read_bytes() for role in ("loadgen-detail", "result")}
    result = json.loads(parts["result"])
    account = result["loadgen"]
    changes = forge(account["results"])
    kept = {key: changes.get(key, value) for key, value in account["results"].items()}
    account["results"] = {key: value for key, value in kept.items() if value is not None}
    if not any("percentile" in key for key in account["results"]):
        account["percentiles"] = []
    blobs = {
        **run.end.blobs,
        "loadgen-detail": store.put(io.BytesIO(change_log(parts["loadgen-detail"], changes))),
        "result": store.put(io.BytesIO(json.dumps(result).encode())),
    }
    details = {**run.end.details, "loadgen": account}
    status = examiner.compare(replace(run, end=replace(run.end, blobs=blobs, details=details)))
    assert status.state == "contradicted"
    assert "LoadGen's result_" in status.reasons[0], status.reasons
