"""The sections of trainings and of operators in reports and on pages."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.training_curves import Repeat
from benchlock.evaluator.report import operator_sections, training_sections
from benchlock.evaluator.report.operator_sections import describe_operators
from benchlock.evaluator.report.systems import System
from benchlock.evaluator.report.training_sections import MOST, describe_steps, describe_trainings, make_curve
from benchlock.evaluator.statistics.metric_types import Interval, Metric

TARGET = SimpleNamespace(metric="top1", value=0.9, split="test")


SHARES = "40% saved, 20% transient, 20% optimizer, 10% weights, 10% gradients"


def repeat(seed: int, *quality: float) -> Repeat:
    """A repeat with one evaluation an epoch that reached the target if its last quality is that high."""
    reached = float(len(quality)) if quality and quality[-1] >= TARGET.value else None
    return Repeat(
        seed=seed,
        weights=f"sha256:{seed:064d}",
        epochs=reached,
        seconds=reached,
        cpu_seconds=reached,
        quality=quality[-1] if quality else 0.1,
        curve=tuple(enumerate(quality, 1)),
    )


def systems_of(*runs: str, target: object = TARGET, operator: object = UNSET) -> list[System]:
    lock = SimpleNamespace(target=target, operator=operator, subject=SimpleNamespace(name="digits-cnn"))
    arm = SimpleNamespace(lock=lock, runs=tuple(SimpleNamespace(id=f"run/{name}", end=None) for name in runs))
    return [cast(System, SimpleNamespace(name="digits-cnn", arms=(arm,), store=None))]


def test_a_curve_has_the_median_and_the_range_and_ended_repeats_keep_their_quality() -> None:
    curve = make_curve("c", [repeat(1, 0.5, 0.95), repeat(2, 0.3, 0.4, 0.92), repeat(3, 0.1, 0.2, 0.8)])
    assert curve is not None
    assert curve.epochs == (1, 2, 3)
    assert curve.middle == pytest.approx((0.3, 0.4, 0.92))
    assert curve.low == pytest.approx((0.1, 0.2, 0.8))
    assert curve.high == pytest.approx((0.5, 0.95, 0.95))
    assert make_curve("c", [repeat(1)]) is None


def test_a_training_shows_how_many_repeats_reach_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    repeats = (repeat(7, 0.5, 0.95), repeat(8, 0.6, 0.7, 0.93), repeat(9, 0.2, 0.3, 0.4))
    monkeypatch.setattr(training_sections, "read_curves", lambda *_: repeats)
    section = describe_trainings(systems_of("000001"))
    assert section is not None
    (words,) = section.answer
    assert words.startswith("digits-cnn: 2 of 3 repeats reach top1 0.9 on the split test")
    assert words.endswith("after 2 to 3 epochs and 2 to 3 s of the processor.")
    assert [chart.name for chart in section.charts] == ["convergence", "time-to-quality"]
    assert "67% of the repeats reach the target within 3 s" in section.charts[1].description
    assert section.table is not None
    assert section.table.column("epochs") == (2.0, 3.0, None)
    assert section.table.column("seed") == (7, 8, 9)


def test_no_repeat_may_reach_the_target_and_a_curve_may_be_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_lock: object, run: SimpleNamespace, _store: object) -> tuple[Repeat, ...]:
        if run.id == "run/000002":
            raise InvalidInputError("the samples are malformed")
        return (repeat(1, 0.2, 0.5),)

    monkeypatch.setattr(training_sections, "read_curves", read)
    section = describe_trainings(systems_of("000001", "000002"))
    assert section is not None
    assert any("000002: its curve cannot be read: the samples are malformed" in words for words in section.answer)
    assert any("none of 1 repeats reaches top1 0.9 on the split test" in words for words in section.answer)
    assert [chart.name for chart in section.charts] == ["convergence"]


def test_of_many_trainings_the_first_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_sections, "read_curves", lambda *_: (repeat(1, 0.95),))
    names = [f"{number:06d}" for number in range(MOST + 2)]
    section = describe_trainings(systems_of(*names))
    assert section is not None
    assert f"The first {MOST} of {MOST + 2} trainings are shown." in section.answer
    assert section.table is not None
    assert len(section.table.rows) == MOST


def test_models_have_neither_section() -> None:
    systems = systems_of("000001", target=UNSET)
    assert describe_trainings(systems) is None
    assert describe_operators(systems) is None


def test_an_operator_shows_each_case_with_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        SimpleNamespace(name=name, shapes={"A": (4, side), "B": (side, 4)}, reduction=side)
        for name, side in (("small", 16), ("large", 64))
    ]
    tolerance = SimpleNamespace(l2=1.0, linf=2.0)
    operator = SimpleNamespace(dtype="float32", cases=cases, tolerance=tolerance)
    monkeypatch.setattr(operator_sections, "read_manifests", lambda *_: {"operator": operator})
    monkeypatch.setattr(operator_sections, "Operator", SimpleNamespace)
    metrics = [
        Metric("operator_latency", seconds, "s", "lower", 9, Interval(seconds / 2, None), 1, case=name)
        for name, seconds in (("small", 2e-6), ("large", 5e-5))
    ]
    metrics.append(Metric("error_l2", 1e-7, "ratio", "lower", 9, Interval(1e-7, 1e-7), 1, case="small"))
    systems = systems_of("000001", target=UNSET, operator=object())
    cast(Any, systems[0].arms[0].runs[0]).end = SimpleNamespace(metrics=metrics)
    section = describe_operators(systems)
    assert section is not None
    assert "from 2 µs (small) to 50 µs (large)" in section.answer[0]
    assert section.table is not None
    small, large = section.table.records()
    assert (small["shapes"], small["latency"], small["latency_high"]) == ("A 4x16, B 16x4", 2e-6, None)
    assert (small["error_l2"], small["error_l2_bound"], small["error_linf_bound"]) == (1e-7, 2**-21, 2**-20)
    assert (large["error_l2"], large["error_l2_bound"]) == (None, 2**-20)
    assert [chart.name for chart in section.charts] == ["cases"]


def test_a_step_shows_the_parts_of_its_memory_and_its_operators() -> None:
    systems = systems_of("000001", "000002")
    operators = [{"kind": "conv", "share": 0.85}, {"kind": "mm", "share": 0.1}]
    breakdown = {"operators": operators, "kinds": 3, "kinds_for_90_percent": 2}
    parts = {"weights": 1, "gradients": 1, "optimizer": 2, "saved": 4, "transient": 2}
    metrics = [
        Metric(f"memory_{part}", float(amount << 20), "B", "lower", 3, Interval(None, None), 1)
        for part, amount in parts.items()
    ]
    end = SimpleNamespace(metrics=metrics, details={"training": {"breakdown": breakdown}})
    cast(Any, systems[0].arms[0].runs[1]).end = end
    section = describe_steps(systems)
    assert section is not None
    assert section.answer == (
        "digits-cnn, 000002: conv takes 85% of the CPU time of all operators, and 2 of 3 kinds of operators take 90 %.",
        f"digits-cnn, 000002: a step holds up to 10 MiB, {SHARES}.",
    )
    assert section.table is not None
    assert section.table.column("share") == (0.85, 0.1)
    assert [chart.name for chart in section.charts] == ["step-memory"]
    assert describe_steps(systems_of("000001")) is None
