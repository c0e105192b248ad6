"""A run's record as a canonical JSON document, and its bounded summary for lists."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import parse_digest
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.json_codec import decode_untyped, encode_canonical, prepare_decoder
from benchlock.evaluator.records.run_types import (
    CALLS,
    SELF_REPORTED,
    Json,
    Run,
    RunEnd,
    RunStart,
    check_end,
    check_start,
    mark_calls,
)
from benchlock.evaluator.statistics.metric_types import Metric
from benchlock.registry.database.ids_and_timestamps import format_time, parse_id_time
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import find_definition, is_automatic

SCHEMA: Final = (1, 0)
"""The major and minor version of the written document."""

_SKEW: Final = timedelta(minutes=5)
"""The maximum time by which a run's id may be ahead of this clock; other reported times are capped at the clock."""

_Name = Annotated[str, Meta(min_length=1, max_length=255)]
_Fact = str | int | float | bool | None


@prepare_decoder
class _Record(RunStart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: str
    end: RunEnd
    host: dict[_Name, _Fact | list[_Fact]]
    process: dict[_Name, _Fact]


def encode_run(run: Run) -> bytes:
    """Encode an ended run as a document, with the same bytes wherever the run is recorded.

    Raises:
        InvalidInputError: The run has not ended.
    """
    if run.end is None:
        raise InvalidInputError(f"{run.id} has not ended", where=run.id, next_step="wait until it has ended")
    return encode_canonical(_document(run.start, run.end))


def remove_marks_of_reading(run: Run) -> Run:
    """Return the run without the marks that a reader added to a record that states none."""
    if run.end is None or SELF_REPORTED in run.end.details:
        return run
    metrics = tuple(replace(metric, self_reported=False) for metric in run.end.metrics)
    details = mark_calls(run.end.details, self_reported=False)
    return replace(run, end=replace(run.end, metrics=metrics, details=details))


def _document(start: RunStart, end: RunEnd) -> dict[str, Any]:
    documents = msgspec.to_builtins(start), msgspec.to_builtins(end)
    metrics = [
        _metric_document(metric)
        for metric in sorted(end.metrics, key=lambda metric: (metric.name, metric.batch or 0, metric.key))
    ]
    return {
        "schema": ".".join(map(str, SCHEMA)),
        **documents[0],
        "started_at": format_time(start.started_at),
        "end": {**documents[1], "metrics": metrics, "ended_at": format_time(end.ended_at)},
    }


def _metric_document(metric: Metric) -> dict[str, Any]:
    """Return the document of a metric without its mark, which follows from the details."""
    left_out = ("self_reported",) if metric.batch is not None else ("self_reported", "batch")
    return {name: part for name, part in msgspec.to_builtins(metric).items() if name not in left_out}


_MAX_VALUES: Final = 200_000
"""The maximum number of values of a record. A decoded value takes up to a hundred times its bytes."""


def decode_run(content: bytes, where: str) -> Run:
    """Decode the document of a run from an untrusted source, with all checks of a record.

    Raises:
        InvalidInputError: The document is malformed, has another schema, or its record is incomplete.
    """
    try:
        if sum(map(content.count, (b",", b"[", b"{"))) > _MAX_VALUES:
            raise _malformed(where, f"more than {_MAX_VALUES} values")
        document = decode_untyped(content)
        _check_schema(document, where)
        record = msgspec.convert(document, _Record)
        run = Run(RunStart(**{name: getattr(record, name) for name in RunStart.__struct_fields__}), record.end)
        written = encode_run(run)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:  # times raise the last two
        raise _malformed(where, str(error)) from error
    if written != content:
        raise _malformed(where, "not canonical JSON")
    if len({metric.key for metric in record.end.metrics}) != len(record.end.metrics):
        raise _malformed(where, "duplicate metric")
    check_start(run.start)
    for blob in record.end.blobs.values():
        parse_digest(blob.digest)
    check_end(run.start, record.end)
    return run


def bound_start(start: RunStart, now: datetime) -> RunStart:
    """Cap the reported time of a start at its arrival, so that a wrong clock does not stop the run.

    Args:
        start: A start as a machine reported it.
        now: The time of its arrival here.

    Raises:
        InvalidInputError: The id is of a later time; until then the run would count as the latest one.
    """
    id_time = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=parse_id_time(start.id.partition("/")[2]))
    if id_time > now + _SKEW:
        raise InvalidInputError(
            f"{start.id} has the time {format_time(id_time)}, but the clock here is at {format_time(now)}",
            where=start.id,
            next_step="create ids of runs from the server's time, as `benchlock` does (the Date of a response)",
        )
    return replace(start, started_at=min(start.started_at, max(id_time, now)))


def check_past(run: Run, now: datetime) -> None:
    """Raise if a run started or ended after ``now``; until then it would count as the latest run.

    Raises:
        InvalidInputError: It did.
    """
    ended_at = run.start.started_at if run.end is None else run.end.ended_at
    for verb, at in (("started", run.start.started_at), ("ended", ended_at)):
        if at > now:
            raise InvalidInputError(
                f"{run.id} {verb} at {format_time(at)}, but the clock here is at {format_time(now)}",
                where=run.id,
                next_step="set the clock, or ask the author of the run",
            )


def check_fit(run: Run, lock: Lock) -> None:
    """Raise unless the run can be one of ``lock``; a run without an end is checked by its start.

    Raises:
        IntegrityError: The run has another lock, or a platform, an image or metrics that the lock does not have.
    """
    platforms = {f"{platform}, Python {platform.python}": platform.image_id for platform in lock.image.platforms}
    ran_on = f"{run.start.platform_name}, Python {run.start.platform['python']}"
    faults = {
        f"the lock {run.start.lock}": run.start.lock != lock.id,
        f"the platform {ran_on}": ran_on not in platforms,
        f"the image {run.start.image_id}": run.start.image_id not in (None, platforms.get(ran_on)),
    } | {
        f"the metric {metric.name} by definition {metric.version}": not _is_measured(metric, lock)
        for metric in (() if run.end is None else run.end.metrics)
    }
    for fact, is_foreign in faults.items():
        if is_foreign:
            raise IntegrityError(
                f"the record of {run.id} contradicts its lock {lock.id}: it has {fact}",
                where=run.id,
                next_step="request a new bundle from the author of the run",
            )


def _is_measured(metric: Metric, lock: Lock) -> bool:
    """Return whether runs of the lock report the metric by this version of its definition."""
    if is_automatic(metric.name):
        return find_definition(metric.name, metric.version) is not None
    return lock.metrics.get(metric.name) == metric.version


def check_recorded(run: Run, lock: Lock) -> None:
    """Raise unless an ended run fits its lock, and its end is complete and possible.

    Raises:
        IntegrityError: The run does not fit its lock.
        IncompleteRecordError: A field is missing, or contradicts the definition of a metric.
    """
    check_fit(run, lock)
    assert run.end is not None
    check_end(run.start, run.end)


def _check_schema(document: object, where: str) -> None:
    schema = msgspec.convert(document, dict[str, Any]).get("schema")
    if schema != ".".join(map(str, SCHEMA)):
        raise InvalidInputError(
            f"{where} has schema {schema!r}; only {SCHEMA[0]}.{SCHEMA[1]} is supported",
            where=where,
            next_step="use the version of benchlock that wrote it",
        )


def _malformed(where: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{where} is not a run record: {reason.splitlines()[0]}",
        where=where,
        next_step="request a new copy from its author",
    )


_LARGEST_PART: Final = 16 << 10
"""The maximum size of a part of a record in its summary, in bytes of JSON; larger parts are left out."""
_PARTS: Final = (CALLS, SELF_REPORTED, "loadgen", "part_of")


def summarize(run: Run) -> Run:
    """Return the summary of a run for lists.

    It has no host, process, packages and blobs, and a short failure message. Of the details it keeps those that say
    whether the metrics are valid, and to which rerun or repetition the run belongs.
    """
    start = replace(run.start, host={}, process={})
    return replace(run, start=start, end=None if run.end is None else _summarize_end(run.end))


def _summarize_end(end: RunEnd) -> RunEnd:
    message = None if end.failure_message is None else size_limits.shorten(end.failure_message, size_limits.SUMMARY)
    kind = None if end.failure_class is None else size_limits.shorten(end.failure_class, size_limits.SUMMARY)
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
    return len(msgspec.json.encode(part)) <= _LARGEST_PART
