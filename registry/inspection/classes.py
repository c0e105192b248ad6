"""What a label may be: an index or a name out of the labels, or a number."""

import math
import re
from dataclasses import dataclass
from functools import cached_property

from benchlock.registry.labels import parse_labels

_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


@dataclass(frozen=True)
class Classes:
    """The names of a labels file, trimmed, and how many there are; ``unread`` if the file cannot be read."""

    names: frozenset[str] = frozenset()
    count: int = 0
    unread: bool = False

    @cached_property
    def folded(self) -> frozenset[str]:
        """The names, whatever their case."""
        return frozenset(name.casefold() for name in self.names)

    def has(self, name: str) -> bool:
        """Whether a category is one of them, whatever its case."""
        return self.unread or name.strip().casefold() in self.folded


def read_classes(content: bytes, where: str) -> Classes:
    """The classes of a labels file. Raises as ``parse_labels``."""
    names = tuple(name.strip() for name in parse_labels(content, where))
    return Classes(frozenset(names), len(names))


def label_fault(label: object, classes: Classes | None) -> str | None:
    """Why ``label`` is none, as a sentence; None if it is one. Without ``classes`` the dataset names no labels.

    A list may be a mask or the labels of several calls, which nobody looks into here.
    """
    if isinstance(label, list) or (classes is not None and classes.unread):
        return None
    text = label.strip() if isinstance(label, str) else None
    index = int(text) if text is not None and _WHOLE.fullmatch(text) else label
    if isinstance(index, int):
        if classes is None or 0 <= index < classes.count:
            return None
        return f"{label!r} is neither an index nor a name out of the labels, which are {classes.count}"
    if classes is not None:
        return None if text in classes.names else f"{label!r} is neither an index nor a name out of the labels"
    return None if is_number(label) else f"{label!r} is neither an index nor a name out of the labels, nor a number"


def is_number(label: object) -> bool:
    """Whether it is a number, or the text of one; infinity and NaN are none."""
    try:
        return isinstance(label, str | float) and math.isfinite(float(label))
    except ValueError:
        return False
