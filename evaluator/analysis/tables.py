"""Tables of analyses: columns with units, rows of plain values, and what a reader must know beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Cell = str | int | float | None
"""A value of a table. None is unknown, and never 0."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, the unit of its values, and its meaning in a sentence."""

    name: str
    unit: str | None = None
    meaning: str = ""


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
    facts: Mapping[str, Cell] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that every row has a cell per column.

        Raises:
            ValueError: A row has more or fewer.
        """
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.id}, row {number}: {len(row)} cells for {len(self.columns)} columns")

    def column(self, name: str) -> tuple[Cell, ...]:
        """Return the cells of the column ``name``.

        Raises:
            KeyError: There is no such column.
        """
        position = {column.name: index for index, column in enumerate(self.columns)}[name]
        return tuple(row[position] for row in self.rows)
