"""An exported run as JSON, CSV, Markdown, a model card and a badge, with all foreign text escaped for the format."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

import msgspec

from benchlock.api.export.exported_run import SELF_REPORTED, ExportedMetric, ExportedRun, require_model
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.artifacts.user_output import escape_json, escape_line
from benchlock.evaluator.statistics.metric_types import format_value

_FORMULA: Final = ("=", "+", "-", "@")
"""The characters with which a cell begins that a spreadsheet executes as a formula."""
_SPECIAL: Final = re.compile(r"([\\`*_\[\]{}<>()#!|~&])")
"""The characters of Markdown's inline syntax, of HTML, and of tables."""
_HUB_TASKS: Final = {"semantic-segmentation": "image-segmentation", "regression": "other", "tensor": "other"}
"""The task types of the Hugging Face Hub that differ from the task in the manifest."""
_HUB_METRICS: Final = {"top1": "accuracy", "miou": "mean_iou"}
"""The metric ids of the Hugging Face Hub that differ from the name of the metric."""
_SHORT_ID: Final = len("sha256:") + 8


def select_metrics(exported: ExportedRun, names: Sequence[str]) -> ExportedRun:
    """Return the run with the named metrics only, or with all if there are no names.

    Raises:
        InvalidInputError: The run has no such metric.
    """
    known = {metric.metric: metric for metric in exported.metrics}
    for name in names:
        if name not in known:
            raise InvalidInputError(
                f"{exported.run} has no metric {name!r}", where=name, next_step=f"use one of {', '.join(known)}"
            )
    metrics = tuple(known[name] for name in dict.fromkeys(names)) if names else exported.metrics
    return msgspec.structs.replace(exported, metrics=metrics)


def format_json(exported: ExportedRun) -> str:
    """Format the run as one JSON document."""
    fields = msgspec.to_builtins(exported)
    document = {"run": fields.pop("run"), "lock": fields.pop("lock"), **fields.pop("artifacts"), **fields}
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return escape_json(text) + "\n"


def format_csv(exported: ExportedRun) -> str:
    """Format the run as CSV (RFC 4180) with one row per metric; each row has the run, the lock and the versions."""
    common: dict[str, object] = {"run": exported.run, "lock": exported.lock}
    for kind, artifact in exported.artifacts.items():
        common |= {kind: artifact.name, f"{kind}_version": artifact.version, f"{kind}_digest": artifact.digest}
    common |= {
        "split": exported.split,
        "harness_digest": exported.harness.digest,
        "scenario": exported.scenario,
        "isolation": exported.isolation,
        "platform": exported.platform,
        "cpu_model": exported.cpu_model,
        "started_at": exported.started_at.isoformat(),
    }
    rows = [
        {**msgspec.structs.asdict(metric), "notes": "; ".join(metric.notes)} | common for metric in exported.metrics
    ]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(rows[0])
    writer.writerows([_format_cell(cell) for cell in row.values()] for row in rows)
    return text.getvalue()


def _format_cell(value: object) -> object:
    """Return a number as it is, and a text so that no spreadsheet executes it as a formula."""
    if not isinstance(value, str):
        return value
    text = escape_line(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def format_markdown(exported: ExportedRun) -> str:
    """Format the run as a table of its metrics and a table of what produced them."""
    metrics = [
        (
            code(metric.metric),
            escape_markdown(format_value(metric.value, metric.unit)),
            escape_markdown(_format_interval(metric)),
            str(metric.n),
            "; ".join(map(code, metric.notes)),
        )
        for metric in exported.metrics
    ]
    sources = [
        (kind, code(artifact.name), code(artifact.version), code(artifact.digest))
        for kind, artifact in exported.artifacts.items()
    ]
    sources += [
        *([("split", code(exported.split), "", "")] if exported.split else []),
        ("harness", "", code(exported.harness.version), code(exported.harness.digest)),
    ]
    host = f"{exported.cpu_model}, {exported.accelerator}" if exported.accelerator else exported.cpu_model
    conditions = f"scenario {code(exported.scenario)}, {exported.isolation} on {code(exported.platform)}, {code(host)}"
    lines = [
        f"Run {code(exported.run)} of the lock {code(exported.lock)}, {exported.started_at:%Y-%m-%d}, {conditions}:",
        "",
        *format_table(("metric", "value", "interval", "n", "notes"), metrics),
        "",
        *format_table(("", "name", "version", "digest"), sources),
    ]
    return "\n".join(lines) + "\n"


def _format_interval(metric: ExportedMetric) -> str:
    if metric.low is None and metric.high is None:
        return "-"
    low, high = (format_value(end, metric.unit) for end in (metric.low, metric.high))
    return f"[{low}, {high}] ({metric.interval})"


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table of GitHub Flavored Markdown; the cells are escaped already."""
    for row in (columns, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(row)} |"


def escape_markdown(text: str) -> str:
    """Escape a text that benchlock composed, so that it has no markup."""
    return _SPECIAL.sub(r"\\\1", escape_line(text))


def code(text: str) -> str:
    """Return foreign text as a code span, in which links, mentions and HTML are plain text.

    A pipe would end a cell of a table even in a code span, so it is written as an escape.
    """
    line = escape_line(text).strip().replace("|", "\\x7c")
    if not line:
        return ""
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    padding = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{padding}{line}{padding}{fence}"


def format_model_card(exported: ExportedRun) -> str:
    """Format the run as metadata (``model-index``) and a section of a model card of the Hugging Face Hub.

    Raises:
        RefusedError: The run is not of a model.
    """
    model, dataset = require_model(exported)
    result = {
        "task": {"type": _HUB_TASKS.get(exported.task, exported.task), "name": exported.task},
        "dataset": {
            "type": dataset.name,
            "name": f"{dataset.name} {dataset.version}",
            "split": exported.split,
            "args": {"version": dataset.version, "digest": dataset.digest},
        },
        "metrics": [_card_metric(exported, metric) for metric in exported.metrics],
    }
    index = {"model-index": [{"name": model.name, "results": [result]}]}
    lines = ["---", *_format_yaml(index), "---", "", "## Evaluation results", "", format_markdown(exported)]
    return "\n".join(lines)


def _card_metric(exported: ExportedRun, metric: ExportedMetric) -> dict[str, Any]:
    """Return a metric of a model index; its arguments identify the bytes that produced the value."""
    marks = [SELF_REPORTED] if SELF_REPORTED in metric.notes else []
    marks += ["see notes"] if set(metric.notes) - {SELF_REPORTED} else []
    return {
        "type": _HUB_METRICS.get(metric.metric, metric.metric),
        "value": metric.value,
        "name": metric.metric + (f" ({', '.join(marks)})" if marks else ""),
        "args": {
            "unit": metric.unit,
            "benchlock_run": exported.run,
            "benchlock_lock": exported.lock,
            "model_digest": exported.subject.digest,
        }
        | ({"notes": list(metric.notes)} if metric.notes else {}),
    }


def _format_yaml(value: Any, indent: str = "") -> Iterator[str]:  # noqa: ANN401 - nested dictionaries and lists
    """Yield the lines of YAML that readers of versions 1.1 and 1.2 read alike: every text is quoted."""
    entries = value.items() if isinstance(value, dict) else ((None, element) for element in value)
    for key, inner in entries:
        head = f"{indent}-" if key is None else f"{indent}{key}:"
        if not isinstance(inner, dict | list):
            yield f"{head} {_format_scalar(inner)}"
            continue
        lines = _format_yaml(inner, f"{indent}  ")
        if key is None:
            yield f"{head} {next(lines).lstrip()}"
        else:
            yield head
        yield from lines


def _format_scalar(value: str | float) -> str:
    if isinstance(value, str):
        return json.dumps(escape_line(value), ensure_ascii=False)
    text = json.dumps(value, allow_nan=False)
    # YAML 1.1 reads 1e-05 as a text: a number with an exponent needs a point.
    return re.sub(r"^(-?[0-9]+)e", r"\1.0e", text)


_BADGE: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {message}">
  <title>{title}</title>
  <rect width="{left}" height="20" rx="3" fill="#555"/>
  <rect x="{left}" width="{right}" height="20" rx="3" fill="#0b6bcb"/>
  <rect x="{left}" width="4" height="20" fill="#0b6bcb"/>
  <g fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11">
    <text x="{label_x}" y="14">{label}</text>
    <text x="{message_x}" y="14">{message}</text>
  </g>
</svg>
"""
_CHARACTER, _PADDING = 7, 12
_QUOTES: Final = {'"': "&quot;", "'": "&apos;"}


def format_badge(exported: ExportedRun) -> str:
    """Format one metric as an SVG badge: its value and the beginning of the lock's id; the title has both full ids.

    Raises:
        InvalidInputError: Several metrics are selected.
        RefusedError: The metric has notes, for which a badge has no space.
    """
    if len(exported.metrics) > 1:
        names = ", ".join(metric.metric for metric in exported.metrics)
        raise InvalidInputError("a badge shows one metric", where=names, next_step="choose one with --metric")
    (metric,) = exported.metrics
    if metric.notes:
        raise RefusedError(
            f"a badge would show {metric.metric} without its notes: {'; '.join(metric.notes)}",
            where=exported.run,
            next_step="choose another metric with --metric, or a format with notes",
        )
    label = metric.metric
    message = f"{format_value(metric.value, metric.unit)} | {exported.lock[:_SHORT_ID]}"
    named = [f"{label} of {exported.subject.name} {exported.subject.version}"]
    if (dataset := exported.artifacts.get("dataset")) is not None:
        named.append(f"on {dataset.name} {dataset.version} ({exported.split})")
    title = f"{' '.join(named)}, {exported.run}, lock {exported.lock}"
    left, right = (len(text) * _CHARACTER + _PADDING for text in (label, message))
    return _BADGE.format(
        width=left + right,
        left=left,
        right=right,
        label_x=left // 2,
        message_x=left + right // 2,
        **{
            name: escape(escape_line(text), _QUOTES)
            for name, text in (("label", label), ("message", message), ("title", title))
        },
    )


FORMATS: Final[Mapping[str, Callable[[ExportedRun], str]]] = {
    "model-card": format_model_card,
    "json": format_json,
    "csv": format_csv,
    "markdown": format_markdown,
    "badge": format_badge,
}
"""The formats that are texts."""
