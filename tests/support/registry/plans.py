"""How a database would answer a query."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection

_SEEKING = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"
"""On tables this small PostgreSQL reads everything; what it can do is asked here."""


def sources(connection: Connection, query: str) -> list[str]:
    """Where the rows come from: one line for each table that is read, or sorted."""
    if connection.dialect.name == "sqlite":
        return [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}")]
    for setting in _SEEKING.split("; "):
        connection.exec_driver_sql(setting)
    ((plan,),) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {query}")
    return [
        f"{node['Node Type']}{' with Index Cond' if 'Index Cond' in node else ''}"
        for node in nodes(plan[0]["Plan"])
        if "Plans" not in node or "Sort" in node["Node Type"]
    ]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All of a plan of PostgreSQL's."""
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)
