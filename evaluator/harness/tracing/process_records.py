"""What the processes of an experiment leave for their parent, and how several processes become one experiment."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from ..predictors import Tensors
from . import UNKNOWN

_BY_CALL_AND_ROW = ("start", "duration")


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """The calls of one process: the description of the experiment, tensors by name, and the digest of all answers."""

    document: dict[str, Any]
    tensors: Tensors
    answers_sha256: str


def read_record(path: Path) -> ProcessRecord:
    """Read the file that a process left, and remove it."""
    with safe_open(path, framework="numpy") as file:
        document = json.loads(file.metadata()["experiment"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
    path.unlink()
    return ProcessRecord(document, tensors, document.pop("answers_sha256"))


def merge_records(records: Sequence[ProcessRecord]) -> tuple[dict[str, Any], Tensors]:
    """Return the document and the tensors of an experiment from those of its processes, in their order.

    The rows are those of the first process, in whose order the times of all are put: TensorFlow executes constants in
    another order in each process. Times of a process with other rows are ``UNKNOWN``, which makes the experiment
    incomplete. Counters are added.
    """
    first = records[0].document
    parts, incomplete, blocks = [], [record.document["incomplete"] for record in records], 0
    for number, record in enumerate(records):
        tensors = dict(record.tensors)
        calls = len(tensors["block"])
        order = _match_rows(first["rows"], record.document["rows"])
        if order is None:
            incomplete.append(f"process {number} has other rows than process 0")
            unknown = np.full((calls, len(first["rows"])), UNKNOWN, np.int64)
            tensors |= dict.fromkeys(_BY_CALL_AND_ROW, unknown)
        else:
            tensors |= {name: np.take(tensors[name], order, axis=1) for name in _BY_CALL_AND_ROW}  # in C order
        tensors["process"] = np.full(calls, number, np.int64)
        tensors["block"] = tensors["block"] + blocks
        blocks = int(tensors["block"][-1]) + 1
        parts.append(tensors)
    document = {
        **first,
        "incomplete": next(filter(None, incomplete), None),
        "notes": list(dict.fromkeys(note for record in records for note in record.document["notes"])),
        "counters": _add_counters([record.document["counters"] for record in records]),
    }
    return document, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _match_rows(expected: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[int] | None:
    """Return for each expected row the index of the same row in ``rows``; None if the rows are others.

    Rows of one type are matched by name, and then in their order, because names of inserted nodes change between
    processes.
    """
    named, left = defaultdict[tuple[Any, ...], list[int]](list), defaultdict[tuple[Any, ...], list[int]](list)
    for index in reversed(range(len(rows))):
        named[*_type(rows[index]), rows[index]["name"]].append(index)
    matched = [named[*_type(row), row["name"]].pop() if named[*_type(row), row["name"]] else None for row in expected]
    for index in sorted(set(range(len(rows))) - set(matched), reverse=True):
        left[_type(rows[index])].append(index)
    order = []
    for row, same in zip(expected, matched, strict=True):
        if same is None and not left[_type(row)]:
            return None
        order.append(left[_type(row)].pop() if same is None else same)
    return order if len(order) == len(rows) else None


def _type(row: dict[str, Any]) -> tuple[str, str, str | None]:
    return row["level"], row["type"], row["variant"]


def _add_counters(counters: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the sums of counters, None for those that a process could not read."""
    if counters[0] is None:
        return None
    known = [one for one in counters if one is not None]
    sums = {
        name: None if any(one[name] is None for one in known) else sum(one[name] for one in known)
        for name in known[0]
        if name != "reason"
    }
    return {**sums, "reason": known[0]["reason"]}
