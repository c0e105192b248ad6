"""Inspection of dataset splits: sample counts, files and labels, in every dataset format."""

import csv
import io
import posixpath
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import BinaryIO

import msgspec
from msgspec import UNSET

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.display import format_count
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.draft_content import DraftContent
from benchlock.registry.inspection.formats.foreign_files import BUDGET, read_lines, read_text_lines, read_whole
from benchlock.registry.inspection.formats.parquet import read_footer
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.tensor_files import ArrayHeader, read_arrays
from benchlock.registry.inspection.label_files import Classes, check_coco, label_fault, read_classes
from benchlock.registry.manifests import Dataset, Split
from benchlock.registry.text.problems import Problems

_LABEL = "label"
_LINES = "write one object a line"
_NUMBERS = "biuf"
_READ = "biufcSU"
"""What an array of samples may be of: NumPy's letters for numbers, byte strings and texts."""


def check_npz(split: Split, content: DraftContent, where: str) -> int:
    """The number of samples: every field is an array with as many elements, none of objects."""
    path, keys = str(split.file), _keys(split)
    with content.open(path, f"{where}.file") as stream:
        try:
            arrays = {array.name: array for array in read_arrays(stream)}
        except MalformedError as error:
            raise content.error(f"{path} is no npz file: {error}", f"{where}.file") from error
    for name, key in keys.items():
        place = f"{where}.fields.{name}"
        if key not in arrays:
            raise content.error(f"{path} has no array {key!r}", place, f"it has {', '.join(arrays) or 'none'}")
        if arrays[key].holds_objects:
            what = f"the array {key!r} of {path} is of objects, which are a pickle and execute code when they are read"
            raise content.error(what, place, "save it with a type of numbers")
        if fault := _array_fault(arrays[key], name):
            raise content.error(f"the array {key!r} of {path} {fault}", place, "save it with another type or shape")
    counts = {key: arrays[key].shape[0] if arrays[key].shape else 0 for key in keys.values()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{key} {count}" for key, count in counts.items())
        raise content.error(f"the fields of {path} differ in their number of samples: {found}", f"{where}.fields")
    return next(iter(counts.values()), 0)


def _array_fault(array: ArrayHeader, field: str) -> str | None:
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


def check_jsonl(split: Split, content: DraftContent, classes: Classes | None, where: str) -> int:
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
    for name, key in keys.items():
        if not isinstance(record, dict) or key not in record:
            raise InvalidInputError(f"line {number} has no {key!r}", where=where, next_step="write every field")
        if name != _LABEL and not isinstance(record[key], str | int | float | list):
            what = f"line {number}: {key!r} is no text, number or list of numbers"
            raise InvalidInputError(what, where=where, next_step="write one of these")
    label = record.get(keys[_LABEL]) if _LABEL in keys else None
    if label is not None and (fault := label_fault(label, classes)):
        raise InvalidInputError(f"line {number}: {fault}", where=where, next_step="correct the label")
    return label is not None


def check_parquet(split: Split, content: DraftContent, where: str) -> int:
    """The number of rows, as the footer says it, which also has every column that a field names."""
    path = str(split.file)
    with content.open(path, f"{where}.file") as stream:
        try:
            footer = read_footer(stream)
        except MalformedError as error:
            raise content.error(f"{path} is no parquet file: {error}", f"{where}.file") from error
    for name, key in _keys(split).items():
        place = f"{where}.fields.{name}"
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


SHOWN = 20
"""Lines of one index that are told one by one."""

_COLUMNS = ("path", "label", "mask")
_NEAR = 0.8  # of difflib: ``lable`` is a misspelt label, and ``part`` and ``task`` are columns of their own
_WAV = 12  # bytes of a wav file's beginning


@dataclass(frozen=True, slots=True)
class _Index:
    """An index of ``form``, and what its rows are held against."""

    path: str
    form: str
    classes: Classes | None
    content: DraftContent
    sounds: set[Digest] = field(default_factory=set)

    def faults(self, row: dict[str, str], line: str) -> Iterator[InvalidInputError]:
        # A path is taken as it stands, a mask without the spaces around it: so does the harness.
        yield from self._file_faults(row["path"], line)
        if self.form == "image-index" and (mask := (row.get("mask") or "").strip()):
            yield from self._file_faults(mask, line)
        label = (row.get("label") or "").strip()
        if label and (fault := label_fault(label, self.classes)):
            yield self.content.error(fault, line, "correct the label")

    def _file_faults(self, named: str, line: str) -> Iterator[InvalidInputError]:
        sample = posixpath.normpath(posixpath.join(posixpath.dirname(self.path), named))
        if sample not in self.content.files:
            if not self.content.is_untaken(sample):
                yield self.content.error(f"{sample} is none of the files", line, "correct the path, or add the file")
        elif self.form == "wav-index":
            digest = self.content.files[sample].digest
            if digest in self.sounds:  # of many samples that are one file, it is read once
                return
            with self.content.open(sample, line) as stream:
                start = stream.read(_WAV)
            if start[:4] == b"RIFF" and start[8:] == b"WAVE":
                self.sounds.add(digest)
            else:
                yield self.content.error(f"{sample} is no WAV file", line, "convert it to WAV")


def check_index(
    form: str, split: Split, content: DraftContent, classes: Classes | None, found_at: tuple[str, Problems]
) -> int:
    """The number of rows, each of which names files and a label that exist."""
    where, problems = found_at
    index = _Index(str(split.index), form, classes, content)
    count, wrong, before = 0, 0, dict[str, bool]()
    for count, row in enumerate(_rows(index.path, content, f"{where}.index"), start=1):
        line = f"{index.path}, line {count + 1}"
        found = list(index.faults(row, line))
        for column in ("label", "mask"):
            there = bool((row.get(column) or "").strip())
            if before.setdefault(column, there) != there:
                what = f"some samples have a {column}, and some have none"
                found.append(content.error(what, line, "label all of them, or none"))
        for error in found[: max(SHOWN - wrong, 0)]:
            problems.add(error)
        wrong += len(found)
    if wrong > SHOWN:
        problems.add(content.error(f"{wrong - SHOWN} more lines of {index.path} are wrong", f"{where}.index"))
    return count


def _meant_column(name: str, names: tuple[str, ...]) -> str | None:
    """Return the column that an unknown one is written almost like; None if it is known, or like none."""
    if name in _COLUMNS:
        return None
    plain = name.strip().lower()
    near = get_close_matches(plain, set(_COLUMNS).difference(names), n=1, cutoff=_NEAR)
    return plain if plain in _COLUMNS else next(iter(near), None)


def _rows(path: str, content: DraftContent, where: str) -> Iterator[dict[str, str]]:
    with content.open(path, where) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        try:
            reader = csv.DictReader(read_text_lines(text, BUDGET.line))
            names = tuple(reader.fieldnames or ())
            if "path" not in names:
                raise content.error(f"{path} has no column 'path'", where, "write the columns path,label")
            for name in names:
                if meant := _meant_column(name, names):
                    what = f"{path} has a column {name!r}, which nothing reads"
                    raise content.error(what, where, f"did you mean {meant!r}?")
            for row in reader:
                if not row["path"]:
                    raise content.error(f"line {reader.line_num} has no path", path, "write one sample a line")
                yield row
        except (csv.Error, UnicodeDecodeError) as error:
            raise content.error(f"{path} is no CSV in UTF-8: {error}", where) from error


_UBYTE = 0x08


def check_dataset(dataset: Dataset, content: DraftContent, problems: Problems) -> None:
    """Count the samples of each split, and look at what its index names.

    What is wrong goes to ``problems``: ``samples`` is not their number, an index is malformed, a file or label that it
    names does not exist.
    """
    classes: Classes | None = Classes(unread=True)
    with problems.noted():
        classes = _classes(dataset, content)
    for name, split in dataset.splits.items():
        where = f"splits.{name}"
        found: int | None = None
        with problems.noted():
            found = _count(dataset.format, split, content, classes, (where, problems))
        if found not in (None, split.samples):
            what = f"the split has {format_count(found, 'sample')}, not {split.samples}"
            problems.add(content.error(what, f"{where}.samples", f"write samples: {found}"))


def _count(
    form: str, split: Split, content: DraftContent, classes: Classes | None, found_at: tuple[str, Problems]
) -> int | None:
    """The number of samples of a split."""
    where, problems = found_at
    if form in ("image-index", "wav-index"):
        return check_index(form, split, content, classes, found_at)
    if form == "idx":
        return _check_idx(split, content, where)
    if form == "npz":
        return check_npz(split, content, where)
    if form == "jsonl":
        return check_jsonl(split, content, classes, where)
    if form == "parquet":
        return check_parquet(split, content, where)
    return check_coco(split, content, classes, where, problems)


def _classes(dataset: Dataset, content: DraftContent) -> Classes | None:
    if dataset.labels is UNSET:
        return None
    with content.open(dataset.labels, "labels") as stream:
        classes = read_classes(read_whole(stream, BUDGET.document), content.where("labels"))
    if not classes.count:
        raise content.error(f"{dataset.labels} names no class", "labels", "write one name a line")
    return classes


def _check_idx(split: Split, content: DraftContent, where: str) -> int:
    """The number of pictures, of which there are as many labels."""
    if split.images is UNSET:
        return 0
    pictures = _idx_sizes(split.images, content, f"{where}.images")
    if split.labels is not UNSET:
        labels = _idx_sizes(split.labels, content, f"{where}.labels")
        if labels != pictures[:1]:
            raise content.error(f"{labels} labels for {pictures[0]} pictures", f"{where}.labels", "correct the file")
    return pictures[0]


def _idx_sizes(path: str, content: DraftContent, where: str) -> tuple[int, ...]:
    with content.unpacked(path, where) as stream:
        try:
            return idx_sizes(stream)
        except MalformedError as error:
            raise content.error(f"{path} is no idx file", where, "write it as MNIST's files are") from error


def idx_sizes(stream: BinaryIO) -> tuple[int, ...]:
    """The sizes that the header of an idx file announces (two zero bytes, a type, their number, big-endian sizes).

    Raises:
        MalformedError: it is none.
    """
    try:
        zero, of_type, count = struct.unpack(">HBB", stream.read(4))
        sizes: tuple[int, ...] = struct.unpack(f">{count}I", stream.read(4 * count))
    except (struct.error, OSError, EOFError, zlib.error) as error:
        raise MalformedError("its header breaks off") from error
    if zero != 0 or of_type < _UBYTE or not sizes:
        raise MalformedError("it does not begin as one")
    return sizes
