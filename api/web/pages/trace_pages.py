"""The page of a run's trace: where the time goes, as an icicle and as every analysis that the trace allows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import run_path
from benchlock.api.web.page import Page
from benchlock.api.web.pages.run_pages import list_time_notices
from benchlock.artifacts.errors import UnknownNameError
from benchlock.evaluator.analysis.exports.formats import EXPORTS
from benchlock.evaluator.analysis.inspection import ANALYSES, analyze, keep_top
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.charts.icicle_charts import Frame, View, draw_icicle, find_view
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.records.run_texts import describe_subject
from benchlock.evaluator.records.run_types import RunId
from benchlock.evaluator.statistics.metric_types import format_duration
from benchlock.evaluator.workflows import run_traces
from benchlock.evaluator.workflows.run_traces import read_run_trace

ROWS: Final = 50
"""The largest number of rows of an analysis on the page."""
_LAYERS, _KERNELS = "A2", "A8"
_ICICLE, _TITLE = "icicle", "Layers in the order of execution"
_WHOLE: Final = 0.999
_PARTS: Final = (
    Column("level", None, "Level in the picture from the top, from 0."),
    Column("part", None, "Layer, kernel or kind; or neighbors that are too short for the picture."),
    Column("inside", None, "The part above it."),
    Column("latency", "s", "Mean over the middle calls."),
    Column("share", "fraction", "latency / all that the picture shows."),
)


def make_trace(registry: LocalRegistry, id_: RunId, focus: str = "") -> Page:
    """Make the page of a run's trace.

    Args:
        registry: The registry.
        id_: The run.
        focus: ``icicle``, a period, and the place that the page zooms into; empty for all.

    Raises:
        UnknownNameError: There is no such run, or no such place.
        BenchlockError: Its trace cannot be read.
    """
    run = registry.records.get(id_)
    lock = registry.read_lock(run.start.lock)
    path = run_path(run.id)
    breadcrumbs = (("/runs", "Runs"), (path, f"{lock.subject.name} {lock.subject.version}"))
    context: dict[str, Any] = {
        "run": run,
        "summary": describe_subject(lock),
        "formats": tuple(EXPORTS),
        "icicle": None,
        "notices": tuple(notice for notice in list_time_notices(run) if notice[0] == "bad"),
    }
    title = f"Trace of {lock.subject.name} {lock.subject.version}"
    if run.end is None or run_traces.ROLE not in run.end.blobs:
        reason, next_step = run_traces.explain_missing_trace(run, lock)
        context |= {"names": (), "reason": reason, "next_step": next_step, "path": path}
        return Page("trace", title, context, breadcrumbs=breadcrumbs, json_path=f"/v1{path}")
    whole = analyze(run_traces.describe_subject(run, lock, registry.store, registry.home), tuple(ANALYSES))
    by_name = {table.id: table for table in whole}
    icicle = _draw_icicle(by_name, focus)
    tables = {table.id: keep_top(table, ROWS) for table in whole}
    context["names"] = tuple((name, table.title) for name, table in tables.items())
    charts: tuple[Chart, ...] = ()
    if icicle is not None:
        chart, context["out"], tables[_ICICLE] = icicle
        context["icicle"], charts = chart, (chart,)
    return Page("trace", title, context, tables, f"/v1{path}", breadcrumbs, charts=charts)


def export_trace(registry: LocalRegistry, id_: RunId, format_: str) -> bytes:
    """Return the trace of a run for a viewer, in a format of ``trace export``."""
    run = registry.records.get(id_)
    trace = read_run_trace(run, registry.read_lock(run.start.lock), registry.store)
    return b"".join(EXPORTS[format_](trace, run.id))


def _draw_icicle(tables: Mapping[str, Table], focus: str) -> tuple[Chart, str, Table] | None:
    """Return the icicle, the address one level out of its focus, empty without one, and its table; None without one."""
    frames = _list_frames(tables)
    name, _, place = focus.partition(".")
    if focus and (name != _ICICLE or not frames):
        raise _unknown(focus)
    if not frames:
        return None
    view = find_view(frames, place)
    if view is None:
        raise _unknown(focus)
    least = {column.name: column.least for column in tables[_LAYERS].columns}
    columns = tuple(replace(column, least=least.get(column.name, 0.0)) for column in _PARTS)
    rows = tuple((part.level, part.frame.name, part.inside, part.frame.seconds, part.share) for part in view.parts)
    chart = draw_icicle(_ICICLE, _TITLE, _find_longest(view), view, _focus_on, step=least["latency"])
    return chart, _focus_on(view.out) if view.focus else "", Table(_ICICLE, _TITLE, columns, rows)


def _focus_on(place: str) -> str:
    """Return the address of the page with a part of the icicle in focus, or all of it."""
    return f"?focus={_ICICLE}.{place}#{_ICICLE}" if place else f"?#{_ICICLE}"


def _unknown(focus: str) -> UnknownNameError:
    return UnknownNameError(
        f"the trace has no part {focus[:64]!r}", where="focus", next_step="open the trace without it"
    )


def _find_longest(view: View) -> str:
    """Return which part of the view is the longest, in a sentence."""
    level = 1 if view.name and any(part.level for part in view.parts) and view.parts[0].share > _WHOLE else 0
    parts = [part for part in view.parts if part.level == level]
    if not parts:
        return "No part has a duration."
    longest = max(parts, key=lambda part: part.share)
    where = f"Of {view.name}, the longest part" if view.name else "The longest part"
    return f"{where} is {longest.frame.name} with {format_duration(longest.frame.seconds)}, {longest.share:.0%}."


def _list_frames(tables: Mapping[str, Table]) -> tuple[Frame, ...]:
    """Return the layers in their order with the kernels under them; none without times of layers."""
    layers = [] if _LAYERS not in tables else tables[_LAYERS].records()
    timed = [layer for layer in layers if isinstance(layer.get("latency"), float)]
    kinds = sorted({str(layer["kind"]) for layer in timed})
    kernels = [] if _KERNELS not in tables else tables[_KERNELS].records()
    return tuple(_frame_of(layer, kinds, kernels) for layer in timed)


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
