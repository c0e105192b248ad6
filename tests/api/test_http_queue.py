"""The queue behind a server, as an agent asks it."""

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from benchlock.api.client.conversation import Conversation
from benchlock.api.client.opening import reach
from benchlock.api.client.queue import HttpQueue
from benchlock.api.dispatching import Permits, reach_agent, reach_queue
from benchlock.api.wire import jobs as wire
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.progress import SILENT
from benchlock.artifacts.transfer.network import patience
from benchlock.artifacts.transfer.session import Answer, Session
from benchlock.evaluator.dispatch.queue import Fence, MachineId, new_job_id
from benchlock.evaluator.dispatch.times import Times
from tests.support.recorded import NOON

LEASE = wire.LeaseOnWire(
    fence=7,
    job=new_job_id(NOON),
    lock="sha256:" + "0" * 64,
    isolation=None,
    allow_code=False,
    queue="a queue",
    seconds=6.0,
)


@pytest.mark.parametrize("url", ["http://registry.example", "ftp://registry.example"])
def test_no_token_is_sent_where_others_could_read_it(url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"not encrypted|no URL"):
        reach_queue(url)


def test_a_worker_whose_folder_cannot_be_made_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    url = "https://registry.example"
    (reach(url).home() / "worker").write_text("no folder")
    with pytest.raises(UnavailableError, match="cannot be made"):
        reach_agent(url, "m1", Permits(), SILENT, print)


class Noted:
    """A session that answers at once, and keeps how long it might have taken."""

    def __init__(self) -> None:
        self.patience: dict[str, float] = {}

    def url(self, path: str) -> str:
        return path

    def once(self, method: str, url: str, *, seconds: float, **_: Any) -> Answer:  # noqa: ANN401
        self.patience[method] = seconds
        answer = wire.LeaseAnswer(lease=LEASE) if method == "POST" else wire.Beaten(answer="keep")
        return Answer(200, {}, msgspec.json.encode(answer), url, cast("Any", None))


def test_a_beat_that_stalls_leaves_time_for_others_before_its_lease_ends() -> None:
    session = Noted()
    queue = HttpQueue(Conversation(cast("Session", session), "1", has_token=True))
    lease = queue.lease(MachineId("m1"), "a boot")
    assert lease is not None
    assert queue.beat(Fence(7), "measuring") == "keep"
    assert session.patience["PATCH"] == Times(6.0).answer
    assert max(patience(session.patience["PATCH"])) == Times(6.0).answer
    assert lease.times.beat + 3 * (lease.times.answer + lease.times.again) <= lease.times.grace
