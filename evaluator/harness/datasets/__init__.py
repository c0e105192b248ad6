"""Labelled samples of a dataset split, read one by one from its files.

One module per family of formats opens a split and imports the large library that its format needs.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from ..core.failures import Failure, classify_errors
from ..core.job import Dataset
from .labels import check_labels, read_names
from .samples import Boxes, Label, Opening, Samples, resolve_inside

__all__ = ["Boxes", "Label", "Samples", "open_samples"]

_FORMATS: Mapping[str, tuple[str, str]] = {
    "image-index": ("indexed_images", "open_csv_index"),
    "wav-index": ("indexed_images", "open_csv_index"),
    "idx": ("array_files", "open_idx"),
    "npz": ("array_files", "open_npz"),
    "jsonl": ("table_files", "open_json_lines"),
    "parquet": ("table_files", "open_parquet"),
    "coco": ("indexed_images", "open_coco"),
}
"""The module and the function that open a split, by format."""


def open_samples(dataset: Dataset, folder: Path, task: str | None = None) -> Samples:
    """Open the split of ``dataset``. Several threads may read its samples at once.

    Args:
        dataset: The format, split and labels of the dataset.
        folder: The folder of the dataset's files.
        task: The model's task, where labels are compared with predictions and must suit the task; None otherwise.

    Raises:
        Failure: ``load``: a file is missing or malformed, ``samples`` is not the number of samples, or the labels do
            not suit the task.
    """
    if dataset.format not in _FORMATS:
        raise Failure("load", f"dataset: format {dataset.format!r} is not supported")
    with classify_errors("load", "dataset"):
        module, function = _FORMATS[dataset.format]
        open_split: Callable[[Opening], Samples] = getattr(import_module(f"{__name__}.{module}"), function)
        names = read_names(resolve_inside(folder, dataset.labels)) if dataset.labels else None
        samples = open_split(
            Opening(dataset.format, dataset.split, folder, names, masks=task == "semantic-segmentation")
        )
    declared = dataset.split.get("samples")
    if not samples.names:
        raise Failure("load", "dataset: the split has no samples")
    if len(samples) != declared:
        raise Failure("load", f"dataset: the split has {len(samples)} samples, but its manifest states {declared}")
    if task is not None and samples.labels is not None:
        with classify_errors("load", "dataset"):
            check_labels(samples.labels, task, samples.names)
    return samples
