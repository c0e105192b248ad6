"""The answers of npm's own code, row by row, and every stated difference from it (``tests/cases/ranges``)."""

import csv
from pathlib import Path

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import Constraint

CASES = Path(__file__).resolve().parents[2] / "cases" / "ranges"
DIFFERENCES = {"partial", "additions", "numbers", "empty", "spellings", "any", "zero", "below", "start"}


def _rows(name: str) -> list[dict[str, str]]:
    with (CASES / name).open(newline="") as table:
        return list(csv.DictReader(table))


def _answer(row: dict[str, str]) -> str:
    version = parse_version(row["version"])
    try:
        admits = Constraint.parse(row["range"]).admits(version, prereleases=row["includePrerelease"] == "yes")
    except InvalidInputError:
        return "refused"
    return "yes" if admits else "no"


def test_the_answers_are_those_of_npm() -> None:
    rows = _rows("npm.csv")
    assert len(rows) > 500
    assert [(*row.values(), _answer(row)) for row in rows if _answer(row) != row["admits"]] == []


@pytest.mark.parametrize("row", _rows("differences.csv"), ids=lambda row: f"{row['difference']}: {row['range']}")
def test_a_stated_difference_is_one(row: dict[str, str]) -> None:
    assert _answer(row) == row["here"] != row["npm"]


def test_every_difference_is_explained() -> None:
    explained = (CASES / "README.md").read_text()
    assert {row["difference"] for row in _rows("differences.csv")} == DIFFERENCES
    assert all(f"| `{difference}` |" in explained for difference in DIFFERENCES)
