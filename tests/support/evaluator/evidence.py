"""Runs whose records agree with their blobs: made by what records runs, from what a harness would leave."""

import json
import tempfile
from collections.abc import Collection, Container
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from benchlock.artifacts.blob_store import BlobStore
from benchlock.evaluator.evidence.prediction_scores import lay_labels
from benchlock.evaluator.evidence.required_evidence import FIRST_NAMED, is_timed
from benchlock.evaluator.harness import VERSION
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.datasets import open_samples
from benchlock.evaluator.harness.performance.loadgen_traces import (
    compare_percentiles,
    describe_account,
    describe_phase,
    read_log,
)
from benchlock.evaluator.harness.phases.scoring import score
from benchlock.evaluator.records.run_document import decode_run, encode_run
from benchlock.evaluator.records.run_types import Isolation, Run, RunId, RunStart, new_run_id
from benchlock.evaluator.runner.job_folder import job_document
from benchlock.evaluator.runner.lock_verification import VerifiedFiles, read_manifests
from benchlock.evaluator.runner.run_outcome import Ending
from benchlock.evaluator.runner.run_stages import StageOutcome, harness_version
from benchlock.evaluator.statistics.early_stopping import count_discarded
from benchlock.evaluator.workflows.run_record import Attempt, make_run_end
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import is_quality
from tests.support.evaluator.recorded import HOST, NOON

CURRENT = {"harness.version": VERSION}
"""What a variant's lock is patched with so that its harness is today's."""
QUERIES = 1000
IDX = {
    "dataset/images.idx": bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 8, *range(128)]),
    "dataset/labels.idx": bytes([0, 0, 8, 1, 0, 0, 0, 2, 1, 2]),
}
"""Two readable pictures and their labels, for a variant of the shelf's dataset."""
TIMINGS = {"verification": 0.25, "job": 0.01, "start": 0.5, "run": 1.5, "watching_cpu": 0.01}


def make_run(
    lock: Lock,
    store: BlobStore,
    *,
    at: datetime = NOON,
    right: int | Collection[int] = 1,
    slowness: int = 1,
    isolation: Isolation = "process",
    classes: int = 10,
    has_nan: bool = False,
    outcome: str = "done",
    queries: int = QUERIES,
) -> Run:
    """Return a run of the lock's first platform, with its blobs in ``store``.

    Args:
        lock: A lock of a classifier, whose dataset can be read.
        store: Has what the lock names.
        at: When it started; it took a minute.
        right: How many of the samples are predicted right, or which.
        slowness: A factor of every latency.
        isolation: Whether it ran in a container.
        classes: How many scores there are of each sample.
        has_nan: Whether all scores are NaN, which the harness scores as those before 1.3.0 did.
        outcome: What the run is recorded as; the harness always says that it is done.
        queries: How many timed calls there are.
    """
    platform = lock.image.platforms[0]
    manifests = read_manifests(lock, store)
    verified = VerifiedFiles(manifests, {}, 3, 1000, 0.25)
    run = new_run_id(at)
    attempt = Attempt(run, at, lock, platform, isolation, (0,), verified)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out"
        output.mkdir()
        answers = range(right) if isinstance(right, int) else frozenset(right)
        times = _Times(queries, slowness, _random(run))
        _leave(lock, store, Path(folder), answers, times, classes, has_nan=has_nan)
        ran = 1.5 * slowness * max(1, queries // QUERIES)
        ending = Ending(0, out_of_memory=False, log=b"", started_in=0.5, ran=ran, watched=0.01)
        at_end = at + timedelta(seconds=max(60, ran))
        end = make_run_end(attempt, StageOutcome(ending, output), {**TIMINGS, "run": ran}, store, Path(folder), at_end)
    assert end.outcome == outcome, end.failure_message
    start = RunStart(
        id=run,
        lock=lock.id,
        attempt=1,
        isolation=isolation,
        platform={name: getattr(platform, name) for name in ("os", "arch", "device", "python")},
        host=HOST,
        process={"pid": 17, "born": "then"},
        started_at=at,
        image_id=platform.image_id if isolation == "container" else None,  # type: ignore[arg-type]
    )
    return decode_run(encode_run(Run(start, end)), run)  # as the registry gives it back


class _Times(NamedTuple):
    """What decides the times of a run."""

    queries: int
    slowness: int
    random: np.random.Generator


def _random(run: RunId) -> np.random.Generator:
    """Return numbers by which the times of a run differ from those of every other run."""
    return np.random.default_rng(list(run.encode()))


def _leave(
    lock: Lock,
    store: BlobStore,
    folder: Path,
    right: Container[int],
    times: _Times,
    width: int,
    *,
    has_nan: bool,
) -> None:
    """Write what a harness leaves to ``folder/out``."""
    output, manifests = folder / "out", read_manifests(lock, store)
    job = parse_job(job_document(lock, "cpu", manifests))
    metadata = job.file_metadata if harness_version(lock) >= FIRST_NAMED else None
    quality: dict[str, Any] = {}
    has_quality = any(map(is_quality, lock.metrics))
    if has_quality:
        lay_labels(lock, manifests, store, folder / "dataset")
        labels = open_samples(job.dataset, folder / "dataset", job.model.task).labels
        assert labels is not None
        offset = job.model.outputs[0].label_offset
        classes = [int(label) + offset if number in right else int(label) + 1 + offset  # type: ignore[arg-type]
                   for number, label in enumerate(labels)]  # fmt: skip
        scores = np.eye(width, dtype=np.float32)[np.asarray(classes) % width]
        if has_nan:
            scores = np.full_like(scores, np.nan)
        named = {job.model.outputs[0].name: scores}
        save_file(named, output / "predictions.safetensors", metadata)
        quality = score(job, folder / "dataset", output / "predictions.safetensors", admits_non_finite=has_nan).quality
    columns, account, performance = _leave_times(lock, output, times)
    if columns:
        save_file(
            {**columns, "warmup_ns": times.random.integers(1 << 20, size=3)}, output / "samples.safetensors", metadata
        )
    document = {
        "schema": 1,
        "harness": lock.harness.version,
        **(metadata or {}),
        "outcome": "done",
        "failure": None,
        "quality": quality,
        "accuracy": {"batch": 1, "threads_ahead": 0} if has_quality else None,
        "performance": performance,
        "loadgen": account,
        "resources": {"peak_memory": {"bytes": 64 << 20, "source": "memory.peak", "scope": "container"}},
        "audits": {"answers": None, "caching": {"samples": 64, "first_ns": 1_000_000, "caught": False}},
        "environment": {
            "python": "3.11.9",
            "packages": [{"name": "numpy", "version": "2.3.0"}, {"name": "onnxruntime", "version": "1.31.1"}],
            "threads": {"requested": 1, "predictor": {"intra_op": 1}},
            "device": "cpu",
        },
        "timings": {"accuracy": 0.5, "accuracy.load": 0.1} if has_quality else {},
    }
    (output / "result.json").write_text(json.dumps(document))


def _leave_times(lock: Lock, output: Path, times: _Times) -> tuple[dict[str, Any], Any, Any]:
    """Leave LoadGen's log, and return the columns of the samples, LoadGen's account, and the phase's facts."""
    if not is_timed(lock):
        return {}, None, None
    queries, slowness, random = times
    number = np.arange(queries, dtype=np.int64)
    latency = (1_000_000 + 1000 * (number * 37 % QUERIES)) * slowness
    one, other = random.choice(queries, 2, replace=False)
    latency[[one, other]] = latency[[other, one]]
    before = np.full(queries, 2000, np.int64)
    start = np.cumsum(latency + before) - latency - before
    columns = {
        "latency_ns": latency,
        "cpu_ns": latency - 500,
        "preempted": (number % 50 == 0).astype(np.uint8),
        "start_ns": start,
        "before_ns": before,
        "end_ns": start + before + latency,
        "samples": np.ones(queries, np.int64),
        "index": number % 2,
    }
    (output / "loadgen").mkdir()
    path = output / "loadgen" / "mlperf_log_detail.txt"
    entries = {
        "loadgen_version": "6.0.17",
        "effective_scenario": "SingleStream",
        "effective_test_mode": "PerformanceOnly",
        "effective_min_query_count": 64,
        "effective_min_duration_ms": round(lock.scenario["min_duration"] * 1000),
        **{f"effective_{name}_rng_seed": seed for name, seed in lock.scenario["seeds"].items()},
        **single_stream_results(before + latency, start),
    }
    lines = [json.dumps({"key": key, "value": value, "metadata": {}}) for key, value in entries.items()]
    path.write_text("".join(f":::MLLOG {line}\n" for line in lines))
    (output / "loadgen" / "mlperf_log_summary.txt").write_text("Result is : VALID\n")
    log = read_log(path)
    account = describe_account(log, columns, compare_percentiles(log, before + latency))
    more = {"cpu_scope": "thread", "batch": 1, "warmup_calls": 3, "timed": "predict on prepared tensors"}
    more["resources"] = {"seconds": 1.0, "cpu_seconds": 0.9, "cpus": 1, "read_bytes": 0, "process_peak_bytes": None}
    more |= {"loaded_samples": 2, "overhead": {"calls": 200, "timed_ns": 100.0}}
    return columns, account, {**describe_phase(columns, 1), **more}


def single_stream_results(latency: NDArray[np.int64], start: NDArray[np.int64]) -> dict[str, Any]:
    """Return the results that LoadGen logs of valid queries, in nanoseconds."""
    queries, ordered = len(latency), np.sort(latency)
    mean = int(latency.sum()) // queries
    ends = {share: queries - count_discarded(queries, share) for share in (0.9, 0.99)}
    return {
        "result_validity": "VALID",
        "result_min_duration_met": True,
        "result_min_queries_met": True,
        "early_stopping_met": True,
        "result_query_count": queries,
        "result_qps_with_loadgen_overhead": float(f"{(queries - 1) * 1e9 / int(start[-1]):.6g}"),
        "result_qps_without_loadgen_overhead": float(f"{1e9 / mean:.6g}"),
        "early_stopping_latency_ss": int(ordered[ends[0.9]]),
        "early_stopping_latency_ms": int(ordered[ends[0.99]]),
        "result_min_latency_ns": int(ordered[0]),
        "result_max_latency_ns": int(ordered[-1]),
        "result_mean_latency_ns": mean,
        **{
            f"result_{share:.2f}_percentile_latency_ns": int(ordered[int(queries * share / 100)])
            for share in (50, 90, 95, 97, 99, 99.9)
        },
    }
