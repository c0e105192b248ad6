"""The queue behind a server, as an agent asks it."""

import shutil
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from benchlock.api.client.api_client import ApiClient
from benchlock.api.client.remote_queue import RemoteQueue
from benchlock.api.client.remote_registry import connect_server
from benchlock.api.client.worker_setup import WorkerPermissions, build_remote_agent, connect_queue
from benchlock.api.schemas import job_schemas as wire
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.net.http_session import ServerResponse, Session, make_timeout
from benchlock.artifacts.size_limits import MACHINE
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.queue.lease_times import Times, boot_id
from benchlock.evaluator.queue.queue_types import Fence, Lease, MachineId, new_job_id
from tests.support.evaluator.recorded import NOON

LEASE = Lease(
    fence=Fence(7),
    job=new_job_id(NOON),
    lock=digest_bytes(b"a lock"),
    isolation=None,
    allow_code=False,
    queue="a queue",
    seconds=6.0,
)


@pytest.mark.parametrize("url", ["http://registry.example", "ftp://registry.example"])
def test_no_token_is_sent_where_others_could_read_it(url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"not encrypted|neither a server URL"):
        connect_queue(url)


def test_a_worker_whose_folder_cannot_be_made_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    url = "https://registry.example"
    (connect_server(url).home() / "worker").write_text("no folder")
    with pytest.raises(UnavailableError, match="cannot create the cache folder"):
        build_remote_agent(url, "m1", WorkerPermissions(), SILENT, print)


def test_a_cache_keeps_its_id_and_a_new_one_has_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def boot() -> str:
        agent = build_remote_agent("https://registry.example", "m1", WorkerPermissions(), SILENT, print)
        return agent.environment.boot

    first = boot()
    assert first.startswith(f"{boot_id()} ")
    assert len(first) <= MACHINE
    assert boot() == first
    shutil.rmtree(connect_server("https://registry.example").home())
    assert boot() != first


class Noted:
    """A session that answers at once, and keeps how long it might have taken."""

    def __init__(self) -> None:
        self.patience: dict[str, float] = {}

    def url(self, path: str) -> str:
        return path

    def ask_once(self, method: str, url: str, *, seconds: float, **_: Any) -> ServerResponse:  # noqa: ANN401
        self.patience[method] = seconds
        answer = wire.LeaseResponse(lease=LEASE) if method == "POST" else wire.HeartbeatResponse(answer="keep")
        return ServerResponse(200, {}, msgspec.json.encode(answer), url, cast("Any", None))


def test_a_beat_that_stalls_leaves_time_for_others_before_its_lease_ends() -> None:
    session = Noted()
    queue = RemoteQueue(ApiClient(cast("Session", session), "1", has_token=True))
    lease = queue.lease(MachineId("m1"), "a boot")
    assert lease is not None
    assert queue.beat(Fence(7), "measuring") == "keep"
    assert session.patience["PATCH"] == Times(6.0).answer
    assert max(make_timeout(session.patience["PATCH"])) == Times(6.0).answer
    assert lease.times.beat + 3 * (lease.times.answer + lease.times.again) <= lease.times.grace
