"""Records with one field changed: each leaf of a record's document in turn."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.evaluator.records.run_types import Run, RunEnd, RunId, RunStart
from benchlock.evaluator.statistics.metric_types import Interval, Metric

Document = dict[str, Any]
Path = tuple[str | int, ...]

_OTHERS: Mapping[str, str] = {
    "higher": "lower",
    "lower": "higher",
    "done": "failed",
    "failed": "done",
    "process": "container",
    "container": "process",
}


def leaves(value: object, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every leaf of a document."""
    parts: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from leaves(part, (*path, key))
    if not isinstance(value, dict | list):
        yield path


def forge(document: Document, path: Path) -> Document:
    """Return the document with another value at ``path``, of the same type where that is possible."""
    forged = deepcopy(document)
    parent: Any = forged
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = _other(parent[path[-1]], str(path[-1]))
    return forged


def name_of(path: Path, document: Document) -> str:
    """Return the path of a leaf in the JSON of a run: ``start.id``, ``end.metrics.top1.value``."""
    words = [str(part) for part in path]
    if words[:2] == ["end", "metrics"]:
        words[2] = document["end"]["metrics"][int(words[2])]["name"]
    return ".".join(words if words[0] == "end" else ["start", *words])


def is_reported(name: str, reported: tuple[str, ...]) -> bool:
    """Return whether a leaf is one of the ``reported`` fields, or a part of one."""
    return any(name == field or name.startswith(f"{field}.") for field in reported)


def run_from(document: Document) -> Run:
    """Return the run of a document, whatever it says: as rows of a database give it back."""
    if document["schema"] != "1.0":
        raise ValueError("another schema")
    end = document["end"]
    start = RunStart(
        id=RunId(document["id"]),
        lock=Digest(document["lock"]),
        started_at=datetime.fromisoformat(document["started_at"]),
        **{name: document[name] for name in ("attempt", "isolation", "platform", "host", "process", "image_id")},
    )
    metrics = tuple(Metric(**{**one, "ci": Interval(*one["ci"]), "batch": one.get("batch")}) for one in end["metrics"])
    names = ("outcome", "failure_class", "failure_message", "packages", "timings", "details")
    blobs = {role: Descriptor(Digest(blob["digest"]), blob["size"]) for role, blob in end["blobs"].items()}
    ended = datetime.fromisoformat(end["ended_at"])
    return Run(start, RunEnd(**{name: end[name] for name in names}, metrics=metrics, blobs=blobs, ended_at=ended))


def _other(value: object, key: str) -> object:
    if isinstance(value, str):
        return _other_text(value, key)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.001 + 1e-9
    assert value is None
    return 0.5 if key in ("0", "1") else "forged"


def _other_text(value: str, key: str) -> str:
    if value.startswith("sha256:"):
        return digest_bytes(value.encode())
    if value.startswith("run/"):
        return value[:-1] + ("0" if value[-1] != "0" else "1")
    if key in ("started_at", "ended_at"):
        return (datetime.fromisoformat(value) + timedelta(seconds=1)).isoformat().replace("+00:00", "Z")
    return _OTHERS.get(value, value + "x")
