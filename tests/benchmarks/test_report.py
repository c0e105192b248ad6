"""What the benchmarks make of their figures."""

import math
from pathlib import Path

from benchmarks.resolving.families import families
from benchmarks.resolving.report import Row, Taken, bars, table, write


def row(title: str, **seconds: float) -> Row:
    """Of the whole process, of which solving takes a tenth, by step: ``n1000`` and so on; the yardstick takes 0.5 s."""
    return Row(title, {int(step[1:]): Taken([taken], [taken / 10], [0.5]) for step, taken in seconds.items()}, "a lock")


def test_growth_is_that_of_the_worst_step_for_a_tenfold_one() -> None:
    grown = row("easy", n1000=1, n10000=2, n1000000=32)
    assert math.isclose(grown.growth("whole"), 4)
    assert math.isclose(row("easy", n1000=1).growth("whole"), 1)
    grown.taken[10000].over = True
    assert grown.growth("solving") == math.inf


def test_a_bar_says_what_misses_it() -> None:
    family = next(families(1_000))
    lines = list(bars([(family, [row("easy", n100000=0.4), row("deep", n100000=0.6)])]))
    assert [line for line in lines if line.startswith("  - ")] == [
        f"  - 600.0 ms: deep, {family.title}",
        f"  - 1.20: deep, {family.title}",
        f"  - 60.0 ms: deep, {family.title}",
        f"  - 0.12: deep, {family.title}",
    ]
    assert lines[0].startswith("- met: a tenfold catalogue")
    assert "2.00" not in lines[0]
    assert list(bars([(family, [row("easy", n1000=9)])]))[1].startswith("- not measured: at 100,000")


def test_a_table_has_a_line_a_request() -> None:
    family = next(families(1_000))
    slow = row("deep", n1000=1)
    slow.taken[1000].over = True
    lines = table(family, [row("easy", n1000=0.05), slow]).splitlines()
    assert "| (the yardstick) |  | 500 |  |" in lines
    assert "| easy | a lock | 50.0 / 5.0 | 1.00 / 1.00 |" in lines
    assert any(line.startswith("| deep | a lock | over / over |") for line in lines)


def test_results_are_replaced_between_their_markers_and_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    write(path, "one", "first")
    write(path, "two", "second")
    once = path.read_text()
    write(path, "one", "changed")
    assert path.read_text() == once.replace("first", "changed")
    assert path.read_text().count("<!-- one: begin -->") == 1
