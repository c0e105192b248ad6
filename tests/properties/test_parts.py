"""What a Range asks for is what a slice of the bytes gives; what Content-Range says is understood as it is written."""

from hypothesis import given
from hypothesis import strategies as st

from benchlock.api.http.blob_transfer import ByteRange, NotInContentError, parse_content_range, parse_range

CONTENT = bytes(range(100))
numbers = st.integers(0, 2 * len(CONTENT))
sizes = st.integers(0, len(CONTENT))


def taken(header: str, size: int) -> bytes | None:
    """What the header asks for, ``None`` where nothing of it is there."""
    try:
        part = parse_range(header, size)
    except NotInContentError:
        return None
    part = part or ByteRange(0, size)
    assert part.start + part.size <= size
    return CONTENT[part.start : part.start + part.size]


@given(sizes, numbers, numbers)
def test_from_one_byte_to_another(size: int, first: int, last: int) -> None:
    content = CONTENT[:size]
    expected = content if last < first else content[first : last + 1] or None
    assert taken(f"bytes={first}-{last}", size) == expected


@given(sizes, numbers)
def test_from_one_byte_to_the_end(size: int, first: int) -> None:
    assert taken(f"bytes={first}-", size) == (CONTENT[:size][first:] or None)


@given(sizes, numbers)
def test_so_many_at_the_end(size: int, count: int) -> None:
    assert taken(f"bytes=-{count}", size) == (CONTENT[max(0, size - count) : size] or None)


@given(sizes, st.text(st.sampled_from("bytes=-,0123456789 x"), max_size=30))
def test_whatever_is_asked_for_nothing_breaks(size: int, header: str) -> None:
    taken(header, size)


@given(numbers, st.integers(1, 1 << 60), st.sampled_from(["{}-{}", "bytes {}-{}/*", "bytes={}-{}"]))
def test_what_is_sent_belongs_where_it_says(start: int, size: int, form: str) -> None:
    assert parse_content_range(form.format(start, start + size - 1)) == ByteRange(start, size)
