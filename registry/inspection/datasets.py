"""Whether a dataset's splits are what its manifest says: the samples counted, their files and labels there."""

import csv
import io
import posixpath
import struct
from collections.abc import Collection, Iterator

from msgspec import UNSET

from registry.inspection.content import Content
from registry.manifests import Dataset, Split

_UBYTE = 0x08


def check_dataset(dataset: Dataset, content: Content) -> None:
    """Count the samples of each split of a format that is read here, and look at what its index names.

    Raises:
        InvalidInputError: ``samples`` is not the number of samples, an index is malformed, a file or label that it
            names does not exist.
    """
    names = _labels(dataset, content)
    for name, split in dataset.splits.items():
        where = f"splits.{name}"
        if dataset.format in ("image-index", "wav-index"):
            found = _check_index(split, content, names, where)
        elif dataset.format == "idx":
            found = _check_idx(split, content, where)
        else:
            continue
        if found != split.samples:
            raise content.error(
                f"the split has {found} samples, not {split.samples}", f"{where}.samples", f"write samples: {found}"
            )


def _labels(dataset: Dataset, content: Content) -> list[str] | None:
    if dataset.labels is UNSET:
        return None
    with content.open(dataset.labels, "labels") as stream:
        try:
            return [line.strip() for line in stream.read().decode().splitlines()]
        except UnicodeDecodeError as error:
            raise content.error(f"{dataset.labels} is not UTF-8", "labels", "write one name a line") from error


def _check_index(split: Split, content: Content, names: list[str] | None, where: str) -> int:
    """The number of rows, each of which names a file and a label that exist."""
    if split.index is UNSET:
        return 0
    path, folder, known, count = split.index, posixpath.dirname(split.index), set(names or ()), 0
    labelled: bool | None = None
    for count, row in enumerate(_rows(path, content, f"{where}.index"), start=1):
        line = f"{path}, line {count + 1}"
        sample = posixpath.normpath(posixpath.join(folder, row["path"]))
        if sample not in content.files:
            raise content.error(f"{sample} is none of the files", line, "correct the path, or add the file")
        label = (row.get("label") or "").strip()
        if labelled is None:
            labelled = bool(label)
        if bool(label) != labelled:
            raise content.error("some samples have a label, and some have none", line, "label all of them, or none")
        if label and not _is_label(label, names, known):
            raise content.error(
                f"{label!r} is neither an index nor a name out of the labels", line, "correct the label"
            )
    return count


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


def _is_label(label: str, names: list[str] | None, known: Collection[str]) -> bool:
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
    """The sizes that the header of an idx file announces (two zero bytes, a type, their number, big-endian sizes)."""
    with content.unpacked(path, where) as stream:
        try:
            zero, of_type, count = struct.unpack(">HBB", stream.read(4))
            sizes: tuple[int, ...] = struct.unpack(f">{count}I", stream.read(4 * count))
        except (struct.error, OSError, EOFError) as error:
            raise content.error(f"{path} is no idx file", where, "write it as MNIST's files are") from error
    if zero != 0 or of_type < _UBYTE or not sizes:
        raise content.error(f"{path} is no idx file", where, "write it as MNIST's files are")
    return sizes
