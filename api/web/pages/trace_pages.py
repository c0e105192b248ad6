"""The page of a run's trace: where the time goes, as an icicle and as every analysis that the trace allows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import run_path
from benchlock.api.web.page import Page
from benchlock.evaluator.analysis.exports.formats import EXPORTS
from benchlock.evaluator.analysis.inspection import ANALYSES, analyze, keep_top
from benchlock.evaluator.analysis.tables import Cell, Table
from benchlock.evaluator.charts.icicle_charts import Frame, draw_icicle
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.records.run_texts import describe_subject
from benchlock.evaluator.records.run_types import RunId
from benchlock.evaluator.statistics.metric_types import format_duration
from benchlock.evaluator.workflows import run_traces
from benchlock.evaluator.workflows.run_traces import read_run_trace

ROWS: Final = 50
"""The largest number of rows of an analysis on the page."""
_LAYERS, _KERNELS = "A2", "A8"


def make_trace(registry: LocalRegistry, id_: RunId) -> Page:
    """Make the page of a run's trace.

    Raises:
        UnknownNameError: There is no such run.
        BenchlockError: Its trace cannot be read.
    """
    run = registry.records.get(id_)
    lock = registry.read_lock(run.start.lock)
    path = run_path(run.id)
    trail = (("/runs", "Runs"), (path, f"{lock.subject.name} {lock.subject.version}"))
    context: dict[str, Any] = {"run": run, "summary": describe_subject(lock), "formats": tuple(EXPORTS), "charts": ()}
    title = f"Trace of {lock.subject.name} {lock.subject.version}"
    if run.end is None or run_traces.ROLE not in run.end.blobs:
        return Page("trace", title, context | {"names": ()}, trail=trail, twin=f"/v1{path}")
    whole = analyze(run_traces.describe_subject(run, lock, registry.store, registry.home), tuple(ANALYSES))
    by_name = {table.id: table for table in whole}
    context["charts"] = tuple(_draw_layers(by_name))
    tables = {table.id: keep_top(table, ROWS) for table in whole}
    context["names"] = tuple((name, table.title) for name, table in tables.items())
    return Page("trace", title, context, tables, f"/v1{path}", trail)


def export_trace(registry: LocalRegistry, id_: RunId, format_: str) -> bytes:
    """Return the trace of a run for a viewer, in a format of ``trace export``."""
    run = registry.records.get(id_)
    trace = read_run_trace(run, registry.read_lock(run.start.lock), registry.store)
    return b"".join(EXPORTS[format_](trace, run.id))


def _draw_layers(tables: Mapping[str, Table]) -> Iterator[Chart]:
    """Yield the layers in their order with the kernels under them, and the same by kind, the largest first."""
    layers = [] if _LAYERS not in tables else tables[_LAYERS].records()
    timed = [layer for layer in layers if isinstance(layer.get("latency"), float)]
    if not timed:
        return
    kinds = sorted({str(layer["kind"]) for layer in timed})
    kernels = [] if _KERNELS not in tables else tables[_KERNELS].records()
    in_order = tuple(_frame_of(layer, kinds, kernels) for layer in timed)
    longest = max(in_order, key=lambda frame: frame.seconds)
    found = f"The longest layer is {longest.name} with {format_duration(longest.seconds)}"
    yield draw_icicle("icicle", "Layers in the order of execution", f"{found}.", in_order)
    by_kind = {kind: _frames_of_kind(in_order, series) for series, kind in enumerate(kinds)}
    groups = [
        Frame(kind, sum(frame.seconds for frame in frames), frames, frames[0].series)
        for kind, frames in by_kind.items()
    ]
    groups.sort(key=lambda frame: -frame.seconds)
    largest, total = groups[0], sum(frame.seconds for frame in groups)
    share = f"{largest.seconds / total:.0%}" if total else "-"
    yield draw_icicle("icicle-kinds", "Kinds of layers, the largest first", f"{largest.name} takes {share}.", groups)


def _frames_of_kind(frames: Sequence[Frame], series: int) -> tuple[Frame, ...]:
    return tuple(sorted((frame for frame in frames if frame.series == series), key=lambda frame: -frame.seconds))


def _frame_of(layer: Mapping[str, Cell], kinds: Sequence[str], kernels: Sequence[Mapping[str, Cell]]) -> Frame:
    """Return a layer with its kernels; none if their sum is more than the layer, as with several threads."""
    seconds, series = layer["latency"], kinds.index(str(layer["kind"]))
    assert isinstance(seconds, float)
    parts = tuple(
        Frame(str(kernel["kernel"]), float(latency), (), series)
        for kernel in kernels
        if kernel.get("layer") == layer["index"] and isinstance(latency := kernel.get("latency"), float)
    )
    is_within = sum(part.seconds for part in parts) <= seconds
    return Frame(str(layer["name"]), seconds, parts if is_within else (), series)
