"""Tables have a cell per column."""

import pytest

from benchlock.evaluator.analysis.tables import Column, Table, divide, select_columns


def test_a_row_has_a_cell_per_column() -> None:
    table = Table("A2", "Layers", (Column("name"), Column("latency", "s")), (("conv", 1.0), ("relu", None)))
    assert table.column("latency") == (1.0, None)
    assert table.records()[0] == {"name": "conv", "latency": 1.0}
    with pytest.raises(KeyError):
        table.column("other")
    with pytest.raises(ValueError, match="shorter"):
        Table("t", "t", (Column("a"), Column("b")), (("x",),)).records()


def test_columns_are_selected_by_name_and_a_missing_cell_is_unknown() -> None:
    table = select_columns(("t", "T"), "name count", [{"name": "a", "other": 1}], {}, ("n", "n"))
    assert (table.rows, table.notes) == ((("a", None),), ("n",))
    assert [divide(1, 2), divide(None, 2), divide(1, 0)] == [0.5, None, None]
