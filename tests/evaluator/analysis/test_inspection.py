"""Analyses by name, their defaults, and the same bytes from the same spans."""

import json
import sys
from pathlib import Path

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.analysis.call_profiles import MissingLevelError, Subject
from benchlock.evaluator.analysis.inspection import ANALYSES, FIFTEEN, analyze, keep_top, parse_analyses
from tests.support.evaluator.traces import make_trace


def test_names_are_parsed() -> None:
    assert parse_analyses("") == ("A2", "A6", "overhead")
    assert parse_analyses("a6, A2,a6") == ("A6", "A2")
    assert parse_analyses("all") == tuple(ANALYSES) == (*FIFTEEN, "overhead", "cold-start", "counters")
    with pytest.raises(InvalidInputError, match="unknown analysis 'a16'"):
        parse_analyses("A16")


def test_every_analysis_is_of_its_name_and_the_same_twice(tmp_path: Path) -> None:
    subject = Subject(make_trace(tmp_path), {"run": "run/1"})
    first, second = (analyze(subject, tuple(ANALYSES)) for _ in range(2))
    assert tuple(table.id for table in first) == tuple(ANALYSES)
    assert [table.id for table in first if not table.rows] == ["counters"]  # the level system was not traced
    texts = [
        json.dumps([[table.rows, dict(table.facts), table.notes] for table in tables]) for tables in (first, second)
    ]
    assert texts[0] == texts[1]


def test_what_a_level_does_not_allow_is_an_empty_table_or_an_error(tmp_path: Path) -> None:
    subject = Subject(make_trace(tmp_path, levels=("none", "model"), graph=()))
    tables = {table.id: table for table in analyze(subject, tuple(ANALYSES))}
    assert tables["A1"].rows
    assert tables["overhead"].rows
    assert tables["A2"].rows == ()
    assert "set `trace: framework` in the request" in tables["A2"].notes[0]
    with pytest.raises(MissingLevelError, match="level `framework`"):
        analyze(subject, ("A2",))


def test_the_largest_rows_are_kept(tmp_path: Path) -> None:
    (table,) = analyze(Subject(make_trace(tmp_path)), ("A2",), 2)
    assert table.column("name") == ("conv1", "depthwise")
    assert table.notes[0] == "The 2 largest of 6 rows by latency."
    (by_kind,) = analyze(Subject(make_trace(tmp_path)), ("A6",), 2)
    assert len(by_kind.rows) == 7
    assert keep_top(table, 5) is table


def test_no_framework_is_loaded() -> None:
    assert {"torch", "tensorflow", "onnxruntime", "ai_edge_litert"}.isdisjoint(sys.modules)
