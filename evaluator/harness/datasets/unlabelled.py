"""Datasets without their labels, in the same format, so that reading a sample takes what it took."""

import csv
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..job import Dataset
from ..naming import sample_path
from . import arrays, columns, idx, records
from .places import inside, unpacked

Order = Callable[[Sequence[int]], list[int]]
"""Takes the number of samples of each block, and gives the numbers of all samples as they are shown."""


def write_unlabelled(
    dataset: Dataset, source: Path, target: Path, fields: Collection[str], order: Order
) -> tuple[dict[str, Any], list[int]]:
    """Write a split without its labels.

    Args:
        dataset: The split.
        source: The folder of the dataset's files.
        target: An empty folder. Samples that are files of their own are not copied: the runner links them to
            :func:`naming.sample_path`.
        fields: The fields to keep.
        order: Decides the order of the samples.

    Returns:
        The table ``dataset`` of a job, and the number in the split of each sample that is shown.
    """
    writers = {"idx": _write_idx, "npz": _write_arrays, "jsonl": _write_records, "parquet": columns.write_unlabelled}
    write = writers.get(dataset.format)
    if write is not None:
        split, shown = write(dataset.split, source, target, fields, order)
        return {"format": dataset.format, "split": {**split, "samples": len(shown)}}, shown
    shown = order([dataset.split["samples"]])
    with (target / "index.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["path"])
        writer.writerows([sample_path(number)] for number in range(len(shown)))
    kind = "wav-index" if dataset.format == "wav-index" else "image-index"
    return {"format": kind, "split": {"index": "index.csv", "samples": len(shown)}}, shown


_Split = Mapping[str, Any]
_Written = tuple[dict[str, Any], list[int]]


def _write_idx(split: _Split, source: Path, target: Path, _fields: Collection[str], order: Order) -> _Written:
    pictures = idx.read_array(inside(source, split["images"]))
    shown = order([len(pictures)])
    idx.write_pictures(target / "images.idx", pictures, shown)
    return {"images": "images.idx"}, shown


def _write_arrays(split: _Split, source: Path, target: Path, fields: Collection[str], order: Order) -> _Written:
    keys = {field: split["fields"][field] for field in sorted(fields)}
    with np.load(inside(source, split["file"]), allow_pickle=False) as archive:
        kept = {key: arrays.read_array(archive, key, split["file"]) for key in keys.values()}
    shown = order([len(next(iter(kept.values())))])
    # The names of a zip's members are the keys, and savez takes no key called "file".
    names = {key: f"field-{place}" for place, key in enumerate(kept)}
    shuffled: dict[str, Any] = {names[key]: array[shown] for key, array in kept.items()}
    np.savez(target / "samples.npz", **shuffled)
    fields_of = {field: names[key] for field, key in keys.items()}
    return {"file": "samples.npz", "fields": fields_of}, shown


def _write_records(split: _Split, source: Path, target: Path, fields: Collection[str], order: Order) -> _Written:
    keys = {field: split["fields"][field] for field in sorted(fields)}
    lines = [line for line in unpacked(inside(source, split["file"])).split(b"\n") if line.strip()]
    shown = order([len(lines)])
    with (target / "samples.jsonl").open("w", encoding="utf-8") as stream:
        for number in shown:
            record = json.loads(lines[number])
            kept = {key: records.held(record, key, f"{split['file']}, sample {number}") for key in keys.values()}
            stream.write(json.dumps(kept, ensure_ascii=False) + "\n")
    return {"file": "samples.jsonl", "fields": keys}, shown
