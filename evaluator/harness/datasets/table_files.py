"""Datasets in table files: JSON lines and Parquet."""

import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from io import BytesIO
from itertools import accumulate
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..core.phase_environment import explain_missing_library
from ..steps.step_tensor import Source
from .labels import Lazy, parse_labels, read_mask
from .samples import Label, Opening, Samples, read_unpacked, resolve_inside


def open_json_lines(opening: Opening) -> Samples:
    """Open a split of JSON lines, plain or gzip; empty lines are skipped.

    Samples are texts, or arrays of numbers and nested lists: int64 where all numbers are whole, else float64.
    """
    path: str = opening.split["file"]
    content = read_unpacked(resolve_inside(opening.folder, path)).split(b"\n")
    lines = [number for number, line in enumerate(content) if line.strip()]
    names = [f"{path} line {number + 1}" for number in lines]

    def value(number: int, key: str) -> Any:  # noqa: ANN401 - whatever JSON holds
        return read_key(json.loads(content[lines[number]]), key, names[number])

    def read(number: int) -> dict[str, Source]:
        record = json.loads(content[lines[number]])
        return {
            field: _source(read_key(record, key, names[number]), names[number]) for field, key in opening.keys.items()
        }

    def label_array(number: int) -> NDArray[Any]:
        assert opening.label_key is not None
        return _array(value(number, opening.label_key), names[number])

    labels: Sequence[Label] | None = None
    if (key := opening.label_key) is not None and lines:
        if isinstance(value(0, key), list):
            labels = Lazy(label_array, names)
        else:
            values = [value(number, key) for number in range(len(lines))]
            labels = parse_labels(values, opening.names, lambda number: names[number])
    return Samples(read, names, labels, frozenset(opening.keys))


def read_key(record: object, key: str, where: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return the value of ``key`` in a JSON object; raise ``ValueError`` with ``where`` if it is missing."""
    if not isinstance(record, dict) or key not in record:
        raise ValueError(f"{where} has no {key!r}")
    return record[key]


def _source(value: object, where: str) -> Source:
    return value if isinstance(value, str) else _array(value, where)


def _array(value: object, where: str) -> NDArray[Any]:
    """Return the numbers of ``value``; raise ``ValueError`` for other content or lists of different lengths."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{where}: lists differ in length") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{where}: expected a text, a number or lists of numbers")
    return array


_KEPT = 1 << 28  # bytes of rows in memory
_FEWEST = 2  # groups in memory whatever their size: threads read on both sides of the border between two


def open_parquet(opening: Opening) -> Samples:
    """Open a split of a Parquet file; row groups stay in memory once read, within a bound.

    Samples are byte strings (encoded files), texts, or arrays of numbers and nested lists in the column's type. A key
    is a column, else ``COLUMN.PART``.
    """
    file = _File(resolve_inside(opening.folder, opening.split["file"]), opening)
    names = [f"{opening.split['file']}[{number}]" for number in range(file.count)]

    def read(number: int) -> dict[str, Source]:
        return {field: file.value(number, key) for field, key in opening.keys.items()}

    labels = None if opening.label_key is None or not names else _labels(file, opening.label_key, opening, names)
    return Samples(read, names, labels, frozenset(opening.keys))


def _labels(file: "_File", key: str, opening: Opening, names: Sequence[str]) -> Sequence[Label] | None:
    if file.is_list(key):
        return Lazy(lambda number: np.asarray(file.value(number, key)), names)
    if file.is_encoded(key):
        return Lazy(lambda number: read_mask(BytesIO(cast(bytes, file.value(number, key))), names[number]), names)
    return parse_labels(file.column(key), opening.names, lambda number: names[number])


class _File:
    """A Parquet file whose required columns are read one row group at a time; thread-safe."""

    def __init__(self, path: Path, opening: Opening) -> None:
        with explain_missing_library("a dataset in parquet"):
            from pyarrow import parquet, types  # noqa: PLC0415 - large, and only for this format

        self._types = types
        self._file = parquet.ParquetFile(path)
        self._name = opening.split["file"]
        schema = self._file.schema_arrow
        keys = {**opening.keys, **({} if opening.label_key is None else {"label": opening.label_key})}
        self._paths = {key: column_path(key, list(schema.names)) for key in keys.values()}
        self._of = {key: self._type(schema, key) for key in self._paths}
        counts = [self._file.metadata.row_group(group).num_rows for group in range(self._file.num_row_groups)]
        self._starts: list[int] = [0, *accumulate(counts)]
        self._lock = Lock()
        self._groups: OrderedDict[int, Any] = OrderedDict()

    @property
    def count(self) -> int:
        return self._starts[-1]

    def is_list(self, key: str) -> bool:
        return bool(self._is_list(self._of[key]))

    def is_encoded(self, key: str) -> bool:
        """Whether the values are byte strings."""
        types, of = self._types, self._of[key]
        return bool(types.is_binary(of) or types.is_large_binary(of) or types.is_fixed_size_binary(of))

    def value(self, number: int, key: str) -> Source:
        """Return the value of a row; raise ``ValueError`` where it is null or has an unsupported type."""
        group = bisect_right(self._starts, number) - 1
        scalar = self._scalar(self._rows(group), number - self._starts[group], key)
        if not scalar.is_valid:
            raise ValueError(f"{self._name}[{number}] has no {key!r}")
        return self._array(scalar) if self.is_list(key) else self._plain(scalar, key)

    def column(self, key: str) -> list[Any]:
        """Return all values of a column without lists, None for null."""
        values: list[Any] = []
        for group in range(self._file.num_row_groups):
            table = self._file.read_row_group(group, columns=[key], use_threads=False)
            values += [self._scalar(table, row, key).as_py() for row in range(table.num_rows)]
        return values

    def _rows(self, group: int) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return the row group and cache it; the least recently used groups leave the cache."""
        with self._lock:
            if group not in self._groups:
                columns = list(self._paths)
                self._groups[group] = self._file.read_row_group(group, columns=columns, use_threads=False)
            self._groups.move_to_end(group)
            while len(self._groups) > _FEWEST and sum(rows.nbytes for rows in self._groups.values()) > _KEPT:
                self._groups.popitem(last=False)
            return self._groups[group]

    def _scalar(self, table: Any, row: int, key: str) -> Any:  # noqa: ANN401
        top, *parts = self._paths[key]
        scalar = table.column(top)[row]
        for part in parts:
            scalar = scalar[part]
        return scalar

    def _type(self, schema: Any, key: str) -> Any:  # noqa: ANN401
        top, *parts = self._paths[key]
        field = schema.field(top)
        for part in parts:
            parted = self._types.is_struct(field.type)
            if not parted or part not in [inner.name for inner in field.type]:
                raise ValueError(f"{self._name}: column {field.name!r} has no part {part!r}")
            field = field.type.field(part)
        if self._types.is_struct(field.type):
            parts = [f"{key}.{inner.name}" for inner in field.type]
            raise ValueError(f"{self._name}: {key!r} has several parts: choose one of {', '.join(parts)}")
        return field.type

    def _is_list(self, of: Any) -> bool:  # noqa: ANN401
        types = self._types
        return bool(types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of))

    def _array(self, scalar: Any) -> NDArray[Any]:  # noqa: ANN401
        """Return the numbers of lists of equal lengths, in the type of the column."""
        values, shape = scalar.values, list[int]()
        while self._is_list(values.type):
            lengths = set(values.value_lengths().to_pylist())
            if len(lengths) > 1 or None in lengths:
                raise ValueError("lists differ in length")
            shape.append(_each(values, shape))
            values = values.flatten()
        if values.null_count:
            raise ValueError("a list has null where a number is expected")
        array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        if array.dtype.kind not in "biuf":
            raise ValueError(f"lists of {values.type}, expected numbers")
        return array.reshape([*shape, _each(array, shape)])

    def _plain(self, scalar: Any, key: str) -> Source:  # noqa: ANN401
        value = scalar.as_py()
        if isinstance(value, bytes | str):
            return value
        if isinstance(value, bool | int | float):
            return np.asarray(value, scalar.type.to_pandas_dtype())
        raise ValueError(f"column {key!r} is {scalar.type}, expected text, bytes or numbers")


def _each(values: Sized, shape: Sequence[int]) -> int:
    """Return how many of ``values`` each list of a nest of ``shape`` has; 0 without lists."""
    return len(values) // (prod(shape) or 1)


def column_path(key: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the path of ``key``: a column, else a column and the parts inside it."""
    if key in columns:
        return (key,)
    top, *parts = key.split(".")
    if not parts or top not in columns:
        raise ValueError(f"no column {key!r}; it has {', '.join(columns)}")
    return (top, *parts)


def write_unlabelled(
    split: Mapping[str, Any],
    source: Path,
    target: Path,
    fields: Collection[str],
    order: Callable[[Sequence[int]], list[int]],
) -> tuple[dict[str, Any], list[int]]:
    """Write a split without its labels, in a new order; return the new split and the order.

    Row groups are shuffled, and rows within each group, so that only one group is in memory at a time.

    Args:
        split: The split of the manifest.
        source: The folder of the dataset.
        target: The folder for the copy.
        fields: The fields that feed the model; only these are written.
        order: Returns the order of the samples, from the sizes of the row groups.
    """
    with explain_missing_library("a dataset in parquet"):
        import pyarrow as pa  # noqa: PLC0415 - large, and only for this format
        from pyarrow import compute, parquet  # noqa: PLC0415

    keys = {field: split["fields"][field] for field in sorted(fields)}
    names = {key: f"field-{position}" for position, key in enumerate(dict.fromkeys(keys.values()))}
    with parquet.ParquetFile(resolve_inside(source, split["file"])) as file:
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(int).tolist()
        paths = {key: column_path(key, list(file.schema_arrow.names)) for key in names}
        numbers = order(counts)
        writer = None
        written = 0
        while written < len(numbers):
            group = int(np.searchsorted(starts, numbers[written], side="right")) - 1
            rows = [number - starts[group] for number in numbers[written : written + counts[group]]]
            table = file.read_row_group(group, columns=[".".join(path) for path in paths.values()], use_threads=False)
            columns: dict[str, Any] = {}
            for key, (top, *parts) in paths.items():
                column = table.column(top)
                columns[names[key]] = compute.struct_field(column, parts) if parts else column
            shuffled = pa.table(columns).take(pa.array(rows))
            if writer is None:
                writer = parquet.ParquetWriter(target / "samples.parquet", shuffled.schema, compression=_codec(file))
            writer.write_table(shuffled, row_group_size=max(1, len(rows)))
            written += counts[group]
        if writer is not None:
            writer.close()
    return {"file": "samples.parquet", "fields": {field: names[key] for field, key in keys.items()}}, numbers


def _codec(file: Any) -> str:  # noqa: ANN401 - pyarrow has no types
    """Return the compression of the file, by the name that the writer accepts."""
    codec = str(file.metadata.row_group(0).column(0).compression)
    return "NONE" if codec == "UNCOMPRESSED" else codec
