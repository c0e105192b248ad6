"""The dataset as the model sees it: inputs alone, in an order that the author of the model does not know.

It is a phase of its own, which runs without the model's files and before the model. It writes:

* ``unlabelled.json``: the table ``dataset`` of the model's ``job.json``;
* ``files.json``, where each sample is a file: the paths of these files in the order in which they are shown;
* ``dataset/``: the other files of the new dataset, which has labels and inputs in one file;
* ``order.safetensors``: ``order`` int64 [samples], the number in the split of each shown sample.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from .datasets import Samples, open_samples
from .datasets.unlabelled import write_unlabelled
from .failures import Failure, failing
from .job import Job, Model
from .quality import open_tally
from .reports import Timings, write_json
from .tensorfiles import save_tensors

UNLABELLED = "unlabelled.json"
FILES = "files.json"
ORDER = "order.safetensors"


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Write the unlabelled dataset to ``output`` and return the report of the phase.

    Raises:
        Failure: ``load``: the dataset cannot be read; a quality metric is asked, and there are no labels, or labels of
            another kind; a library is missing.
    """
    timings = Timings()
    dataset = folder / "dataset"
    with timings.of("open"):
        samples = open_samples(job.dataset, dataset, job.model.task if job.quality_metrics else None)
        if job.quality_metrics:
            if samples.labels is None:
                raise Failure("load", "dataset: the split has no labels, and a quality metric is asked")
            open_tally(job)
    with timings.of("write"), failing("load", "dataset"):
        seed = "" if keeps_order(job.model) else job.order_seed
        fields = used_fields(job.model, samples)
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


def used_fields(model: Model, samples: Samples) -> frozenset[str]:
    """Return the fields that feed the model; all of them where one input names none that there is."""
    named = frozenset(port.field or "" for port in model.inputs if port.fed)
    return named if named.issubset(samples.fields) else samples.fields


def shuffle(blocks: Sequence[int], seed: str) -> list[int]:
    """Return the numbers of all samples in the order in which they are shown.

    Args:
        blocks: The number of samples of each part of the dataset that stays together, such as a group of rows.
        seed: What decides the order; nothing keeps the order as it is.
    """
    starts = np.concatenate([[0], np.cumsum(blocks)]).astype(int).tolist()
    ranges = [range(start, end) for start, end in pairwise(starts)]
    if not seed:
        return [number for one in ranges for number in one]
    groups = sorted(range(len(ranges)), key=lambda group: _draw(seed, "block", group))
    return [number for group in groups for number in sorted(ranges[group], key=lambda n: _draw(seed, "sample", n))]


def read_order(path: Path) -> NDArray[np.int64]:
    """Read ``order`` int64 [samples] from the file that :func:`run` wrote."""
    with safe_open(path, framework="numpy") as file:
        order: NDArray[np.int64] = file.get_tensor("order")
    return order


def _draw(seed: str, kind: str, number: int) -> bytes:
    return hashlib.sha256(f"{seed}/{kind}/{number}".encode()).digest()
