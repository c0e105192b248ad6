"""Whether a dataset's splits are what its manifest says: the samples counted, their files and labels there."""

import csv
import io
import posixpath
import struct
import zlib
from collections.abc import Collection, Iterator
from typing import BinaryIO

from msgspec import UNSET

from artifacts.errors import InvalidInputError
from registry.inspection.content import Content
from registry.inspection.protobuf import MalformedError
from registry.inspection.records import check_coco, check_jsonl, check_npz
from registry.labels import parse_labels
from registry.manifests import Dataset, Split
from registry.problems import Problems

SHOWN = 20
"""Lines of one index that are told one by one."""

_UBYTE = 0x08


def check_dataset(dataset: Dataset, content: Content, problems: Problems) -> None:
    """Count the samples of each split of a format that is read here, and look at what its index names.

    What is wrong goes to ``problems``: ``samples`` is not their number, an index is malformed, a file or label that it
    names does not exist.
    """
    names: tuple[str, ...] | None = ()
    with problems.noted():
        names = _labels(dataset, content)
    for name, split in dataset.splits.items():
        where = f"splits.{name}"
        found: int | None = None
        with problems.noted():
            found = _count(dataset.format, split, content, names, (where, problems))
        if found not in (None, split.samples):
            what = f"the split has {found} samples, not {split.samples}"
            problems.add(content.error(what, f"{where}.samples", f"write samples: {found}"))


def _count(
    form: str, split: Split, content: Content, names: tuple[str, ...] | None, found_at: tuple[str, Problems]
) -> int | None:
    """The number of samples of a split; None where its format is not read here."""
    where, problems = found_at
    if form in ("image-index", "wav-index"):
        return _check_index(split, content, names, where, problems)
    if form == "idx":
        return _check_idx(split, content, where)
    if form == "npz":
        return check_npz(split, content, where)
    if form == "jsonl":
        return check_jsonl(split, content, where)
    if form == "coco":
        return check_coco(split, content, where, problems)
    return None


def _labels(dataset: Dataset, content: Content) -> tuple[str, ...] | None:
    if dataset.labels is UNSET:
        return None
    with content.open(dataset.labels, "labels") as stream:
        names = tuple(name.strip() for name in parse_labels(stream.read(), content.where("labels")))
    if not names:
        raise content.error(f"{dataset.labels} names no class", "labels", "write one name a line")
    return names


def _check_index(split: Split, content: Content, names: tuple[str, ...] | None, where: str, problems: Problems) -> int:
    """The number of rows, each of which names a file and a label that exist."""
    path = str(split.index)
    folder, known, count, wrong = posixpath.dirname(path), set(names or ()), 0, 0
    labelled: bool | None = None
    for count, row in enumerate(_rows(path, content, f"{where}.index"), start=1):
        line, label = f"{path}, line {count + 1}", (row.get("label") or "").strip()
        labelled = bool(label) if labelled is None else labelled
        found = list(_row_errors(row, folder, (names, known), content, line))
        if bool(label) != labelled:
            what = "some samples have a label, and some have none"
            found.append(content.error(what, line, "label all of them, or none"))
        for error in found[: max(SHOWN - wrong, 0)]:
            problems.add(error)
        wrong += len(found)
    if wrong > SHOWN:
        problems.add(content.error(f"{wrong - SHOWN} more lines of {path} are wrong", f"{where}.index"))
    return count


def _row_errors(
    row: dict[str, str], folder: str, names: tuple[tuple[str, ...] | None, Collection[str]], content: Content, line: str
) -> Iterator[InvalidInputError]:
    sample, label = posixpath.normpath(posixpath.join(folder, row["path"])), (row.get("label") or "").strip()
    if sample not in content.files and not content.is_untaken(sample):
        yield content.error(f"{sample} is none of the files", line, "correct the path, or add the file")
    if label and names[0] != () and not _is_label(label, *names):  # of labels that cannot be read, nothing is known
        yield content.error(f"{label!r} is neither an index nor a name out of the labels", line, "correct the label")


def _rows(path: str, content: Content, where: str) -> Iterator[dict[str, str]]:
    with content.open(path, where) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        try:
            reader = csv.DictReader(text)
            if "path" not in (reader.fieldnames or ()):
                raise content.error(f"{path} has no column 'path'", where, "write the columns path,label")
            for row in reader:
                if not row["path"]:
                    raise content.error(f"line {reader.line_num} has no path", path, "write one sample a line")
                yield row
        except (csv.Error, UnicodeDecodeError) as error:
            raise content.error(f"{path} is no CSV in UTF-8: {error}", where) from error


def _is_label(label: str, names: tuple[str, ...] | None, known: Collection[str]) -> bool:
    if label.isascii() and label.isdigit():
        return names is None or int(label) < len(names)
    return label in known if names is not None else _is_number(label)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_idx(split: Split, content: Content, where: str) -> int:
    """The number of pictures, of which there are as many labels."""
    if split.images is UNSET:
        return 0
    pictures = _idx_sizes(split.images, content, f"{where}.images")
    if split.labels is not UNSET:
        labels = _idx_sizes(split.labels, content, f"{where}.labels")
        if labels != pictures[:1]:
            raise content.error(f"{labels} labels for {pictures[0]} pictures", f"{where}.labels", "correct the file")
    return pictures[0]


def _idx_sizes(path: str, content: Content, where: str) -> tuple[int, ...]:
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
