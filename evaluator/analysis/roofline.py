"""Rooflines: arithmetic intensity and throughput of kernels and layers, against the measured roofs of their host.

The bytes are compulsory ones, so an intensity is an upper bound of the true one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Final

from benchlock.evaluator.analysis.call_profiles import Profile, Subject, model_latency, profile_facts, profile_notes
from benchlock.evaluator.analysis.host_roofs import Roofs
from benchlock.evaluator.analysis.operator_costs import count_bytes, count_flops
from benchlock.evaluator.analysis.operator_kinds import find_data
from benchlock.evaluator.analysis.tables import Cell, Column, Record, Table, divide, select_columns
from benchlock.evaluator.analysis.trace_types import Row

_QUANTISED: Final = frozenset({"int8", "uint8", "int16", "uint16"})
_NO_ROOFS: Final = "No roofs of this host are known, so what bounds a row is unknown: measure the roofs of the host."
_OTHER_ROOF: Final = "Roofs are of float32: what bounds a row of integers is not given."
_UPPER_BOUND: Final = "Bytes are inputs, weights and outputs once, so each intensity is an upper bound."


@dataclass(frozen=True, slots=True)
class Work:
    """The seconds and the work of a kernel, a layer or a group of them; None is unknown.

    ``step`` is that of the clock, in seconds: a shorter latency is no measurement. ``index`` is the position of the
    row, where its name alone does not say which one it is.
    """

    name: str
    latency: float | None
    flops: int | None
    read: int | None
    written: int | None
    is_float: bool = True
    step: float = 0.0
    index: int | None = None

    @property
    def title(self) -> str:
        """The name, with the position where there is one."""
        return self.name if self.index is None else f"{self.name} #{self.index}"

    @property
    def is_below_clock(self) -> bool:
        """Whether the latency is shorter than a step of the clock."""
        return self.latency is not None and self.latency < self.step

    @property
    def intensity(self) -> float | None:
        """The arithmetic intensity in flop per byte."""
        is_known = self.flops is not None and self.read is not None and self.written is not None
        return divide(self.flops, (self.read or 0) + (self.written or 0)) if is_known else None

    @property
    def throughput(self) -> float | None:
        """The rate in flop per second; None for a latency below the clock's step."""
        return None if self.is_below_clock else divide(self.flops, self.latency)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The two roofs that apply to a trace, with a note for each point that raised one."""

    peak: float
    bandwidth: float
    working_set: int
    threads: int
    notes: tuple[str, ...] = ()

    @property
    def ideal_intensity(self) -> float:
        """The intensity above which the peak bounds, and below which the bandwidth does (XSP, section III-D)."""
        return self.peak / self.bandwidth


def work_of(name: str, row: Row, latency: float | None, step: float = 0.0, index: int | None = None) -> Work:
    """Return the work of a row, by its shapes at run time, with the clock's step and its position as in ``Work``."""
    data = find_data(row)
    is_float = data is None or data.dtype not in _QUANTISED
    read, written = count_bytes(row.inputs), count_bytes(row.outputs)
    return Work(name, latency, count_flops(row), read, written, is_float, step, index)


def merge(name: str, works: Sequence[Work]) -> Work:
    """Add up works; a sum with an unknown term, or without terms, is unknown."""
    flops, read, written = (
        sum(known) if len(known := [value for value in values if value is not None]) == len(works) > 0 else None
        for values in ([w.flops for w in works], [w.read for w in works], [w.written for w in works])
    )
    times = [work.latency for work in works if work.latency is not None]
    latency = fsum(times) if len(times) == len(works) > 0 else None
    step = max((work.step for work in works), default=0.0)
    return Work(name, latency, flops, read, written, all(work.is_float for work in works), step)


def find_working_set(rows: Sequence[Row]) -> int:
    """Return the bytes that each call touches again: all weights, and the largest inputs with outputs of a row."""
    weights = activations = 0
    for row in rows:
        fixed = sum(count_bytes([tensor]) or 0 for tensor in row.inputs if tensor.role in ("weight", "bias"))
        everything = sum(count_bytes([tensor]) or 0 for tensor in (*row.inputs, *row.outputs))
        weights, activations = weights + fixed, max(activations, everything - fixed)
    return weights + activations


def find_ceiling(roofs: Roofs, working_set: int, works: Iterable[Work]) -> Ceiling:
    """Choose the roofs for a working set; a point above a roof proves the roof too low, and raises it.

    A latency below the clock's step proves nothing.
    """
    bandwidth = roofs.bandwidth_for(working_set)
    ceiling = Ceiling(roofs.peak, bandwidth.best, bandwidth.working_set, roofs.threads)
    for work in works:
        if not work.is_float or not work.throughput or not work.intensity:
            continue
        if work.throughput > ceiling.peak:
            note = f"{work.title} exceeds the measured peak, which is raised to {work.throughput / 1e9:.1f} Gflop/s."
            ceiling = replace(ceiling, peak=work.throughput, notes=(*ceiling.notes, note))
        if (moved := work.throughput / work.intensity) > ceiling.bandwidth:
            note = f"{work.title} exceeds the measured bandwidth, which is raised to {moved / 1e9:.1f} GB/s."
            ceiling = replace(ceiling, bandwidth=moved, notes=(*ceiling.notes, note))
    return ceiling


def choose_ceiling(subject: Subject, works: Sequence[Work]) -> Ceiling | None:
    """Return the roofs for the trace's working set; None without roofs at its number of threads."""
    header, roofs = subject.trace.header, subject.roofs
    if roofs is None or roofs.threads != header.threads:
        return None
    rows = subject.trace.experiments["framework"].header.rows if "framework" in subject.trace.experiments else ()
    return find_ceiling(roofs, find_working_set(rows or (header.graph.rows if header.graph else ())), works)


def find_bound(work: Work, ceiling: Ceiling | None) -> str | None:
    """Return ``yes`` if the bandwidth bounds the work, ``no`` if the peak does; None if that is unknown."""
    if ceiling is None or not work.flops or work.intensity is None or not work.is_float:
        return None
    return "yes" if work.intensity < ceiling.ideal_intensity else "no"


def cost_cells(work: Work, ceiling: Ceiling | None = None) -> dict[str, Cell]:
    """Return the cells of a work by column."""
    return {
        "latency": work.latency,
        "flops_executed": work.flops,
        "bytes_read": work.read,
        "bytes_written": work.written,
        "intensity": work.intensity,
        "throughput": work.throughput,
        "memory_bound": find_bound(work, ceiling),
    }


def describe_ceiling(ceiling: Ceiling | None, works: Sequence[Work]) -> tuple[dict[str, Cell], list[str]]:
    """Return the facts and notes of a table with intensities."""
    notes = [_UPPER_BOUND, *([] if all(work.is_float for work in works) else [_OTHER_ROOF])]
    if short := [work.title for work in works if work.flops and work.is_below_clock]:
        notes.append(f"Left out of the roofline, because their times are below the clock's step: {', '.join(short)}.")
    if ceiling is None:
        return {"peak_flop_s": None, "bandwidth_B_s": None, "ideal_intensity": None}, [*notes, _NO_ROOFS]
    facts: dict[str, Cell] = {
        "peak_flop_s": ceiling.peak,
        "bandwidth_B_s": ceiling.bandwidth,
        "bandwidth_working_set_B": ceiling.working_set,
        "ideal_intensity": ceiling.ideal_intensity,
        "roofs_threads": ceiling.threads,
    }
    return facts, [*notes, *ceiling.notes]


def tabulate_profile(
    subject: Subject,
    part: Profile,
    heading: tuple[str, str],
    names: str,
    records: Sequence[Record],
    facts: Record,
    works: Sequence[Work] = (),
) -> Table:
    """Make a table of the rows of a profile, with facts and notes on it, and on roofs where it has intensities.

    Args:
        subject: What the profile is of.
        part: The profile.
        heading: The id and the title of the table.
        names: The names of its columns, separated by spaces.
        records: The cells of each row by column.
        facts: What the table rests on, beside the facts of the profile.
        works: The works that may raise a roof.
    """
    facts, notes = profile_facts(subject, part) | dict(facts), list(profile_notes(subject, part))
    if "intensity" in names:
        more, sentences = describe_ceiling(choose_ceiling(subject, works), works)
        restrictions = [f"Unreliable, because {subject.restriction}."] if subject.restriction else []
        facts, notes = facts | more, restrictions + notes + sentences
    table = select_columns(heading, names, records, facts, notes)
    columns = (replace(column, least=_find_least(column.name, subject, part)) for column in table.columns)
    return replace(table, columns=tuple(columns))


def _find_least(name: str, subject: Subject, part: Profile) -> float:
    """Return the least value of a column that a clock of coarse steps can tell from 0."""
    base = model_latency(subject.trace)[0]
    whole = {"latency": 1.0, "layer_latency": 1.0, "share": part.total, "share_of_model": base}
    is_coarse = part.experiment.header.resolution_ns > 1
    return divide(part.step, whole.get(name)) or 0.0 if is_coarse else 0.0


def tabulate_roofs(roofs: Roofs) -> Table:
    """Return the measured roofs of a host, as a table."""
    columns = (
        Column("roof", None, "What was measured: products of float32 matrices, or copies of a working set."),
        Column("working_set", "B", "Bytes that one repetition touches."),
        Column("unit", None, "Unit of best and median."),
        Column("best", None, "Best repetition; the largest product is the peak."),
        Column("median", None, "Median repetition."),
        Column("n", None, "Number of repetitions."),
    )
    rows = tuple(
        (roof.name, roof.working_set, unit, roof.best, roof.median, roof.n)
        for unit, group in (("flop/s", roofs.compute), ("B/s", roofs.bandwidth))
        for roof in group
    )
    note = "A copy counts its bytes twice, read and written; the reads that writing causes are not counted."
    facts = {"threads": roofs.threads, "seconds": roofs.seconds}
    return Table("roofs", "Measured roofs of the host", columns, rows, facts, (note,))
