"""A8 to A11, A13 and A15: kernels, their work, and how they relate to layers and to the model.

Kernels come from the experiment of level ``system``. Without one, each layer counts as one kernel, which is named by
its type and by the implementation or provider that the profiler reports.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from benchlock.evaluator.analysis.call_profiles import Profile, Subject, match_positions, model_latency, profile
from benchlock.evaluator.analysis.layers import layer_profile, list_layers, shape_text
from benchlock.evaluator.analysis.roofline import Work, choose_ceiling, cost_cells, merge, tabulate_profile, work_of
from benchlock.evaluator.analysis.tables import COSTS, Cell, Record, Table, divide
from benchlock.evaluator.analysis.trace_types import Row, Trace

_AS_LAYERS: Final = "No kernels were traced: each layer counts as one kernel."
_OTHER_CALLS: Final = "Kernels and layers are from different calls of one run, so their differences may be negative."


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of a trace: their profile, their work, and for each the position of its layer, None if unknown.

    ``is_separate`` states whether kernels were traced, rather than taken from layers.
    """

    part: Profile
    works: tuple[Work, ...]
    layers: tuple[int | None, ...]
    is_separate: bool


def kernel_name(row: Row) -> str:
    """Return the name under which kernels are added up."""
    if row.variant:
        return f"{row.type} {row.variant}"
    return f"{row.type} ({row.provider})" if row.provider else row.type


def find_kernels(trace: Trace) -> Kernels:
    """Return the traced kernels, each with the next layer of its kind and output shape, or the layers as kernels.

    Errors are those of ``profile``.
    """
    system = trace.experiments.get("system")
    is_separate = system is not None and any(row.level == "kernel" for row in system.header.rows)
    part = profile(trace, "system", "kernel") if is_separate else profile(trace, "framework", "layer")
    works = tuple(
        work_of(kernel_name(row), row, time, part.step, index)
        for index, (row, time) in enumerate(zip(part.rows, part.latencies, strict=True))
    )
    joined = {position: position for position in range(len(works))}
    if is_separate:
        has_layers = "framework" in trace.experiments
        joined = match_positions(part.signatures, profile(trace, "framework", "layer").signatures) if has_layers else {}
    return Kernels(part, works, tuple(map(joined.get, range(len(works)))), is_separate)


def _tabulate(subject: Subject, heading: tuple[str, str], names: str, records: Sequence[Record]) -> Table:
    """Make a table of kernels."""
    kernels = find_kernels(subject.trace)
    table = tabulate_profile(subject, kernels.part, heading, names, records, {}, kernels.works)
    notes = [] if kernels.is_separate else [_AS_LAYERS]
    if unjoined := kernels.layers.count(None):
        notes.append(f"{unjoined} of {len(kernels.layers)} kernels fit no layer.")
    return replace(table, notes=(*table.notes, *notes))


def _list_kernels(subject: Subject) -> list[Record]:
    kernels = find_kernels(subject.trace)
    ceiling, part = choose_ceiling(subject, kernels.works), kernels.part
    return [
        {
            "index": index,
            "kernel": work.name,
            "layer": kernels.layers[index],
            "kind": part.kinds[index],
            "output_shape": shape_text(part.rows[index]),
            **cost_cells(work, ceiling),
        }
        for index, work in enumerate(kernels.works)
    ]


def _tabulate_by_name(subject: Subject) -> Table:
    """Return A10: the work of all kernels of a name, and their shares of all kernels and of the untraced call."""
    kernels, base = find_kernels(subject.trace), model_latency(subject.trace)[0]
    groups: defaultdict[str, list[Work]] = defaultdict(list)
    for work in kernels.works:
        groups[work.name].append(work)
    total, ceiling = kernels.part.total, choose_ceiling(subject, kernels.works)
    sums = [merge(name, works) for name, works in groups.items()]
    records: list[Record] = [
        {
            "kernel": work.name,
            "count": len(groups[work.name]),
            "share": divide(work.latency, total),
            "share_of_model": divide(work.latency, base) if total <= base else None,
            **cost_cells(work, ceiling),
        }
        for work in sorted(sums, key=lambda work: (-(work.latency or 0), work.name))
    ]
    return _tabulate(subject, ("A10", "Kernels by name"), f"kernel count share share_of_model {COSTS}", records)


def _list_by_layer(subject: Subject) -> list[Record]:
    """Return the cells of each layer, with the sums of its kernels."""
    kernels = find_kernels(subject.trace)
    layers, ceiling = layer_profile(subject), choose_ceiling(subject, kernels.works)
    groups: defaultdict[int | None, list[Work]] = defaultdict(list)
    for work, layer in zip(kernels.works, kernels.layers, strict=True):
        groups[layer].append(work)
    records: list[Record] = []
    for index, record in enumerate(list_layers(layers)):
        work, latency = merge(str(record["name"]), groups[index]), layers.latencies[index]
        is_known = kernels.is_separate and latency is not None and work.latency is not None
        outside = (latency or 0.0) - (work.latency or 0.0) if is_known else None
        times: dict[str, Cell] = {"outside": outside, "share_outside": divide(outside, latency)}
        sizes: dict[str, Cell] = {"layer_latency": latency, "count": len(groups[index])}
        records.append(record | times | sizes | cost_cells(work, ceiling))
    return records


def _tabulate_outside(subject: Subject) -> Table:
    """Return A13: each layer minus its kernels, and in the last row the traced call minus its layers."""
    layers = layer_profile(subject)
    call: Record = {
        "name": "(call)",
        "layer_latency": layers.call,
        "latency": layers.total,
        "outside": layers.remainder,
        "share_outside": divide(layers.remainder, layers.call),
    }
    names = "index name kind layer_latency latency outside share_outside"
    table = _tabulate(subject, ("A13", "Time outside of kernels"), names, [*_list_by_layer(subject), call])
    return table if _AS_LAYERS in table.notes else replace(table, notes=(*table.notes, _OTHER_CALLS))


def _tabulate_model(subject: Subject) -> Table:
    """Return A15: the kernels of a whole call, per batch size."""
    ceiling, records = choose_ceiling(subject, find_kernels(subject.trace).works), list[Record]()
    for trace in sorted((subject.trace, *subject.others), key=lambda trace: trace.header.batch):
        works, latency = find_kernels(trace).works, model_latency(trace)[0]
        sizes: Record = {"batch": trace.header.batch, "model_latency": latency, "count": len(works)}
        records.append({**sizes, **cost_cells(merge("model", works), ceiling)})
    return _tabulate(subject, ("A15", "Kernels of the whole model"), f"batch model_latency count {COSTS}", records)


def _list_computing(subject: Subject) -> list[Record]:
    works = find_kernels(subject.trace).works
    records = zip(_list_kernels(subject), works, strict=True)
    return [record for record, work in records if work.flops and not work.is_below_clock]


_LISTS: Final[Mapping[str, tuple[str, str, Callable[[Subject], list[Record]]]]] = {
    "A8": ("Kernels", "index kernel layer kind output_shape", _list_kernels),
    "A9": ("Roofline of kernels", "index kernel", _list_computing),
    "A11": ("Kernels by layer", "index name kind layer_latency count", _list_by_layer),
}
"""Analyses with a row per kernel or layer: the title, the columns before the costs, and the rows."""


def _tabulate_list(subject: Subject, id_: str) -> Table:
    title, names, list_rows = _LISTS[id_]
    return _tabulate(subject, (id_, title), f"{names} {COSTS}", list_rows(subject))


KERNEL_ANALYSES: Mapping[str, Callable[[Subject], Table]] = {
    **{name: partial(_tabulate_list, id_=name) for name in _LISTS},
    "A10": _tabulate_by_name,
    "A13": _tabulate_outside,
    "A15": _tabulate_model,
}
