"""An index: a CSV with the columns ``path`` and ``label`` or ``mask``, whose paths start at its folder."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from .labels import Lazy, labels_of
from .masks import read_mask
from .places import inside
from .samples import Label, Opening, Samples

_FIELDS = {"image-index": "image", "wav-index": "audio"}


def open_split(opening: Opening) -> Samples:
    """Its samples are files as they are stored, in the order of the rows.

    Labels are masks where these are asked for, and where there are no others.
    """
    path: str = opening.split["index"]
    index = inside(opening.folder, path)
    with index.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    if rows and "path" not in rows[0]:
        raise ValueError(f"{path}: no column 'path'")
    names = [str(row["path"]) for row in rows]
    parent = index.parent.relative_to(opening.folder)
    files = [inside(opening.folder, str(parent / name)) for name in names]
    field = _FIELDS[opening.format]

    def line(number: int) -> str:
        return f"{path} line {number + 2}"

    found: Sequence[Label] | None = labels_of([row.get("label") for row in rows], opening.names, line)
    masks = [(row.get("mask") or "").strip() for row in rows] if field == "image" else []
    if any(masks) and (opening.masks or found is None):
        found = _masks(masks, lambda name: inside(opening.folder, str(parent / name)), line)
    return Samples(lambda number: {field: files[number].read_bytes()}, names, found, frozenset((field,)), files)


def _masks(names: Sequence[str], place: Callable[[str], Path], line: Callable[[int], str]) -> Lazy:
    if not all(names):
        raise ValueError(f"{line(names.index(''))}: no mask, and other samples have one")
    files = [place(name) for name in names]
    return Lazy(lambda number: read_mask(files[number], names[number]), names)
