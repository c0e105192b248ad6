"""Whether a resolution can answer its request at all: what is asked, what is built, and what the labels mean."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from msgspec import UNSET

from artifacts.errors import InvalidInputError
from registry.labels import Disagreement, disagreements, parse_labels
from registry.manifests import Dataset, Framework, Image, Manifest, Model
from registry.metrics import DEFINITIONS, check_metrics
from registry.names import Kind
from registry.requests import Request
from registry.resolution.conflicts import SHOWN, Conflict, ConflictError
from registry.support import unsupported

Contents = Mapping[tuple[Kind, str], bytes]
"""Bytes by kind and path; the path may lie inside a tree."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The published manifests of a resolution."""

    model: Model
    dataset: Dataset
    framework: Framework
    image: Image

    def all(self) -> tuple[Manifest, ...]:
        return (self.model, self.dataset, self.framework, self.image)


@dataclass(frozen=True, slots=True)
class ComparedLabels:
    """Labels files of an output and of the dataset, and the class index less the label."""

    output: int
    model: str
    dataset: str
    offset: int


def check_answerable(request: Request, chosen: Chosen) -> None:
    """The split is there, the metrics can be had, and all of it is built.

    Raises:
        InvalidInputError: one is not so; says which.
    """
    for subject, name in ((request, "the request"), *((one, f"{one.kind}/{one.name}") for one in chosen.all())):
        if reasons := unsupported(subject):
            raise InvalidInputError(
                f"{name} cannot be run: {'; '.join(reasons)}",
                where=name,
                next_step="ask for less, or for another version of the artifact",
            )
    _check_split(request, chosen.dataset)
    asked = request.asked
    check_metrics(chosen.model.task, asked.scenario.name, asked.metrics)
    split = chosen.dataset.splits[asked.dataset.split]
    quality = [name for name in request.metrics if DEFINITIONS[name].is_quality]
    if quality and chosen.dataset.format == "idx" and split.labels is UNSET:
        raise InvalidInputError(
            f"{quality[0]} needs labels, and the split {asked.dataset.split} has none",
            where="metrics",
            next_step="ask for latency and throughput alone, or choose a labelled split",
        )


def _check_split(request: Request, dataset: Dataset) -> None:
    split, splits = request.asked.dataset.split, sorted(dataset.splits)
    if split not in splits:
        near = get_close_matches(split, splits, n=1)
        raise InvalidInputError(
            f"dataset/{dataset.name} {dataset.version} has no split {split!r}",
            where="dataset.split",
            next_step=f"did you mean {near[0]!r}?" if near else f"its splits are {', '.join(splits)}",
        )


def compared_labels(chosen: Chosen) -> Iterator[ComparedLabels]:
    """The outputs that name labels, where the dataset names them too."""
    if chosen.dataset.labels is UNSET:
        return
    for index, output in enumerate(chosen.model.outputs):
        if output.labels is not UNSET:
            offset = 0 if output.label_offset is UNSET else output.label_offset
            yield ComparedLabels(index, output.labels, chosen.dataset.labels, offset)


def check_labels(chosen: Chosen, contents: Contents) -> None:
    """Model and dataset mean the same by every name of a label that both have.

    Raises:
        ConflictError: they do not.
        InvalidInputError: a labels file is not UTF-8.
    """
    for compared in compared_labels(chosen):
        of_model = parse_labels(contents["model", compared.model], compared.model)
        of_dataset = parse_labels(contents["dataset", compared.dataset], compared.dataset)
        if found := disagreements(of_model, of_dataset, compared.offset):
            raise ConflictError(_conflict(chosen, compared, found))


def _conflict(chosen: Chosen, compared: ComparedLabels, found: tuple[Disagreement, ...]) -> Conflict:
    model, dataset = (f"{one.kind}/{one.name} {one.version}" for one in (chosen.model, chosen.dataset))
    shown = "; ".join(
        f"{one.name!r} is label {one.expected} of the dataset and {one.found} of the model" for one in found[:SHOWN]
    )
    shifts = {one.found - one.expected for one in found}
    advice = "make the labels file of the model list its classes in the order of its output"
    if len(shifts) == 1:
        advice = (
            f"declare label_offset: {compared.offset + shifts.pop()} of outputs[{compared.output}] in a new version"
        )
    return Conflict(
        f"{model} and {dataset} disagree about {len(found)} labels (label_offset {compared.offset}): {shown}",
        advice=f"{advice}, if the labels files are right",
        details={
            "labels": [{"name": one.name, "dataset": one.expected, "model": one.found} for one in found],
            "label_offset": compared.offset,
        },
    )
