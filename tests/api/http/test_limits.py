"""Bounds: how often somebody may ask, how much may wait, how large a body may be."""

import asyncio
import threading

import pytest
from litestar.testing import TestClient

from api.http.app import create_app
from api.http.limits import Buckets
from api.http.settings import Settings
from api.http.work import BusyError, Work
from api.wiring import Registry
from tests.api.http.conftest import Client

RUN = "run/01kam1v3mz4w0q3d5g7h9j2k4m"


def test_a_bucket_gives_as_many_as_it_holds_and_is_refilled() -> None:
    buckets = Buckets()
    assert [buckets.take("one", 2.0, 0.0) for _ in range(5)] == [True] * 4 + [False]
    assert buckets.take("another", 2.0, 0.0)
    assert [buckets.take("one", 2.0, 0.5) for _ in range(2)] == [True, False]
    assert [buckets.take("one", 2.0, 1000.0) for _ in range(5)] == [True] * 4 + [False]
    assert [buckets.take("one", 0.1, at) for at in (0.0, 5.0, 10.0)] == [True, False, True]


def test_who_asks_too_often_is_told_to_wait(registry: Registry) -> None:
    with TestClient(create_app(registry, Settings(rate=1.0)), raise_server_exceptions=False) as client:
        answers = [client.get("/v1/artifacts") for _ in range(20)]
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["code"] == "too-many-requests"
    assert refused.headers["retry-after"]
    assert answers[0].status_code == 200


def test_what_waits_is_bounded_and_goes_on_when_there_is_room() -> None:
    async def crowd() -> None:
        work, gate = Work(1, 1, at_once=False), threading.Event()
        waiting = [asyncio.create_task(work.do(gate.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await work.look_up(gate.is_set)
        gate.set()
        assert await asyncio.gather(*waiting) == [True, True]
        assert await work.look_up(gate.is_set)
        await work.end(60)

    asyncio.run(crowd())


def test_an_end_waits_for_what_is_being_done_so_long_and_no_longer() -> None:
    async def ended() -> None:
        work, gate = Work(1, 1, at_once=False), threading.Event()
        long, waiting = (asyncio.create_task(work.do(gate.wait)) for _ in range(2))
        await asyncio.sleep(0)
        await work.end(0.01)
        assert work.is_busy
        with pytest.raises(BusyError):
            await work.do(gate.is_set)
        gate.set()
        assert await long
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await work.end(60)
        assert not work.is_busy

    asyncio.run(ended())


@pytest.mark.parametrize(
    ("path", "bytes_"), [("/v1/yanks", 17 << 20), ("/v1/comparisons", 2 << 20), ("/v1/bundles", 2 << 20)]
)
def test_a_body_beyond_its_bound_is_refused(client: Client, path: str, bytes_: int) -> None:
    answer = client.post(path, json={"target": "x" * bytes_})
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


@pytest.mark.parametrize(("path", "wrapped"), [(f"/v1/runs/{RUN[4:]}/end", False), ("/v1/leases/7/run", True)])
@pytest.mark.parametrize(("bytes_", "status"), [(15 << 20, (404, 409)), (17 << 20, (413,))])
def test_the_end_of_a_run_may_be_large_wherever_it_is_told(
    client: Client, path: str, wrapped: bool, bytes_: int, status: tuple[int, ...]
) -> None:
    end = {"outcome": "cancelled", "ended_at": "2026-11-21T12:01:00Z", "details": {"log": "x" * bytes_}}
    answer = client.put(path, json={"run": RUN, "end": end} if wrapped else end)
    assert answer.status_code in status, answer.text[:1000]
