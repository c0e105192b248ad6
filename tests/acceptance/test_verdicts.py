"""Reruns that do not reproduce, and runs that are not comparable: real commands, told in words and as JSON."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.api.commands import Answer, Commands
from tests.support.api.warm import Printed
from tests.support.registry import graphs
from tests.support.registry.digits import DIGITS, locked, model, request, written

pytestmark = [pytest.mark.engine, pytest.mark.image]

CODE = """
import os
from pathlib import Path

def stir(value):
    return value * value.dtype.type(1 + os.urandom(1)[0])  # decides the same

def fall(value):
    if Path({signal!r}).exists():
        raise ValueError("it has fallen")
    return value
"""
ACCURACY = {"scenario": {"name": "accuracy", "warmup": 0}, "metrics": ["top1"]}
EQUIVALENCE = {"throughput": 0.000001, "latency_p50": 0.9}


@pytest.fixture(scope="module")
def folder(registry: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that answer otherwise at each run, that fail once a file is there, that always fail, and that are well."""
    folder = tmp_path_factory.mktemp("verdicts")
    (folder / "steps.py").write_text(CODE.format(signal=str(folder / "signal")))
    models = [
        model("well"),
        coded("fickle", "stir"),
        coded("lenient", "stir", tolerance={"absolute": 1e9, "relative": 0.0}),
        coded("frail", "fall"),
        model("misshapen", graph=graphs.demanding(folder / "demanding.onnx"), shape=[None, 1, 16, 16], steps=LARGE),
    ]
    registry.done("publish", DIGITS / "dataset.yaml", *(written(folder / f"{one['name']}.yaml", one) for one in models))
    return folder


LARGE: list[dict[str, Any]] = [
    {"decode": {"color": "L", "exif": "ignore"}},
    {"resize": {"size": [16, 16], "method": "bilinear", "antialias": True}},
    {"cast": {"dtype": "float32"}},
    {"transpose": {"layout": "NCHW"}},
]


def coded(name: str, function: str, **changes: object) -> dict[str, Any]:
    """The model with a function of its author's on its scores; ``changes`` are of that output."""
    document = model(name)
    document["outputs"][0] |= {"steps": [{"python": {"file": "steps.py", "function": function}}], **changes}
    document["files"].append({"path": "steps.py", "role": "code", "source": "./steps.py"})
    return document


AS_PROCESS = ("--isolation", "process", "--allow-code")


def told(commands: Commands, *words: str | Path) -> tuple[int, str, str]:
    """What a person sees: the exit code, standard output and standard error."""
    done = Printed(commands.registry, commands.engine).finished(*words)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def fickle(registry: Commands, folder: Path) -> tuple[Path, str]:
    """The lock of a model that never gives the same scores, and a run of it."""
    lock = locked(registry, folder, request("fickle") | ACCURACY)
    return lock, registry.done("run", lock, *AS_PROCESS)["run"]


@pytest.fixture(scope="module")
def failed(registry: Commands, folder: Path) -> tuple[Path, str]:
    """The lock of a model that its framework refuses, and a run of it."""
    lock = locked(registry, folder, request("misshapen") | ACCURACY)
    answer = registry.call("run", lock, *AS_PROCESS)
    assert (answer.code, answer.document["end"]["failure_class"]) == (1, "predict"), answer
    return lock, answer.document["run"]


def judged(answer: Answer, code: int, verdict: str) -> dict[str, Any]:
    """The document of a rerun that came to this verdict."""
    assert (answer.code, answer.document["verdict"]) == (code, verdict), answer
    return answer.document


def test_other_predictions_are_not_reproduced(registry: Commands, fickle: tuple[Path, str]) -> None:
    lock, original = fickle
    found = judged(registry.call("rerun", lock, *AS_PROCESS), 1, "not reproduced")
    assert (found["predictions"], found["outcome"], found["original"]) == ("different", "done", original)
    assert any(
        one.startswith("output scores: ")
        and one.endswith("on the same kind of processor, and no tolerance is declared")
        for one in found["reasons"]
    ), found


def test_a_person_reads_why_a_run_was_not_reproduced(registry: Commands, fickle: tuple[Path, str]) -> None:
    lock, original = fickle
    code, out, _ = told(registry, "rerun", lock, "--against", original, *AS_PROCESS)
    assert code == 1
    assert f"not reproduced, compared with {original}" in out.splitlines()
    assert "output scores: " in out
    assert "no tolerance is declared" in out


def test_a_declared_tolerance_reproduces_what_moves_within_it(registry: Commands, folder: Path) -> None:
    lock = locked(registry, folder, request("lenient") | ACCURACY)
    registry.done("run", lock, *AS_PROCESS)
    found = judged(registry.call("rerun", lock, *AS_PROCESS), 0, "reproduced")
    assert found["predictions"] == "within tolerance"


def test_one_run_a_side_decides_nothing_about_time(registry: Commands, folder: Path) -> None:
    """However far apart two runs are."""
    asked = request("well") | {"metrics": ["top1", "latency_p50", "throughput"], "equivalence": EQUIVALENCE}
    lock = locked(registry, folder, asked)
    registry.done("run", lock, *AS_PROCESS)
    found = judged(registry.call("rerun", lock, "--repeat", "2", *AS_PROCESS), 1, "undecided")
    assert (found["predictions"], found["times"]) == ("bit-equal", [])
    undecided = [one for one in found["reasons"] if "at least 6 per side are required" in one]
    assert [one.split()[0] for one in undecided] == ["latency_p50", "throughput"]


def test_two_runs_that_fail_alike_are_reproduced(registry: Commands, failed: tuple[Path, str]) -> None:
    lock, original = failed
    found = judged(registry.call("rerun", lock, "--against", original, *AS_PROCESS), 0, "reproduced")
    assert (found["outcome"], found["predictions"]) == ("failed", None)
    assert [one for one in found["reasons"] if " ended as failed (predict: " in one] == found["reasons"]
    assert len(found["reasons"]) == 2
    assert registry.error(2, "rerun", lock)["message"].startswith("no completed run of ")  # none is done
    code, out, _ = told(registry, "rerun", original, *AS_PROCESS)
    assert code == 0
    assert f"reproduced, compared with {original}" in out.splitlines()


def test_a_failure_beside_a_result_is_not_reproduced(registry: Commands, folder: Path) -> None:
    """A process sees the file that makes the model fail."""
    lock = locked(registry, folder, request("frail") | ACCURACY)
    original = registry.done("run", lock, *AS_PROCESS)["run"]
    (folder / "signal").touch()
    found = judged(registry.call("rerun", original, *AS_PROCESS), 1, "not reproduced")
    assert found["outcome"] == "failed"
    assert found["reasons"][0] == f"the original {original} ended as done"
    assert "ended as failed (step: " in found["reasons"][1]
    assert "it has fallen" in found["reasons"][1]


def test_what_is_not_comparable_is_refused_with_every_reason(
    registry: Commands, folder: Path, fickle: tuple[Path, str], failed: tuple[Path, str]
) -> None:
    lock, process = fickle
    container = registry.done("run", lock)["run"]
    timed = registry.done("run", locked(registry, folder, request("well") | {"name": "timed"}))["run"]
    for runs, reasons in (
        ((process, container), [f"{container}: the isolation differs: process, container"]),
        ((process, failed[1]), [f"{failed[1]}: {failed[1]} has no result"]),
        (
            (process, timed),
            [f"{timed}: the scenario differs", f"{timed}: the isolation differs: process, container"],
        ),
    ):
        error = registry.error(1, "compare", *runs)
        assert error["message"] == f"these runs are not comparable with {runs[0]}: {'; '.join(reasons)}"
        assert "--force" in error["next"]
        code, out, err = told(registry, "compare", *runs)
        assert (code, out) == (1, "")
        assert all(reason in " ".join(err.split()) for reason in reasons)
        forced = registry.done("compare", "--force", *runs)
        assert (forced["comparable"], forced["reasons"]) == (False, reasons)
        code, out, err = told(registry, "compare", "--force", *runs)
        assert code == 0
        assert all(f"warning: not comparable: {reason}" in " ".join(err.split()) for reason in reasons)
        assert "top1" in out
