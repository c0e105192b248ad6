"""What benchlock records by itself is truncated to its limits, and no run is lost to what its model printed."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, insert

from benchlock.artifacts import size_limits
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import RunEnd, check_end, fit_end
from benchlock.evaluator.runner.run_outcome import Failure
from benchlock.evaluator.workflows.run_record import make_interrupted_end
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.database.registry_schema import locks
from tests.evaluator.records.test_run_store import FAILED, LOCK, NOON, end, start

LONG = "é" * 7_500_000
EVERYTHING = replace(
    end(),
    packages={LONG: LONG, "numpy": "2.4.0"},
    timings={LONG: 1.0} | {f"{'p' * 300}{number}": 1.0 for number in range(5000)},
    details={"golden": [LONG], "loadgen": {"valid": True}},
)


@pytest.mark.parametrize("made", [EVERYTHING, replace(FAILED, failure_message=LONG, failure_class=LONG)])
def test_every_end_fits(made: RunEnd, database: Engine) -> None:
    with write_transaction(database) as connection:
        columns = {column.name: "x" for column in locks.columns} | {"id": LOCK, "created_at": NOON}
        connection.execute(insert(locks).values(columns))
    begun, fitted = start(), fit_end(made)
    with pytest.raises(size_limits.TooLongError):
        check_end(begun, made)
    check_end(begun, fitted)
    records = Records(database)
    records.start(begun)
    records.finish(begun.id, fitted)
    assert records.get(begun.id).end is not None


def test_what_is_truncated_says_so() -> None:
    found = fit_end(replace(FAILED, failure_message=LONG))
    assert str(found.failure_message).endswith("… [truncated: 15000000 bytes]")
    details = fit_end(EVERYTHING).details
    size = len(encode_canonical([LONG]))
    assert details == {"golden": f"[truncated: {size} bytes]", "loadgen": {"valid": True}}


def test_what_fits_stays_as_it_is() -> None:
    assert fit_end(end()) == end()
    assert fit_end(FAILED) == FAILED


def test_the_runner_fits_the_message_of_a_run_that_fell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchlock.evaluator.workflows.run_record.describe_attempt", lambda _: {})
    attempt: Any = SimpleNamespace()
    found = make_interrupted_end(attempt, Failure("crash", LONG), {}, NOON)
    assert len(str(found.failure_message).encode()) <= size_limits.FAILURE_MESSAGE
