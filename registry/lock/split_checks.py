"""Checks that a dataset split has the fields of the model and the labels of the metrics."""

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import BinaryIO

from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.file_facts import ResampledField
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, read_text_lines
from benchlock.registry.manifests import Dataset, Model, Recipe, Split
from benchlock.registry.manifests.manifest_types import AudioInput, ImageInput, TensorInput, TextInput
from benchlock.registry.manifests.metric_definitions import DECIDED, SCORED

_LABEL, _MASK = "label", "mask"
_FIELDS = {"image-index": "image", "idx": "image", "coco": "image", "wav-index": "audio"}
"""The only field of the formats that have one field."""
_INPUT_TYPES = {"image-index": ("image",), "coco": ("image",), "wav-index": ("audio",), "idx": ("image", "tensor")}
"""The input types for which these formats provide samples; other formats suit any type."""
_WITHOUT_RATE = ("jsonl",)
"""Formats that store sounds as numbers only, never as files, which contain their sample rate."""
_MAYBE_WITHOUT_RATE = ("npz", "parquet")
"""Formats that store sounds as numbers or as files."""
_CLASSES, _MASKS, _BOXES, _NUMBERS = "classes", "masks", "boxes", "numbers"
_METRIC_LABELS = {"top1": _CLASSES, "top5": _CLASSES, "miou": _MASKS, "map": _BOXES, "map_50": _BOXES} | {
    "mae": _NUMBERS,
    "rmse": _NUMBERS,
    **dict.fromkeys((*DECIDED, *SCORED), _CLASSES),
}
"""The sort of labels that each metric compares predictions with."""
_ANY = (_CLASSES, _MASKS, _NUMBERS)
_LABELS: Mapping[str, Sequence[str]] = {
    "image-index": _ANY,
    "wav-index": (_CLASSES, _NUMBERS),
    "idx": (_CLASSES, _NUMBERS),
    "npz": _ANY,
    "jsonl": _ANY,
    "parquet": _ANY,
    "coco": (_BOXES,),
}
"""The sorts of labels that each format can contain."""


def fields_of(dataset: Dataset, split: Split) -> tuple[str, ...]:
    """Return the names of a sample's fields, in order."""
    if split.fields is UNSET:
        return (_FIELDS[dataset.format],)
    return tuple(field for field in split.fields if field != _LABEL)


def check_model_inputs(model: Model | Recipe, dataset: Dataset, split: Split) -> None:
    """Require that the dataset has a suitable field for every input that takes its tensor from samples.

    Raises:
        InvalidInputError: An input has no suitable field.
    """
    fields = fields_of(dataset, split)
    field_names, name = ", ".join(fields), f"dataset/{dataset.name}"
    for index, port in enumerate(model.inputs):
        if not isinstance(port, ImageInput | AudioInput | TextInput | TensorInput):
            continue
        where = f"{model.kind}/{model.name} inputs[{index}].field"
        if port.field is UNSET and len(fields) > 1:
            what = f"the input {port.name} does not name a field, and {name} has several: {field_names}"
            raise InvalidInputError(what, where=where, next_step="publish a version of the model that names its field")
        if port.field is not UNSET and port.field not in fields:
            what = f"the input {port.name} reads the field {port.field!r}, but {name} has {field_names}"
            step = "choose another dataset, or publish a version of either with the same field name"
            raise InvalidInputError(what, where=where, next_step=step)
        if port.type not in _INPUT_TYPES.get(dataset.format, (port.type,)):
            what = f"{name} is in {dataset.format}, which cannot feed the input {port.name} of type {port.type}"
            raise InvalidInputError(what, where=where, next_step="choose another dataset")
        if dataset.format in _WITHOUT_RATE and _is_resampled(port):
            raise missing_rate_error(model, index, dataset)


def missing_rate_error(model: Model | Recipe, index: int, dataset: Dataset) -> InvalidInputError:
    """Return the error for an input that resamples sounds without a sample rate.

    Args:
        model: The model.
        index: The position of the input in the model.
        dataset: The dataset.
    """
    name = model.inputs[index].name
    what = f"the input {name} resamples, but the audio of dataset/{dataset.name} in {dataset.format} has no sample rate"
    step = "choose a dataset of WAV files, or publish a version of the model without the step resample"
    return InvalidInputError(what, where=f"model/{model.name} inputs[{index}].steps", next_step=step)


def resampled_fields(model: Model, dataset: Dataset, split: Split) -> Iterator[ResampledField]:
    """Yield the fields of sounds that an input resamples, for formats that store them as files or as numbers."""
    if dataset.format not in _MAYBE_WITHOUT_RATE or split.fields is UNSET or split.file is UNSET:
        return
    first, *_ = fields_of(dataset, split)
    for index, port in enumerate(model.inputs):
        if isinstance(port, AudioInput) and _is_resampled(port):
            field = first if port.field is UNSET else port.field
            if field in split.fields:
                yield ResampledField(index, split.file, split.fields[field], dataset.format)


def _is_resampled(port: ImageInput | AudioInput | TextInput | TensorInput) -> bool:
    """Return whether a step of the input needs the sample rate of the sound."""
    return isinstance(port, AudioInput) and any(step.name == "resample" for step in port.steps)


def check_labelled(metrics: Sequence[str], dataset: Dataset, split_name: str) -> None:
    """Require that a split can have the labels that quality metrics compare predictions with.

    Args:
        metrics: The quality metrics.
        dataset: The dataset.
        split_name: The name of the split.

    Raises:
        InvalidInputError: The split has no labels, or labels of another sort; ``where`` is ``metrics``.
    """
    split = dataset.splits[split_name]
    for metric in metrics:
        label_sort = _METRIC_LABELS[metric]
        if label_sort not in _LABELS[dataset.format]:
            what = f"{metric} needs {label_sort} as labels; dataset/{dataset.name} in {dataset.format} has other labels"
            raise InvalidInputError(what, where="metrics", next_step="choose another metric or dataset")
    by_key = split.fields is not UNSET and _LABEL not in split.fields
    if metrics and (by_key or (dataset.format == "idx" and split.labels is UNSET)):
        raise missing_labels_error(metrics[0], split_name)


def find_label_columns(index: BinaryIO, path: str) -> tuple[str, ...]:
    """Return which of the columns ``label`` and ``mask`` an index has, by its first sample.

    All samples have the same columns.

    Raises:
        InvalidInputError: The index is not CSV.
        OverBudgetError: A line is too long.
    """
    with io.TextIOWrapper(index, encoding="utf-8-sig", errors="replace", newline="") as text:
        try:
            first = next(csv.DictReader(read_text_lines(text, BUDGET.line)), {})
        except csv.Error as error:
            raise InvalidInputError(f"{path} is not CSV: {error}", where=path) from error
    return tuple(column for column in (_LABEL, _MASK) if (first.get(column) or "").strip())


def check_index_labelled(metrics: Sequence[str], split_name: str, columns: Collection[str]) -> None:
    """Require that the samples of an index have the labels that the metrics need.

    Args:
        metrics: The quality metrics.
        split_name: The name of the split.
        columns: The label columns of the index.

    Raises:
        InvalidInputError: A metric lacks its labels.
    """
    for metric in metrics:
        if (_MASK if _METRIC_LABELS[metric] == _MASKS else _LABEL) not in columns:
            raise missing_labels_error(metric, split_name)


def missing_labels_error(metric: str, split: str) -> InvalidInputError:
    """Return the error for a quality metric on a split without labels for it."""
    return InvalidInputError(
        f"{metric} needs labels; the split {split} has none",
        where="metrics",
        next_step="request only latency and throughput, or choose a labelled split",
    )
