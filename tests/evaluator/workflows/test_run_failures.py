"""Each class of failure through the real runner and harness: recorded with its last output, the next run unharmed."""

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from benchlock.artifacts.digest import to_hex
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.runner.run_outcome import FailureClass
from benchlock.registry.database.engine import open_engine
from benchlock.registry.lock.lockfile import Lock, LockedFile, LockedPlatform
from tests.evaluator.evaluation import NOTHING, Evaluation
from tests.evaluator.workflows.test_run import Bench, limits

Author = Callable[[str], Evaluation]

ACCURACY = {"name": "accuracy", "batch": 1, "warmup": 0}


@pytest.fixture(scope="module")
def bench(schema: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One registry for all of them: what a failure leaves behind would meet the next."""
    home = tmp_path_factory.mktemp("failures") / "registry"
    home.mkdir()
    shutil.copy(schema, home / "registry.sqlite")
    database = open_engine(home / "registry.sqlite")
    return Bench(home, LocalStore(home / "blobs"), Records(database), database, [])


@pytest.fixture(scope="module")
def platform(bench: Bench, wheels: tuple[Path, ...]) -> LockedPlatform:
    locked = []
    for path in wheels:
        kept = bench.store.put_file(path)
        locked.append(LockedFile(path=f"wheels/{path.name}", sha256=to_hex(kept.digest), size=kept.size))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return LockedPlatform(
        os="linux",
        arch="amd64",
        device="cpu",
        python=python,
        wheels_lock=NOTHING.wheels_lock,
        wheels=tuple(locked),
    )


@pytest.fixture(scope="module")
def author(bench: Bench, platform: LockedPlatform, tmp_path_factory: pytest.TempPathFactory) -> Author:
    """An evaluation with the predictor of that name, in the accuracy phase alone."""

    def authored(predictor: str) -> Evaluation:
        folder = tmp_path_factory.mktemp(predictor)
        made = Evaluation(bench.store, folder, platform, predictor)
        made.scenario = {**ACCURACY, "seeds": made.scenario["seeds"]}
        return made

    return authored


@pytest.fixture(scope="module")
def well(bench: Bench, author: Author) -> Lock:
    """What runs well."""
    return bench.stored(author("linear").lock(metrics=("top1",)))


def breaking(author: Author, call: int, how: str) -> Evaluation:
    made = author("breaking")
    made.files = {"how.json": json.dumps({"call": call, "how": how}).encode()}
    return made


def unreadable(author: Author) -> Lock:
    return breaking(author, 0, "").lock(metrics=("top1",))


def misshapen(author: Author) -> Lock:
    made = author("linear")
    made.model["inputs"][0]["steps"].insert(1, {"resize": {"shorter": 4, "method": "area", "antialias": True}})
    return made.lock(metrics=("top1",))


def divided(author: Author) -> Lock:
    """Golden inputs of 0 to 255, and a step that divides by 255."""
    made, stream = author("linear"), io.BytesIO()
    grey = np.arange(96, dtype=np.uint8).reshape(8, 12)
    expected = {"raw/picture/0": grey, "input/picture": grey[np.newaxis, np.newaxis].astype(np.float32)}
    np.savez(stream, **expected)  # type: ignore[arg-type]
    made.files["tensors.golden"] = stream.getvalue()
    made.model["inputs"][0] |= {"tolerance": {"absolute": 0.001, "relative": 0}}
    made.model["inputs"][0]["steps"].append({"scale": {"factor": 1 / 255}})
    return made.lock(metrics=("top1",))


def hasty(author: Author) -> Lock:
    """Slow until LoadGen asks, and fast from then on: it runs out of the queries that it made."""
    made = breaking(author, 1_000_000, "haste")
    made.scenario = {**made.scenario, "name": "single_stream", "warmup": 4, "min_queries": 70, "min_duration": 1}
    del made.scenario["batch"]
    return made.lock(metrics=("latency_p50",))


FAILURES: dict[FailureClass, tuple[Callable[[Author], Lock], str, str]] = {
    "out-of-memory": (
        lambda author: breaking(author, 3, "allocator").lock(metrics=("top1",)),
        "can't allocate memory",
        "last words before allocator",
    ),
    "timeout": (
        lambda author: breaking(author, 2, "hang").lock(metrics=("top1",), limits=limits(seconds=6)),
        "time limit of 6 s exceeded; the run was stopped",
        "last words before hang",
    ),
    "crash": (
        lambda author: breaking(author, 3, "segfault").lock(metrics=("top1",)),
        "was killed by SIGSEGV",
        "Fatal Python error: Segmentation fault",
    ),
    "load": (unreadable, "not a graph: bad magic", ""),
    "step": (misshapen, "the manifest states float32 [1, 8, 12]", ""),
    "predict": (
        lambda author: breaking(author, 3, "error").lock(metrics=("top1",)),
        "RuntimeError: node Conv_3: no kernel for it",
        "last words before error",
    ),
    "golden": (divided, "found is expected times 0.00392157: check scale", ""),
    "loadgen-invalid": (hasty, "Ran out of generated queries", "last words before haste"),
}


def failure(run: Run) -> tuple[str | None, str]:
    assert run.end is not None
    assert (run.end.outcome, run.end.metrics) == ("failed", ())
    return run.end.failure_class, run.end.failure_message or ""


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_is_recorded_and_the_next_run_is_unharmed(
    bench: Bench, author: Author, well: Lock, kind: FailureClass
) -> None:
    made, message, output = FAILURES[kind]
    ran = bench.runner(None).run(bench.stored(made(author)), isolation="process")
    found, said = failure(ran)
    assert found == kind, said
    assert message in said
    assert output in bench.log(ran)
    assert bench.records.get(ran.id) == ran
    assert bench.leftovers() == []
    again = bench.runner(None).run(well, isolation="process")
    assert again.end is not None
    assert (again.end.outcome, again.end.metrics[0].value) == ("done", 27 / 30), bench.log(again)


def test_an_interpreter_that_is_not_there_is_a_failure_of_the_engines_class(bench: Bench, author: Author) -> None:
    made = author("linear")
    old = LockedPlatform(
        os="linux", arch="amd64", device="cpu", python="3.2", wheels_lock=made.platform.wheels_lock, wheels=()
    )
    with pytest.raises(UnavailableError, match=r"needs Python 3\.2 to run"):
        bench.runner(None).run(bench.stored(made.lock(metrics=("top1",), platforms=(old,))))
    kind, said = failure(bench.records.list(limit=1)[0])
    assert (kind, "Python 3.2" in said, bench.leftovers()) == ("engine", True, [])


def test_every_class_is_reached() -> None:
    """``output`` is that of models that cheat; ``non-finite`` and ``desync`` have tests of their own."""
    assert {*FAILURES, "engine", "output", "non-finite", "desync"} == set(get_args(FailureClass))
