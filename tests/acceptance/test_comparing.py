"""Claims answered, runs repeated, locks compared by turns: real commands on the digits' model, run as processes."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.api.commands import Commands, copied
from tests.support.api.warm import Printed
from tests.support.registry.digits import DIGITS, locked, model, request, written

pytestmark = pytest.mark.image

CLAIMS = [
    {"metric": "top1", "value": 0.99, "tolerance": 0.02},
    {"metric": "top1", "value": 0.5, "tolerance": 0.02},
    {"metric": "latency_p99", "value": 0.001, "tolerance": 0.001},
    {"metric": "top5", "value": 1.0, "tolerance": 0.1},
]
STEPS = [
    {"decode": {"color": "L", "exif": "ignore"}},
    {"cast": {"dtype": "float32"}},
    {"scale": {"factor": 0.0625}},
    {"transpose": {"layout": "NCHW"}},
]
ON = {"name": "digits", "version": "^1.0", "split": "test"}


@pytest.fixture(scope="module")
def registry(built_once: Commands, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return copied(built_once, tmp_path_factory.mktemp("comparing") / "registry", "")


@pytest.fixture(scope="module")
def locks(registry: Commands, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The locks of two models with the same graph; the first one claims something."""
    folder = tmp_path_factory.mktemp("locks")
    for name in ("first", "second"):
        manifest = model(name, steps=STEPS) | (
            {"claims": [{"dataset": ON} | claim for claim in CLAIMS]} if name == "first" else {}
        )
        registry.done("publish", DIGITS / "dataset.yaml", written(folder / f"{name}.yaml", manifest))
    first, second = (locked(registry, folder, request(name)) for name in ("first", "second"))
    return first, second


def text(commands: Commands, *words: str | Path) -> str:
    """What a person sees of a command that succeeds."""
    done = Printed(commands.registry).finished(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def repeated(registry: Commands, locks: tuple[Path, Path]) -> Any:  # noqa: ANN401 - a JSON document
    return registry.done("run", locks[0], "--repeat", "2")


def test_claims_are_answered_with_the_interval(repeated: Any) -> None:  # noqa: ANN401 - a JSON document
    answers = [(one["metric"], one["answer"]) for one in repeated["claims"]]
    assert answers[:2] == [("top1", "holds"), ("top1", "does not hold")]
    assert answers[3] == ("top5", "can't be said yet")
    low, high = repeated["claims"][0]["ci"]
    assert low <= repeated["claims"][0]["measured"] <= high


def test_a_run_is_repeated_and_its_figures_are_over_the_runs(
    registry: Commands, repeated: Any  # noqa: ANN401 - a JSON document
) -> None:  # fmt: skip
    repetition = repeated["repetition"]
    assert (len(repetition["runs"]), repetition["narrow"]) == (2, True)
    p50 = next(one for one in repetition["metrics"] if one["name"] == "latency_p50")
    assert p50["n"] == 2
    assert p50["ci"] == [None, None]  # two runs bound nothing
    told = registry.done("show", repetition["runs"][1])["end"]["details"]["part_of"]
    assert told == {"kind": "repetition", "number": 2, "most": 2, "until": {}}


def test_a_run_says_how_its_calls_were_disturbed(repeated: Any) -> None:  # noqa: ANN401 - a JSON document
    calls = repeated["calls"]
    assert calls["n"] == next(one["n"] for one in repeated["end"]["metrics"] if one["name"] == "latency_p50")
    assert calls["without_cpu"] is not None
    assert calls["flagged"] is (calls["preempted"] > 0.05 * calls["n"] or calls["without_cpu"] > 0.05)
    assert {one["name"] for one in calls["cpu_time"]} == {"cpu_time_p50", "cpu_time_p90", "cpu_time_p99"}


def test_a_run_can_be_read(registry: Commands, locks: tuple[Path, Path], repeated: Any) -> None:  # noqa: ANN401 - JSON
    run = repeated["run"]
    listed = text(registry, "runs")
    line = next(line for line in listed.splitlines() if line.startswith(run))
    assert "first 1.0.0" in line
    assert "top1 0.9" in line
    shown = text(registry, "show", run)
    for part in (
        "first 1.0.0 on digits 1.0.0 (test)",
        "does not hold: the whole interval is above",
        "request",
        "durations",
    ):
        assert part in shown, part
    assert all(len(line) < 180 for line in shown.splitlines()), shown
    assert "lock" in text(registry, "runs", "--lock", locks[0])


def test_locks_are_compared_by_turns(registry: Commands, locks: tuple[Path, Path], tmp_path: Path) -> None:
    """Of times alone: a run takes less without its evaluation."""
    timed = [locked(registry, tmp_path, request(path.stem) | {"metrics": ["latency"]}) for path in locks]
    answer = registry.call("compare", "--interleave", *timed, "--rounds", "3", "--margin", "latency_p50=99%")
    assert answer.code in (0, 1), answer  # whether so few rounds on this host decide it, is no part of this test
    found = answer.document
    assert (found["comparable"], found["interleaved"], len(found["runs"])) == (True, True, 9)
    assert [(arm["model"]["name"], arm["control"], len(arm["runs"])) for arm in found["arms"]] == [
        ("first", False, 3), ("second", False, 3), ("first", True, 3)
    ]  # fmt: skip
    p50 = next(one for one in found["findings"] if one["metric"] == "latency_p50")
    assert (p50["ratio"]["paired"], p50["margin"]) == (True, 0.99)
    if p50["ratio"]["n"] == 3:
        assert p50["ratio"]["ci"][0] < p50["ratio"]["ratio"] < p50["ratio"]["ci"][1]
        assert p50["noise_floor"] > 0
    else:  # other work on this host disturbed some of the runs
        assert p50["answer"] == "undecided"
    assert (answer.code == 0) is (p50["answer"] == "equivalent")
    again = registry.done("compare", *(run for arm in found["arms"][::-1] for run in arm["runs"]))
    assert next(one for one in again["findings"] if one["metric"] == "latency_p50") == p50
    shown = text(registry, "compare", *(run for arm in found["arms"] for run in arm["runs"]))
    assert "second 1.0.0 against first 1.0.0, 3 interleaved rounds" in shown


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--margin", "latency_p50=5%"), "need --interleave"),
        (("--interleave", "--margin", "latency_p50=5"), "expected METRIC=SHARE with a share below 100%"),
        (("--interleave", "--margin", "miou=5%"), "not every lock measures miou"),
    ],
)
def test_what_cannot_be_compared_so_is_invalid(
    registry: Commands, locks: tuple[Path, Path], words: tuple[str, ...], reason: str
) -> None:
    assert reason in registry.error(2, "compare", *locks, *words)["message"]


def test_another_question_is_refused_before_anything_runs(
    registry: Commands, locks: tuple[Path, Path], tmp_path: Path
) -> None:
    other = locked(registry, tmp_path, request("second", duration="200ms"))
    before = len(registry.done("runs", "--limit", "1000")["runs"])
    assert "the scenario differs" in registry.error(1, "compare", "--interleave", locks[0], other)["message"]
    assert len(registry.done("runs", "--limit", "1000")["runs"]) == before


def test_more_runs_must_be_allowed_than_a_first_look_needs(registry: Commands, locks: tuple[Path, Path]) -> None:
    assert "too few" in registry.error(2, "run", locks[0], "--repeat", "4", "--until", "latency_p50=2%")["message"]
    assert "--until needs --repeat" in registry.error(2, "run", locks[0], "--until", "latency_p50=2%")["message"]
