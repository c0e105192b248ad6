"""What is guarded: append-only tables, as values that revisions write out and that each database has triggers for."""

from dataclasses import dataclass

REFUSAL = "append-only"


@dataclass(frozen=True, slots=True)
class Seal:
    """The row that ends what may be added: its table, and pairs of (this table's column, that table's column)."""

    table: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """An append-only table: its name, its unique keys, and what seals it."""

    table: str
    keys: tuple[tuple[str, ...], ...]
    seal: Seal | None = None

    def trigger(self, event: str) -> str:
        """The name of one of its triggers."""
        return f"guard_{self.table}_{event}"


def row_exists(table: str, columns: tuple[tuple[str, str], ...]) -> str:
    """The condition that a row of ``table`` has the new row's values: pairs of (the new row's column, the table's)."""
    match = " AND ".join(f"{theirs} = NEW.{ours}" for ours, theirs in columns)
    return f"EXISTS (SELECT 1 FROM {table} WHERE {match})"  # noqa: S608 - names of our own tables
