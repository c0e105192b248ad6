"""The next job is found by the index of its class, however the jobs of other classes lie."""

import pytest
from sqlalchemy import Engine, text

from benchlock.evaluator.queue.fair_shares import POSTGRESQL, SQLITE, list_candidates
from benchlock.evaluator.queue.file_locality import FRONT, WINDOW
from benchlock.evaluator.queue.job_matching import JobRequirements
from benchlock.registry.database.engine import read_transaction, row_lock_transaction
from tests.support.evaluator.queues import BOOT, CPU, Ticking, facts, machine, queue_of, wish

CLASSES = 4
MORE = """
INSERT INTO jobs (id, lock, class, allow_code, state, cancel_asked, lost, engine, crash, owner, since, submitted_at)
SELECT 'job/' || one.seq || '/' || other.seq || '/' || third.seq || '/' || fourth.seq || '/' || fifth.seq || '/' ||
    sixth.seq, one.lock, one.class, one.allow_code, 'queued', one.cancel_asked, 0, 0, 0, 'x', 5000, one.submitted_at
FROM jobs AS one, jobs AS other, jobs AS third, jobs AS fourth, jobs AS fifth, jobs AS sixth
ORDER BY one.seq
"""
"""4,096 jobs of the four, those of a class all behind one another."""


def fill(database: Engine) -> None:
    """Enrol a machine that fits all classes, and queue their jobs."""
    queue = queue_of(database, Ticking())
    queue.enrol(machine(1), BOOT, facts(cpus=8))
    for number in range(CLASSES):
        queue.submit(wish(JobRequirements((CPU,), {}, cpus=1 + number)))
    with row_lock_transaction(database) as connection:
        connection.execute(text(MORE))
        connection.execute(text("ANALYZE"))


@pytest.mark.databases
def test_each_class_is_asked_for_its_own_first_jobs(database: Engine) -> None:
    fill(database)
    is_server = database.dialect.name == "postgresql"
    question = f"EXPLAIN {POSTGRESQL[0]}" if is_server else f"EXPLAIN QUERY PLAN {SQLITE}"
    with read_transaction(database) as connection:
        told = " ".join(
            str(row) for row in connection.execute(text(question), {"machine": "m1", "now": 0.0, "left_out": []})
        )
        found = [one.seq for one in list_candidates(connection, machine(1), None, 0.0)]
    assert "ix_jobs_queued" in told
    assert "pk_jobs" not in told
    assert "SCAN jobs" not in told.replace("SCAN jobs USING INDEX ix_jobs_leased", "")
    assert found == list(range(1, 1 + len(found)))


def test_the_first_jobs_of_an_owner_and_a_class_are_found_by_the_same_index(database: Engine) -> None:
    fill(database)
    first = 1 + CLASSES + 4**5  # the first job of the second class
    values = {"machine": "m1", "boot": BOOT, "owner": "x", "first": first}
    with read_transaction(database) as connection:
        told = " ".join(str(row) for row in connection.execute(text(f"EXPLAIN QUERY PLAN {FRONT}"), values))
        found = [row.seq for row in connection.execute(FRONT, values)]
    assert "ix_jobs_queued_owner (owner=? AND class=?)" in told
    assert "SCAN jobs" not in told
    assert found == list(range(first, first + WINDOW))
