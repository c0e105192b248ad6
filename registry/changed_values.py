"""What differs between two plain values, by path: ``inputs[0].steps[1].resize.method bilinear → bicubic``."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from msgspec import UNSET

from benchlock.artifacts.canonical import canonical

_LONGEST = 100
"""Characters of a value that are shown."""


@dataclass(frozen=True, slots=True)
class Difference:
    """``before`` or ``after`` is ``UNSET`` where nothing stands at ``path``."""

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        if self.before is UNSET:
            return f"{self.path} added: {shown(self.after)}"
        if self.after is UNSET:
            return f"{self.path} removed: {shown(self.before)}"
        return f"{self.path} {shown(self.before)} → {shown(self.after)}"


def differences(before: Any, after: Any, path: str = "") -> Iterator[Difference]:  # noqa: ANN401 - any plain value
    """The places where JSON values differ, in the order of ``before``.

    Lists of mappings are aligned, so that an inserted step does not change all that follow it; those that stay are
    counted as in ``after``. Lists of anything else differ as a whole.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            here = f"{path}.{key}" if path else str(key)
            yield from differences(before.get(key, UNSET), after.get(key, UNSET), here)
    elif _is_rows(before) and _is_rows(after):
        yield from _aligned(before, after, path)
    elif before != after:
        yield Difference(path, before, after)


def shown(value: Any) -> str:  # noqa: ANN401 - any plain value
    """A value for people, on one line, cut where it is long; a step is ``resize {size: [8, 8], …}``."""
    text = _shown(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _shown(value: Any) -> str:  # noqa: ANN401
    match value:
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case str():
            return value if value.isprintable() and value else json.dumps(value, ensure_ascii=False)
        case {**only} if len(only) == 1 and isinstance(next(iter(only.values())), Mapping):
            name, arguments = next(iter(only.items()))
            return f"{name} {_shown(arguments)}" if arguments else str(name)
        case Mapping():
            return f"{{{', '.join(f'{key}: {_shown(part)}' for key, part in value.items())}}}"
        case Sequence():
            return f"[{', '.join(map(_shown, value))}]"
        case _:
            return str(value)


def _other_step(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether both are mappings of one key, as steps are, and not of the same."""
    return len(before) == len(after) == 1 and before.keys() != after.keys()


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _aligned(before: Sequence[Any], after: Sequence[Any], path: str) -> Iterator[Difference]:
    matcher = SequenceMatcher(None, [*map(canonical, before)], [*map(canonical, after)], autojunk=False)
    for tag, start, stop, first, last in matcher.get_opcodes():
        if tag == "equal":
            continue
        pairs = min(stop - start, last - first)
        for offset in range(pairs):
            old, new, here = before[start + offset], after[first + offset], f"{path}[{first + offset}]"
            if _other_step(old, new):
                yield Difference(here, old, new)
            else:
                yield from differences(old, new, here)
        yield from (Difference(f"{path}[{index}]", before[index], UNSET) for index in range(start + pairs, stop))
        yield from (Difference(f"{path}[{index}]", UNSET, after[index]) for index in range(first + pairs, last))
