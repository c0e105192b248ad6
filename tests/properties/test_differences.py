"""Of any two locks: a difference is told exactly where their ids differ, whatever a request or a later version says."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from benchlock.registry.lock.lock_diff import diff
from benchlock.registry.lock.lockfile import dump, load, read
from tests.support.resolution.locks import request, shelf

DOCUMENT = shelf().lock(request()).document
KEYS = st.sampled_from(["limits", "scenario", "metrics", "seed", "dataset", "split", "a.b", "a[0]", "", "é"])
VALUES = st.recursive(
    st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0]) | st.sampled_from(["", "10m", "x → y", "\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=4)
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "request": TABLES,
        "scenario": TABLES,
        "metrics": st.dictionaries(KEYS, st.integers(1, 2), max_size=3),
        "novelty": VALUES,
    },
)


@example(one={"request": {"limits": []}}, other={"request": {"scenario": []}}, close=False)  # one key each, and another
@given(PARTS, PARTS, st.booleans())
def test_a_difference_is_told_exactly_where_ids_differ(one: dict[str, Any], other: dict[str, Any], close: bool) -> None:
    """Of any two, and of two that have most in common."""
    parts = {**one, **dict([*other.items()][:1])} if close else other
    before, after = (read({**DOCUMENT, **part}, "a lock") for part in (one, parts))
    there, back = diff(before, after, {}), diff(after, before, {})
    assert bool(there) == bool(back) == (before.id != after.id)
    for change in (*there, *back):
        assert str(change).startswith(change.subject)
        assert str(change).count("\n") in (0, len(change.details))


@given(PARTS)
def test_a_lock_is_written_and_read_again_whatever_it_carries(parts: dict[str, Any]) -> None:
    lock = read({**DOCUMENT, **parts}, "a lock")
    again = load(dump(lock), "a lock")
    assert (again.id, dump(again)) == (lock.id, dump(lock))
