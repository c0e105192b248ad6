"""Lines of JSON: a field is the value of a key, in every line."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.tensor import Source
from .labels import Lazy, labels_of
from .places import inside, unpacked
from .samples import Label, Opening, Samples


def open_split(opening: Opening) -> Samples:
    """Its samples are texts, and arrays of the numbers and lists of numbers: int64 where all are whole, else float64.

    Empty lines are no samples; gzip or not.
    """
    path: str = opening.split["file"]
    content = unpacked(inside(opening.folder, path)).split(b"\n")
    lines = [number for number, line in enumerate(content) if line.strip()]
    names = [f"{path} line {number + 1}" for number in lines]

    def value(number: int, key: str) -> Any:  # noqa: ANN401 - whatever JSON holds
        return held(json.loads(content[lines[number]]), key, names[number])

    def read(number: int) -> dict[str, Source]:
        record = json.loads(content[lines[number]])
        return {field: _source(held(record, key, names[number]), names[number]) for field, key in opening.keys.items()}

    def label_array(number: int) -> NDArray[Any]:
        assert opening.label_key is not None
        return _array(value(number, opening.label_key), names[number])

    found: Sequence[Label] | None = None
    if (key := opening.label_key) is not None and lines:
        if isinstance(value(0, key), list):
            found = Lazy(label_array, names)
        else:
            values = [value(number, key) for number in range(len(lines))]
            found = labels_of(values, opening.names, lambda number: names[number])
    return Samples(read, names, found, frozenset(opening.keys))


def held(record: object, key: str, where: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    if not isinstance(record, dict) or key not in record:
        raise ValueError(f"{where} has no {key!r}")
    return record[key]


def _source(value: object, where: str) -> Source:
    return value if isinstance(value, str) else _array(value, where)


def _array(value: object, where: str) -> NDArray[Any]:
    """The numbers of ``value``; ``ValueError`` where it holds anything else, or lists of several lengths."""
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{where}: its lists differ in length") from error
    if found.dtype.kind not in "biuf":
        raise ValueError(f"{where}: expected a text, a number or lists of numbers")
    return found
