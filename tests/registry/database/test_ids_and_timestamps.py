"""Ids and times as text: what is later sorts later."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest

from benchlock.registry.database.ids_and_timestamps import format_time, is_id, new_id, parse_id_time, to_milliseconds

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_ids_of_one_millisecond_sort_in_the_order_of_their_making() -> None:
    made = [new_id(NOON) for _ in range(5000)]
    assert sorted(made) == made
    assert len({*made}) == len(made)
    assert all(is_id(one) and parse_id_time(one) == to_milliseconds(NOON) for one in made)


def test_no_two_are_alike_whoever_makes_them() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: new_id(NOON), range(4000)))
    assert len({*made}) == len(made)


def test_those_of_a_later_millisecond_sort_later() -> None:
    one, two = new_id(NOON), new_id(NOON + timedelta(milliseconds=1))
    assert one < two
    assert new_id(NOON) < two


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (NOON, "2026-11-22T12:00:00.000000Z"),
        (NOON.replace(microsecond=7), "2026-11-22T12:00:00.000007Z"),
        (NOON.astimezone(timezone(timedelta(hours=5, minutes=30))), "2026-11-22T12:00:00.000000Z"),
        (datetime(7, 1, 2, tzinfo=UTC), "0007-01-02T00:00:00.000000Z"),
    ],
)
def test_a_time_is_a_text_as_long_as_any_other(time: datetime, text: str) -> None:
    assert format_time(time) == text
    assert datetime.fromisoformat(text) == time


def test_a_time_without_its_zone_is_none() -> None:
    with pytest.raises(ValueError, match="without its zone"):
        format_time(NOON.replace(tzinfo=None))
