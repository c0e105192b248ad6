"""Names of labels: reading a labels file, and whether a model and a dataset mean the same class by the same index."""

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import BinaryIO

import msgspec

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.readable import readable
from benchlock.registry.file_facts import Disagreement
from benchlock.registry.inspection.budgets import BUDGET, read_buffer

_WORDNET_ID = re.compile(r"n\d{8}[\s:,]+(?=\S)")


class _Category(msgspec.Struct):
    id: int
    name: str


@readable
class _Annotations(msgspec.Struct):
    """The part of COCO's annotations that names labels."""

    categories: list[_Category] = msgspec.field(default_factory=list)


def parse_labels(content: bytes, where: str) -> tuple[str, ...]:
    """The names of a labels file: line i is index i.

    Raises:
        InvalidInputError: it is not UTF-8.
    """
    try:
        return tuple(content.decode("utf-8").splitlines())
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{where} is not UTF-8", where=where, next_step="write one name a line") from error


def read_categories(stream: BinaryIO, where: str) -> dict[int, str]:
    """Read the names of the categories of COCO's annotations by their ids.

    Args:
        stream: The annotations, unpacked.
        where: What messages call them.

    Raises:
        InvalidInputError: They are none.
        OverBudgetError: They have more bytes than the budget of annotations.
    """
    try:
        content = read_buffer(stream, BUDGET.annotations)
        return {one.id: one.name for one in msgspec.json.decode(content, type=_Annotations).categories}
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError, EOFError, zlib.error, RecursionError) as error:
        raise InvalidInputError(f"{where} holds no annotations of COCO's: {error}", where=where) from error


def normalised(name: str) -> str:
    """Without surrounding space, case, and a WordNet id in front: ``n01440764 Tench`` is ``tench``."""
    return _WORDNET_ID.sub("", name.strip(), count=1).strip().casefold()


def disagreements(
    model: Sequence[str], dataset: Sequence[str] | Mapping[int, str], offset: int
) -> tuple[Disagreement, ...]:
    """The names that both have, at other positions; ``offset`` is class index minus dataset label.

    ``dataset`` has the name of each label, in their order or by the label.

    Names that only one of them has say nothing. A name that stands twice agrees if either side has no place of its own.
    """
    places = _places(enumerate(model), offset)
    labels = dataset.items() if isinstance(dataset, Mapping) else enumerate(dataset)
    found = []
    for name, expected in _places(labels, 0).items():
        only_dataset, only_model = expected - places.get(name, expected), places.get(name, expected) - expected
        if only_dataset and only_model:
            found.append(Disagreement(name, min(only_dataset), min(only_model)))
    return tuple(sorted(found, key=lambda one: one.expected))


def _places(names: Iterable[tuple[int, str]], offset: int) -> dict[str, set[int]]:
    places: defaultdict[str, set[int]] = defaultdict(set)
    for index, name in names:
        if plain := normalised(name):
            places[plain].add(index - offset)
    return places
