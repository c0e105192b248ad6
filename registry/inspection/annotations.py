"""COCO's annotations: the pictures that they list, and the boxes that are said to be in them."""

import math
import zlib
from collections.abc import Iterator

import msgspec

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.readable import readable
from benchlock.artifacts.trees import check_path
from benchlock.registry.inspection.budgets import BUDGET, read_buffer
from benchlock.registry.inspection.classes import Classes
from benchlock.registry.inspection.content import Content
from benchlock.registry.manifests import Split
from benchlock.registry.problems import Problems

_SHOWN = 20
_BOX = 4


class _Picture(msgspec.Struct):
    id: int
    file_name: str


class _Annotation(msgspec.Struct):
    image_id: int
    category_id: int
    bbox: list[float]


class _Category(msgspec.Struct):
    id: int
    name: str


@readable
class _Coco(msgspec.Struct):
    """The part of COCO's annotations that says which pictures and boxes there are."""

    images: list[_Picture]
    annotations: list[_Annotation] = msgspec.field(default_factory=list)
    categories: list[_Category] = msgspec.field(default_factory=list)


def check_coco(split: Split, content: Content, classes: Classes | None, where: str, problems: Problems) -> int:
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
    found: _Coco, folder: str, path: str, content: Content, classes: Classes | None
) -> Iterator[InvalidInputError]:
    for picture in found.images:
        if fault := _picture_error(picture, folder, path, content):
            yield fault
    for what, step in _faults(found, classes):
        yield content.error(what, path, step)


def _picture_error(picture: _Picture, folder: str, path: str, content: Content) -> InvalidInputError | None:
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
