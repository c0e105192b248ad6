"""Names of labels: reading a labels file, and whether a model and a dataset mean the same class by the same index."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from artifacts.errors import InvalidInputError

_WORDNET_ID = re.compile(r"n\d{8}[\s:,]+(?=\S)")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A name that stands at ``expected`` in the dataset, and in the model, less its offset, at ``found``."""

    name: str
    expected: int
    found: int


def parse_labels(content: bytes, where: str) -> tuple[str, ...]:
    """The names of a labels file: line i is index i.

    Raises:
        InvalidInputError: it is not UTF-8.
    """
    try:
        return tuple(content.decode("utf-8").splitlines())
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{where} is not UTF-8", where=where, next_step="write one name a line") from error


def normalised(name: str) -> str:
    """Without surrounding space, case, and a WordNet id in front: ``n01440764 Tench`` is ``tench``."""
    return _WORDNET_ID.sub("", name.strip(), count=1).strip().casefold()


def disagreements(model: Sequence[str], dataset: Sequence[str], offset: int) -> tuple[Disagreement, ...]:
    """The names that both have, at other positions; ``offset`` is class index minus dataset label.

    Names that only one of them has say nothing. A name that stands twice agrees if either side has no place of its own.
    """
    places = _places(model, offset)
    found = []
    for name, expected in _places(dataset, 0).items():
        only_dataset, only_model = expected - places.get(name, expected), places.get(name, expected) - expected
        if only_dataset and only_model:
            found.append(Disagreement(name, min(only_dataset), min(only_model)))
    return tuple(sorted(found, key=lambda one: one.expected))


def _places(names: Sequence[str], offset: int) -> dict[str, set[int]]:
    places: defaultdict[str, set[int]] = defaultdict(set)
    for index, name in enumerate(names):
        if plain := normalised(name):
            places[plain].add(index - offset)
    return places
