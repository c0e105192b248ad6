"""Labels of a local split compared with the scores of a model, before anything runs."""

import csv
import io
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.dataset_files import idx_sizes
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, OverBudgetError, read_whole
from benchlock.registry.manifests import Dataset, Model
from benchlock.registry.manifests.manifest_types import Output, Split
from benchlock.registry.manifests.step_shapes import apply_steps
from benchlock.registry.manifests.tensor_shapes import declare_tensor
from benchlock.registry.scaffold.sample_files import open_unpacked
from benchlock.registry.text.parsed_text import Document, Place

ReadFile = Callable[[str], bytes | None]
"""Returns the content of a file of the dataset by its path, decompressed; None if it is not local or too large."""

_UBYTE = 8  # the type of an idx file of bytes
_DIGITS = re.compile(r"[0-9]{1,18}")  # a label beyond 64 bits is no class index, and int() rejects thousands of digits


def read_local(dataset: Dataset, folder: Path, texts: Mapping[Path, str]) -> ReadFile:
    """Return a function that reads the local files of a dataset.

    Args:
        dataset: The dataset.
        folder: The folder of its manifest.
        texts: The texts of files that are not written yet.
    """
    places = {file.path: folder / str(file.source).removeprefix("file:") for file in dataset.files}

    def read(path: str) -> bytes | None:
        tree = next((name for name in places if name.endswith("/") and path.startswith(name)), "")
        place = places[tree] / path.removeprefix(tree) if tree else places.get(path)
        if place is not None and place in texts:
            return texts[place].encode()
        if place is None or not place.is_file():
            return None
        try:
            with open_unpacked(place) as stream:
                return read_whole(stream, BUDGET.document)
        except (OverBudgetError, InvalidInputError):
            return None

    return read


def find_excess_label(model: Model, dataset: Dataset, split: Split, read: ReadFile) -> tuple[str, str, str] | None:
    """Return the path of a label offset that moves labels beyond the scores, what is wrong, and the next step.

    None if all labels have a score, or if labels or scores are not known.

    Args:
        model: The model, whose manifest has no problems.
        dataset: The dataset.
        split: Its evaluated split.
        read: Reads its files.
    """
    outputs = [(index, output) for index, output in enumerate(model.outputs) if output.type == "class-scores"]
    labels = _find_range(dataset, split, read) if outputs else None
    for index, output in outputs if labels else ():
        assert labels is not None
        count, offset, (lowest, highest) = _count_scores(output), output.label_offset, labels
        if count is None or offset is UNSET or (lowest + offset >= 0 and highest + offset < count):
            continue
        wrong = highest if highest + offset >= count else lowest
        what = f"with label_offset {offset}, label {wrong} of the dataset is class index {wrong + offset}, but the "
        what += f"output has {count} scores, 0 to {count - 1}"
        first, last = -lowest, count - 1 - highest
        step = f"write label_offset: {first}" if first == last else f"write a label_offset from {first} to {last}"
        return f"outputs[{index}].label_offset", what, step if first <= last else "choose a model of these classes"
    return None


def _count_scores(output: Output) -> int | None:
    """Return the number of scores of a sample; None if it is unknown, or if a threshold decides."""
    place = Place(Document(None, ""))
    steps = () if output.steps is UNSET else output.steps
    sizes = apply_steps(declare_tensor(output, place), steps, place).sizes
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        return None
    count = math.prod(size for size in sizes if isinstance(size, int))
    return count if count > 1 else None


def _find_range(dataset: Dataset, split: Split, read: ReadFile) -> tuple[int, int] | None:
    """Return the lowest and the highest label of a split; None if they are not known."""
    if split.index is not UNSET:
        labels = _read_index(split.index, dataset.labels, read)
        return (min(labels), max(labels)) if labels else None
    content = None if split.labels is UNSET else read(split.labels)
    if content is None:
        return None
    try:
        sizes = idx_sizes(io.BytesIO(content))
    except MalformedError:
        return None
    values = content[4 + 4 * len(sizes) :]
    return (min(values), max(values)) if len(sizes) == 1 and content[2] == _UBYTE and values else None


def _read_index(index: str, labels: object, read: ReadFile) -> set[int] | None:
    """Return the labels in an index as numbers; None if one of them is unknown."""
    content, names = read(index), read(labels) if isinstance(labels, str) else b""
    if content is None or names is None:
        return None
    try:
        lines = names.decode().splitlines()
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error):
        return None
    indices = {name.strip(): number for number, name in reversed(list(enumerate(lines)))}
    texts = {(row.get("label") or "").strip() for row in rows} - {""}
    numbers = [int(text) if _DIGITS.fullmatch(text) else indices.get(text) for text in texts]
    return {number for number in numbers if number is not None} if None not in numbers else None
