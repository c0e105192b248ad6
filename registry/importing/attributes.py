"""What is kept under ``attributes``: the original's own, and what has no key of its own here. None of it is a claim."""

from typing import Any

from benchlock.registry.importing.findings import shown
from benchlock.registry.importing.original import Original
from benchlock.registry.importing.outline import Lines, entry

_KEPT = ("author", "references", "hidden", "hide")
_METRICS = ("top1", "top5", "map", "map_50", "miou", "accuracy")
_LONGEST_KEY = 200
_DEEPEST = 32


def attribute_lines(top: Original) -> Lines:
    """The attributes, and a TODO line where they state what could be a claim."""
    kept = _own_attributes(top) if top.says("attributes") else {}
    stated = [f"{key} {shown(inner)}" for key, inner in kept.items() if key.lower() in _METRICS and inner is not None]
    for key in _KEPT:
        if top.says(key) and key in kept:
            what = f"{shown(top.use(key))}, where attributes have {key} too"
            top.notes.tell(top.path(key), "attribute", what, "left out")
        elif top.says(key) and _is_kept(top, key, key, top.use(key)):
            kept[key] = top.use(key)
    lines = entry("attributes", kept) if kept else []
    return [*lines, *([_claims(top, stated)] if stated else [])]


def _own_attributes(top: Original) -> dict[str, Any]:
    value = top.use("attributes")
    if isinstance(value, dict):
        return {key: inner for key, inner in value.items() if _is_kept(top, "attributes", key, inner)}
    what = f"expected a mapping, found {shown(value)}"
    top.notes.tell(top.path("attributes"), "wrong-type", what, "kept under attributes.attributes")
    return {"attributes": value} if _is_kept(top, "attributes", "attributes", value) else {}


def _claims(top: Original, stated: list[str]) -> str:
    what = f"the original states {', '.join(stated)}, of no version of a dataset"
    ask = "write claims with metric, value (a fraction), tolerance and dataset, or delete this line"
    return top.notes.todo(top.path("attributes"), "claim", "claims", what, ask)


def _is_kept(top: Original, section: str, key: str, value: object) -> bool:
    """Whether a manifest can hold a key and its value: it cannot if keys are endless, or nested without an end."""
    if _fits({key: value}, _DEEPEST):
        return True
    what = f"the key {shown(key)}, of {shown(value)}, has or holds too long a key, or is nested too deep"
    top.notes.tell(top.path(section), "unwieldy", what, "left out")
    return False


def _fits(value: object, depth: int) -> bool:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    short = not isinstance(value, dict) or all(len(key) <= _LONGEST_KEY for key in value)
    return short and depth > 0 and all(_fits(one, depth - 1) for one in inner)
