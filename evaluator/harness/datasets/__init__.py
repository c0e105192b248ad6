"""Labelled samples, read one by one as the dataset holds them: encoded files, texts, or arrays.

Each format has a module, which opens a split, and imports the heavy library that it needs.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from ..failures import Failure, failing
from ..job import Dataset
from .labels import check_labels, read_names
from .places import inside
from .samples import Boxes, Label, Opening, Samples

__all__ = ["Boxes", "Label", "Samples", "open_samples"]

_FORMATS: Mapping[str, str] = {
    "image-index": "indices",
    "wav-index": "indices",
    "idx": "idx",
    "npz": "arrays",
    "jsonl": "records",
    "parquet": "columns",
    "coco": "annotations",
}
"""The module that opens a split of each format."""


def open_samples(dataset: Dataset, folder: Path, task: str | None = None) -> Samples:
    """The split of ``dataset``, whose files are in ``folder``.

    ``task`` is the model's where its predictions are to be compared with the labels, which are then of its kind; None
    where they are not. Samples may be read by several threads at once.

    Raises:
        Failure: ``load``: a file is missing or malformed, ``samples`` is not the number of samples, or the labels are
            of another kind.
    """
    if dataset.format not in _FORMATS:
        raise Failure("load", f"dataset: the format {dataset.format!r} is not built")
    with failing("load", "dataset"):
        open_split: Callable[[Opening], Samples] = import_module(f"{__name__}.{_FORMATS[dataset.format]}").open_split
        names = read_names(inside(folder, dataset.labels)) if dataset.labels else None
        samples = open_split(
            Opening(dataset.format, dataset.split, folder, names, masks=task == "semantic-segmentation")
        )
    declared = dataset.split.get("samples")
    if not samples.names:
        raise Failure("load", "dataset: the split has no samples")
    if len(samples) != declared:
        raise Failure("load", f"dataset: the split has {len(samples)} samples, its manifest says {declared}")
    if task is not None and samples.labels is not None:
        with failing("load", "dataset"):
            check_labels(samples.labels, task, samples.names)
    return samples
