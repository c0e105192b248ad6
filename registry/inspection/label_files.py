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
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.artifacts.trees import check_path
from benchlock.registry.inspection.draft_content import DraftContent
from benchlock.registry.inspection.file_facts import Disagreement
from benchlock.registry.inspection.formats.foreign_files import BUDGET, read_buffer
from benchlock.registry.manifests import Split
from benchlock.registry.text.problems import Problems

_WORDNET_ID = re.compile(r"n\d{8}[\s:,]+(?=\S)")


class _Category(msgspec.Struct):
    id: int
    name: str


@prepare_decoder
class _Annotations(msgspec.Struct):
    """The part of COCO's annotations that names labels."""

    categories: list[_Category] = msgspec.field(default_factory=list)


def parse_labels(content: bytes, where: str) -> tuple[str, ...]:
    """The names of a labels file: line i is index i.

    Raises:
        InvalidInputError: it is not UTF-8.
    """
    try:
        return tuple(content.decode("utf-8").splitlines())
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{where} is not UTF-8", where=where, next_step="write one name a line") from error


def read_categories(stream: BinaryIO, where: str) -> dict[int, str]:
    """Read the names of the categories of COCO's annotations by their ids.

    Args:
        stream: The annotations, unpacked.
        where: What messages call them.

    Raises:
        InvalidInputError: They are none.
        OverBudgetError: They have more bytes than the budget of annotations.
    """
    try:
        content = read_buffer(stream, BUDGET.annotations)
        return {one.id: one.name for one in msgspec.json.decode(content, type=_Annotations).categories}
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError, EOFError, zlib.error, RecursionError) as error:
        raise InvalidInputError(f"{where} holds no annotations of COCO's: {error}", where=where) from error


def normalize_label(name: str) -> str:
    """Without surrounding space, case, and a WordNet id in front: ``n01440764 Tench`` is ``tench``."""
    return _WORDNET_ID.sub("", name.strip(), count=1).strip().casefold()


def find_disagreements(
    model: Sequence[str], dataset: Sequence[str] | Mapping[int, str], offset: int
) -> tuple[Disagreement, ...]:
    """The names that both have, at other positions; ``offset`` is class index minus dataset label.

    ``dataset`` has the name of each label, in their order or by the label.

    Names that only one of them has say nothing. A name that stands twice agrees if either side has no place of its own.
    """
    places = _places(enumerate(model), offset)
    labels = dataset.items() if isinstance(dataset, Mapping) else enumerate(dataset)
    found = []
    for name, expected in _places(labels, 0).items():
        only_dataset, only_model = expected - places.get(name, expected), places.get(name, expected) - expected
        if only_dataset and only_model:
            found.append(Disagreement(name, min(only_dataset), min(only_model)))
    return tuple(sorted(found, key=lambda one: one.expected))


def _places(names: Iterable[tuple[int, str]], offset: int) -> dict[str, set[int]]:
    places: defaultdict[str, set[int]] = defaultdict(set)
    for index, name in names:
        if plain := normalize_label(name):
            places[plain].add(index - offset)
    return places


_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


@dataclass(frozen=True)
class Classes:
    """The names of a labels file, trimmed, and how many there are; ``unread`` if the file cannot be read."""

    names: frozenset[str] = frozenset()
    count: int = 0
    unread: bool = False

    @cached_property
    def folded(self) -> frozenset[str]:
        """The names, whatever their case."""
        return frozenset(name.casefold() for name in self.names)

    def has(self, name: str) -> bool:
        """Whether a category is one of them, whatever its case."""
        return self.unread or name.strip().casefold() in self.folded


def read_classes(content: bytes, where: str) -> Classes:
    """The classes of a labels file. Raises as ``parse_labels``."""
    names = tuple(name.strip() for name in parse_labels(content, where))
    return Classes(frozenset(names), len(names))


def label_fault(label: object, classes: Classes | None) -> str | None:
    """Why ``label`` is none, as a sentence; None if it is one. Without ``classes`` the dataset names no labels.

    A list may be a mask or the labels of several calls, which nobody looks into here.
    """
    if isinstance(label, list) or (classes is not None and classes.unread):
        return None
    text = label.strip() if isinstance(label, str) else None
    index = int(text) if text is not None and _WHOLE.fullmatch(text) else label
    if isinstance(index, int):
        if classes is None or 0 <= index < classes.count:
            return None
        return f"{label!r} is neither an index nor a name out of the labels, which are {classes.count}"
    if classes is not None:
        return None if text in classes.names else f"{label!r} is neither an index nor a name out of the labels"
    return None if is_number(label) else f"{label!r} is neither an index nor a name out of the labels, nor a number"


def is_number(label: object) -> bool:
    """Whether it is a number, or the text of one; infinity and NaN are none."""
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
    """The part of COCO's annotations that says which pictures and boxes there are."""

    images: list[_Picture]
    annotations: list[_Annotation] = msgspec.field(default_factory=list)
    categories: list[_CocoCategory] = msgspec.field(default_factory=list)


def check_coco(split: Split, content: DraftContent, classes: Classes | None, where: str, problems: Problems) -> int:
    """The number of pictures, each of which is a file; annotations are boxes in them, of categories that are listed.

    With ``classes``, each category of an annotation has its name there.
    """
    path, place = str(split.annotations), f"{where}.annotations"
    with content.unpacked(path, place) as stream:
        try:
            found = msgspec.json.decode(read_buffer(stream, BUDGET.annotations), type=_Coco)
        except (msgspec.MsgspecError, UnicodeDecodeError, OSError, EOFError, zlib.error, RecursionError) as error:
            raise content.error(f"{path} holds no annotations of COCO's: {error}", place) from error
    folder = f"{str(split.images).rstrip('/')}/"
    count = 0
    for count, fault in enumerate(_all_faults(found, folder, path, content, classes), start=1):
        if count <= _SHOWN:
            problems.add(fault)
    if count > _SHOWN:
        problems.add(content.error(f"{count - _SHOWN} more entries of {path} are wrong", place))
    return len(found.images)


def _all_faults(
    found: _Coco, folder: str, path: str, content: DraftContent, classes: Classes | None
) -> Iterator[InvalidInputError]:
    for picture in found.images:
        if fault := _picture_error(picture, folder, path, content):
            yield fault
    for what, step in _faults(found, classes):
        yield content.error(what, path, step)


def _picture_error(picture: _Picture, folder: str, path: str, content: DraftContent) -> InvalidInputError | None:
    """Why a picture is not there; a name that leaves the folder of the pictures is none of them."""
    try:
        inside = folder + check_path(picture.file_name)
    except InvalidInputError as error:
        return content.error(error.what, path, "name a file in the folder of the pictures")
    if inside in content.files or content.is_untaken(inside):
        return None
    return content.error(f"{inside} is none of the files", path, "correct file_name, or add the file")


def _faults(found: _Coco, classes: Classes | None) -> Iterator[tuple[str, str]]:
    """What is wrong with the annotations, the first of each sort, and what to do."""
    pictures, names = {picture.id for picture in found.images}, {one.id: one.name for one in found.categories}
    if len(pictures) < len(found.images):
        yield "two images have one id", "give each its own"
    if len(names) < len(found.categories):
        yield "two categories have one id", "give each its own"
    for one in found.annotations:
        if one.image_id not in pictures:
            yield f"an annotation is of the image {one.image_id}, which is not listed", "list it"
            break
    for one in found.annotations:
        if len(one.bbox) != _BOX or not all(map(math.isfinite, one.bbox)) or min(one.bbox[2:]) < 0:
            yield f"an annotation has the box {one.bbox}", "write [x, y, width, height], in pixels"
            break
    for category in sorted({one.category_id for one in found.annotations}):
        if category not in names:
            yield f"an annotation is of the category {category}, which is not listed", "list it in categories"
        elif classes is not None and not classes.has(names[category]):
            yield f"the category {names[category]!r} is no name out of the labels", "add it to the labels file"
