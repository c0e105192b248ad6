"""What a reader learns from a traced run: the most expensive layer, what bounds it, and what tracing cost."""

import re
from pathlib import Path

from benchlock.evaluator.analysis.call_profiles import Subject
from benchlock.evaluator.analysis.host_roofs import Roof, Roofs
from benchlock.evaluator.report.sections import Section
from benchlock.evaluator.report.trace_sections import describe_trace
from tests.support.evaluator.traces import ROOFS, make_trace


def roofs(peak: float, bandwidth: float) -> Roofs:
    compute = Roof(name="product", working_set=1 << 20, best=peak, median=peak, n=3)
    memory = Roof(name="copy", working_set=1 << 28, best=bandwidth, median=bandwidth, n=3)
    return Roofs(threads=1, compute=(compute,), bandwidth=(memory,))


def describe(subject: Subject) -> dict[str, Section]:
    sections = {section.question: section for section in describe_trace("m 1.0.0", 1, subject)}
    return {"layer": sections["Which layer of m 1.0.0 costs most?"]} | {
        word: section
        for question, section in sections.items()
        for word in ("memory-bound", "tracing")
        if word in question
    }


def test_the_most_expensive_layer_and_kind_are_named_first(tmp_path: Path) -> None:
    section = describe(Subject(make_trace(tmp_path)))["layer"]
    answer = "The most expensive layer is conv1 (conv): 40 µs, 52% of all layers"
    assert section.answer[0] == f"{answer}; the profiler dominates these shares."
    base = make_trace(tmp_path, levels=("framework",))
    assert describe(Subject(base))["layer"].answer[0] == f"{answer}."
    assert section.answer[1].startswith("The most expensive kind is conv: 52% of all layers.")
    assert "remainder" in section.answer[1]
    assert ">0 conv1<" in section.charts[0].svg()
    assert "outside of layers" in section.charts[1].svg()
    assert section.table is not None
    assert len(section.table.rows) == 6


def test_whether_memory_bounds_the_model_follows_from_measured_roofs(tmp_path: Path) -> None:
    trace = make_trace(tmp_path)
    unknown = describe(Subject(trace))["memory-bound"]
    assert "unknown until the roofs" in unknown.answer[0]
    assert unknown.charts == ()
    slow_memory = describe(Subject(trace, roofs=roofs(1e12, 1e10)))["memory-bound"]
    assert slow_memory.answer[0].startswith("Yes: 100% of the time")
    assert "arithmetic: 1e+03 GFLOP/s" in slow_memory.charts[0].svg()
    fast_memory = describe(Subject(trace, roofs=roofs(1e11, 1e13)))["memory-bound"]
    assert fast_memory.answer[0].startswith("No: 0% of the time")
    assert fast_memory.answer[1].startswith("At their roofs, these layers would take 11.8 µs rather than 67 µs (18%)")


def test_what_bounds_a_flagged_run_is_as_undecided_as_its_times(tmp_path: Path) -> None:
    trace = make_trace(tmp_path)
    subject = Subject(trace, roofs=roofs(1e12, 1e10), restriction="the times of run/1 are flagged: a busy host")
    sections = describe(subject)
    bound = sections["memory-bound"]
    assert bound.answer[0].startswith(f"Undecided, because {subject.restriction}. As recorded: 100% of the time")
    assert bound.table is not None
    assert bound.table.notes[0] == f"Unreliable, because {subject.restriction}."
    for section in sections.values():
        assert subject.restriction in section.answer[0]
        assert subject.restriction in section.charts[0].svg()


def test_the_roofline_has_the_roof_that_applies_and_that_of_the_main_memory(tmp_path: Path) -> None:
    (chart,) = describe(Subject(make_trace(tmp_path), roofs=ROOFS))["memory-bound"].charts
    assert "memory, working set up to 0.25 MiB (applies): 80 GB/s" in chart.svg()
    assert "memory, 256 MiB: 20 GB/s" in chart.svg()


def test_the_cost_of_each_level_has_an_interval(tmp_path: Path) -> None:
    section = describe(Subject(make_trace(tmp_path)))["tracing"]
    framework = section.answer[0]
    assert re.match(r"Level framework: (58|59|60)(\.\d)? µs a call", framework), framework
    assert "95 % interval" in framework
    assert "Latencies in this report are of untraced calls." in section.answer


def test_an_overhead_that_noise_hides_is_not_a_cost(tmp_path: Path) -> None:
    section = describe(Subject(make_trace(tmp_path, noise=200_000, calls=40)))["tracing"]
    assert section.answer[1].startswith("Level model")
    assert "not distinguishable from 0" in section.answer[1]


def test_a_trace_without_layers_says_so(tmp_path: Path) -> None:
    section = describe(Subject(make_trace(tmp_path, levels=("none", "model"))))["layer"]
    assert section.answer[0] == "The trace has no layers."
