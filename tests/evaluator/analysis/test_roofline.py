"""Rooflines, with the numbers that the XSP paper prints."""

import pytest

from benchlock.evaluator.analysis.roofline import (
    Ceiling,
    Work,
    cost_cells,
    describe_ceiling,
    find_bound,
    find_ceiling,
    find_working_set,
    merge,
    tabulate_roofs,
    work_of,
)
from benchlock.evaluator.analysis.trace_types import Row, RowTensor
from tests.support.evaluator.traces import ROOFS

MB, MIB, G = 1e6, 1 << 20, 1e9


def test_the_ideal_intensity_of_a_v100() -> None:
    assert round(Ceiling(15.7e12, 900e9, 1, 1).ideal_intensity, 2) == 17.44


@pytest.mark.parametrize(
    ("flops", "read", "written", "unit", "intensity"),
    [
        (77.42, 40.33, 43.86, MB, 919.6),
        (77.42, 40.33, 43.86, MIB, 876.99),
        (59.20, 27.71, 8.40, MIB, 1563.5),
        (79.74, 362.67, 548.50, MIB, 83.46),
    ],
)
def test_intensities_of_the_paper(flops: float, read: float, written: float, unit: float, intensity: float) -> None:
    found = Work("kernel", None, round(flops * G), round(read * unit), round(written * unit)).intensity
    assert found is not None
    assert found == pytest.approx(intensity, rel=1e-4)


def test_the_throughput_and_the_share_of_the_paper() -> None:
    work = Work("kernel 1", 6.04e-3, 77_420_000_000, 1, 1)
    assert work.throughput == pytest.approx(12.82e12, rel=1e-3)
    assert pytest.approx(30.89, abs=0.01) == 100 * 84.95 / 275.05
    assert merge("all", [Work("a", 5.01e-3, 1, 1, 1), Work("b", 0.0, 1, 1, 1)]).latency == 5.01e-3


def test_a_sum_with_an_unknown_term_is_unknown() -> None:
    whole = merge("all", [Work("a", 1.0, 4, 1, 1), Work("b", 2.0, None, 3, 1)])
    assert (whole.latency, whole.flops, whole.read, whole.written) == (3.0, None, 4, 2)
    assert merge("none", []).latency is None


def test_what_bounds_a_work() -> None:
    ceiling = find_ceiling(ROOFS, 1 << 18, [])
    assert (ceiling.peak, ceiling.bandwidth, ceiling.ideal_intensity) == (100e9, 80e9, 1.25)
    assert find_ceiling(ROOFS, 1 << 20, []).bandwidth == 20e9
    assert find_ceiling(ROOFS, 1 << 40, []).working_set == 1 << 28
    for flops, bound in ((100, "yes"), (200, "no"), (0, None), (None, None)):
        assert find_bound(Work("a", 1.0, flops, 50, 50), ceiling) == bound
    assert find_bound(Work("a", 1.0, 100, 50, 50), None) is None
    assert find_bound(Work("a", 1.0, 100, 50, 50, is_float=False), ceiling) is None


def test_a_point_above_a_roof_raises_it_and_is_named() -> None:
    fast, wide = Work("fast", 1.0, 150 * 10**9, 10**9, 0), Work("wide", 1.0, 10**9, 200 * 10**9, 0)
    ceiling = find_ceiling(ROOFS, 1 << 18, [fast, wide])
    assert [ceiling.peak, ceiling.bandwidth] == pytest.approx([150e9, 200e9])
    _, notes = describe_ceiling(ceiling, [fast, wide])
    assert any("fast exceeds the measured peak, which is raised to 150.0 Gflop/s" in note for note in notes)
    assert any("wide exceeds the measured bandwidth, which is raised to 200.0 GB/s" in note for note in notes)
    ignored = Work("int8", 1.0, 10**12, 1, 1, is_float=False)
    assert find_ceiling(ROOFS, 1 << 18, [ignored]).peak == 100e9


def test_integers_have_no_roof() -> None:
    row = Row(index=0, level="layer", name="a", type="Conv", inputs=(RowTensor((1,), "int8", "data"),))
    facts, notes = describe_ceiling(None, [work_of("a", row, 1.0)])
    assert facts["peak_flop_s"] is None
    assert any("of integers" in note for note in notes)
    assert any("measure the roofs" in note for note in notes)


def test_the_working_set_is_weights_and_the_largest_activations() -> None:
    data, weight = RowTensor((100,), "float32", "data"), RowTensor((10,), "float32", "weight")
    small = Row(index=0, level="layer", name="a", type="Conv", inputs=(data, weight), outputs=(data,))
    large = Row(index=1, level="layer", name="b", type="Relu", inputs=(data,), outputs=(data, data))
    assert find_working_set([small, large]) == 40 + 1200
    assert find_working_set([]) == 0


def test_roofs_are_a_table_that_names_what_was_measured() -> None:
    table = tabulate_roofs(ROOFS)
    assert table.column("roof") == ("sgemm 128", "sgemm 512", "copy", "copy")
    assert table.column("unit") == ("flop/s", "flop/s", "B/s", "B/s")
    assert set(cost_cells(Work("a", None, None, None, None)).values()) == {None}


def test_a_time_below_the_step_of_the_clock_raises_no_roof_and_is_left_out() -> None:
    short = Work("short", 0.9e-6, 10**9, 10, 10, step=1e-6, index=3)
    ceiling = find_ceiling(ROOFS, 1 << 18, [short])
    assert (ceiling.peak, ceiling.bandwidth, ceiling.notes) == (100e9, 80e9, ())
    assert short.throughput is None
    _, notes = describe_ceiling(ceiling, [short])
    assert any("below the clock's step: short #3." in note for note in notes)
    raised = find_ceiling(ROOFS, 1 << 18, [Work("long", 1.1e-6, 10**9, 10, 10, step=1e-6, index=3)])
    assert raised.peak > 100e9
    assert raised.notes[0].startswith("long #3 exceeds")
