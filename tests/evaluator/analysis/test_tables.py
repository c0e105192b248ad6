"""Tables keep their rows and columns together."""

import pytest

from benchlock.evaluator.analysis.tables import Column, Table

COLUMNS = (Column("layer"), Column("latency", "s"))


def test_a_column_is_found_by_its_name() -> None:
    table = Table("A2", "layers", COLUMNS, (("conv", 0.5), ("dense", None)))
    assert table.column("latency") == (0.5, None)
    with pytest.raises(KeyError):
        table.column("memory")


def test_a_row_with_a_missing_cell_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1: 1 cells for 2 columns"):
        Table("A2", "layers", COLUMNS, (("conv", 0.5), ("dense",)))
