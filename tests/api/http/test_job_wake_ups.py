"""Requests that wait for a job: they look again when a signal comes, and seldom without one."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchlock.api.http import live_jobs
from benchlock.api.http.live_jobs import JobWakeUps
from benchlock.api.http.service_state import Service
from benchlock.registry.database.commit_signals import Signal


class Pool:
    """Runs work in a thread, as the service does."""

    async def do(self, act: Any) -> Any:  # noqa: ANN401 - any function
        return await asyncio.to_thread(act)


class Silent:
    """A signal that comes when it is sent; each wait for it takes its time."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.is_sent, self.is_broken, self.waits = False, is_broken, 0

    def wait(self, seconds: float) -> bool:
        self.waits += 1
        if self.is_broken:
            raise OSError
        until = time.monotonic() + seconds
        while not self.is_sent and time.monotonic() < until:
            time.sleep(0.005)
        is_sent, self.is_sent = self.is_sent, False
        return is_sent

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_jobs, "LISTEN_SECONDS", 0.1)
    monkeypatch.setattr(live_jobs, "READ_SECONDS", 0.2)


def wake_ups(signal: Silent) -> JobWakeUps:
    service = SimpleNamespace(work=Pool(), ending=asyncio.Event())
    return JobWakeUps(cast("Service", service), cast("Signal", signal))


@pytest.mark.parametrize("is_broken", [False, True])
def test_without_a_signal_a_request_looks_seldom(*, is_broken: bool) -> None:
    looks: list[float] = []

    def look() -> bool:
        time.sleep(0.02)  # long enough for the listener to check meanwhile who waits
        looks.append(time.monotonic())
        return False

    async def ask() -> None:
        ups = wake_ups(signal)
        assert await asyncio.gather(*(ups.wait_for(look, 2.0) for _ in range(3))) == [False] * 3

    signal = Silent(is_broken=is_broken)
    asyncio.run(ask())
    assert len(looks) <= 3 * 2 * (2.0 / 0.2)
    assert signal.waits <= 2 * (2.0 / 0.1)


def test_a_signal_wakes_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_jobs, "READ_SECONDS", 60.0)
    signal, queued = Silent(), list[str]()

    async def ask() -> list[bool]:
        ups = wake_ups(signal)
        waiting = [asyncio.create_task(ups.wait_for(lambda: bool(queued), 60.0)) for _ in range(3)]
        await asyncio.sleep(0.3)
        queued.append("job")
        signal.is_sent = True
        return list(await asyncio.gather(*waiting))

    assert asyncio.run(ask()) == [True] * 3
