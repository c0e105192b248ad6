"""Ids of runs on the command line, and the first characters of them."""

from types import SimpleNamespace

import click
import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from benchlock.api.cli.run_options import complete_run_id
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import new_run_id
from tests.support.evaluator.recorded import NOON, recorded
from tests.support.registry.filled import fill


def test_the_beginning_of_an_id_names_the_one_run_that_has_it(database: Engine) -> None:
    runs, records = fill(database), Records(database)
    twin = recorded(lock=runs[0].start.lock)
    records.start(replace(twin.start, id=new_run_id(NOON), attempt=9))

    def complete(text: str) -> str:
        context = SimpleNamespace(obj=SimpleNamespace(opened=SimpleNamespace(records=records)))
        return complete_run_id(context, click.Argument(["run"]), text)  # type: ignore[arg-type]

    assert complete(runs[1].id[:12]) == complete(runs[1].id[:24]) == complete(runs[1].id[4:]) == runs[1].id
    with pytest.raises(InvalidInputError, match=f"ambiguous run id {runs[0].id[:12]}"):
        complete(runs[0].id[:12])
    for other in (runs[1].id[:11], "run/7zzzzzzz", runs[1].id[4:-1], "model/digits"):
        assert complete(other) == other
