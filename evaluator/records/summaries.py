"""Runs in lists: bounded in size, whatever was recorded of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from benchlock.artifacts import limits
from benchlock.artifacts.canonical import canonical
from benchlock.evaluator.records.runs import CALLS, SELF_REPORTED, Json, Run, RunEnd

_LARGEST_PART: Final = 16 << 10
"""Bytes of a part of a record, as JSON, beyond which the summary lacks it."""
_PARTS: Final = (CALLS, SELF_REPORTED, "loadgen", "part_of")


def summarize(run: Run) -> Run:
    """Return the run as a list shows it.

    Without host, process, packages and blobs, with a short failure message, and of the details with those that say
    whether the figures count, and to which rerun or repetition the run belongs.
    """
    start = replace(run.start, host={}, process={})
    return replace(run, start=start, end=None if run.end is None else _summarize_end(run.end))


def _summarize_end(end: RunEnd) -> RunEnd:
    message = None if end.failure_message is None else limits.shorten(end.failure_message, limits.SUMMARY)
    kind = None if end.failure_class is None else limits.shorten(end.failure_class, limits.SUMMARY)
    timings = end.timings if _is_small(end.timings) else {}
    details = _summarize_details(end.details)
    return replace(
        end, failure_class=kind, failure_message=message, packages={}, blobs={}, timings=timings, details=details
    )


def _summarize_details(details: Json) -> Json:
    parts: dict[str, Any] = {name: details[name] for name in _PARTS if name in details}
    pipeline = details.get("pipeline")
    if isinstance(pipeline, Mapping) and "loadgen" in pipeline:
        parts["pipeline"] = {"loadgen": pipeline["loadgen"]}
    return {name: part for name, part in parts.items() if _is_small(part)}


def _is_small(part: object) -> bool:
    return len(canonical(part)) <= _LARGEST_PART
