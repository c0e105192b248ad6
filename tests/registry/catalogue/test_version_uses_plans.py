"""The plans of SQLite for the lists of what uses a version."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, event

from benchlock.registry.artifact_names import parse_reference
from benchlock.registry.catalogue.catalogue import Catalogue

START = datetime(2026, 11, 1, tzinfo=UTC)


def test_each_list_is_read_by_an_index(database: Engine) -> None:
    catalogue = Catalogue(database, lambda: START)
    plans: list[str] = []

    def explain(connection: Any, _: Any, statement: str, parameters: Any, *_others: Any) -> None:  # noqa: ANN401
        if statement.startswith("SELECT"):
            plan = connection.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[-1] for row in plan.fetchall())

    event.listen(database, "before_cursor_execute", explain)
    for kind in ("model", "dataset", "framework", "image", "operator", "recipe"):
        reference = parse_reference(f"{kind}/acme@1.0.0")
        catalogue.list_locks_with(reference, 50, (START, "sha256:00"))
        catalogue.list_dependents(reference, 50, ("model", "acme", "1"))
        catalogue.list_dependents(reference, 50)
        catalogue.list_yank_changes(reference, 50)
    catalogue.list_locks("sha256:00", 20)
    assert len(plans) > 10
    assert [plan for plan in plans if plan.startswith("SCAN") or "TEMP B-TREE" in plan] == []
