"""Traces of recorded runs, and the measured roofs of this machine beside them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET

from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.blob_store import FileStore, verify
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.evaluator.analysis.call_profiles import Seconds, Subject
from benchlock.evaluator.analysis.host_roofs import Roofs, measure_roofs
from benchlock.evaluator.analysis.tables import Cell
from benchlock.evaluator.analysis.trace_file import read_trace
from benchlock.evaluator.analysis.trace_types import Trace
from benchlock.evaluator.records.evidence_status import refuse_unverified
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import explain_unusable_times
from benchlock.evaluator.runner.host_platform import this_host
from benchlock.evaluator.runner.job_folder import fingerprint_lock
from benchlock.evaluator.statistics.time_metrics import read_columns, samples_of
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import NETWORK

ROLE: Final = "trace"
LEVEL: Final = "framework"
"""The level of trace to request for the layers and their operators."""
ROOFS: Final = "roofs"
"""The folder of measured roofs in a registry's home."""
_SAMPLES: Final = "samples"
_SWEEP: Final = "batch_sweep"
_MACHINE: Final = ("cpu_model", "cpu_flags", "cores", "memory", "kernel")
"""The facts of a host on which its roofs depend."""


def read_run_trace(run: Run, lock: Lock, store: FileStore) -> Trace:
    """Read the verified trace of a run.

    Raises:
        RefusedError: The run has no trace.
        IntegrityError: The record contradicts its evidence, or the blob is missing or damaged.
        InvalidInputError: The blob is not a trace, or that of another lock.
    """
    refuse_unverified(run.id, run.evidence)
    blob = run.end.blobs.get(ROLE) if run.end is not None else None
    if blob is None:
        reason, next_step = explain_missing_trace(run, lock)
        raise RefusedError(f"{run.id} has no trace: {reason}", where=run.id, next_step=next_step)
    name = f"{run.id} {ROLE}"
    verify(store, blob.digest, name=name, size=blob.size)
    trace = read_trace(store.path(blob.digest), name)
    if trace.lock_fingerprint != fingerprint_lock(lock):
        raise InvalidInputError(f"{name} is that of another lock", where=name, next_step="run the lock again")
    return trace


def is_traceable(lock: Lock) -> bool:
    """Return whether the evaluation of a lock can record a trace, at a level that its framework has."""
    return lock.model is not UNSET and lock.scenario["name"] not in NETWORK


def explain_missing_trace(run: Run, lock: Lock) -> tuple[str, str]:
    """Return why a run has no trace, and where the reader finds what a trace would say."""
    if lock.target is not UNSET:
        details = {} if run.end is None else run.end.details.get("training", {})
        where = "the report on the run has the time and the memory within a step"
        ask = "request the metric `step_memory`, which records the time and the memory within a step"
        again = f"{ask}, lock the request again, and run the lock"
        return "a training is timed as a whole and is not traced", where if details.get("breakdown") else again
    if lock.operator is not UNSET:
        return "the times of an operator are those of one layer", "the report on the run has the times of each case"
    if lock.distribution is not UNSET:
        return "a distributed training is not traced", "the report on the run has the times and bytes of each rank"
    if lock.scenario["name"] in NETWORK:
        reason = "a batch in parts is not traced"
        return reason, f"run the model in another scenario with `trace: {LEVEL}`; the report has the parts"
    level = lock.request.get("trace", "none")
    reason = "its request has none" if level == "none" else f"it did not finish level `{level}`"
    return reason, f"set `trace: {LEVEL}` in the request, lock the request again, and run the lock"


def describe_subject(
    run: Run, lock: Lock, store: FileStore, home: Path, traces: Sequence[Trace] | None = None
) -> Subject:
    """Return what analyses need of a run: its trace, facts and sweep, and the roofs that were measured of its host.

    Args:
        run: The run.
        lock: Its lock.
        store: The store of its blobs.
        home: The registry's folder on this machine.
        traces: Its trace, if it was read already, then those of the model at other batch sizes.

    Raises:
        BenchlockError: As ``read_run_trace``.
        InvalidInputError: The columns of a sweep are malformed.
    """
    facts: Mapping[str, Cell] = {
        "run": run.id,
        "lock": lock.id,
        "model": f"{lock.subject.name} {lock.subject.version}",
        "host": str(run.start.host.get("cpu_model", "")),
        "isolation": run.start.isolation,
    }
    trace, *others = traces or (read_run_trace(run, lock, store),)
    roofs = find_roofs(home, run.start.host, trace.header.threads)
    return Subject(trace, facts, roofs, tuple(others), _read_sweep(run, lock, store), explain_unusable_times(run) or "")


def _read_sweep(run: Run, lock: Lock, store: FileStore) -> dict[int, Seconds]:
    """Return the times of a batch sweep, by batch size."""
    if lock.scenario["name"] != _SWEEP or run.end is None or _SAMPLES not in run.end.blobs:
        return {}
    blob = run.end.blobs[_SAMPLES]
    verify(store, blob.digest, name=f"{run.id} {_SAMPLES}", size=blob.size)
    samples = samples_of(read_columns(store.path(blob.digest)))
    sizes = samples.more.get("batch", np.zeros(0, dtype=np.int64))
    return {int(size): samples.latency[sizes == size] for size in np.unique(sizes)}


def check_same_model(locks: Sequence[Lock], traces: Sequence[Trace]) -> None:
    """Raise unless traces are of one model in one framework, each at its own batch size.

    Raises:
        InvalidInputError: They are not.
    """
    keys = {
        (lock.subject.digest, lock.framework.digest, trace.header.threads)
        for lock, trace in zip(locks, traces, strict=True)
    }
    batches = [trace.header.batch for trace in traces]
    if len(keys) > 1 or len(set(batches)) < len(batches):
        raise InvalidInputError(
            "further runs must be of the same model, framework and threads, each at another batch size",
            next_step="give one run, or compare the layers of two",
        )


def find_roofs(home: Path, host: Mapping[str, Any], threads: int) -> Roofs | None:
    """Return the roofs that this machine measured for a host; None if there are none."""
    path = _roofs_path(home, host, threads)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Roofs) if path.is_file() else None
    except msgspec.DecodeError as error:
        raise InvalidInputError(
            f"cannot read the measured roofs: {error}", where=str(path), next_step="delete the file, and measure again"
        ) from error


def record_roofs(home: Path, host: Mapping[str, Any], threads: int) -> Roofs:
    """Return the roofs of this machine, measured once per host and number of threads.

    Args:
        home: The registry's folder on this machine.
        host: The host of the run.
        threads: The number of threads.

    Raises:
        RefusedError: The run was made on another host.
        UnavailableError: The measurement fails.
    """
    if known := find_roofs(home, host, threads):
        return known
    if _machine(this_host().fingerprint(None)) != _machine(host):
        raise RefusedError(
            "the run was made on another host, so roofs of this one do not apply",
            where=str(host.get("cpu_model")),
            next_step="measure the roofs on the host of the run",
        )
    roofs, path = measure_roofs(threads), _roofs_path(home, host, threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    with create_file(path) as file:
        file.write(msgspec.json.encode(roofs))
    return roofs


def _machine(host: Mapping[str, Any]) -> dict[str, Any]:
    return {name: host.get(name) for name in _MACHINE}


def _roofs_path(home: Path, host: Mapping[str, Any], threads: int) -> Path:
    fingerprint = digest_bytes(encode_canonical(_machine(host))).removeprefix("sha256:")
    return home / ROOFS / f"{fingerprint}-{threads}.json"
