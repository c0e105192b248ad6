"""LoadGen's detail log, read without LoadGen itself."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MARK = ":::MLLOG "
_EFFECTIVE = "effective_"
_RESULT_KEYS = ("result_", "early_stopping_")
_MINIMA = ("result_min_duration_met", "result_min_queries_met")


@dataclass(frozen=True, slots=True)
class Log:
    """LoadGen's own account. ``valid`` is its judgement, early stopping included; ``errors`` its lines of error."""

    version: str
    valid: bool
    errors: tuple[str, ...]
    settings: dict[str, Any]
    results: dict[str, Any]


def read_log(path: Path) -> Log:
    """The detail log of one run. ``ValueError`` if it is not complete."""
    entries = [
        json.loads(line.removeprefix(_MARK))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(_MARK)
    ]
    values = {entry["key"]: entry["value"] for entry in entries}
    if "result_validity" not in values:
        raise ValueError("LoadGen left no result_validity")
    errors = [f"{entry['key']}: {entry['value']}" for entry in entries if entry["metadata"].get("is_error")]
    errors += [f"{key}: false" for key in _MINIMA if not values.get(key)]
    return Log(
        version=str(values.get("loadgen_version")),
        valid=values["result_validity"] == "VALID",
        errors=tuple(errors),
        settings={key.removeprefix(_EFFECTIVE): value for key, value in values.items() if key.startswith(_EFFECTIVE)},
        results={key: value for key, value in values.items() if key.startswith(_RESULT_KEYS)},
    )
