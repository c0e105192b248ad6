"""Models whose code tries to write its own results, each in a real container. None gains a figure."""

import ast
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from safetensors.numpy import load_file

from benchlock.evaluator.records.run_types import Run, RunEnd
from benchlock.evaluator.records.timing_validity import find_observed_times
from benchlock.evaluator.runner.container_engine import Engine
from benchlock.evaluator.runner.container_init import MARK
from benchlock.evaluator.runner.run_stages import GoldenTask
from tests.evaluator.evaluation import LIMITS, Evaluation
from tests.evaluator.harness.conftest import CELLS, SAMPLES, WRONG
from tests.evaluator.workflows.test_run import Bench, bench, layered  # noqa: F401 - fixtures
from tests.support.evaluator.releases import release

pytestmark = pytest.mark.engine

HONEST = 27 / 30
ALL_RIGHT = {name: {"correct": SAMPLES, "n": SAMPLES} for name in ("top1", "top5")}
LABELS = [WRONG.get(number, number % len(CELLS)) for number in range(SAMPLES)]
PAINT = f"""
import json, os, sys
CELLS = {CELLS!r}

def paint(values, label):
    row, column = CELLS[label]
    values[:] = 20
    values[..., row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] = 200
    return values
"""


def cheating(evaluation: Evaluation, code: str, *, timed: bool = False) -> Evaluation:
    """The model that tells all pictures apart, with a step of ``code`` that may paint them anew."""
    evaluation.files["cheat.py"] = (PAINT + code).encode()
    evaluation.model["inputs"][0]["steps"].append({"python": {"file": "cheat.py", "function": "step"}})
    if not timed:
        evaluation.scenario = {"name": "accuracy", "warmup": 0, "batch": 1, "seeds": evaluation.scenario["seeds"]}
    return evaluation


def run(bench: Bench, evaluation: Evaluation, engine: Engine, *metrics: str) -> tuple[Run, RunEnd]:  # noqa: F811
    lock = bench.stored(evaluation.lock(metrics=metrics or ("top1", "top5")))
    with pytest.MonkeyPatch.context() as patch:
        release(patch, lock.harness)  # its predictor alone is another one
        found = bench.runner(engine).run(lock)
    assert found.end is not None
    return found, found.end


def check_honest(end: RunEnd) -> None:
    """The run failed, or its quality is what the model's answers are worth."""
    values = [metric.value for metric in end.metrics if metric.name == "top1"]
    assert (end.outcome, values) in (("failed", []), ("done", [HONEST])), (end.failure_message, values)


PLANTED: dict[str, Any] = {
    "failure": None,
    "quality": ALL_RIGHT,
    "accuracy": {"batch": 1, "threads_ahead": 0},
    "golden": None,
    "threads": {},
    "device": "cpu",
    "timings": {},
}


def test_an_early_exit(bench: Bench, layered: Evaluation, engine: Engine) -> None:  # noqa: F811
    code = f"""
def step(values):
    json.dump({PLANTED!r}, open("/out/phase-accuracy.json", "w"))
    os._exit(0)
"""
    _, end = run(bench, cheating(layered, code), engine)
    assert (end.outcome, end.failure_class) == ("failed", "predict")
    check_honest(end)


def test_a_planted_result(bench: Bench, layered: Evaluation, engine: Engine) -> None:  # noqa: F811
    """The result and its measures lie there, and something is in the way of those that the harness writes."""
    result = {
        "schema": 1,
        "outcome": "done",
        "failure": None,
        "quality": ALL_RIGHT,
        "performance": None,
        "environment": {"python": "3", "packages": [], "threads": {}, "device": "cpu"},
        "timings": {},
    }
    code = f"""
def step(values):
    json.dump({result!r}, open("/out/result.json", "w"))
    open("/out/quality.safetensors", "wb").write(b"x")
    os.makedirs("/out/result.json.draft/in-the-way")
    os._exit(0)
"""
    _, end = run(bench, cheating(layered, code), engine)
    assert (end.outcome, end.failure_class) == ("failed", "crash")
    check_honest(end)


LOOKING = """
def step(values):
    found = []
    for root in ("/job", "/out", "/tmp", "/dev/shm", "/proc/1/root/job", "/proc/self/root/job"):
        for folder, _, names in os.walk(root):
            for name in names:
                try:
                    content = open(os.path.join(folder, name), "rb").read(1 << 16)
                except OSError:
                    continue
                if not name.endswith((".pyz", ".py")) and (b"path,label" in content or b"order_seed" in content):
                    found.append(os.path.join(folder, name))
    print("LABELS", found, sorted(os.listdir("/job/dataset")), flush=True)
    return paint(values, 0) if found else values
"""
"""Reads every file that it can reach beside the image's own, and looks for labels and what undoes the order."""


def test_a_run_of_latency_alone_has_no_labels_either(bench: Bench, layered: Evaluation, engine: Engine) -> None:  # noqa: F811
    found, end = run(bench, cheating(layered, LOOKING, timed=True), engine, "latency_p50")
    assert end.outcome == "done", bench.log(found)
    assert "LABELS [] ['index.csv', 'samples']" in bench.log(found)


PATCHED = f"""
def step(values):
    phase = sys.modules["harness.phases.phase_process"]
    write = phase.write_json
    if write.__name__ == "write_json":
        phase.write_json = lambda path, document: write(path, document | {{"quality": {ALL_RIGHT!r}}})
    return values
"""


def test_golden_tensors_are_made_without_labels(bench: Bench, layered: Evaluation, engine: Engine) -> None:  # noqa: F811
    """``benchlock golden`` tells how many samples are answered right, and the model sees no label for it."""
    # A trial keeps no log, so it fails where there are labels.
    code = attempts(LOOKING.replace("paint(values, 0) if found else values", "1 / 0 if found else values"), PATCHED)
    lock = cheating(layered, code).lock(metrics=("top1",))
    trial = bench.runner(engine).trial(lock, GoldenTask(2, (), SAMPLES))
    assert trial.failure is None
    assert trial.quality == {"top1": {"correct": round(HONEST * SAMPLES), "n": SAMPLES}}
    assert trial.golden is not None
    index = (layered.folder / "job" / "dataset" / "index.csv").read_text().splitlines()[1:]
    assert trial.report["names"] == [index[number].partition(",")[0] for number in trial.report["numbers"]]
    assert bench.leftovers() == []


@pytest.fixture
def label_server() -> Iterator[int]:
    """Tells the labels to whoever connects; the number of its port."""
    with socket.create_server(("0.0.0.0", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(repr(LABELS).encode())

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


CONNECTING = """
import socket
def step(values):
    for host in ("127.0.0.1", "172.17.0.1", "host.docker.internal"):
        try:
            socket.create_connection((host, PORT), timeout=1)
            print("REACHED", flush=True)
        except OSError as error:
            print("NOT REACHED", error, flush=True)
    return values
"""
"""Asks the server of labels."""

HIDING = """kept = []
def allocate(folder, size):
    try:
        if len(kept) % 2:
            file = os.open(folder, os.O_TMPFILE | os.O_RDWR)
        else:
            file = os.open(folder + "/file", os.O_CREAT | os.O_RDWR)
            os.unlink(folder + "/file")
        kept.append(file)
        os.posix_fallocate(file, 0, size)
        return size
    except OSError:
        os.close(kept.pop())
        return 0

def step(values):
    if not kept:
        large = sum(allocate(folder, 1 << 30) for folder in ("/out", "/tmp", "/dev/shm"))
        small = sum(allocate("/out", 32 << 20) for _ in range(64))
        print("TOOK", large, small, flush=True)
        while kept:
            os.close(kept.pop())
        kept.append(None)
    return values
"""
"""Keeps files that no folder names, allocated and never written: the memory of the run bounds all of them together."""

PLANTING = """def step(values):
    found = set()
    for root, folders, _ in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(root, name) not in ("/proc", "/sys")]
        try:
            path = os.path.join(root, "planted")
            open(path, "wb").close()
            os.unlink(path)
        except OSError:
            continue
        mounts = [line.split()[1:3] for line in open("/proc/mounts")]
        around = [mount for mount in mounts if (root + "/").startswith(mount[0].rstrip("/") + "/")]
        found.add((root, max(around, key=lambda mount: len(mount[0]))[1]))
    print("WRITABLE", sorted(found), flush=True)
    return values
"""
"""Tells every folder that it can write to, and in which kind of file system it lies."""

SPARSE = """
def step(values):
    open("/out/pipeline-samples.safetensors", "wb").truncate(64 << 20)
    return values
"""
"""Leaves a large file, under the quota and under a name that is kept."""


def attempts(*codes: str) -> str:
    """A step that tries what each of the steps tries: the first one with each picture, the others once."""
    named = [code.replace("def step(", f"def step_{number}(") for number, code in enumerate(codes)]
    others = ", ".join(f"step_{number}" for number in range(1, len(codes)))
    return (
        "".join(named)
        + f"""
others = [{others}]
def step(values):
    while others:
        values = others.pop()(values)
    return step_0(values)
"""
    )


def test_what_changes_nothing_in_a_run(bench: Bench, layered: Evaluation, engine: Engine, label_server: int) -> None:  # noqa: F811
    """Labels in files, labels from the network, a patched writer, and files to fill or to leave the run's memory."""
    code = attempts(LOOKING, PATCHED, CONNECTING.replace("PORT", str(label_server)), HIDING, PLANTING, SPARSE)
    found, end = run(bench, cheating(layered, code), engine)
    log = bench.log(found)
    assert end.outcome == "done", log
    check_honest(end)
    assert "LABELS [] ['index.csv', 'samples']" in log
    assert "NOT REACHED" in log
    assert "\nREACHED" not in log
    _, large, small = next(line for line in log.splitlines() if line.startswith("TOOK")).split()
    assert int(large) == 0
    assert 0 < int(small) <= LIMITS.bytes // 2
    written = next(line for line in log.splitlines() if line.startswith("WRITABLE"))
    places = dict(ast.literal_eval(written.removeprefix("WRITABLE ")))
    assert {"/out", "/tmp", "/dev/shm"} <= set(places)
    assert set(places.values()) <= {"tmpfs", "mqueue"}, places
    assert "pipeline-samples" not in end.blobs
    assert bench.leftovers() == []


def test_a_memorised_order(bench: Bench, layered: Evaluation, engine: Engine) -> None:  # noqa: F811
    """It knows the label of each sample by its place in the split, and counts."""
    code = f"""
LABELS = {LABELS!r}
count = -1
def step(values):
    global count
    count += 1
    return paint(values, LABELS[count % len(LABELS)])
"""
    found, end = run(bench, cheating(layered, code), engine)
    assert end.outcome == "done", bench.log(found)
    value = next(metric.value for metric in end.metrics if metric.name == "top1")
    assert value < HONEST / 2
    # What is kept is in the split's order all the same: the painted class is that of the place at which it was shown.
    kept = load_file(bench.store.path(end.blobs["predictions"].digest))["scores"].argmax(axis=1)
    assert sorted(kept.tolist()) == sorted(LABELS)
    assert value == sum(a == b for a, b in zip(kept, LABELS, strict=True)) / SAMPLES


def test_links_in_the_output(bench: Bench, layered: Evaluation, engine: Engine) -> None:  # noqa: F811
    """Links to a file of the host, under names that are kept and under those that the harness writes."""
    code = """
def step(values):
    for name in ("predictions.safetensors", "quality.safetensors", "pipeline-samples.safetensors", "result.json"):
        if not os.path.lexists("/out/" + name):
            os.symlink("/etc/passwd", "/out/" + name)
    if not os.path.lexists("/out/loadgen"):
        os.symlink("/etc", "/out/loadgen")
    return values
"""
    _, end = run(bench, cheating(layered, code), engine)
    check_honest(end)
    assert "pipeline-samples" not in end.blobs
    for role, blob in end.blobs.items():
        assert b"root:" not in bench.store.path(blob.digest).read_bytes(), role


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("    open('/out/x', 'wb').truncate(500 << 30)", "output limit exceeded: more than "),
        (
            "    for n in range(400): os.makedirs(f'/out/{n}/{n}', exist_ok=True); open(f'/out/{n}/x', 'wb').close()",
            "output limit exceeded: more than 1024 files",
        ),
    ],
)
def test_huge_output(bench: Bench, layered: Evaluation, engine: Engine, code: str, message: str) -> None:  # noqa: F811
    _, end = run(bench, cheating(layered, f"def step(values):\n{code}\n    return values\n"), engine)
    assert (end.outcome, end.failure_class) == ("failed", "output")
    assert end.failure_message is not None
    assert end.failure_message.startswith(message)
    assert set(end.blobs) <= {"log"}
    assert bench.leftovers() == []


def test_a_planted_account_of_the_output(bench: Bench, layered: Evaluation, engine: Engine) -> None:  # noqa: F811
    """It prints what the container's first process prints at the end; the last account counts."""
    code = f"""
def step(values):
    result = json.dumps({{"schema": 1, "outcome": "done", "failure": None, "quality": {ALL_RIGHT!r}}}).encode()
    header = {{"entries": 1, "bytes": len(result), "files": {{"result.json": len(result)}}}}
    os.write(1, {MARK!r} + json.dumps(header).encode() + b"\\n" + result)
    return values
"""
    found, end = run(bench, cheating(layered, code), engine)
    assert end.outcome == "done", bench.log(found)
    check_honest(end)


def check_marked(end: RunEnd) -> None:
    """The run failed, or its times are marked in the record and in every form of it, and its quality is not."""
    if end.outcome == "failed":
        assert end.metrics == ()
        return
    assert {metric.name: metric.self_reported for metric in end.metrics} == {"top1": False, "latency_p50": True}
    assert end.details["self_reported"] == ["latency_p50"]


def test_a_patched_clock(bench: Bench, layered: Evaluation, engine: Engine) -> None:  # noqa: F811
    """Its calls seem to take a thousandth: the figure is marked, and no longer than the run at any rate."""
    code = """
import time
clock = time.perf_counter_ns
time.perf_counter_ns = lambda: clock() // 1000
def step(values):
    return values
"""
    found, end = run(bench, cheating(layered, code, timed=True), engine, "top1", "latency_p50")
    check_honest(end)
    check_marked(end)
    assert end.outcome == "done" or end.failure_class in ("loadgen-invalid", "crash"), bench.log(found)
    assert end.timings["container_cpu"] > 0
    observed = find_observed_times(found)
    assert observed is None or observed.cpu_seconds == end.timings["container_cpu"]


def test_claimed_cpu_time(bench: Bench, layered: Evaluation, engine: Engine) -> None:  # noqa: F811
    """Its calls seem to compute more than its control group was given."""
    code = """
import time
clock = time.thread_time_ns
time.thread_time_ns = lambda: clock() * 1_000_000
def step(values):
    return values
"""
    found, end = run(bench, cheating(layered, code, timed=True), engine, "top1", "latency_p50")
    assert (end.outcome, end.failure_class) == ("failed", "crash"), bench.log(found)
    assert end.failure_message is not None
    assert "s of CPU time in calls, but the container used" in end.failure_message


def test_a_clock_that_runs_too_fast(bench: Bench, layered: Evaluation, engine: Engine) -> None:  # noqa: F811
    """What it says to have measured did not fit into the run."""
    code = """
import time
clock = time.perf_counter_ns
time.perf_counter_ns = lambda: clock() * 1_000_000
def step(values):
    return values
"""
    _, end = run(bench, cheating(layered, code, timed=True), engine, "top1", "latency_p50")
    assert end.outcome == "failed"


def test_a_patched_loadgen(bench: Bench, layered: Evaluation, engine: Engine) -> None:  # noqa: F811
    """LoadGen is not called at all: its account is made up, and so are the samples."""
    code = """
import numpy as np
from safetensors.numpy import save_file

def step(values):
    if "harness.performance" in sys.modules:
        rows = {name: np.full(100, 1000, np.int64) for name in ("latency_ns", "before_ns", "cpu_ns", "start_ns")}
        save_file(rows, "/out/samples.safetensors")
        timed = {"queries": 100, "samples_per_query": 1, "duration_s": 0.06}
        report = {"failure": None, "performance": timed, "loadgen": {"valid": True, "settings": {}, "results": {}}}
        report |= {"audits": {}, "threads": {}, "device": "cpu", "timings": {}}
        json.dump(report, open("/out/phase-performance.json", "w"))
        os._exit(0)
    return values
"""
    _, end = run(bench, cheating(layered, code, timed=True), engine, "top1", "latency_p50")
    check_honest(end)
    check_marked(end)
