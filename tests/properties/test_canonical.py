"""Canonical JSON is what the library for RFC 8785 writes, whichever encoder is faster."""

from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical

SAFE = 2**53 - 1
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-(10**9), 10**9, places=4).map(float)
    | st.text()
)
DOCUMENTS = st.recursive(SCALARS, lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts), max_leaves=20)


@given(DOCUMENTS)
def test_every_document_is_written_as_the_library_writes_it(document: Any) -> None:  # noqa: ANN401 - any JSON value
    assert encode_canonical(document) == rfc8785.dumps(document)


@pytest.mark.parametrize("value", ["\ud800", float("nan"), SAFE + 1, {1: 2}, {"a": {1}}, object()])
def test_what_is_no_json_is_refused(value: Any) -> None:  # noqa: ANN401 - as above
    with pytest.raises(InvalidInputError, match="canonical JSON"):
        encode_canonical({"nested": [value]})
