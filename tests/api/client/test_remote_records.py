"""Runs of a registry on a server, as a client lists them."""

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchlock.api.client import remote_records as client_records
from benchlock.api.client.remote_records import RemoteRuns
from benchlock.api.client.remote_registry import connect_server
from benchlock.api.local.local_registry import open_registry
from benchlock.evaluator.records.run_types import Outcome, RunEnd, RunFilter, new_run_id
from tests.evaluator.queue.test_client_runs import start_of
from tests.support.api.serving import service
from tests.support.evaluator.recorded import NOON
from tests.support.resolution.variants import variant


def test_entries_before_a_run_are_those_of_the_registry_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(client_records, "RUN_PAGE", 2)  # so that a list takes several pages
    registry = open_registry(str(tmp_path / "registry"), print)
    lock = variant({}).lock
    registry.catalogue.put_lock(lock)
    ids = [new_run_id(NOON + timedelta(seconds=number)) for number in range(7)]
    for number, run in enumerate(ids):
        at = NOON + timedelta(seconds=number)
        begun = start_of(lock, at)
        registry.records.start(replace(begun, id=run))
        registry.records.finish(run, RunEnd(outcome="cancelled" if number % 3 else "abandoned", ended_at=at))
    outcomes: tuple[Outcome | None, ...] = (None, "cancelled")
    with service(tmp_path / "registry") as served:
        remote = RemoteRuns(connect_server(served.url).client, lambda _: False)
        for before in (None, *ids):
            for limit in (1, 3, 100):
                for outcome in outcomes:
                    chosen = RunFilter(lock=lock.id, outcome=outcome)
                    page = remote.list_entries(chosen=chosen, before=before, limit=limit)
                    own = registry.records.list_entries(chosen=chosen, before=before, limit=limit)
                    assert [one.id for one in page] == [one.id for one in own], (before, limit, outcome)
        assert [one.id for one in remote.list_entries(before=ids[3], limit=100)] == ids[2::-1]
    registry.database.dispose()
