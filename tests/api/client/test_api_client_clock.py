"""The server's time, from the dates of its answers."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from benchlock.api.client.api_client import ServerClock

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Host:
    """A machine whose clock is ahead, and whose time goes on."""

    def __init__(self, ahead: timedelta) -> None:
        self.ahead, self.elapsed = ahead, 1000.0
        self.clock = ServerClock(lambda: self.there + self.ahead, lambda: self.elapsed)

    @property
    def there(self) -> datetime:
        return NOON + timedelta(seconds=self.elapsed - 1000)

    def hear(self) -> None:
        self.clock.note(format_datetime(self.there, usegmt=True))


@pytest.mark.parametrize("hours", [-30, -1, 1, 9999])
def test_a_clock_that_is_off_is_corrected_by_what_the_server_says(hours: int) -> None:
    host = Host(timedelta(hours=hours))
    assert host.clock() == host.there + host.ahead
    for _ in range(20):
        host.elapsed += 0.37
        host.hear()
    assert abs(host.clock() - host.there) < timedelta(seconds=1)
    host.elapsed += 3600
    host.ahead *= 2  # somebody set it
    assert abs(host.clock() - host.there) < timedelta(seconds=1)


def test_a_clock_that_is_right_is_taken_as_it_is() -> None:
    host = Host(timedelta(milliseconds=300))
    host.hear()
    assert host.clock() == host.there + host.ahead


@pytest.mark.parametrize("date", [None, "", "now", "Sat, 21 Nov 2026", "Sat, 99 Nov 2026 12:00:00 GMT"])
def test_what_is_no_date_is_ignored(date: str | None) -> None:
    host = Host(timedelta(hours=1))
    host.clock.note(date)
    assert not host.clock.is_set
    assert host.clock() == host.there + host.ahead
