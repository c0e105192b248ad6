"""A registry that is large in everything that pages show: versions, runs, samples of a run, jobs and machines."""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.local.local_registry import LocalRegistry, now, open_registry
from benchlock.api.schemas.pagination_cursors import encode_cursor
from benchlock.api.web.links import (
    artifact_path,
    compare_path,
    job_path,
    leaderboard_path,
    lock_diff_path,
    lock_path,
    run_path,
    with_query,
)
from benchlock.api.web.pages import run_pages
from benchlock.evaluator.queue.queue_types import JobRequest, new_job_id
from benchlock.evaluator.records.run_store import end_record, start_record
from benchlock.evaluator.records.run_types import Run, new_run_id
from benchlock.evaluator.runner.job_folder import fingerprint_lock
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.database.record_chain import insert_records
from benchlock.registry.lock.lockfile import Lock, dataset_of
from benchlock.registry.resolution.resolver_types import ORDER
from benchmarks.answering.servers import Benchlock
from benchmarks.resolving.filling import fill
from benchmarks.resolving.universes import Release, Universe, version
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.queues import ANY, BOOT, LARGE, facts, machine
from tests.support.evaluator.traces import row, write_trace
from tests.support.resolution.variants import variant

VERSIONS, OF_ONE, RUNS, SAMPLES, COMPARED = 10_000, 3_000, 10_000, 10**6, 20_000
WAITING, LOCKS, MEASURED, ROWS, LAYERS = 60, 20, 200, 50, 150
TWO_RUNS: Final = f"two runs of {COMPARED:,} samples compared"
_LONG: Final = "long"
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)


class LargeBenchlock(Benchlock):
    """`benchlock serve` over that registry.

    The newest runs each have files of their own; an older one is the record of one of them, at another time.
    """

    def fill(self) -> None:
        """Write the registry; note its lists, their last pages, and its forms and pages with charts."""
        self._universe = Universe(VERSIONS // 1000)
        home = self._folder / "registry"
        fill(self._universe, home, (Release("dataset", _LONG, number) for number in range(OF_ONE)))
        registry = open_registry(str(home), lambda _: None)
        locks = [_lock(registry, number) for number in range(LOCKS)]
        runs = [*_record(registry, locks), _record_traced(registry, locks[0])]
        queue = open_queue(registry)
        for number in range(WAITING):
            queue.enrol(machine(number), BOOT, facts())
        jobs = [
            queue.submit(JobRequest(new_job_id(now()), locks[number % LOCKS].id, (ANY, LARGE)[number % 2]))
            for number in range(WAITING)
        ]
        registry.database.dispose()
        self._note(locks, runs, jobs[0].id)

    def _note(self, locks: list[Lock], runs: list[Run], job: str) -> None:
        *runs, traced = runs
        ids = [run.id for run in reversed(runs)]  # newest first
        last = {"cursor": encode_cursor((ids[-run_pages.RUNS - 1],))}
        used = dataset_of(locks[0])
        model, dataset = locks[0].subject.name, f"{used.name}@{used.version}"
        self.lists = {
            "front page": "/",
            "catalogue": "/artifacts",
            "search": "/artifacts?search=a",
            f"artifact with {OF_ONE:,} versions": artifact_path("dataset", _LONG),
            "model": artifact_path("model", model),
            "runs": "/runs",
            "runs of a model": with_query("/runs", model=model),
            "done runs": "/runs?outcome=done",
            "leaderboards": "/leaderboards",
            "lock": lock_path(locks[0].id),
            "lock diff": lock_diff_path(locks[0].id, locks[1].id),
            f"queue, {WAITING} jobs and machines": "/jobs",
            "job": job_path(job),
            "audit log": "/audit",
            "yank": with_query("/yank", target=f"model/{model}@{locks[0].subject.version}"),
        }
        self.last_pages = {
            "runs": with_query("/runs", **last),
            "done runs": with_query("/runs", outcome="done", **last),
            f"artifact with {OF_ONE:,} versions": with_query(artifact_path("dataset", _LONG), below=version(ROWS)),
        }
        self.charts = {
            "new evaluation": "/new",
            "preview": with_query("/new", model=model, dataset=used.name, split=used.split),
            f"run with {COMPARED:,} samples": run_path(ids[1]),
            f"run with {SAMPLES:,} samples": run_path(ids[0]),
            TWO_RUNS: compare_path((ids[1], ids[2])),
            f"one of them with one of {SAMPLES:,}": compare_path((ids[0], ids[2])),
            f"{LOCKS} runs compared": compare_path(ids[1 : LOCKS + 1]),
            f"leaderboard of {RUNS:,} runs": leaderboard_path(dataset, used.split),
            "provenance": f"{run_path(ids[1])}/provenance",
            f"trace of {LAYERS} layers": f"{run_path(traced.id)}/trace",
        }


def _lock(registry: LocalRegistry, number: int) -> Lock:
    """Publish a model; the first one with all that its lock names."""
    name = f"model-{number}"
    model = {"name": name}
    made = variant({"model": model, "files": IDX, "lock": CURRENT, "request": {"model": model | {"version": "*"}}})
    made.publish(registry.catalogue, registry.store, ("model",) if number else ORDER)
    registry.catalogue.put_lock(made.lock)
    return made.lock


def _record(registry: LocalRegistry, locks: list[Lock]) -> list[Run]:
    """Record the runs, oldest first; the last one has a million samples, the two before it fewer."""
    times = [_BEGIN + timedelta(minutes=5 * number) for number in range(RUNS)]
    new = times[-MEASURED:]
    samples = {times[-1]: SAMPLES, times[-2]: COMPARED, times[-3]: COMPARED}
    measured = [
        make_run(
            locks[place % LOCKS], registry.store, at=at, slowness=1 + place % LOCKS % 4,
            queries=samples.get(at, 1000),
        )
        for place, at in enumerate(new)
    ]  # fmt: skip
    older = [_move(measured[place % (MEASURED - 1)], at) for place, at in enumerate(times[:-MEASURED])]
    with write_transaction(registry.database) as connection:
        for run in (*older, *measured):
            assert run.end is not None
            insert_records(connection, (start_record(run.start), end_record(run.id, run.end)))
    return [*older, *measured]


def _record_traced(registry: LocalRegistry, lock: Lock) -> Run:
    """Record a run with a trace, the oldest one."""
    run = make_run(lock, registry.store, at=_BEGIN - timedelta(days=1))
    assert run.end is not None
    layers = [row(f"layer {number}", ("Add", "Relu")[number % 2], (1, 64, 56, 56)) for number in range(LAYERS)]
    with tempfile.TemporaryDirectory() as folder:
        path = write_trace(Path(folder) / "trace", layers=layers, fingerprint=fingerprint_lock(lock))
        trace = registry.store.put_file(path)
    end = replace(run.end, blobs={**run.end.blobs, "trace": trace})
    with write_transaction(registry.database) as connection:
        insert_records(connection, (start_record(run.start), end_record(run.id, end)))
    return Run(run.start, end)


def _move(run: Run, at: datetime) -> Run:
    assert run.end is not None
    start = replace(run.start, id=new_run_id(at), started_at=at)
    return Run(start, replace(run.end, ended_at=at + (run.end.ended_at - run.start.started_at)))
