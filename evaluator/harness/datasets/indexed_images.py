"""Datasets of image files: a CSV index, or COCO annotations."""

import csv
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .labels import Lazy, parse_labels, read_mask
from .samples import Boxes, Label, Names, Opening, Samples, read_unpacked, resolve_inside

_CSV_INDEX_FIELDS = {"image-index": "image", "wav-index": "audio"}


def open_csv_index(opening: Opening) -> Samples:
    """Open a split whose samples are stored files, in the order of the rows of a CSV index.

    Labels are masks where the model's task needs masks, or where the index has no other labels.
    """
    path: str = opening.split["index"]
    index = resolve_inside(opening.folder, path)
    with index.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    if rows and "path" not in rows[0]:
        raise ValueError(f"{path}: no column 'path'")
    names = [str(row["path"]) for row in rows]
    parent = index.parent.relative_to(opening.folder)
    files = [resolve_inside(opening.folder, str(parent / name)) for name in names]
    field = _CSV_INDEX_FIELDS[opening.format]

    def line(number: int) -> str:
        return f"{path} line {number + 2}"

    labels: Sequence[Label] | None = parse_labels([row.get("label") for row in rows], opening.names, line)
    masks = [(row.get("mask") or "").strip() for row in rows] if field == "image" else []
    if any(masks) and (opening.masks or labels is None):
        labels = _masks(masks, lambda name: resolve_inside(opening.folder, str(parent / name)), line)
    return Samples(lambda number: {field: files[number].read_bytes()}, names, labels, frozenset((field,)), files)


def _masks(names: Sequence[str], resolve: Callable[[str], Path], line: Callable[[int], str]) -> Lazy:
    if not all(names):
        raise ValueError(f"{line(names.index(''))}: mask missing, but other samples have one")
    files = [resolve(name) for name in names]
    return Lazy(lambda number: read_mask(files[number], names[number]), names)


_COCO_FIELDS = frozenset(("image",))


def open_coco(opening: Opening) -> Samples:
    """Open a split of encoded image files in the order of ``images``; unlabelled without a list of ``annotations``.

    A class is the category's id; with a labels file, it is the index of the category's name in that file.
    """
    path: str = opening.split["annotations"]
    document = json.loads(read_unpacked(resolve_inside(opening.folder, path)))
    pictures: Sequence[Mapping[str, Any]] = document["images"]
    names = [str(picture["file_name"]) for picture in pictures]
    images = resolve_inside(opening.folder, opening.split["images"])
    files = [resolve_inside(images, name) for name in names]
    labels = None
    if "annotations" in document:
        classes = _classes(document.get("categories", ()), opening.names)
        annotations_by_image = defaultdict(list)
        for annotation in document["annotations"]:
            annotations_by_image[annotation["image_id"]].append(annotation)
        labels = tuple(
            _boxes(annotations_by_image[picture["id"]], classes, f"{path}, {name}")
            for picture, name in zip(pictures, names, strict=True)
        )
    return Samples(lambda number: {"image": files[number].read_bytes()}, names, labels, _COCO_FIELDS, files)


def _classes(categories: Sequence[Mapping[str, Any]], names: Names | None) -> Mapping[int, int] | None:
    """Return the class of each category id; None where ids are classes. Whitespace and case of names are ignored."""
    if names is None:
        return None
    indices: dict[str, int] = {}
    for name, index in names.places.items():
        indices.setdefault(name.casefold(), index)
    category_names = {category["id"]: str(category["name"]).strip() for category in categories}
    classes = {
        category_id: names.places.get(name, indices.get(name.casefold()))
        for category_id, name in category_names.items()
    }
    return {category_id: index for category_id, index in classes.items() if index is not None}


def _boxes(annotations: Sequence[Mapping[str, Any]], classes: Mapping[int, int] | None, where: str) -> Boxes:
    class_ids = [_class(annotation["category_id"], classes, where) for annotation in annotations]
    boxes = np.asarray([annotation["bbox"] for annotation in annotations], np.float64).reshape(len(class_ids), 4)
    if not np.isfinite(boxes).all() or (boxes[:, 2:] < 0).any():
        raise ValueError(f"{where}: a box must be [x, y, width, height] in pixels, finite and not negative")
    areas = [annotation.get("area", math.prod(annotation["bbox"][2:])) for annotation in annotations]
    return Boxes(
        np.asarray(class_ids, np.int64),
        np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1),
        np.asarray(areas, np.float64),
        np.asarray([bool(annotation.get("iscrowd", 0)) for annotation in annotations], np.bool_),
    )


def _class(category: int, classes: Mapping[int, int] | None, where: str) -> int:
    if classes is None:
        return int(category)
    if category not in classes:
        raise ValueError(f"{where}: category {category} is not in the labels")
    return classes[category]
