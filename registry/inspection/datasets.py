"""Whether a dataset's splits are what its manifest says: the samples counted, their files and labels there."""

import struct
import zlib
from typing import BinaryIO

from msgspec import UNSET

from benchlock.artifacts.plurals import count_of
from benchlock.registry.inspection.annotations import check_coco
from benchlock.registry.inspection.budgets import BUDGET, read_whole
from benchlock.registry.inspection.classes import Classes, read_classes
from benchlock.registry.inspection.content import Content
from benchlock.registry.inspection.indices import check_index
from benchlock.registry.inspection.protobuf import MalformedError
from benchlock.registry.inspection.records import check_jsonl, check_npz, check_parquet
from benchlock.registry.manifests import Dataset, Split
from benchlock.registry.problems import Problems

_UBYTE = 0x08


def check_dataset(dataset: Dataset, content: Content, problems: Problems) -> None:
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
            what = f"the split has {count_of(found, 'sample')}, not {split.samples}"
            problems.add(content.error(what, f"{where}.samples", f"write samples: {found}"))


def _count(
    form: str, split: Split, content: Content, classes: Classes | None, found_at: tuple[str, Problems]
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


def _classes(dataset: Dataset, content: Content) -> Classes | None:
    if dataset.labels is UNSET:
        return None
    with content.open(dataset.labels, "labels") as stream:
        classes = read_classes(read_whole(stream, BUDGET.document), content.where("labels"))
    if not classes.count:
        raise content.error(f"{dataset.labels} names no class", "labels", "write one name a line")
    return classes


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
