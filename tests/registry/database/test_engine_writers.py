"""Several threads that write to one database: each has its turn, whoever asks how often."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine

from benchlock.registry.auth.audit_log import record_action
from benchlock.registry.database.engine import write_transaction

pytestmark = pytest.mark.databases
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)

WRITERS, TIMES = 8, 25


def test_nobody_waits_while_the_others_have_their_turn_over_and_over(database: Engine) -> None:
    done, waits, start = [0], [], threading.Barrier(WRITERS)

    def write(number: int) -> None:
        start.wait()
        for _ in range(TIMES):
            before = done[0]
            with write_transaction(database) as connection:
                waits.append(done[0] - before)
                record_action(connection, "a.test", str(number), NOON)
                done[0] += 1

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    assert done == [WRITERS * TIMES]
    assert max(waits) <= 4 * WRITERS
