"""Locks run from end to end: in containers and as processes, done, failed in every way, interrupted, abandoned."""

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import sqlalchemy
from msgspec import structs
from sqlalchemy import insert

from benchlock.artifacts.digest import Digest, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import calls_of, validity_of
from benchlock.evaluator.runner.container_engine import Engine
from benchlock.evaluator.runner.orphans import sweep
from benchlock.evaluator.statistics.time_metrics import read_columns, samples_of
from benchlock.evaluator.workflows.run import Runner
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.database.registry_schema import locks
from benchlock.registry.lock.lockfile import Lock, LockedFile, LockedLayer, LockedLimits, LockedPlatform, dump
from tests.evaluator.evaluation import MIB, NOTHING, Evaluation, damage, huge_weights, link_blob, locked_file
from tests.support.system.python_image import PythonImage


def now() -> datetime:
    return datetime.now(UTC)


@dataclasses.dataclass
class Bench:
    """A registry's folder, the records in it, and what was said."""

    home: Path
    store: LocalStore
    records: Records
    database: sqlalchemy.Engine
    said: list[str]

    def runner(self, engine: Engine | None) -> Runner:
        return Runner(self.home, self.store, self.records, engine, now, SILENT, self.said.append, id)

    def stored(self, lock: Lock) -> Lock:
        """The lock, known to the registry."""
        with write_transaction(self.database) as connection:
            columns = {column.name: "x" for column in locks.columns} | {"id": lock.id, "created_at": now()}
            connection.execute(insert(locks).values(columns))
        return lock

    def only(self) -> Run:
        """The one run that there is."""
        (run,) = self.records.list()
        return self.records.get(run.id)

    def log(self, run: Run) -> str:
        """What it printed."""
        assert run.end is not None
        blob = run.end.blobs.get("log")
        return self.store.path(blob.digest).read_text() if blob else ""

    def leftovers(self) -> list[str]:
        folder = self.home / "runs"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def bench(database: sqlalchemy.Engine, environments: Path, tmp_path: Path) -> Bench:
    home = tmp_path / "registry"
    home.mkdir()
    (home / "environments").symlink_to(environments)
    return Bench(home, LocalStore(home / "blobs"), Records(database), database, [])


@pytest.fixture
def bare(bench: Bench, tmp_path: Path, wheels: tuple[Path, ...]) -> Evaluation:
    """An image of wheels alone, without layers."""
    locked = []
    for path in wheels:
        kept = bench.store.put_file(path)
        locked.append(LockedFile(path=f"wheels/{path.name}", sha256=to_hex(kept.digest), size=kept.size))
    platform = LockedPlatform(
        os="linux",
        arch="amd64",
        device="cpu",
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        wheels_lock=NOTHING.wheels_lock,
        wheels=tuple(locked),
    )
    return Evaluation(bench.store, tmp_path, platform)


@pytest.fixture
def layered(bench: Bench, tmp_path: Path, python_image: PythonImage) -> Evaluation:
    """An image with layers, with which the harness runs."""
    for digest in (python_image.id, *(layer.digest for layer in python_image.layers)):
        link_blob(python_image.store, digest, bench.home / "blobs")
    platform = LockedPlatform(
        os="linux",
        arch="amd64",
        device="cpu",
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        wheels_lock=NOTHING.wheels_lock,
        wheels=(),
        image_id=python_image.id,
        config_size=len(python_image.config),
        layers=tuple(LockedLayer(digest=layer.digest, size=layer.size) for layer in python_image.layers),
    )
    return Evaluation(bench.store, tmp_path, platform)


def limits(seconds: float = 60, memory: int = 512 * MIB, processes: int = 64) -> LockedLimits:
    return LockedLimits(seconds=seconds, bytes=memory, cpus=1, processes=processes)


@pytest.mark.engine
def test_a_run_in_a_container_is_recorded_whole(bench: Bench, layered: Evaluation, engine: Engine) -> None:
    lock = bench.stored(layered.lock())
    run = bench.runner(engine).run(lock)
    assert run == bench.only()
    assert run.end is not None
    assert (run.end.outcome, run.end.failure_message) == ("done", None), bench.log(run)
    assert (run.start.isolation, run.start.image_id) == ("container", layered.platform.image_id)
    assert (run.start.host["engine"], run.start.attempt) == (engine.version, 1)
    assert {"numpy", "safetensors", "mlcommons_loadgen", "pillow"} == set(run.end.packages)
    found = {metric.name: metric for metric in run.end.metrics}
    assert set(found) == {"top1", "top5", "latency_p50", "throughput"}
    assert (found["top1"].value, found["top1"].n, found["top5"].value) == (27 / 30, 30, 29 / 30)
    p50 = found["latency_p50"]
    assert (p50.unit, p50.direction, p50.n >= 70) == ("s", "lower", True)
    assert found["throughput"].value > 0
    assert set(run.end.blobs) == {"result", "predictions", "samples", "loadgen-summary", "loadgen-detail"}
    assert len(samples_of(read_columns(bench.store.path(run.end.blobs["samples"].digest))).latency) == p50.n
    timed = {"verification", "job", "image", "start", "run", "watching_cpu", "accuracy", "performance"}
    assert timed <= set(run.end.timings)
    assert run.end.details["cpus"] == [min(os.sched_getaffinity(0))]
    assert "not_enforced" not in run.end.details
    assert run.end.details["loadgen"]["sequence_sha256"]
    calls = calls_of(run)
    assert calls is not None
    assert (calls.n, calls.scope, calls.undisturbed[0].n) == (p50.n, "thread", calls.n - calls.preempted)
    assert bench.leftovers() == []
    assert engine.remove(run.id) == 0
    assert bench.said == []
    again = bench.runner(engine).run(lock)
    assert again.start.attempt == 2
    assert again.end is not None
    assert again.end.blobs["predictions"] == run.end.blobs["predictions"]


def failed(run: Run) -> tuple[str, str]:
    assert run.end is not None
    assert run.end.outcome == "failed", run.end
    assert run.end.metrics == ()
    assert run.end.failure_class is not None
    assert run.end.failure_message is not None
    return run.end.failure_class, run.end.failure_message


@pytest.mark.engine
def test_more_memory_than_the_limit_is_a_class_of_failure(bench: Bench, layered: Evaluation, engine: Engine) -> None:
    layered.files["weights.npz"] = huge_weights()
    lock = bench.stored(layered.lock(limits=limits(memory=256 * MIB)))
    run = bench.runner(engine).run(lock)
    assert failed(run)[0] == "out-of-memory"
    assert bench.leftovers() == []


@pytest.mark.engine
def test_more_time_than_the_limit_is_a_class_of_failure(bench: Bench, layered: Evaluation, engine: Engine) -> None:
    run = bench.runner(engine).run(bench.stored(layered.lock(limits=limits(seconds=0.2))))
    assert failed(run) == ("timeout", "time limit of 0.2 s exceeded; the run was stopped")
    assert engine.remove(run.id) == 0


@pytest.mark.engine
def test_a_model_file_that_is_no_model_is_a_class_of_failure(bench: Bench, layered: Evaluation, engine: Engine) -> None:
    layered.files["weights.npz"] = b"no model"
    kind, message = failed(bench.runner(engine).run(bench.stored(layered.lock())))
    assert kind == "load"
    assert message


@pytest.mark.engine
@pytest.mark.parametrize("what", ["weights.npz", "index.csv", "layer", "harness", "configuration"])
def test_one_wrong_bit_starts_nothing(bench: Bench, layered: Evaluation, engine: Engine, what: str) -> None:
    lock = bench.stored(layered.lock())
    places: dict[str, Callable[[], Digest]] = {
        "layer": lambda: layered.platform.layers[0].digest if layered.platform.layers else Digest(""),
        "harness": lambda: lock.harness.digest,
        "configuration": lambda: Digest(str(layered.platform.image_id)),
    }
    digest = places[what]() if what in places else locked_file(lock, what)
    found = damage(bench.store, digest)
    with pytest.raises(IntegrityError) as raised:
        bench.runner(engine).run(lock)
    assert what.split(".", maxsplit=1)[0] in raised.value.what
    assert digest in raised.value.what
    assert found in raised.value.what
    assert bench.records.list() == ()
    assert bench.leftovers() == []


@pytest.mark.engine
def test_an_interrupted_run_is_cancelled(bench: Bench, layered: Evaluation, engine: Engine) -> None:
    # A shell tells what it starts in the background to ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        while not bench.records.unfinished():
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            bench.runner(engine).run(bench.stored(layered.lock()))
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    run = bench.only()
    assert run.end is not None
    assert run.end.outcome == "cancelled"
    assert engine.remove(run.id) == 0
    assert bench.leftovers() == []


@pytest.mark.engine
def test_a_killed_runner_leaves_an_abandoned_run(
    bench: Bench, layered: Evaluation, engine: Engine, engine_url: str, tmp_path: Path
) -> None:
    lock = bench.stored(layered.lock())
    (tmp_path / "the.lock").write_text(dump(lock))
    code = f"""
        from datetime import UTC, datetime
        from pathlib import Path
        from benchlock.artifacts.stores.local_store import LocalStore
        from benchlock.artifacts.user_output import SILENT
        from benchlock.evaluator.records.run_store import Records
        from benchlock.evaluator.runner.container_engine import Engine
        from benchlock.evaluator.workflows.run import Runner
        from benchlock.registry.database.engine import open_engine
        from benchlock.registry.lock.lockfile import load
        home = Path({str(bench.home)!r})
        database = open_engine(Path({bench.database.url.database!r}))
        lock = load(Path({str(tmp_path / "the.lock")!r}).read_text(), "lock")
        now = lambda: datetime.now(UTC)
        engine = Engine.connect({engine_url!r})
        Runner(home, LocalStore(home / "blobs"), Records(database), engine, now, SILENT, print, id).run(lock)
    """
    runner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    name = _wait_for(lambda: bench.leftovers() and (bench.home / "runs" / bench.leftovers()[0] / "container").exists())
    assert name
    assert sweep(bench.records.unfinished(), bench.records.finish, engine, bench.home, now) == ()  # it lives
    runner.kill()
    runner.wait()
    (found,) = bench.records.unfinished()
    assert sweep(bench.records.unfinished(), bench.records.finish, engine, bench.home, now) == (found.id,)
    run = bench.only()
    assert run.end is not None
    assert run.end.outcome == "abandoned"
    assert engine.remove(run.id) == 0
    assert bench.leftovers() == []
    assert sweep(bench.records.unfinished(), bench.records.finish, engine, bench.home, now) == ()


def _wait_for(holds: Callable[[], object]) -> bool:
    end = time.monotonic() + 60
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_a_run_as_a_process_is_recorded_with_what_it_does_not_enforce(bench: Bench, bare: Evaluation) -> None:
    run = bench.runner(None).run(bench.stored(bare.lock()))
    assert run.end is not None
    assert run.end.outcome == "done", bench.log(run)
    assert run.start.isolation == "process"
    assert (run.start.image_id, run.start.host["engine"]) == (None, None)
    assert run.end.details["not_enforced"] == ["memory", "processes", "network"]
    assert run.end.details["python"].startswith("3.11.")
    assert {"numpy", "safetensors", "mlcommons_loadgen", "pillow"} == set(run.end.packages)
    values = {metric.name: metric.value for metric in run.end.metrics}
    assert (values["top1"], values["top5"]) == (27 / 30, 29 / 30)
    assert "environment" in run.end.timings
    calls, validity = calls_of(run), validity_of(run)
    assert calls is not None
    assert calls.without_cpu is not None
    assert 0 <= calls.without_cpu < 1
    assert validity is not None
    assert validity.valid is run.end.details["loadgen"]["valid"]
    assert len(bench.said) == 1
    assert bench.said[0].startswith("running as a process because the image has no layers")
    assert bench.leftovers() == []


def test_a_run_needs_its_own_platform_alone(bench: Bench, bare: Evaluation) -> None:
    """A rerun elsewhere says why it is not on the platform of the original."""
    absent = LockedFile(path="wheels/absent.whl", sha256="0" * 64, size=1)
    elsewhere = msgspec.structs.replace(bare.platform, arch="arm64", wheels=(absent,))
    lock = bench.stored(bare.lock(platforms=(elsewhere, bare.platform)))
    run = bench.runner(None).run(lock, isolation="process")
    assert run.end is not None
    assert run.end.outcome == "done", bench.log(run)
    assert (run.start.platform_name, bench.said) == ("linux/amd64/cpu", [])
    bench.runner(None).run(lock, isolation="process", original=run)
    assert bench.said == []
    start = structs.replace(run.start, platform={**run.start.platform, "arch": "arm64"})
    bench.runner(None).run(lock, isolation="process", original=Run(start, run.end))
    assert bench.said == [
        "running on linux/amd64/cpu; other platforms of the lock\n  linux/arm64/cpu: this host is linux/amd64",
    ]


def test_a_runner_accounts_for_the_whole_wall_clock_of_a_run(bench: Bench, bare: Evaluation) -> None:
    runner = bench.runner(None)
    start = time.perf_counter()
    run = runner.run(bench.stored(bare.lock()), isolation="process")
    account = runner.clock.account()
    elapsed = time.perf_counter() - start
    assert run.end is not None
    assert account.keys() >= {"verification", "environment", "job", "predict.start", "evidence", "recording", "other"}
    assert all(seconds >= 0 for seconds in account.values())
    # The runner and its clock begin before ``start``, and nothing is counted twice.
    assert elapsed * 0.9 <= sum(account.values())
    assert account["verification"] >= run.end.timings["verification"]


def test_a_process_is_ended_for_its_time(bench: Bench, bare: Evaluation) -> None:
    run = bench.runner(None).run(bench.stored(bare.lock(limits=limits(seconds=0.1))), isolation="process")
    assert failed(run) == ("timeout", "time limit of 0.1 s exceeded; the run was stopped")
    assert bench.said == []  # it was asked for


def test_a_process_without_what_it_needs_says_what_that_is(bench: Bench, bare: Evaluation) -> None:
    wheels = tuple(wheel for wheel in bare.platform.wheels if "numpy" not in wheel.path)
    platform = LockedPlatform(
        os="linux",
        arch="amd64",
        device="cpu",
        python=bare.platform.python,
        wheels_lock=bare.platform.wheels_lock,
        wheels=wheels,
    )
    run = bench.runner(None).run(bench.stored(bare.lock(platforms=(platform,))))
    assert failed(run) == ("load", "missing packages that the harness imports: numpy")


def test_a_container_that_cannot_be_had_starts_nothing(bench: Bench, bare: Evaluation) -> None:
    with pytest.raises(UnavailableError, match="the image has no layers"):
        bench.runner(None).run(bench.stored(bare.lock()), isolation="container")
    assert bench.records.list() == ()


def test_a_metric_of_another_definition_is_refused(bench: Bench, bare: Evaluation) -> None:
    lock = bare.lock(metrics=("top1", "of_the_future"))
    with pytest.raises(InvalidInputError, match="definition 1 of of_the_future"):
        bench.runner(None).run(bench.stored(lock))


def test_an_environment_that_cannot_be_made_is_a_recorded_failure(bench: Bench, bare: Evaluation) -> None:
    platform = LockedPlatform(
        os="linux", arch="amd64", device="cpu", python="3.2", wheels_lock=bare.platform.wheels_lock, wheels=()
    )
    with pytest.raises(UnavailableError, match=r"needs Python 3\.2 to run"):
        bench.runner(None).run(bench.stored(bare.lock(platforms=(platform,))))
    kind, message = failed(bench.only())
    assert kind == "engine"
    assert "Python 3.2" in message
    assert bench.leftovers() == []
