"""The unlabel phase: a shuffled copy of the dataset without labels, in the same format.

It is a phase of its own, which runs before the model and without its files. It writes:

* ``unlabelled.json``: the table ``dataset`` of the model's ``job.json``;
* ``files.json``, where each sample is a file: the paths of these files in the new order;
* ``dataset/``: the other files of the new dataset, for formats with labels and inputs in one file;
* ``order.safetensors``: ``order`` int64 [samples], the number in the split of each sample in the new order.
"""

import csv
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from ..core.failures import Failure, classify_errors
from ..core.job import Dataset, Job, Model, sample_path
from ..core.phase_reports import Timings, write_json
from ..datasets import Samples, array_files, open_samples, table_files
from ..datasets.samples import read_unpacked, resolve_inside
from ..inference.predictions import save_tensors
from ..quality.tally import open_tally

Order = Callable[[Sequence[int]], list[int]]
"""A function from the number of samples of each block to the numbers of all samples in the new order."""


def write_unlabelled(
    dataset: Dataset, source: Path, target: Path, fields: Collection[str], order: Order
) -> tuple[dict[str, Any], list[int]]:
    """Write a split without its labels.

    Args:
        dataset: The split.
        source: The folder of the dataset's files.
        target: An empty folder. Sample files are not copied: the runner links them to ``sample_path``.
        fields: The fields to write.
        order: Determines the order of the samples.

    Returns:
        The table ``dataset`` of a job, and the number in the split of each sample in the new order.
    """
    writers = {
        "idx": _write_idx,
        "npz": _write_arrays,
        "jsonl": _write_records,
        "parquet": table_files.write_unlabelled,
    }
    write = writers.get(dataset.format)
    if write is not None:
        split, numbers = write(dataset.split, source, target, fields, order)
        return {"format": dataset.format, "split": {**split, "samples": len(numbers)}}, numbers
    numbers = order([dataset.split["samples"]])
    with (target / "index.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["path"])
        writer.writerows([sample_path(number)] for number in range(len(numbers)))
    kind = "wav-index" if dataset.format == "wav-index" else "image-index"
    return {"format": kind, "split": {"index": "index.csv", "samples": len(numbers)}}, numbers


_Split = Mapping[str, Any]
_Written = tuple[dict[str, Any], list[int]]


def _write_idx(split: _Split, source: Path, target: Path, _fields: Collection[str], order: Order) -> _Written:
    pictures = array_files.read_idx_array(resolve_inside(source, split["images"]))
    numbers = order([len(pictures)])
    array_files.write_pictures(target / "images.idx", pictures, numbers)
    return {"images": "images.idx"}, numbers


def _write_arrays(split: _Split, source: Path, target: Path, fields: Collection[str], order: Order) -> _Written:
    keys = {field: split["fields"][field] for field in sorted(fields)}
    with np.load(resolve_inside(source, split["file"]), allow_pickle=False) as archive:
        arrays = {key: array_files.read_npz_array(archive, key, split["file"]) for key in keys.values()}
    numbers = order([len(next(iter(arrays.values())))])
    # Field names do not become keys: they name members of a zip archive, and savez accepts no key "file".
    names = {key: f"field-{position}" for position, key in enumerate(arrays)}
    shuffled: dict[str, Any] = {names[key]: array[numbers] for key, array in arrays.items()}
    np.savez(target / "samples.npz", **shuffled)
    fields_of = {field: names[key] for field, key in keys.items()}
    return {"file": "samples.npz", "fields": fields_of}, numbers


def _write_records(split: _Split, source: Path, target: Path, fields: Collection[str], order: Order) -> _Written:
    keys = {field: split["fields"][field] for field in sorted(fields)}
    lines = [line for line in read_unpacked(resolve_inside(source, split["file"])).split(b"\n") if line.strip()]
    numbers = order([len(lines)])
    with (target / "samples.jsonl").open("w", encoding="utf-8") as stream:
        for number in numbers:
            record = json.loads(lines[number])
            values = {
                key: table_files.read_key(record, key, f"{split['file']}, sample {number}") for key in keys.values()
            }
            stream.write(json.dumps(values, ensure_ascii=False) + "\n")
    return {"file": "samples.jsonl", "fields": keys}, numbers


UNLABELLED = "unlabelled.json"
FILES = "files.json"
ORDER = "order.safetensors"


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Write the unlabelled dataset to ``output`` and return the report of the phase.

    Raises:
        Failure: ``load``: the dataset cannot be read; a quality metric is requested without labels, or with labels of
            another kind; a library is missing.
    """
    timings = Timings()
    dataset = folder / "dataset"
    with timings.of("open"):
        samples = open_samples(job.dataset, dataset, job.model.task if job.quality_metrics else None)
        if job.quality_metrics:
            if samples.labels is None:
                raise Failure("load", "dataset: the split has no labels, which quality metrics need")
            open_tally(job)
    with timings.of("write"), classify_errors("load", "dataset"):
        seed = "" if keeps_order(job.model) else job.order_seed
        fields = list_used_fields(job.model, samples)
        target = output / "dataset"
        target.mkdir()
        split, order = write_unlabelled(job.dataset, dataset, target, fields, lambda blocks: shuffle(blocks, seed))
        if samples.files is not None:
            root = dataset.resolve()
            paths = [samples.files[number].resolve().relative_to(root).as_posix() for number in order]
            write_json(output / FILES, {"files": paths})
        write_json(output / UNLABELLED, split)
        save_tensors(output / ORDER, {"order": np.asarray(order, np.int64)})
    return {"timings": timings.seconds}


def keeps_order(model: Model) -> bool:
    """Whether an answer depends on the samples before it, so that the order is a part of the task."""
    return any(port.reset == "never" for port in model.inputs)


def list_used_fields(model: Model, samples: Samples) -> frozenset[str]:
    """Return the fields that feed the model; all fields where an input names none of them."""
    named = frozenset(port.field or "" for port in model.inputs if port.is_fed)
    return named if named.issubset(samples.fields) else samples.fields


def shuffle(blocks: Sequence[int], seed: str) -> list[int]:
    """Return the numbers of all samples in their new order.

    Args:
        blocks: The number of samples of each block that stays together, such as a row group.
        seed: The seed of the order; an empty seed keeps the order.
    """
    starts = np.concatenate([[0], np.cumsum(blocks)]).astype(int).tolist()
    ranges = [range(start, end) for start, end in pairwise(starts)]
    if not seed:
        return [number for block in ranges for number in block]
    groups = sorted(range(len(ranges)), key=lambda group: _draw(seed, "block", group))
    return [number for group in groups for number in sorted(ranges[group], key=lambda n: _draw(seed, "sample", n))]


def read_order(path: Path) -> NDArray[np.int64]:
    """Read ``order`` int64 [samples] from the file that ``run`` wrote."""
    with safe_open(path, framework="numpy") as file:
        order: NDArray[np.int64] = file.get_tensor("order")
    return order


def _draw(seed: str, kind: str, number: int) -> bytes:
    return hashlib.sha256(f"{seed}/{kind}/{number}".encode()).digest()
