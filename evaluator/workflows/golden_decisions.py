"""Decisions of the golden command: samples, tolerances and plausibility."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.manifests import Dataset, Model
from benchlock.registry.manifests.manifest_types import (
    AudioInput,
    ConstantInput,
    ImageInput,
    Input,
    Output,
    StateInput,
    TextInput,
)
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import Constraint

SPLIT = "samples"
NAME = "golden-samples"

_UNLIKELY = 0.001
"""The minimum probability of predictions under a claim; less probable ones contradict the claim."""
_BY_CHANCE = 0.01
_DIGITS, _MAX_DIGITS = {"float16": 3}, 6
"""The decimal places that a floating-point type resolves near 1, for coarse types; and the maximum."""


@dataclass(frozen=True, slots=True)
class AnswerCount:
    """The number of correct predictions for ``n`` samples, among ``classes`` (None if unknown)."""

    right: int
    n: int
    classes: int | None


def sample_dataset(model: Model, files: Sequence[Path], folder: Path) -> tuple[str, Path]:
    """Return the manifest of a dataset with one sample for each of ``files``, and its path.

    Images and audio files are used unchanged, texts are read as UTF-8, tensors from ``.npy`` files. Files beside the
    manifest are written to ``folder``. Without files the dataset has the fields that feed the model, with one dummy
    sample that no model gets.

    Args:
        model: The model.
        files: The files of the samples.
        folder: The folder for the dataset.

    Raises:
        InvalidInputError: A file cannot be read, or several fields feed the model.
    """
    ports = [port for port in model.inputs if not isinstance(port, ConstantInput | StateInput)]
    port, fields = ports[0], {port.field for port in ports}
    if files and len(fields) > 1:
        raise InvalidInputError(
            "the model reads several fields of a sample, but a file provides only one",
            where="inputs",
            next_step="publish a dataset with these fields and take the samples from it",
        )
    field = "sample" if port.field is UNSET else port.field
    if not files:
        form, split, sources = _make_dummy(
            sorted({str(name) for name in fields if name is not UNSET} or {field}), folder
        )
    elif isinstance(port, ImageInput | AudioInput):
        form, split, sources = _make_index(files, folder, sound=isinstance(port, AudioInput))
    elif isinstance(port, TextInput):
        form, split, sources = _make_texts(files, folder, field)
    else:
        form, split, sources = _make_tensors(files, folder, field)
    document = {
        "schema": 1,
        "kind": "dataset",
        "name": NAME,
        "version": "1.0.0",
        "license": "LicenseRef-Unknown",
        "format": form,
        "splits": {SPLIT: split | {"samples": max(len(files), 1)}},
        "files": [{"path": path, "source": str(source)} for path, source in sources.items()],
    }
    return json.dumps(document), folder / "manifest.yaml"


def _make_index(files: Sequence[Path], folder: Path, *, sound: bool) -> tuple[str, dict[str, Any], dict[str, Path]]:
    index = folder / "index.csv"
    sources = {f"files/{number}{file.suffix}": file.absolute() for number, file in enumerate(files)}
    index.write_text("\n".join(["path", *sources]) + "\n", encoding="utf-8")
    return "wav-index" if sound else "image-index", {"index": index.name}, {index.name: index} | sources


def _make_dummy(fields: Sequence[str], folder: Path) -> tuple[str, dict[str, Any], dict[str, Path]]:
    written = folder / "nothing.jsonl"
    written.write_text(json.dumps(dict.fromkeys(fields, 0)) + "\n", encoding="utf-8")
    return "jsonl", {"file": written.name, "fields": {field: field for field in fields}}, {written.name: written}


def _make_texts(files: Sequence[Path], folder: Path, field: str) -> tuple[str, dict[str, Any], dict[str, Path]]:
    written = folder / "texts.jsonl"
    with written.open("w", encoding="utf-8") as stream:
        for file in files:
            try:
                stream.write(json.dumps({field: file.read_text(encoding="utf-8")}) + "\n")
            except (OSError, UnicodeDecodeError) as error:
                raise _unreadable(file, error) from error
    return "jsonl", {"file": written.name, "fields": {field: field}}, {written.name: written}


def _make_tensors(files: Sequence[Path], folder: Path, field: str) -> tuple[str, dict[str, Any], dict[str, Path]]:
    written, arrays = folder / "tensors.npz", []
    for file in files:
        try:
            arrays.append(np.load(file, allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise _unreadable(file, error) from error
    try:
        stacked = np.stack(arrays)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"cannot stack the tensors: {error}", where=str(files[0])) from error
    np.savez(written, sample=stacked)
    return "npz", {"file": written.name, "fields": {field: "sample"}}, {written.name: written}


def _unreadable(file: Path, error: Exception) -> InvalidInputError:
    step = "give encoded pictures, audio (.wav), UTF-8 text or tensors (.npy), depending on the input's type"
    return InvalidInputError(f"cannot read {file} as a sample: {error}", where=str(file), next_step=step)


def suggest_tolerance(port: Input | Output, described: Mapping[str, Any]) -> dict[str, float]:
    """Suggest the tolerance of a golden tensor.

    For classes it is zero. For integers it is zero at an input and one step at an output. For floating-point values it
    is 1e-6 (at an output 1e-5, and 1e-4 of each value) of the power of ten that no value exceeds: rounding on another
    processor stays within it, faults of a pipeline do not. A type that is too coarse for that gets the power of ten
    above its own step, and ten times that of each value.

    Args:
        port: The input or output.
        described: The ``dtype`` of the tensor, and its ``largest`` absolute value.
    """
    output, dtype = isinstance(port, Output), str(described["dtype"])
    if isinstance(port, Output) and _is_of_classes(port):
        return {"absolute": 0.0, "relative": 0.0}
    if not dtype.startswith("float"):
        return {"absolute": float(output), "relative": 0.0}
    largest, digits = described["largest"], _DIGITS.get(dtype, _MAX_DIGITS)
    power = math.ceil(math.log10(largest)) if largest > 0 else 0
    absolute, relative = min(digits, 5 if output else 6), min(digits - 1, 4)
    return {"absolute": float(f"1e{power - absolute}"), "relative": float(f"1e-{relative}") if output else 0.0}


def _is_of_classes(output: Output) -> bool:
    """Return whether the values are class indices, whatever their type: one step is another class."""
    steps = () if output.steps is UNSET else output.steps
    return output.type in ("class-index", "mask") or (bool(steps) and steps[-1].name in ("argmax", "topk"))


def count_answers(model: Model, report: Mapping[str, Any], quality: Mapping[str, Any]) -> AnswerCount | None:
    """Count the correct predictions of a trial, per call if calls are kept apart; None if none were judged.

    Args:
        model: The model.
        report: The report of the trial.
        quality: The quality metrics of the trial.
    """
    top1 = quality.get("top1")
    if not top1 or not top1.get("n"):
        return None
    output = next((port for port in model.outputs if port.type == "class-scores"), None)
    shape = report["outputs"].get(output.name, {}).get("shape", []) if output is not None else []
    apart = output is not None and output.reduce == "none"  # an answer a call: the calls are the second axis
    width = max(shape[2 if apart else 1 :], default=1)
    right = top1["correct"] if "correct" in top1 else round(top1["value"] * top1["n"])
    return AnswerCount(right, top1["n"], None if output is None else max(width, 2))


def explain_doubt(count: AnswerCount, claimed: Iterable[float]) -> str | None:
    """Return why these predictions are not those of a working model; None if they may be.

    Either fewer are correct than a claim allows (binomial, one-sided, 0.1 %). Or guessing gives as many with a
    probability above 1 %, and a model halfway between guessing and perfection gives more with 99 %.
    """
    right, n = count.right, count.n
    summary = f"{right}/{n} samples predicted correctly"
    for value in claimed:
        chance = float(scipy.special.bdtr(right, n, min(max(value, 0.0), 1.0)))
        if chance < _UNLIKELY:
            return (
                f"{summary}, but the claim states top1 of at least {value:g}: the probability of so few is {chance:.1g}"
            )
    if count.classes is None:
        return None
    guess = 1 / count.classes
    by_guessing = float(scipy.special.bdtrc(right - 1, n, guess)) if right else 1.0
    by_working = float(scipy.special.bdtr(right, n, (1 + guess) / 2))
    if by_guessing > _BY_CHANCE and by_working < _BY_CHANCE:
        return f"{summary}, which is no better than chance for {count.classes} classes"
    return None


def list_claimed_top1(model: Model, dataset: Dataset, split: str) -> tuple[float, ...]:
    """List the lowest top1 that each claim of the model on this dataset allows."""
    return tuple(
        claim.value - claim.tolerance
        for claim in (() if model.claims is UNSET else model.claims)
        if claim.metric == "top1"
        and (claim.dataset.name, claim.dataset.split) == (dataset.name, split)
        and Constraint.parse(claim.dataset.version).admits(parse_version(dataset.version))
    )
