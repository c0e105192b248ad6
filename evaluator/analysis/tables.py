"""Tables of analyses: columns with units, rows of plain values, and what a reader must know beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Cell = str | int | float | None
"""A value of a table. None is unknown, and never 0."""
Record = Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, the unit of its values, and its meaning in a sentence.

    A value from 0 to below ``least`` is known only to be less than that, as with a clock's step.
    """

    name: str
    unit: str | None = None
    meaning: str = ""
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """The result of an analysis.

    Attributes:
        id: A short name, unique in a report, such as ``A2``.
        title: The title in words.
        columns: The columns.
        rows: The rows, each with a cell per column.
        facts: What the whole table rests on, such as the run, the lock, the number of calls and the trace level.
        notes: Sentences that a reader must know to read the table rightly.
    """

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    facts: Record = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def column(self, name: str) -> tuple[Cell, ...]:
        """Return the cells of the column ``name``; a KeyError if there is none."""
        return tuple(record[name] for record in self.records())

    def records(self) -> list[dict[str, Cell]]:
        """Return the cells of each row by column."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


_COLUMNS: Final = (
    Column("index", None, "Position in the order of execution, from 0."),
    Column("name", None, "Name of the layer by the profiler."),
    Column("type", None, "Type of operator by the framework."),
    Column("kind", None, "Kind of operator, in one vocabulary for all frameworks."),
    Column("stage", None, "Third of the layers by position: begin, middle or end."),
    Column("output_shape", None, "Shape of the first output."),
    Column("kernel", None, "Type of the operator, with its implementation or provider."),
    Column("layer", None, "Index of the layer that calls the kernel."),
    Column("count", None, "Number of layers or kernels."),
    Column("share_of_count", "fraction", "count / number of layers."),
    Column("latency", "s", "Mean over the middle calls."),
    Column("share", "fraction", "latency / sum of all rows of this table."),
    Column("share_of_model", "fraction", "latency / untraced call; unknown where all rows together exceed it."),
    Column("output_bytes", "B", "Bytes of all outputs, by their shapes."),
    Column("allocated_bytes", "B", "Bytes that the framework reports as allocated."),
    Column("flops_model", "flop", "FLOPs by the graph of the model."),
    Column("flops_executed", "flop", "FLOPs by the shapes at run time."),
    Column("bytes_read", "B", "Bytes of inputs and weights, once."),
    Column("bytes_written", "B", "Bytes of outputs, once."),
    Column("intensity", "flop/B", "flops_executed / (bytes_read + bytes_written), an upper bound."),
    Column("throughput", "flop/s", "flops_executed / latency."),
    Column("memory_bound", None, "Whether intensity < peak / bandwidth: yes or no."),
    Column("layer_latency", "s", "Mean of the layer over the middle calls."),
    Column("outside", "s", "layer_latency - latency: time in the layer outside of its kernels."),
    Column("share_outside", "fraction", "outside / layer_latency."),
    Column("batch", None, "Samples per call."),
    Column("model_latency", "s", "Trimmed mean of the untraced call."),
)
_BY_NAME: Final = {column.name: column for column in _COLUMNS}
COSTS: Final = "latency flops_executed bytes_read bytes_written intensity throughput memory_bound"


def select_columns(
    heading: tuple[str, str], names: str, records: Sequence[Record], facts: Record, notes: Sequence[str] = ()
) -> Table:
    """Make a table of some columns.

    Args:
        heading: Its id and title.
        names: The names of the columns, separated by spaces.
        records: The cells of each row by column; a missing cell is unknown.
        facts: What the table rests on.
        notes: What a reader must know.
    """
    columns = tuple(_BY_NAME[name] for name in names.split())
    rows = tuple(tuple(record.get(column.name) for column in columns) for record in records)
    return Table(*heading, columns, rows, facts, tuple(dict.fromkeys(notes)))


def divide(part: float | None, whole: float | None) -> float | None:
    """Return a share; None where a part is unknown or the whole is not positive."""
    return part / whole if part is not None and whole is not None and whole > 0 else None
