"""How each database finds the next job, in its own words."""

from sqlalchemy import text

from benchlock.evaluator.queue.fair_shares import POSTGRESQL, SQLITE
from benchmarks.queueing.places import Place


def plan(place: Place) -> list[str]:
    """The plan of the question which job a machine gets."""
    engine = place.open()
    values = {"machine": "m0", "now": 0.0, "left_out": list[str]()}
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            told = connection.execute(text(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {POSTGRESQL[0]}"), values)
            found = [str(row[0]) for row in told]
        else:
            told = connection.execute(text(f"EXPLAIN QUERY PLAN {SQLITE}"), values)
            found = [str(row.detail) for row in told]
    engine.dispose()
    return found
