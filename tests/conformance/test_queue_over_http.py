"""The same of a queue behind a server: test_queue.py again, but for what is asked of the database itself."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from litestar.testing import TestClient
from sqlalchemy import Engine

from benchlock.api.client.api_client import ApiClient
from benchlock.api.client.remote_queue import RemoteQueue
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_settings import VERSION, Settings
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.artifacts.stores.http_store import open_session, parse_server
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.queue.queue_types import Queue
from benchlock.registry.catalogue.catalogue import Catalogue
from tests.conformance import test_queue as suite
from tests.conformance.test_queue import Bench
from tests.support.evaluator.recorded import NOON

ELSEWHERE = (
    "test_a_job_whose_token_ended_a_moment_ago_is_not_given_out",
    "test_a_rotated_token_keeps_its_machine_its_lease_and_its_jobs",
    "test_a_token_has_so_many_queued_jobs_and_no_more",
    "test_when_a_token_ends_its_jobs_do_not_run_and_its_leases_end",
    "test_any_history_is_that_of_the_model",
    "test_a_comparison_is_queued_as_a_whole_or_not_at_all",
    "test_a_lease_and_a_job_belong_to_who_took_them",
    "test_a_machine_belongs_to_the_token_that_enrolled_it",
    "test_a_machine_that_was_enrolled_without_a_token_is_the_first_token_s",
    "test_a_machine_whose_token_is_of_no_use_any_more_is_the_next_one_s",
    "test_a_token_enrols_so_many_machines_and_no_more",
    "test_who_enrols_a_machine_takes_it_over_or_changes_it_is_logged",
)
globals().update({name: one for name, one in vars(suite).items() if name.startswith("test_") and name not in ELSEWHERE})


class Reached(RemoteQueue):
    """The same queue behind a server, which knows of no lock but by its id: jobs are submitted beside it.

    The upkeep of the queue is a part of the server's ``gc``, and no request of its own.
    """

    def __init__(self, client: ApiClient, behind: Queue) -> None:
        super().__init__(client)
        self.submit = behind.submit  # type: ignore[method-assign]
        self.live = behind.live  # type: ignore[attr-defined]
        for name in ("submit_comparison", "comparison", "cancel_comparison"):
            setattr(self, name, getattr(behind, name))
        self.remove_unused_matches = behind.remove_unused_matches  # type: ignore[attr-defined]


@pytest.fixture
def bench(database: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr("benchlock.api.http.live_jobs.READ_SECONDS", 60.0)  # so that signals alone wake who waits
    made = Bench(database)
    behind = made.queue
    for routes in ("job_routes", "client_run_routes"):
        monkeypatch.setattr(f"benchlock.api.http.routes.{routes}.open_queue", lambda _: behind)
    for check in ("check_run_start", "check_run_end"):
        monkeypatch.setattr(f"benchlock.api.http.routes.worker_routes.{check}", lambda *_: None)
    store = LocalStore(tmp_path / "blobs")
    store.put(io.BytesIO(b"result"))
    catalogue = Catalogue(database, lambda: NOON)
    examiner = Examiner(store, tmp_path, catalogue.get_lock)
    registry = LocalRegistry(tmp_path, store, catalogue, made.records, database, examiner)
    with TestClient(create_app(registry, Settings(largest_page=2))) as client:
        session = open_session(parse_server("http://127.0.0.1"))
        session._connections._clients["", None] = client
        made.queue = Reached(ApiClient(session, VERSION, has_token=False), behind)
        yield made
        session._connections._clients.clear()  # the test's own client, which is closed here
