"""Splits whose samples lie in one file: arrays, lines of JSON, and COCO's annotations."""

import zlib

import msgspec
from msgspec import UNSET

from artifacts.errors import InvalidInputError
from artifacts.trees import check_path
from registry.inspection.arrays import read_arrays
from registry.inspection.content import Content
from registry.inspection.protobuf import MalformedError
from registry.manifests import Split
from registry.problems import Problems

_SHOWN = 20
_LARGEST = 1 << 31  # bytes of annotations


class _Picture(msgspec.Struct):
    id: int
    file_name: str


class _Annotation(msgspec.Struct):
    image_id: int


class _Coco(msgspec.Struct):
    """The part of COCO's annotations that says which pictures there are."""

    images: list[_Picture]
    annotations: list[_Annotation] = msgspec.field(default_factory=list)


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
    counts = {key: arrays[key].shape[0] if arrays[key].shape else 0 for key in keys.values()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{key} {count}" for key, count in counts.items())
        raise content.error(f"the fields of {path} differ in their number of samples: {found}", f"{where}.fields")
    return next(iter(counts.values()), 0)


def check_jsonl(split: Split, content: Content, where: str) -> int:
    """The number of lines, each of which has every field."""
    path, keys, count = str(split.file), set(_keys(split).values()), 0
    try:
        with content.unpacked(path, f"{where}.file") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    count += 1
                    _check_line(line, number, keys, (path, content))
    except (OSError, EOFError, zlib.error) as error:
        raise content.error(f"{path} cannot be unpacked: {error}", f"{where}.file") from error
    return count


def _check_line(line: bytes, number: int, keys: set[str], read_in: tuple[str, Content]) -> None:
    path, content = read_in
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise content.error(f"line {number} is no JSON: {error}", path, "write one object a line") from error
    missing = keys - set(record if isinstance(record, dict) else ())
    if missing:
        raise content.error(f"line {number} has no {min(missing)!r}", path, "write every field")


def check_coco(split: Split, content: Content, where: str, problems: Problems) -> int:
    """The number of pictures, each of which is a file, and of which annotations speak."""
    path, place = str(split.annotations), f"{where}.annotations"
    with content.unpacked(path, place) as stream:
        try:
            found = msgspec.json.decode(stream.read(_LARGEST), type=_Coco)
        except (msgspec.MsgspecError, UnicodeDecodeError, OSError, EOFError) as error:
            raise content.error(f"{path} holds no annotations of COCO's: {error}", place) from error
    wrong = [fault for picture in found.images if (fault := _picture_error(picture, split, path, content))]
    known = {picture.id for picture in found.images}
    lost = next((one.image_id for one in found.annotations if one.image_id not in known), None)
    if lost is not None:
        wrong.append(content.error(f"an annotation is of the image {lost}, which is not listed", path))
    if len(known) < len(found.images):
        wrong.append(content.error("two images have one id", path, "give each its own"))
    for fault in wrong[:_SHOWN]:
        problems.add(fault)
    if len(wrong) > _SHOWN:
        problems.add(content.error(f"{len(wrong) - _SHOWN} more entries of {path} are wrong", place))
    return len(found.images)


def _picture_error(picture: _Picture, split: Split, path: str, content: Content) -> InvalidInputError | None:
    """Why a picture is not there; a name that leaves the folder of the pictures is none of them."""
    try:
        inside = str(split.images) + check_path(picture.file_name)
    except InvalidInputError as error:
        return content.error(error.what, path, "name a file in the folder of the pictures")
    if inside in content.files or content.is_untaken(inside):
        return None
    return content.error(f"{inside} is none of the files", path, "correct file_name, or add the file")


def _keys(split: Split) -> dict[str, str]:
    return {} if split.fields is UNSET else split.fields
