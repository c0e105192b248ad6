"""Matrices: requests that differ in the values of some keys, expanded to cells, each of which is a request."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from random import Random
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.size_limits import REQUEST, TooLongError, check_document
from benchlock.registry.manifests.field_types import NameText, Part
from benchlock.registry.requests.evaluation_request import Request, derive_seed, parse_request
from benchlock.registry.requests.request_types import Seed
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.decoder import convert
from benchlock.registry.text.parsed_text import Document, Place
from benchlock.registry.text.yaml import read_yaml

MAX_CELLS: Final = 10_000
"""The maximum number of cells of a matrix, and of their repeats together."""
_MAX_VALUES: Final = 100
_MAX_EXCLUDED: Final = 1000
_MAX_REPEATS: Final = 100
_MAX_INVALID: Final = 20
"""The number of invalid cells after which no further one is checked: their problems repeat."""

_LABEL: Final = "^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$"
Label = Annotated[str, Meta(extra_json_schema={"pattern": _LABEL})]
Values = Annotated[
    dict[Label, dict[str, Any]],
    Meta(min_length=1, max_length=_MAX_VALUES, description="values of the request's key, by label"),
]


class Axes(Part, frozen=True, kw_only=True):
    """The axes of a matrix. Each is a key of the request, with the values that it takes in the cells."""

    model: Values | UnsetType = UNSET
    framework: Values | UnsetType = UNSET
    dataset: Values | UnsetType = UNSET
    scenario: Values | UnsetType = UNSET
    hardware: Values | UnsetType = UNSET
    settings: Values | UnsetType = UNSET


class ExcludedCells(Part, frozen=True, kw_only=True):
    """Labels of some axes: the cells that have all of them are left out."""

    model: Label | UnsetType = UNSET
    framework: Label | UnsetType = UNSET
    dataset: Label | UnsetType = UNSET
    scenario: Label | UnsetType = UNSET
    hardware: Label | UnsetType = UNSET
    settings: Label | UnsetType = UNSET


class MatrixDocument(Part, frozen=True, kw_only=True):
    """A matrix file, key by key."""

    schema: Literal[1]
    kind: Literal["matrix"]
    name: NameText
    request: Annotated[
        dict[str, Any], Meta(description="the keys that all cells share, as in a request; not schema, kind and name")
    ]
    axes: Axes
    exclude: Annotated[tuple[ExcludedCells, ...], Meta(max_length=_MAX_EXCLUDED)] | UnsetType = UNSET
    repeat: Annotated[int, Meta(ge=1, le=_MAX_REPEATS, description="runs of each cell; absent, 1")] = 1
    isolation: Annotated[
        Literal["container", "process"] | UnsetType,
        Meta(description="how workers run the jobs; absent: any"),
    ] = UNSET
    allow_code: Annotated[bool, Meta(description="whether code of the models may run in processes")] = False
    seed: Annotated[Seed, Meta(description="of the order of the runs")]


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """A cell: its labels by axis, and its request."""

    labels: Mapping[str, str]
    request: Request

    @property
    def name(self) -> str:
        """The labels in a text, such as ``model=small,scenario=offline``."""
        return name_cell(self.labels)


@dataclass(frozen=True)
class Matrix:
    """A validated matrix; ``document`` is the matrix as written."""

    content: MatrixDocument
    document: dict[str, Any]
    cells: tuple[MatrixCell, ...]

    @cached_property
    def id(self) -> Digest:
        """The digest of the canonical document."""
        return digest_bytes(encode_canonical(self.document))

    def rounds(self) -> Iterator[tuple[int, str]]:
        """Yield the number of a round and the name of a cell, for all runs in their order.

        A round has each cell once, in an order of its own, so that the drift of a machine affects all cells alike.
        """
        for number in range(1, self.content.repeat + 1):
            names = [cell.name for cell in self.cells]
            Random(derive_seed(self.content.seed, f"round {number}")).shuffle(names)  # noqa: S311 - an order, no secret
            yield from ((number, name) for name in names)


def name_cell(labels: Mapping[str, str]) -> str:
    """Return the name of the cell with these labels."""
    return ",".join(f"{axis}={label}" for axis, label in labels.items())


def place_cell(name: str) -> list[list[tuple[int, str]]]:
    """Return a key by which the names of the cells of a matrix are in their order."""
    return [_sort_key(part.partition("=")[2]) for part in name.split(",")]


def is_matrix(document: object) -> bool:
    """Return whether a parsed file states that it is a matrix."""
    return isinstance(document, dict) and document.get("kind") == "matrix"


def read_matrix(text: bytes | str, name: str) -> Matrix:
    """Read a matrix from YAML 1.2; ``name`` names it in errors.

    Raises:
        InvalidInputError: The matrix has problems. The error has the first one with key path and line, and all others.
    """
    if len(text) > REQUEST:
        raise TooLongError(f"{name} has more than {REQUEST} bytes", where=name, next_step="shorten it")
    return _validate(read_yaml(text, name))


def parse_matrix(document: dict[str, Any], name: str) -> Matrix:
    """Parse a matrix that a client sent. Raise as ``read_matrix``."""
    return _validate(Document(document, name))


def _validate(document: Document) -> Matrix:
    check_document(document.value, REQUEST, document.name)
    content: MatrixDocument = convert(document, MatrixDocument)
    place, problems = Place(document), Problems()
    _check_labels(content, place, problems)
    problems.refuse()
    axes = _list_axes(content)
    _check_keys(content, axes, place, problems)
    _check_excluded(content, axes, place.at("exclude"), problems)
    with problems.noted():
        _check_size(content, axes, place)
    problems.refuse()
    cells = tuple(_expand(content, axes, place, problems))
    problems.refuse()
    if not cells:
        raise place.at("exclude").error("every cell is excluded", "exclude fewer cells")
    return Matrix(content, document.value, cells)


def _check_labels(content: MatrixDocument, place: Place, problems: Problems) -> None:
    """Check the labels, before anything takes their digits for numbers."""
    for axis in Axes.__struct_fields__:
        for label in getattr(content.axes, axis) or ():
            if re.fullmatch(_LABEL, label) is None:
                step = "use at most 32 letters, digits, '.', '_' and '-'"
                problems.add(place.at("axes", axis).error(f"invalid label {label[:40]!r}", step))


def _list_axes(content: MatrixDocument) -> dict[str, dict[str, Any]]:
    """Return the values of each axis by label, in an order that does not depend on that of the file, as the id."""
    values = {axis: getattr(content.axes, axis) for axis in Axes.__struct_fields__}
    return {
        axis: {label: by_label[label] for label in sorted(by_label, key=_sort_key)}
        for axis, by_label in values.items()
        if by_label is not UNSET
    }


def _sort_key(label: str) -> list[tuple[int, str]]:
    """Return the key by which ``b8`` comes before ``b64``."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split("([0-9]+)", label)]


def _labels_of(excluded: ExcludedCells) -> dict[str, str]:
    labels = {axis: getattr(excluded, axis) for axis in ExcludedCells.__struct_fields__}
    return {axis: label for axis, label in labels.items() if label is not UNSET}


def _check_keys(content: MatrixDocument, axes: Mapping[str, Any], place: Place, problems: Problems) -> None:
    if not axes:
        problems.add(place.at("axes").error("the matrix has no axis", "write at least one, such as model"))
    for key in content.request:
        if key in ("schema", "kind", "name"):
            problems.add(place.at("request", key).error(f"every cell has the {key} of the matrix", "remove it"))
        elif key in axes:
            step = "remove it here, or remove the axis"
            problems.add(place.at("request", key).error(f"{key} is an axis, whose values replace it", step))


def _check_excluded(
    content: MatrixDocument, axes: Mapping[str, Mapping[str, Any]], place: Place, problems: Problems
) -> None:
    for index, excluded in enumerate(content.exclude or ()):
        labels = _labels_of(excluded)
        if not labels:
            problems.add(place.at(index).error("this excludes every cell", "name a label of at least one axis"))
        for axis, label in labels.items():
            if label not in axes.get(axis, ()):
                step = f"write one of {', '.join(list(axes[axis])[:10])}" if axis in axes else "add the axis"
                problems.add(place.at(index, axis).error(f"the axis {axis} has no value {label!r}", step))


def _check_size(content: MatrixDocument, axes: Mapping[str, Mapping[str, Any]], place: Place) -> None:
    cells = prod(map(len, axes.values()))
    if cells > MAX_CELLS:
        what = f"{cells} cells are too many: the maximum is {MAX_CELLS}"
        raise place.at("axes").error(what, "write fewer values, or several matrices")
    if cells * content.repeat > MAX_CELLS:
        what = f"{cells} cells with {content.repeat} repeats are {cells * content.repeat} runs; "
        raise place.at("repeat").error(f"{what}the maximum is {MAX_CELLS}", "repeat less often, or write fewer values")


def _expand(
    content: MatrixDocument, axes: Mapping[str, Mapping[str, Any]], place: Place, problems: Problems
) -> Iterator[MatrixCell]:
    """Yield the valid cells that are not excluded, and add the problems of the invalid ones."""
    excluded: dict[tuple[str, ...], set[tuple[str, ...]]] = {}  # the labels by their axes, as a cell is looked up
    for cells in map(_labels_of, content.exclude or ()):
        excluded.setdefault(tuple(cells), set()).add(tuple(cells.values()))
    fixed = {"schema": 1, "kind": "evaluation", "name": content.name}
    invalid = 0
    for labels in product(*axes.values()):
        by_axis = dict(zip(axes, labels, strict=True))
        if any(tuple(by_axis[axis] for axis in names) in cells for names, cells in excluded.items()):
            continue
        replaced = {axis: axes[axis][label] for axis, label in by_axis.items()}
        try:
            yield MatrixCell(by_axis, parse_request(fixed | content.request | replaced, place.document.name))
        except InvalidInputError as error:
            invalid += 1
            for problem in error.problems or (error,):
                problems.add(_place_problem(problem, by_axis, place))
        if invalid >= _MAX_INVALID:
            return


def _place_problem(problem: BenchlockError, labels: Mapping[str, str], place: Place) -> InvalidInputError:
    """Return the problem of a cell with its path in the matrix."""
    path = (problem.where or "").partition(" (")[0]
    key = path.partition(".")[0].partition("[")[0]
    name = place.document.name
    within = f"axes.{key}.{labels[key]}{path[len(key) :]}" if key in labels else f"request.{path}"
    if key == "name":  # the matrix has it
        within = path
    where = place.document.where("request" if path in ("", name) else within)
    return InvalidInputError(problem.what, where=where, next_step=problem.next_step)
