"""Label files, values of labels, and COCO annotations."""

import math
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

import msgspec

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import check_path
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.registry.inspection.draft_content import DraftContent
from benchlock.registry.inspection.file_facts import Disagreement
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, read_buffer
from benchlock.registry.manifests import Split
from benchlock.registry.text.collected_problems import Problems

_WORDNET_ID = re.compile(r"n\d{8}[\s:,]+(?=\S)")


class _Category(msgspec.Struct):
    id: int
    name: str


@prepare_decoder
class _Annotations(msgspec.Struct):
    """The part of COCO annotations that names labels."""

    categories: list[_Category] = msgspec.field(default_factory=list)


def parse_labels(content: bytes, where: str) -> tuple[str, ...]:
    """Return the names in a labels file: line i is index i.

    Raises:
        InvalidInputError: The file is not UTF-8.
    """
    try:
        return tuple(content.decode("utf-8").splitlines())
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{where} is not UTF-8", where=where, next_step="write one name per line") from error


def read_categories(stream: BinaryIO, where: str) -> dict[int, str]:
    """Return the names of the categories in COCO annotations by their ids.

    Args:
        stream: The annotations, decompressed.
        where: Their name in messages.

    Raises:
        InvalidInputError: The file has no COCO annotations.
        OverBudgetError: The file has more bytes than the budget of annotations.
    """
    try:
        content = read_buffer(stream, BUDGET.annotations)
        return {category.id: category.name for category in msgspec.json.decode(content, type=_Annotations).categories}
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError, EOFError, zlib.error, RecursionError) as error:
        raise InvalidInputError(f"{where} is not a valid COCO annotation file: {error}", where=where) from error


def normalize_label(name: str) -> str:
    """Remove surrounding space, case and a leading WordNet id: ``n01440764 Tench`` becomes ``tench``."""
    return _WORDNET_ID.sub("", name.strip(), count=1).strip().casefold()


def find_disagreements(
    model: Sequence[str], dataset: Sequence[str] | Mapping[int, str], offset: int
) -> tuple[Disagreement, ...]:
    """Return the names that both labels files have at different indices.

    Names in only one of the files, and names that stand twice and agree once, are ignored.

    Args:
        model: The name of each class index.
        dataset: The name of each label, in order or by label.
        offset: Class index minus dataset label.
    """
    places = _places(enumerate(model), offset)
    labels = dataset.items() if isinstance(dataset, Mapping) else enumerate(dataset)
    disagreements = []
    for name, expected in _places(labels, 0).items():
        dataset_only, model_only = expected - places.get(name, expected), places.get(name, expected) - expected
        if dataset_only and model_only:
            disagreements.append(Disagreement(name, min(dataset_only), min(model_only)))
    return tuple(sorted(disagreements, key=lambda disagreement: disagreement.expected))


def _places(names: Iterable[tuple[int, str]], offset: int) -> dict[str, set[int]]:
    """Return the labels of each name, after subtraction of the offset."""
    places: defaultdict[str, set[int]] = defaultdict(set)
    for index, name in names:
        if plain := normalize_label(name):
            places[plain].add(index - offset)
    return places


_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


@dataclass(frozen=True)
class Classes:
    """The trimmed names in a labels file and their number; ``unread`` if the file cannot be read."""

    names: frozenset[str] = frozenset()
    count: int = 0
    unread: bool = False

    @cached_property
    def folded(self) -> frozenset[str]:
        """The case-folded names."""
        return frozenset(name.casefold() for name in self.names)

    def has(self, name: str) -> bool:
        """Return whether a category is one of the names, whatever its case."""
        return self.unread or name.strip().casefold() in self.folded


def read_classes(content: bytes, where: str) -> Classes:
    """Return the classes of a labels file. Raises as ``parse_labels``."""
    names = tuple(name.strip() for name in parse_labels(content, where))
    return Classes(frozenset(names), len(names))


def label_fault(label: object, classes: Classes | None) -> str | None:
    """Return why ``label`` is not a label, as a sentence; None if it is one.

    A list may be a mask, or the labels of several calls, and is not inspected.

    Args:
        label: The value in the dataset.
        classes: The classes of the dataset; None if it names no labels.
    """
    if isinstance(label, list) or (classes is not None and classes.unread):
        return None
    text = label.strip() if isinstance(label, str) else None
    index = int(text) if text is not None and _WHOLE.fullmatch(text) else label
    if isinstance(index, int):
        if classes is None or 0 <= index < classes.count:
            return None
        return f"{label!r} is neither an index nor a name of the {classes.count} labels"
    if classes is not None:
        return None if text in classes.names else f"{label!r} is neither an index nor a name of the labels"
    return None if is_number(label) else f"{label!r} is neither an index nor a name of the labels, and not a number"


def is_number(label: object) -> bool:
    """Return whether a label is a finite number, or the text of one."""
    try:
        return isinstance(label, str | float) and math.isfinite(float(label))
    except ValueError:
        return False


_SHOWN = 20
_BOX = 4


class _Picture(msgspec.Struct):
    id: int
    file_name: str


class _Annotation(msgspec.Struct):
    image_id: int
    category_id: int
    bbox: list[float]


class _CocoCategory(msgspec.Struct):
    id: int
    name: str


@prepare_decoder
class _Coco(msgspec.Struct):
    """The part of COCO annotations with the pictures and boxes."""

    images: list[_Picture]
    annotations: list[_Annotation] = msgspec.field(default_factory=list)
    categories: list[_CocoCategory] = msgspec.field(default_factory=list)


def check_coco(split: Split, content: DraftContent, classes: Classes | None, where: str, problems: Problems) -> int:
    """Check the pictures, boxes and categories of COCO annotations, and return the number of pictures.

    Args:
        split: The split.
        content: The files of the draft.
        classes: The classes of the dataset, which must include all used categories; None if it names no labels.
        where: The place of the split in the manifest.
        problems: Receives the first wrong entries.
    """
    path, place = str(split.annotations), f"{where}.annotations"
    with content.unpacked(path, place) as stream:
        try:
            annotations = msgspec.json.decode(read_buffer(stream, BUDGET.annotations), type=_Coco)
        except (msgspec.MsgspecError, UnicodeDecodeError, OSError, EOFError, zlib.error, RecursionError) as error:
            raise content.error(f"{path} is not a valid COCO annotation file: {error}", place) from error
    folder = f"{str(split.images).rstrip('/')}/"
    count = 0
    for count, fault in enumerate(_all_faults(annotations, folder, path, content, classes), start=1):
        if count <= _SHOWN:
            problems.add(fault)
    if count > _SHOWN:
        problems.add(content.error(f"{count - _SHOWN} more entries of {path} are wrong", place))
    return len(annotations.images)


def _all_faults(
    annotations: _Coco, folder: str, path: str, content: DraftContent, classes: Classes | None
) -> Iterator[InvalidInputError]:
    """Yield every problem of the pictures and annotations."""
    for picture in annotations.images:
        if fault := _picture_error(picture, folder, path, content):
            yield fault
    for what, step in _faults(annotations, classes):
        yield content.error(what, path, step)


def _picture_error(picture: _Picture, folder: str, path: str, content: DraftContent) -> InvalidInputError | None:
    """Return why a picture is missing; a name that leaves the folder of pictures is invalid."""
    try:
        path_in_draft = folder + check_path(picture.file_name)
    except InvalidInputError as error:
        return content.error(error.what, path, "choose a file in the folder of the pictures")
    if path_in_draft in content.files or content.is_untaken(path_in_draft):
        return None
    return content.error(f"{path_in_draft} is not in files", path, "correct file_name, or add the file")


def _faults(coco: _Coco, classes: Classes | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the annotations, the first of each sort, and the next step."""
    pictures, names = {picture.id for picture in coco.images}, {entry.id: entry.name for entry in coco.categories}
    if len(pictures) < len(coco.images):
        yield "two images have the same id", "give each its own"
    if len(names) < len(coco.categories):
        yield "two categories have the same id", "give each its own"
    for entry in coco.annotations:
        if entry.image_id not in pictures:
            yield f"an annotation references the image {entry.image_id}, which is not listed", "list it"
            break
    for entry in coco.annotations:
        if len(entry.bbox) != _BOX or not all(map(math.isfinite, entry.bbox)) or min(entry.bbox[2:]) < 0:
            yield f"invalid box {entry.bbox} in an annotation", "write [x, y, width, height], in pixels"
            break
    for category in sorted({entry.category_id for entry in coco.annotations}):
        if category not in names:
            yield f"an annotation references the category {category}, which is not listed", "list it in categories"
        elif classes is not None and not classes.has(names[category]):
            yield f"the category {names[category]!r} is not a name of the labels", "add it to the labels file"
