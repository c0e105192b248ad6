"""A8 to A11, A13 and A15 of traces with and without kernels."""

from pathlib import Path

import pytest

from benchlock.evaluator.analysis.call_profiles import MissingLevelError, Subject
from benchlock.evaluator.analysis.kernels import KERNEL_ANALYSES, find_kernels, kernel_name
from benchlock.evaluator.analysis.tables import Table
from benchlock.evaluator.analysis.trace_types import Row, Trace
from tests.support.evaluator.traces import LAYERS, ROOFS, conv, depthwise, make_trace, row, tensor

KERNELS = (
    row("reorder", "reorder", (3, 16, 3, 3), tensor(16, 3, 3, 3), variant="jit:blk", took=1_000),
    {**conv("a", (3, 16), 32, took=30_000), "type": "convolution", "variant": "jit:avx512_core"},
    {**depthwise("b", 16, 32, took=15_000), "type": "convolution", "variant": "jit_dw:avx512_core"},
)


@pytest.fixture
def traced(tmp_path: Path) -> Trace:
    return make_trace(tmp_path, kernels=KERNELS, levels=("none", "model", "framework", "system"))


def analyze(id_: str, trace: Trace, *others: Trace) -> Table:
    return KERNEL_ANALYSES[id_](Subject(trace, {}, ROOFS, others))


def test_a_kernel_has_the_name_of_its_implementation() -> None:
    def name(**fields: str) -> str:
        return kernel_name(Row(index=0, level="kernel", name="x", type="Conv", **fields))  # type: ignore[arg-type]

    assert name(variant="nchwc", provider="CPU") == "Conv nchwc"
    assert name(provider="CPU") == "Conv (CPU)"
    assert name() == "Conv"


def test_kernels_fit_the_next_layer_of_their_kind_and_shape(traced: Trace) -> None:
    kernels = find_kernels(traced)
    assert kernels.is_separate
    assert kernels.layers == (None, 0, 2)


def test_a8_has_every_kernel_with_its_work(traced: Trace) -> None:
    table = analyze("A8", traced)
    assert table.column("kernel") == (
        "reorder jit:blk",
        "convolution jit:avx512_core",
        "convolution jit_dw:avx512_core",
    )
    assert table.column("layer") == (None, 0, 2)
    assert table.column("latency") == pytest.approx([1e-6, 30e-6, 15e-6])
    assert table.column("flops_executed") == (0, 884_736, 294_912)
    assert table.column("memory_bound") == (None, "no", "no")
    assert "1 of 3 kernels fit no layer." in table.notes
    assert table.facts["profiler"] == "test-kernels"


def test_a9_has_what_computes(traced: Trace) -> None:
    table = analyze("A9", traced)
    assert table.column("index") == (1, 2)
    assert table.column("throughput")[0] == pytest.approx(884_736 / 30e-6)


def test_a10_adds_up_kernels_of_a_name(tmp_path: Path) -> None:
    twice = (*KERNELS, {**KERNELS[1], "name": "c"})
    trace = make_trace(tmp_path, kernels=twice, levels=("none", "framework", "system"))
    table = analyze("A10", trace)
    assert table.column("kernel")[0] == "convolution jit:avx512_core"
    assert table.column("count")[0] == 2
    assert table.column("latency")[0] == pytest.approx(60e-6)
    assert table.column("flops_executed")[0] == 2 * 884_736
    assert sum(float(share or 0) for share in table.column("share")) == pytest.approx(1)
    base = analyze("A15", trace).column("model_latency")[0]
    assert isinstance(base, float)
    assert table.column("share_of_model")[0] == pytest.approx(60e-6 / base)


def test_a11_has_the_kernels_of_each_layer(traced: Trace) -> None:
    table = analyze("A11", traced)
    assert table.column("count") == (1, 0, 1, 0, 0, 0)
    assert table.column("layer_latency") == pytest.approx([layer["took"] * 1e-9 for layer in LAYERS])
    assert table.column("latency")[1] is None
    assert table.column("latency")[:3:2] == pytest.approx([30e-6, 15e-6])


def test_a13_is_what_is_outside_of_kernels_and_layers(traced: Trace) -> None:
    table = analyze("A13", traced)
    assert table.column("outside")[1] is None
    assert table.column("outside")[:3:2] == pytest.approx([10e-6, 5e-6])
    assert table.column("share_outside")[0] == pytest.approx(0.25)
    name, call, layers, outside = (table.column(key)[-1] for key in ("name", "layer_latency", "latency", "outside"))
    assert name == "(call)"
    assert isinstance(call, float)
    assert isinstance(layers, float)
    assert outside == pytest.approx(call - layers)
    assert any("may be negative" in note for note in table.notes)


def test_a13_of_the_paper() -> None:
    assert pytest.approx(1.20) == 6.21 - 5.01


def test_without_kernels_layers_count_as_kernels(tmp_path: Path) -> None:
    trace = make_trace(tmp_path)
    table = analyze("A8", trace)
    assert table.column("layer") == (0, 1, 2, 3, 4, 5)
    assert "No kernels were traced: each layer counts as one kernel." in table.notes
    assert set(analyze("A13", trace).column("outside")[:-1]) == {None}


def test_kernels_without_layers_are_not_joined(tmp_path: Path) -> None:
    trace = make_trace(tmp_path, kernels=KERNELS, levels=("none", "model", "system"))
    assert analyze("A8", trace).column("layer") == (None, None, None)
    with pytest.raises(MissingLevelError):
        analyze("A11", trace)


def test_a15_has_a_row_per_batch_size(tmp_path: Path) -> None:
    table = analyze("A15", make_trace(tmp_path), make_trace(tmp_path, batch=8), make_trace(tmp_path, batch=4))
    assert table.column("batch") == (1, 4, 8)
    assert set(table.column("flops_executed")) == {1_180_928}
    assert table.column("count") == (6, 6, 6)
