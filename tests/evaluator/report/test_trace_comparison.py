"""The layers of two traced runs side by side, as a section of a page."""

from pathlib import Path

from benchlock.evaluator.analysis.call_profiles import Subject
from benchlock.evaluator.report.trace_sections import compare_traces
from tests.support.evaluator.traces import LAYERS, make_trace


def test_the_kind_with_the_largest_difference_is_named(tmp_path: Path) -> None:
    slower = ({**LAYERS[0], "took": 141_000}, *LAYERS[1:])
    first, second = ((name, Subject(make_trace(tmp_path, layers=of))) for name, of in (("a", LAYERS), ("b", slower)))
    section = compare_traces(first, second, 1)
    assert section.question == "In which layers do a and b differ?"
    assert section.table is not None
    assert [column.name for column in section.table.columns] == ["kind", "a", "b", "difference"]
    largest, *_ = section.table.records()
    assert largest["kind"] == "conv"
    assert f"of the kind {largest['kind']}: " in section.answer[0]
    assert " of a and " in section.answer[0]
