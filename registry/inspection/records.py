"""Splits whose samples lie in one file: arrays, lines of JSON, and the rows of a parquet file."""

import zlib
from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.arrays import FoundArray, read_arrays
from benchlock.registry.inspection.budgets import BUDGET, read_lines
from benchlock.registry.inspection.classes import Classes, label_fault
from benchlock.registry.inspection.content import Content
from benchlock.registry.inspection.parquet import read_footer
from benchlock.registry.inspection.protobuf import MalformedError
from benchlock.registry.manifests import Split

_LABEL = "label"
_LINES = "write one object a line"
_NUMBERS = "biuf"
_READ = "biufcSU"
"""What an array of samples may be of: NumPy's letters for numbers, byte strings and texts."""


def check_npz(split: Split, content: Content, where: str) -> int:
    """The number of samples: every field is an array with as many elements, none of objects."""
    path, keys = str(split.file), _keys(split)
    with content.open(path, f"{where}.file") as stream:
        try:
            arrays = {array.name: array for array in read_arrays(stream)}
        except MalformedError as error:
            raise content.error(f"{path} is no npz file: {error}", f"{where}.file") from error
    for field, key in keys.items():
        place = f"{where}.fields.{field}"
        if key not in arrays:
            raise content.error(f"{path} has no array {key!r}", place, f"it has {', '.join(arrays) or 'none'}")
        if arrays[key].holds_objects:
            what = f"the array {key!r} of {path} is of objects, which are a pickle and execute code when they are read"
            raise content.error(what, place, "save it with a type of numbers")
        if fault := _array_fault(arrays[key], field):
            raise content.error(f"the array {key!r} of {path} {fault}", place, "save it with another type or shape")
    counts = {key: arrays[key].shape[0] if arrays[key].shape else 0 for key in keys.values()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{key} {count}" for key, count in counts.items())
        raise content.error(f"the fields of {path} differ in their number of samples: {found}", f"{where}.fields")
    return next(iter(counts.values()), 0)


def _array_fault(array: FoundArray, field: str) -> str | None:
    """Why an array cannot be a field, as a predicate."""
    kind = array.descr.lstrip("<>|=")[:1] if isinstance(array.descr, str) else "V"
    if not array.shape:
        return "has no axis of samples"
    if kind not in _READ:
        return f"is of {array.descr!r}, where numbers or texts are expected"
    several = len(array.shape) > 1
    if field == _LABEL and kind not in (_NUMBERS if several else _NUMBERS + "U"):
        return f"is of {array.descr!r}, which is no label"
    return None


def check_jsonl(split: Split, content: Content, classes: Classes | None, where: str) -> int:
    """The number of lines, each of which has every field, and a label if one of them has."""
    path, keys, count = str(split.file), _keys(split), 0
    labelled: bool | None = None
    try:
        with content.unpacked(path, f"{where}.file") as stream:
            for number, line in enumerate(read_lines(stream, BUDGET.line), start=1):
                if line.strip():
                    count += 1
                    found = _read_line(line, number, keys, classes, content.where(path))
                    labelled = found if labelled is None else labelled
                    if labelled != found:
                        what = f"line {number}: some samples have a label, and some have none"
                        raise content.error(what, path, "label all of them, or none")
    except (OSError, EOFError, zlib.error) as error:
        raise content.error(f"{path} cannot be unpacked: {error}", f"{where}.file") from error
    return count


def _read_line(line: bytes, number: int, keys: Mapping[str, str], classes: Classes | None, where: str) -> bool:
    """Whether the line has a label; ``InvalidInputError`` if it is no sample."""
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(f"line {number} is no JSON: {error}", where=where, next_step=_LINES) from error
    for field, key in keys.items():
        if not isinstance(record, dict) or key not in record:
            raise InvalidInputError(f"line {number} has no {key!r}", where=where, next_step="write every field")
        if field != _LABEL and not isinstance(record[key], str | int | float | list):
            what = f"line {number}: {key!r} is no text, number or list of numbers"
            raise InvalidInputError(what, where=where, next_step="write one of these")
    label = record.get(keys[_LABEL]) if _LABEL in keys else None
    if label is not None and (fault := label_fault(label, classes)):
        raise InvalidInputError(f"line {number}: {fault}", where=where, next_step="correct the label")
    return label is not None


def check_parquet(split: Split, content: Content, where: str) -> int:
    """The number of rows, as the footer says it, which also has every column that a field names."""
    path = str(split.file)
    with content.open(path, f"{where}.file") as stream:
        try:
            footer = read_footer(stream)
        except MalformedError as error:
            raise content.error(f"{path} is no parquet file: {error}", f"{where}.file") from error
    for field, key in _keys(split).items():
        place = f"{where}.fields.{field}"
        column = footer.column(key)
        if column is None:
            known = ", ".join(one.name for one in footer.columns)
            raise content.error(f"{path} has no column {key!r}", place, f"it has {known or 'none'}")
        if column.parts:
            step = f"name one of {', '.join(f'{key}.{part.name}' for part in column.parts)}"
            raise content.error(f"the column {key!r} of {path} has parts", place, step)
    return footer.rows


def _keys(split: Split) -> dict[str, str]:
    return {} if split.fields is UNSET else split.fields
