"""The budget of one foreign file: what exceeds it is refused, and the limit is named."""

import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from typing import BinaryIO, cast

import pytest

from benchlock.registry.inspection.executable_code import list_code_reasons
from benchlock.registry.inspection.formats.parquet import read_footer
from benchlock.registry.inspection.formats.pickles import foreign_globals
from benchlock.registry.inspection.formats.protobuf import FieldCounter, MalformedError
from benchlock.registry.inspection.formats.tensor_files import read_array, read_header
from benchlock.registry.inspection.formats.untrusted_files import (
    BUDGET,
    Meter,
    OverBudgetError,
    read_buffer,
    read_lines,
    read_whole,
)
from benchlock.registry.inspection.inspection_process import LIMITS
from benchlock.registry.inspection.model_files import find_unsafe_members


def stream(content: bytes) -> BinaryIO:
    return io.BytesIO(content)


def test_a_document_and_a_line_are_bounded() -> None:
    assert read_whole(stream(b"x" * 10), 10) == b"x" * 10
    with pytest.raises(OverBudgetError, match="has more than 10 bytes"):
        read_whole(stream(b"x" * 11), 10)
    assert list(read_lines(stream(b"123456789\na"), 10)) == [b"123456789\n", b"a"]
    with pytest.raises(OverBudgetError, match="has a line of more than 10 bytes"):
        list(read_lines(stream(b"12345678901\n"), 10))


def test_annotations_as_large_as_coco_s_own_are_read_with_one_copy_of_their_bytes() -> None:
    """``instances_train2017.json`` and twice as much for what is made of it fit into the memory of an inspection."""
    assert 469_785_474 < BUDGET.annotations <= LIMITS.memory // 3
    with pytest.raises(OverBudgetError, match="has more than 10 bytes"):
        read_buffer(stream(b"x" * 11), 10)
    source = stream(bytes(64 << 20))
    tracemalloc.start()
    try:
        assert len(read_buffer(source, 64 << 20)) == 64 << 20
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()


def test_a_meter_bounds_each_read_and_all_of_them() -> None:
    meter = cast("BinaryIO", Meter(stream(b"x" * 100), largest=10, most=25))
    assert len(meter.read(10)) == 10
    with pytest.raises(OverBudgetError, match="a part of more than 10 bytes"):
        meter.read(1 << 62)
    meter = cast("BinaryIO", Meter(stream(b"x" * 100), most=25))
    meter.read(20)
    with pytest.raises(OverBudgetError, match="unpacks to more than 25 bytes"):
        meter.read(20)
    assert Meter(stream(b"abc"), largest=10).read(1 << 62) == b"abc"


def safetensors(header: object) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize("shape", [[1 << 63], [-1], [1.5], ["1"], [[1]]])
def test_sizes_of_a_safetensors_shape(shape: list[object]) -> None:
    content = safetensors({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}})
    with pytest.raises(MalformedError, match="has an invalid shape"):
        read_header(stream(content), len(content))


def test_axes_of_a_safetensors_shape() -> None:
    content = safetensors({"a": {"dtype": "F32", "shape": [1] * 65, "data_offsets": [0, 0]}})
    with pytest.raises(OverBudgetError, match="more than 64 axes"):
        read_header(stream(content), len(content))


def test_headers_are_bounded() -> None:
    large = (16 << 20) + 1
    with pytest.raises(OverBudgetError, match="has a header of more than 16 MiB"):
        read_header(stream(struct.pack("<Q", large) + bytes(large)), large + 8)
    footer = b"PAR1" + bytes(large) + struct.pack("<I", large) + b"PAR1"
    with pytest.raises(OverBudgetError, match="has a footer of more than 16 MiB"):
        read_footer(stream(footer))
    header = b"\x93NUMPY\x02\x00" + struct.pack("<I", 10_001) + b"(" * 10_001
    with pytest.raises(OverBudgetError, match="whose header has more than 10000 bytes"):
        read_array(stream(header), "x")


def test_members_of_an_archive_are_bounded() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(20_001):
            archive.writestr(f"{number}", b"")
    with pytest.raises(OverBudgetError, match="more than 20000 members"):
        list(find_unsafe_members(file))
    file.seek(0)
    with pytest.raises(OverBudgetError, match="more than 20000 members"):
        list_code_reasons(file)


def test_a_long_name_in_a_pickle_is_cut_and_is_never_harmless() -> None:
    name = b"A" * 990 + b"Storage" + b"B" * 100_000
    content = b"\x80\x02ctorch\n" + name + b"\n)R."
    (found,) = foreign_globals(stream(content))
    assert len(found) < 1010
    assert found.endswith("…")
    assert foreign_globals(stream(pickle.dumps({"a": [1.0, "b"]}))) == frozenset()


def test_fields_of_a_file_are_counted() -> None:
    visits = FieldCounter(fields=10_000_000)
    with pytest.raises(OverBudgetError, match="more than 10000000 fields"):
        visits.count()
