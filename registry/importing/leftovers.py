"""What no other part of the import asked for: keys that the original's form does not have, listed with the nearest."""

from typing import Any

from benchlock.registry.importing.findings import Notes, shown
from benchlock.registry.names import find_close
from benchlock.registry.yaml import child

KNOWN: dict[str, tuple[str, ...]] = {
    "": (
        *("name", "version", "description", "author", "references", "license", "hidden", "hide", "attributes"),
        *("framework", "container", "inputs", "output", "outputs", "model"),
        *("before_preprocess", "preprocess", "after_preprocess"),
        *("before_postprocess", "postprocess", "after_postprocess"),
    ),
    "framework": ("name", "version"),
    "model": (
        *("base_url", "graph_path", "weights_path", "is_archive"),
        *("graph_checksum", "weights_checksum", "checksum"),
    ),
    "inputs": ("type", "description", "parameters", "layer_name", "element_type", "steps"),
    "outputs": ("type", "description", "parameters", "layer_name", "element_type", "steps"),
    "inputs.parameters": (
        *("element_type", "input_layer", "layer_name", "layout", "color_mode", "dimensions", "mean", "scale"),
        *("max_dimension", "min_dimension", "keep_aspect_ratio", "crop_method", "crop_ratio"),
    ),
    "outputs.parameters": (
        *("element_type", "probabilities_layer", "boxes_layer", "classes_layer", "masks_layer", "layer_name"),
        *("probabilities_transform", "features_url", "features_checksum", "background_index"),
    ),
    "inputs.steps": ("decode", "resize", "crop", "normalize", "cast"),
    "inputs.steps.decode": ("data_layout", "color_mode", "element_type"),
    "inputs.steps.resize": ("dimensions", "method", "keep_aspect_ratio"),
    "inputs.steps.normalize": ("mean", "rescale"),
    "inputs.steps.cast": ("element_type",),
    "outputs.steps": ("argsort", "softmax"),
    "outputs.steps.argsort": ("labels_url",),
}
"""The keys of the paper's form and of the program's, by section."""

_AMBIGUOUS = frozenset(".[]")


def list_leftovers(value: dict[str, Any], notes: Notes) -> None:
    """List every key below the top that is not accounted for, as a whole where nothing in it was used."""
    above = {path[:end] for path in notes.used for end in range(len(path)) if path[end] in ".["}
    _walk(value, "", "", above, notes)


def _walk(value: Any, path: str, section: str, above: set[str], notes: Notes) -> None:  # noqa: ANN401
    keyed = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in keyed:
        below = child(path, key)
        # A key with a dot spells the path of another one, and is none of the form's.
        ambiguous = isinstance(key, str) and (not key or not _AMBIGUOUS.isdisjoint(key))
        if below in notes.used and not ambiguous:
            continue
        if below in above and not ambiguous and isinstance(inner, dict | list):
            _walk(inner, below, section if isinstance(key, int) else _section(section, key), above, notes)
        else:
            known = KNOWN.get(section, ())
            close = find_close(str(key), known) if key not in known else []
            hint = f" (did you mean {close[0]}?)" if close else ""
            ask = "if it changes a result say so in the native form; then delete this line"
            notes.todo_unplaced(below, "unknown-key", f"{shown(inner)} has no meaning here{hint}", ask)


def _section(section: str, key: str) -> str:
    name = "outputs" if key == "output" and not section else key
    return f"{section}.{name}" if section else name
