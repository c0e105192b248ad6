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
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.user_output import format_count
from benchlock.registry.inspection.draft_content import DraftContent
from benchlock.registry.inspection.formats.parquet import read_footer
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.tensor_files import ArrayHeader, read_arrays
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, read_lines, read_text_lines, read_whole
from benchlock.registry.inspection.label_files import Classes, check_coco, label_fault, read_classes
from benchlock.registry.manifests import Dataset, Split
from benchlock.registry.text.collected_problems import Problems

_LABEL = "label"
_LINES = "write one object per line"
_NUMBERS = "biuf"
_READ = "biufcSU"
"""The kinds of array elements that samples may have, as letters of NumPy: numbers, byte strings and texts."""


def check_npz(split: Split, content: DraftContent, where: str) -> int:
    """Check the arrays of the fields, and return the number of samples.

    Every field must be an array of the same length without Python objects.

    Args:
        split: The split.
        content: The files of the draft.
        where: The place of the split in the manifest.
    """
    path, keys = str(split.file), _keys(split)
    with content.open(path, f"{where}.file") as stream:
        try:
            arrays = {array.name: array for array in read_arrays(stream)}
        except MalformedError as error:
            raise content.error(f"{path} is not a valid npz file: {error}", f"{where}.file") from error
    for name, key in keys.items():
        place = f"{where}.fields.{name}"
        if key not in arrays:
            raise content.error(f"{path} has no array {key!r}", place, f"it has {', '.join(arrays) or 'none'}")
        if arrays[key].holds_objects:
            what = f"the array {key!r} of {path} contains objects, a pickle that executes code when it is read"
            raise content.error(what, place, "save it with a numeric type")
        if fault := _array_fault(arrays[key], name):
            raise content.error(f"the array {key!r} of {path} {fault}", place, "save it with another type or shape")
    counts = {key: arrays[key].shape[0] if arrays[key].shape else 0 for key in keys.values()}
    if len(set(counts.values())) > 1:
        lengths = ", ".join(f"{key} {count}" for key, count in counts.items())
        raise content.error(f"the fields of {path} differ in their number of samples: {lengths}", f"{where}.fields")
    return next(iter(counts.values()), 0)


def _array_fault(array: ArrayHeader, field: str) -> str | None:
    """Return why an array cannot be a field, as a predicate; None if it can."""
    kind = array.descr.lstrip("<>|=")[:1] if isinstance(array.descr, str) else "V"
    if not array.shape:
        return "has no axis of samples"
    if kind not in _READ:
        return f"has the type {array.descr!r}; numbers or texts are expected"
    has_rows = len(array.shape) > 1
    if field == _LABEL and kind not in (_NUMBERS if has_rows else _NUMBERS + "U"):
        return f"has the type {array.descr!r}, which is not valid for labels"
    return None


def check_jsonl(split: Split, content: DraftContent, classes: Classes | None, where: str) -> int:
    """Check each line, and return their number.

    Every line must have every field, and either all lines or none a label.

    Args:
        split: The split.
        content: The files of the draft.
        classes: The classes of the dataset; None if it names no labels.
        where: The place of the split in the manifest.
    """
    path, keys, count = str(split.file), _keys(split), 0
    labelled: bool | None = None
    try:
        with content.unpacked(path, f"{where}.file") as stream:
            for number, line in enumerate(read_lines(stream, BUDGET.line), start=1):
                if line.strip():
                    count += 1
                    has_label = _read_line(line, number, keys, classes, content.where(path))
                    labelled = has_label if labelled is None else labelled
                    if labelled != has_label:
                        what = f"line {number}: some samples have a label and some do not"
                        raise content.error(what, path, "label all samples or none")
    except (OSError, EOFError, zlib.error) as error:
        raise content.error(f"{path} cannot be unpacked: {error}", f"{where}.file") from error
    return count


def _read_line(line: bytes, number: int, keys: Mapping[str, str], classes: Classes | None, where: str) -> bool:
    """Check one line, and return whether it has a label.

    Raises:
        InvalidInputError: The line is not a sample.
    """
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(f"line {number} is not valid JSON: {error}", where=where, next_step=_LINES) from error
    for name, key in keys.items():
        if not isinstance(record, dict) or key not in record:
            raise InvalidInputError(f"line {number} has no {key!r}", where=where, next_step="write every field")
        if name != _LABEL and not isinstance(record[key], str | int | float | list):
            what = f"line {number}: {key!r} is not a text, number or list of numbers"
            raise InvalidInputError(what, where=where, next_step="write one of these")
    label = record.get(keys[_LABEL]) if _LABEL in keys else None
    if label is not None and (fault := label_fault(label, classes)):
        raise InvalidInputError(f"line {number}: {fault}", where=where, next_step="correct the label")
    return label is not None


def check_parquet(split: Split, content: DraftContent, where: str) -> int:
    """Check that the footer has the columns of all fields, and return its number of rows.

    Args:
        split: The split.
        content: The files of the draft.
        where: The place of the split in the manifest.
    """
    path = str(split.file)
    with content.open(path, f"{where}.file") as stream:
        try:
            footer = read_footer(stream)
        except MalformedError as error:
            raise content.error(f"{path} is not a valid parquet file: {error}", f"{where}.file") from error
    for name, key in _keys(split).items():
        place = f"{where}.fields.{name}"
        column = footer.column(key)
        if column is None:
            known = ", ".join(each.name for each in footer.columns)
            raise content.error(f"{path} has no column {key!r}", place, f"it has {known or 'none'}")
        if column.parts:
            step = f"write one of {', '.join(f'{key}.{part.name}' for part in column.parts)}"
            raise content.error(f"the column {key!r} of {path} is nested", place, step)
    return footer.rows


def _keys(split: Split) -> dict[str, str]:
    """Return the key in the file of each field."""
    return {} if split.fields is UNSET else split.fields


SHOWN = 20
"""Number of problems of one index that are reported one by one."""

_COLUMNS = ("path", "label", "mask")
_NEAR = 0.8  # difflib's ratio: `lable` is a misspelt label; `part` and `task` are unrelated columns
_WAV = 12  # bytes of the header of a WAV file


@dataclass(frozen=True, slots=True)
class _Index:
    """An index of the format ``form``, and the files and classes that its rows are compared with."""

    path: str
    form: str
    classes: Classes | None
    content: DraftContent
    sounds: set[Digest] = field(default_factory=set)

    def faults(self, row: dict[str, str], line: str) -> Iterator[InvalidInputError]:
        """Yield the problems of one row."""
        # Like the harness: a path is used verbatim, a mask without surrounding spaces.
        yield from self._file_faults(row["path"], line)
        if self.form == "image-index" and (mask := (row.get("mask") or "").strip()):
            yield from self._file_faults(mask, line)
        label = (row.get("label") or "").strip()
        if label and (fault := label_fault(label, self.classes)):
            yield self.content.error(fault, line, "correct the label")

    def _file_faults(self, name: str, line: str) -> Iterator[InvalidInputError]:
        """Yield the problems of one file that a row names."""
        sample = posixpath.normpath(posixpath.join(posixpath.dirname(self.path), name))
        if sample not in self.content.files:
            if not self.content.is_untaken(sample):
                yield self.content.error(f"{sample} is not in files", line, "correct the path, or add the file")
        elif self.form == "wav-index":
            digest = self.content.files[sample].digest
            if digest in self.sounds:  # a file that many samples share is read once
                return
            with self.content.open(sample, line) as stream:
                start = stream.read(_WAV)
            if start[:4] == b"RIFF" and start[8:] == b"WAVE":
                self.sounds.add(digest)
            else:
                yield self.content.error(f"{sample} is not a WAV file", line, "convert it to WAV")


def check_index(
    form: str, split: Split, content: DraftContent, classes: Classes | None, report: tuple[str, Problems]
) -> int:
    """Check the files and labels of each row, and return the number of rows.

    Args:
        form: The format of the dataset: ``image-index`` or ``wav-index``.
        split: The split.
        content: The files of the draft.
        classes: The classes of the dataset; None if it names no labels.
        report: The place of the split in the manifest, and the problems that receive the first wrong rows.
    """
    where, problems = report
    index = _Index(str(split.index), form, classes, content)
    count, wrong, presence = 0, 0, dict[str, bool]()
    for count, row in enumerate(_rows(index.path, content, f"{where}.index"), start=1):
        line = f"{index.path}, line {count + 1}"
        errors = list(index.faults(row, line))
        for column in ("label", "mask"):
            is_present = bool((row.get(column) or "").strip())
            if presence.setdefault(column, is_present) != is_present:
                what = f"some samples have a {column} and some do not"
                errors.append(content.error(what, line, "label all samples or none"))
        for error in errors[: max(SHOWN - wrong, 0)]:
            problems.add(error)
        wrong += len(errors)
    if wrong > SHOWN:
        problems.add(content.error(f"{wrong - SHOWN} more lines of {index.path} are wrong", f"{where}.index"))
    return count


def _meant_column(name: str, names: tuple[str, ...]) -> str | None:
    """Return the column that an unknown one may be a misspelling of; None if it is known or similar to none."""
    if name in _COLUMNS:
        return None
    plain = name.strip().lower()
    near = get_close_matches(plain, set(_COLUMNS).difference(names), n=1, cutoff=_NEAR)
    return plain if plain in _COLUMNS else next(iter(near), None)


def _rows(path: str, content: DraftContent, where: str) -> Iterator[dict[str, str]]:
    """Yield the rows of an index."""
    with content.open(path, where) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        try:
            reader = csv.DictReader(read_text_lines(text, BUDGET.line))
            names = tuple(reader.fieldnames or ())
            if "path" not in names:
                raise content.error(f"{path} has no column 'path'", where, "write the columns path,label")
            for name in names:
                if meant := _meant_column(name, names):
                    what = f"{path} has an unknown column {name!r}"
                    raise content.error(what, where, f"did you mean {meant!r}?")
            for row in reader:
                if not row["path"]:
                    raise content.error(f"line {reader.line_num} has no path", path, "write one sample per line")
                yield row
        except (csv.Error, UnicodeDecodeError) as error:
            raise content.error(f"{path} is not UTF-8 CSV: {error}", where) from error


_UBYTE = 0x08


def check_dataset(dataset: Dataset, content: DraftContent, problems: Problems) -> None:
    """Check the samples, files and labels of every split of a dataset.

    Args:
        dataset: The manifest.
        content: The files of the draft.
        problems: Receives what is wrong: a number of samples, a malformed index, a missing file or label.
    """
    classes: Classes | None = Classes(unread=True)
    with problems.noted():
        classes = _classes(dataset, content)
    for name, split in dataset.splits.items():
        where = f"splits.{name}"
        count: int | None = None
        with problems.noted():
            count = _count(dataset.format, split, content, classes, (where, problems))
        if count not in (None, split.samples):
            what = f"the split has {format_count(count, 'sample')}, not {split.samples}"
            problems.add(content.error(what, f"{where}.samples", f"write samples: {count}"))


def _count(
    form: str, split: Split, content: DraftContent, classes: Classes | None, report: tuple[str, Problems]
) -> int | None:
    """Check a split, and return its number of samples; None if it is unknown."""
    where, problems = report
    if form in ("image-index", "wav-index"):
        return check_index(form, split, content, classes, report)
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
    """Return the classes in the labels file of a dataset, if it has one."""
    if dataset.labels is UNSET:
        return None
    with content.open(dataset.labels, "labels") as stream:
        classes = read_classes(read_whole(stream, BUDGET.document), content.where("labels"))
    if not classes.count:
        raise content.error(f"{dataset.labels} has no class names", "labels", "write one name per line")
    return classes


def _check_idx(split: Split, content: DraftContent, where: str) -> int:
    """Check that there are as many labels as pictures, and return the number of pictures."""
    if split.images is UNSET:
        return 0
    pictures = _idx_sizes(split.images, content, f"{where}.images")
    if split.labels is not UNSET:
        labels = _idx_sizes(split.labels, content, f"{where}.labels")
        if labels != pictures[:1]:
            raise content.error(f"{labels} labels for {pictures[0]} pictures", f"{where}.labels", "correct the file")
    return pictures[0]


def _idx_sizes(path: str, content: DraftContent, where: str) -> tuple[int, ...]:
    """Return the sizes in the header of an idx file of the draft."""
    with content.unpacked(path, where) as stream:
        try:
            return idx_sizes(stream)
        except MalformedError as error:
            raise content.error(
                f"{path} is not a valid idx file", where, "write it in the format of the MNIST files"
            ) from error


def idx_sizes(stream: BinaryIO) -> tuple[int, ...]:
    """Return the sizes in the header of an idx file.

    The header has two zero bytes, a type, the number of sizes, and the sizes in big-endian order.

    Raises:
        MalformedError: The file is not in idx format.
    """
    try:
        zero, of_type, count = struct.unpack(">HBB", stream.read(4))
        sizes: tuple[int, ...] = struct.unpack(f">{count}I", stream.read(4 * count))
    except (struct.error, OSError, EOFError, zlib.error) as error:
        raise MalformedError("its header is truncated") from error
    if zero != 0 or of_type < _UBYTE or not sizes:
        raise MalformedError("its first bytes do not match")
    return sizes
