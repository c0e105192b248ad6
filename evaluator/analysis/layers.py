"""A2 to A7, A12 and A14: the layers of a call, their times, memory and work, and these by kind of operator."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import fsum
from typing import Final

from benchlock.evaluator.analysis.call_profiles import Profile, Subject, model_latency, profile
from benchlock.evaluator.analysis.operator_costs import add_up, count_bytes, count_flops
from benchlock.evaluator.analysis.operator_kinds import CONVOLUTIONS, KINDS
from benchlock.evaluator.analysis.roofline import Ceiling, Work, choose_ceiling, cost_cells, tabulate_profile, work_of
from benchlock.evaluator.analysis.tables import COSTS, Cell, Record, Table, divide
from benchlock.evaluator.analysis.trace_types import Row, Trace

_STAGES: Final = ("begin", "middle", "end")
_MILLISECOND: Final = 1e-3
REMAINDER: Final = "(remainder)"
_SIZES: Final = "output_bytes allocated_bytes"
_BY_LAYER: Final = {
    "A2": ("Layers", f"index name type kind output_shape latency share {_SIZES} flops_model flops_executed", ""),
    "A3": ("Latency by layer", "index name kind stage latency", "latency"),
    "A4": ("Memory by layer", f"index name kind stage {_SIZES}", "output_bytes"),
    "A12": ("Work by layer", "index name kind flops_executed bytes_read bytes_written", ""),
}
"""Analyses with a row per layer: the title, the columns, and the column whose sums rank the stages."""


def layer_profile(subject: Subject) -> Profile:
    """Return the profile of the layers; errors as ``profile``."""
    return profile(subject.trace, "framework", "layer")


def add_times(seconds: Iterable[float | None]) -> float | None:
    """Return the sum; None if a term is unknown."""
    terms = list(seconds)
    return None if None in terms else fsum(term for term in terms if term is not None)


def layer_works(layers: Profile) -> list[Work]:
    """Return the work of each layer."""
    rows = zip(layers.names, layers.rows, layers.latencies, strict=True)
    return [work_of(name, row, time, layers.step) for name, row, time in rows]


def shape_text(row: Row) -> str | None:
    """Return the shape of a row's first output, such as ``1x16x32x32``."""
    shape = row.outputs[0].shape if row.outputs else None
    return None if shape is None else "x".join(map(str, shape))


def list_layers(layers: Profile, ceiling: Ceiling | None = None) -> list[dict[str, Cell]]:
    """Return the cells of each layer by column."""
    works, total = layer_works(layers), layers.total
    return [
        {
            "index": index,
            "name": works[index].name,
            "type": row.type,
            "kind": layers.kinds[index],
            "stage": _STAGES[index * len(_STAGES) // len(layers.rows)],
            "output_shape": shape_text(row),
            "share": divide(layers.latencies[index], total),
            "output_bytes": works[index].written,
            "allocated_bytes": row.allocated_bytes,
            "flops_model": layers.model_flops[index],
            **cost_cells(works[index], ceiling),
        }
        for index, row in enumerate(layers.rows)
    ]


def _tabulate(
    subject: Subject, heading: tuple[str, str], names: str, records: Sequence[Record], **facts: Cell
) -> Table:
    """Make a table of layers, with the FLOPs of the model and of what was executed among its facts."""
    layers, graph = layer_profile(subject), subject.trace.header.graph
    facts |= {
        "layers": len(layers.rows),
        "layers_below_1_ms": sum(time is not None and time < _MILLISECOND for time in layers.latencies),
        "flops_model": _graph_flops(subject.trace),
        "flops_executed": add_up(map(count_flops, layers.rows)),
        "parameters": None if graph is None else graph.parameters,
    }
    return tabulate_profile(subject, layers, heading, names, records, facts, layer_works(layers))


def _tabulate_layers(subject: Subject, id_: str) -> Table:
    """Return an analysis with a row per layer."""
    title, names, intensive = _BY_LAYER[id_]
    records, facts = list_layers(layer_profile(subject)), dict[str, Cell]()
    if intensive:
        sums = dict.fromkeys(_STAGES, 0.0)
        known = [record for record in records if record[intensive] is not None]
        for record in known:
            sums[str(record["stage"])] += float(record[intensive] or 0)
        facts["most_intensive_stage"] = max(_STAGES, key=lambda stage: sums[stage]) if known else None
    return _tabulate(subject, (id_, title), names, records, **facts)


def _tabulate_roofline(subject: Subject) -> Table:
    """Return A14: intensity and throughput of each layer that computes."""
    layers = layer_profile(subject)
    works = layer_works(layers)
    records = zip(list_layers(layers, choose_ceiling(subject, works)), works, strict=True)
    computing = [record for record, work in records if work.flops and not work.is_below_clock]
    return _tabulate(subject, ("A14", "Roofline of layers"), f"index name kind {COSTS}", computing)


def _tabulate_types(subject: Subject) -> Table:
    """Return A5: the number of layers by kind and type."""
    layers = layer_profile(subject)
    counts = Counter((kind, row.type) for kind, row in zip(layers.kinds, layers.rows, strict=True))
    records: list[Record] = [
        {"kind": kind, "type": type_, "count": count, "share_of_count": count / len(layers.rows)}
        for (kind, type_), count in sorted(counts.items(), key=lambda item: (KINDS.index(item[0][0]), item[0][1]))
    ]
    return _tabulate(subject, ("A5", "Layers by type"), "kind type count share_of_count", records)


def _tabulate_latency_by_kind(subject: Subject) -> Table:
    """Return A6: the latency by kind, and its shares of all layers and of the untraced call."""
    layers, base = layer_profile(subject), model_latency(subject.trace)[0]
    comparable, counts = base if layers.total <= base else None, Counter(layers.kinds)
    sums = {
        kind: add_times(time for time, other in zip(layers.latencies, layers.kinds, strict=True) if other == kind)
        for kind in counts
    }

    def shares(seconds: float | None) -> tuple[float | None, float | None]:
        return divide(seconds, layers.total), divide(seconds, comparable)

    names = ("kind", "count", "latency", "share", "share_of_model")
    rows = [
        (kind, counts[kind], sums[kind], *shares(sums[kind]))
        for kind in sorted(sums, key=lambda k: (-(sums[k] or 0.0), k))
    ]
    records: list[Record] = [dict(zip(names, row, strict=True)) for row in rows]
    records.append({"kind": REMAINDER, "latency": layers.remainder})
    conv = shares(add_times(sums.get(kind, 0.0) for kind in sorted(CONVOLUTIONS)))
    facts = {"conv_share_of_layers": conv[0], "conv_share_of_model": conv[1]}
    return _tabulate(subject, ("A6", "Latency by kind"), " ".join(names), records, **facts)


def _tabulate_memory_by_kind(subject: Subject) -> Table:
    """Return A7: the bytes of outputs by kind, and what the framework allocated."""
    layers = layer_profile(subject)
    groups: defaultdict[str, list[tuple[int | None, int | None]]] = defaultdict(list)
    for kind, row in zip(layers.kinds, layers.rows, strict=True):
        groups[kind].append((count_bytes(row.outputs), row.allocated_bytes))
    records: list[Record] = []
    for kind in sorted(groups, key=lambda kind: (-sum(size or 0 for size, _ in groups[kind]), kind)):
        written, allocated = zip(*groups[kind], strict=True)
        reported = None if set(allocated) == {None} else add_up(allocated)
        sums: dict[str, Cell] = {"output_bytes": add_up(written), "allocated_bytes": reported}
        records.append({"kind": kind, "count": len(written), **sums})
    return _tabulate(subject, ("A7", "Memory by kind"), "kind count output_bytes allocated_bytes", records)


def _graph_flops(trace: Trace) -> Cell:
    return None if trace.header.graph is None else add_up(map(count_flops, trace.header.graph.rows))


LAYER_ANALYSES: Mapping[str, Callable[[Subject], Table]] = {
    **{name: partial(_tabulate_layers, id_=name) for name in _BY_LAYER},
    "A5": _tabulate_types,
    "A6": _tabulate_latency_by_kind,
    "A7": _tabulate_memory_by_kind,
    "A14": _tabulate_roofline,
}
