"""What the page of claims makes of measurements."""

from pathlib import Path

import pytest

from benchmarks.claims.__main__ import PARTS, prepare_page
from benchmarks.claims.convergence_level import simulate
from benchmarks.claims.operators import CaseResult
from benchmarks.claims.rows import Row, format_interval, format_rows, format_seconds
from benchmarks.resolving.report import write

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("latency", "interval", "answer"),
    [
        (50e-6, (0.1e-6, 0.9e-6), "within"),
        (50e-6, (1.1e-6, 2e-6), "above"),
        (1e-3, (5e-6, 9e-6), "within"),
        (1e-3, (5e-6, 11e-6), "undecided"),
        (1e-3, (None, None), "undecided"),
    ],
)
def test_an_overhead_is_judged_by_its_interval_and_the_length_of_the_call(
    latency: float, interval: tuple[float | None, float | None], answer: str
) -> None:
    assert CaseResult("c", "pytorch", latency, 1e-6, interval, 1e-7, 1e-6, None).answer == answer


def test_mlperfs_check_rejects_equal_trainings_more_often_than_welch() -> None:
    mlperf, welch = simulate(5, sets=2_000)
    assert 0.07 < mlperf < 0.12
    assert 0.02 < welch < 0.06


def test_a_part_is_replaced_and_the_others_stay_in_their_order(tmp_path: Path) -> None:
    page = tmp_path / "claims.md"
    prepare_page(page)
    write(page, "optimizers", "measured once")
    prepare_page(page)
    text = page.read_text()
    assert text.startswith("# Claims of papers\n")
    assert "measured once" in text
    places = [text.index(f"<!-- {name}: begin -->") for name in PARTS]
    assert places == sorted(places)


def test_rows_have_a_reason_and_the_page_has_every_part() -> None:
    lines = list(format_rows([Row("a claim", "-", "no", "a reason")]))
    assert lines[2] == "| a claim | - | no | a reason | - |"
    text = (ROOT / "docs" / "explanation" / "claims.md").read_text()
    assert all(f"<!-- {name}: begin -->" in text for name in PARTS)
    assert "Not measured yet." not in text


def test_numbers_are_formatted_with_their_units() -> None:
    assert [format_seconds(seconds) for seconds in (2.0, 0.0015, 2e-6)] == ["2 s", "1.5 ms", "2 µs"]
    assert format_interval(1e-6, None, 1e6) == "[1, -]"
