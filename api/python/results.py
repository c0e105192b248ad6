"""Results of the Python API: versions, locks, runs with their metrics, judged claims, reruns and comparisons.

Each result shows itself as a table in a notebook. All foreign text in it is escaped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from html import escape
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from benchlock.api.client.lock_runs import RerunResult
from benchlock.api.schemas.run_documents import comparison_document, lock_document, run_document, verdict_document
from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.user_output import escape_line
from benchlock.evaluator.records import comparison_types, run_types
from benchlock.evaluator.records.timing_validity import explain_unusable_times, validity_of
from benchlock.evaluator.statistics import metric_types
from benchlock.evaluator.statistics.metric_types import format_value
from benchlock.evaluator.workflows import claim_verdicts, compare
from benchlock.registry.lock import lockfile

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RunOutcome = Literal["running", "done", "failed", "abandoned", "cancelled"]
Record = TypeVar("Record", bound="DataclassInstance")


class Table(tuple[Record, ...]):
    """A tuple of records with the same fields, which a notebook shows as a table."""

    __slots__ = ()

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the fields of each record by name."""
        return [asdict(record) for record in self]

    def _repr_html_(self) -> str:
        rows = self.to_dicts()
        columns = [name for name in (rows[0] if rows else ()) if any(row[name] is not None for row in rows)]
        return _table("", columns, [[_cell(row[name]) for name in columns] for row in rows])


@dataclass(frozen=True, slots=True)
class ArtifactVersion:
    """A published version of an artifact.

    Attributes:
        kind: ``model``, ``dataset``, ``framework`` or ``image``.
        name: The name of the artifact.
        version: The version.
        digest: The SHA-256 of its manifest.
        published_at: When it was published; None in the result of a publication.
        yanked: The reason if the version is yanked, else None.
        changed: Whether this publication added it; None in other results.
    """

    kind: str
    name: str
    version: str
    digest: str
    published_at: datetime | None = None
    yanked: str | None = None
    changed: bool | None = None

    def __str__(self) -> str:
        """Return ``KIND/NAME@VERSION``."""
        return f"{self.kind}/{self.name}@{self.version}"


class Lock:
    """An evaluation pinned to exact versions and digests. ``Registry.lock`` and ``Registry.get_lock`` return locks."""

    def __init__(self, record: lockfile.Lock, warnings: Iterable[str] = ()) -> None:
        """Wrap a lock; not for users.

        Args:
            record: The lock.
            warnings: Further warnings about it.
        """
        self._record = record
        self._warnings = (*record.warnings, *warnings)

    @property
    def id(self) -> str:
        """The id: the digest of the lock's content."""
        return self._record.id

    @property
    def versions(self) -> Mapping[str, str]:
        """The locked artifacts by kind, as ``NAME@VERSION``."""
        return {str(kind): f"{entry.name}@{entry.version}" for kind, entry in self._record.artifacts().items()}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on yanked versions and on a newer format of the lockfile."""
        return self._warnings

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the lockfile, as ``benchlock lock`` does; an existing file is replaced.

        Args:
            path: The path of the file, such as ``digits.lock``.

        Returns:
            The path.

        Raises:
            UnavailableError: The file cannot be written.
        """
        target = Path(path)
        try:
            with create_file(target) as file:
                file.write(lockfile.dump(self._record).encode())
        except OSError as error:
            raise UnavailableError(
                f"cannot write {target}: {error.strerror or error}",
                where=str(target),
                next_step="choose a file in a writable folder",
            ) from error
        return target

    def to_dict(self) -> dict[str, Any]:
        """Return the lock as ``benchlock --json lock`` prints it."""
        return lock_document(self._record)

    def __repr__(self) -> str:
        """Return the short id and the locked versions."""
        return f"<Lock {_short(self.id)}: {', '.join(self.versions.values())}>"

    def _repr_html_(self) -> str:
        rows = [*self.versions.items(), ("platforms", ", ".join(map(str, self._record.image.platforms)))]
        rows += [("warning", text) for text in self.warnings]
        return _table(f"Lock {_short(self.id)}", ("", ""), rows)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a run.

    Attributes:
        value: The value, in ``unit``.
        unit: The unit, such as ``s`` or ``fraction``.
        interval: The 95 % confidence interval in ``unit``; None for an end that the samples cannot bound.
        n: The number of samples.
        self_reported: Whether code of the model could have made the value, which is therefore informational.
    """

    value: float
    unit: str
    interval: tuple[float | None, float | None]
    n: int
    self_reported: bool

    def __str__(self) -> str:
        """Return value and interval with their unit."""
        low, high = (format_value(end, self.unit) for end in self.interval)
        mark = " (self-reported)" if self.self_reported else ""
        return f"{format_value(self.value, self.unit)} [{low}, {high}]{mark}"


class Run:
    """A recorded run of a lock. ``Registry.run``, ``Registry.get_run`` and ``Registry.runs`` return runs."""

    def __init__(self, record: run_types.Run, lock: lockfile.Lock | None) -> None:
        """Wrap a run; not for users.

        Args:
            record: The run.
            lock: Its lock; None if it cannot be read.
        """
        self._record = record
        self._lock = lock
        metrics = () if record.end is None else record.end.metrics
        self._metrics = MappingProxyType({metric.key: _metric(metric) for metric in metrics})

    @property
    def id(self) -> str:
        """The id: ``run/`` and 26 characters."""
        return self._record.id

    @property
    def lock(self) -> str:
        """The id of the run's lock."""
        return self._record.start.lock

    @property
    def outcome(self) -> RunOutcome:
        """How the run ended, or ``running``."""
        return "running" if self._record.end is None else self._record.end.outcome

    @property
    def failure(self) -> str | None:
        """The class and the message of the failure, None if the run did not fail."""
        end = self._record.end
        return None if end is None or end.failure_class is None else f"{end.failure_class}: {end.failure_message}"

    @property
    def started_at(self) -> datetime:
        """When the run started."""
        return self._record.start.started_at

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The metrics by name; ``throughput@8`` is that of batches of eight.

        It is empty if the record differs from its evidence; ``metrics_withheld`` then says why.
        """
        return self._metrics

    @property
    def metrics_withheld(self) -> str | None:
        """Why the metrics are withheld, None if they are not."""
        evidence = self._record.evidence
        return None if evidence is None or evidence.state == "verified" else f"the record {evidence.sentence}"

    @property
    def times_unusable(self) -> str | None:
        """Why the times of the run are unreliable, such as a busy host; None if they are not."""
        return explain_unusable_times(self._record)

    @property
    def versions(self) -> Mapping[str, str]:
        """The locked artifacts by kind, as ``NAME@VERSION``; empty if the lock cannot be read."""
        return {} if self._lock is None else Lock(self._lock).versions

    def to_dict(self) -> dict[str, Any]:
        """Return the run as ``benchlock --json runs`` prints it, without the locked versions."""
        return run_document(self._record)

    def __repr__(self) -> str:
        """Return id, outcome and metrics."""
        metrics = "".join(f", {name} {format_value(m.value, m.unit)}" for name, m in self.metrics.items())
        return f"<Run {self.id}: {self.outcome}{metrics}>"

    def _repr_html_(self) -> str:
        start = self._record.start
        about = [*self.versions.items(), ("where", f"{start.isolation} on {start.platform_name}")]
        about += [("failure", self.failure)] if self.failure else []
        about += [("metrics withheld", self.metrics_withheld)] if self.metrics_withheld else []
        about += [("times unusable", self.times_unusable)] if self.times_unusable else []
        validity = validity_of(self._record)
        about += [("LoadGen", validity.words)] if validity is not None and not validity.valid else []
        html = _table(f"Run {self.id}: {self.outcome}", ("", ""), about)
        rows = [(name, *_metric_cells(metric), str(metric.n)) for name, metric in self.metrics.items()]
        return html + (_table("", ("metric", "value", "95 % interval", "n"), rows) if rows else "")


@dataclass(frozen=True, slots=True, eq=False)
class Runs(Sequence[Run]):
    """Runs, newest first.

    Attributes:
        damaged: The damage of each run whose record cannot be shown, by its id.
    """

    _runs: tuple[Run, ...]
    damaged: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of runs, damaged ones aside."""
        return len(self._runs)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> "Runs": ...
    def __getitem__(self, index: int | slice) -> "Run | Runs":
        """Return a run, or some of them."""
        return Runs(self._runs[index], self.damaged) if isinstance(index, slice) else self._runs[index]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one row per run, each with the same keys.

        The keys are ``run``, ``started_at``, ``outcome``, ``model``, ``model_version``, ``dataset``,
        ``dataset_version``, ``split``, ``framework``, ``framework_version``, ``isolation``, ``platform``, ``lock``,
        ``times_unusable``, and three for each metric of any run: ``top1``, ``top1_low`` and ``top1_high``. A missing
        value is None.
        """
        rows = [_row(run._record, run._lock) | _metric_columns(run.metrics) for run in self._runs]  # noqa: SLF001
        keys = list(dict.fromkeys(key for row in rows for key in row))
        return [{key: row.get(key) for key in keys} for row in rows]

    def to_arrow(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return the rows of ``to_dicts`` as a ``pyarrow.Table``.

        Raises:
            UnavailableError: pyarrow is not installed.
        """
        return _import_library("pyarrow").Table.from_pylist(self.to_dicts())

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas is not a dependency
        """Return the rows of ``to_dicts`` as a ``pandas.DataFrame``.

        Raises:
            UnavailableError: pandas is not installed.
        """
        return _import_library("pandas").DataFrame(self.to_dicts())

    def __repr__(self) -> str:
        """Return the number of runs and their ids."""
        return f"<Runs ({len(self)}): {', '.join(run.id for run in self._runs)}>"

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for run in self._runs for name in run.metrics))
        rows = [
            (
                run.id,
                f"{run.started_at:%Y-%m-%d %H:%M}",
                run.versions.get("model", "-"),
                run.versions.get("dataset", "-"),
                run.outcome,
                *(str(run.metrics.get(name, "-")) for name in names),
            )
            for run in self._runs
        ]
        rows += [(id_, "-", "-", "-", f"damaged: {damage}") for id_, damage in self.damaged.items()]
        return _table("Runs", ("run", "started (UTC)", "model", "dataset", "outcome", *names), rows)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a model, judged by a run.

    Attributes:
        metric: The name of the metric.
        value: The claimed value.
        tolerance: The claim holds within ``value`` plus and minus this.
        measured: The measured value; None if the run did not measure it.
        interval: The 95 % confidence interval of the measured value; None for an end without a bound.
        answer: ``holds``, ``does not hold`` or ``can't be said yet``.
        reason: The reason for the answer in words.
        self_reported: Whether code of the model could have made the measured value.
    """

    metric: str
    value: float
    tolerance: float
    measured: float | None
    interval: tuple[float | None, float | None]
    answer: claim_verdicts.Answer
    reason: str
    self_reported: bool


class Rerun:
    """The comparison of new runs of a lock with an earlier run. ``Registry.rerun`` returns it."""

    def __init__(self, result: RerunResult, lock: lockfile.Lock) -> None:
        """Wrap the result of a rerun; not for users.

        Args:
            result: The verdict and the new runs.
            lock: The lock of all of them.
        """
        self._result = result
        self._runs = tuple(Run(run, lock) for run in result.runs)
        self._run = Run(result.run, lock)

    @property
    def verdict(self) -> comparison_types.Conclusion:
        """``reproduced``, ``not reproduced`` or ``undecided``."""
        return self._result.verdict.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """What decided the verdict."""
        return self._result.verdict.reasons

    @property
    def reported(self) -> tuple[str, ...]:
        """Observations that decide nothing."""
        return self._result.verdict.reported

    @property
    def original(self) -> str:
        """The id of the run that was compared with."""
        return self._result.verdict.original

    @property
    def run(self) -> Run:
        """The new run that the verdict is about."""
        return self._run

    @property
    def runs(self) -> tuple[Run, ...]:
        """All new runs."""
        return self._runs

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as ``benchlock --json rerun`` prints it, without claims."""
        return verdict_document(self._result.verdict, self._result.run, ())

    def __repr__(self) -> str:
        """Return the verdict and the ids of both runs."""
        return f"<Rerun {self.run.id}: {self.verdict}, compared with {self.original}>"

    def _repr_html_(self) -> str:
        rows = [("compared with", self.original), *(("reason", text) for text in self.reasons)]
        rows += [("informational", text) for text in self.reported]
        return _table(f"Rerun {self.run.id}: {self.verdict}", ("", ""), rows)


@dataclass(frozen=True, slots=True)
class Finding:
    """The comparison of one metric of a lock with that of the first lock.

    Attributes:
        metric: The name of the metric.
        model: The model of the compared lock, as ``NAME@VERSION``.
        ratio: The metric divided by that of the first lock; None if it has none.
        interval: The 95 % confidence interval of the ratio.
        margin: The relative difference that counts as equivalent; None if none was stated beforehand.
        answer: The answer.
        reason: The answer in words.
        self_reported: Whether code of a model could have made a value.
    """

    metric: str
    model: str
    ratio: float | None
    interval: tuple[float | None, float | None]
    margin: float | None
    answer: metric_types.Answer
    reason: str
    self_reported: bool


class Comparison:
    """Runs side by side, each further lock compared with the first.

    ``Registry.compare`` and ``Registry.compare_locks`` return comparisons.
    """

    def __init__(self, record: compare.Comparison) -> None:
        """Wrap a comparison; not for users.

        Args:
            record: The comparison.
        """
        self._record = record
        self._runs = tuple(Run(run, arm.lock) for arm in record.arms for run in arm.runs)
        self._findings = Table(
            _finding(arm.lock.subject, finding) for arm, findings in record.findings for finding in findings
        )

    @property
    def comparable(self) -> bool:
        """Whether the runs have equal conditions."""
        return not self._record.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the runs are not comparable; empty if they are."""
        return self._record.reasons

    @property
    def interleaved(self) -> bool:
        """Whether the runs were interleaved, so that a change of the host affects all locks alike."""
        return self._record.interleaved

    @property
    def runs(self) -> tuple[Run, ...]:
        """The compared runs, the reference first."""
        return self._runs

    @property
    def findings(self) -> Table[Finding]:
        """The answer for each metric and further lock."""
        return self._findings

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as ``benchlock --json compare`` prints it."""
        return comparison_document(self._record)

    def __repr__(self) -> str:
        """Return the answer for each metric."""
        answers = ", ".join(f"{finding.metric} {finding.answer}" for finding in self.findings)
        return f"<Comparison of {len(self.runs)} runs: {answers}>"

    def _repr_html_(self) -> str:
        arms = [arm for arm in self._record.arms if not arm.control]
        cells = [{metric.key: str(_metric(metric)) for metric in arm.metrics()} for arm in arms]
        names = dict.fromkeys(name for metrics in cells for name in metrics)
        rows = [(name, *(metrics.get(name, "-") for metrics in cells)) for name in names]
        html = "".join(f"<p>not comparable: {_escape(reason)}</p>" for reason in self.reasons)
        html += _table("Comparison", ("metric", *map(_arm_title, arms)), rows)
        return html + self.findings._repr_html_()


def convert_claim(verdict: claim_verdicts.ClaimVerdict) -> Claim:
    """Convert the verdict on a claim."""
    claim, measured = verdict.claim, verdict.measured
    return Claim(
        metric=claim.metric,
        value=claim.value,
        tolerance=claim.tolerance,
        measured=None if measured is None else measured.value,
        interval=(None, None) if measured is None else (measured.ci.low, measured.ci.high),
        answer=verdict.answer,
        reason=verdict.reason,
        self_reported=measured is not None and measured.self_reported,
    )


def _arm_title(arm: compare.Arm) -> str:
    model = f"{arm.lock.subject.name}@{arm.lock.subject.version}"
    return f"{model} ({arm.runs[0].id if len(arm.runs) == 1 else f'{len(arm.runs)} runs'})"


def _metric(metric: metric_types.Metric) -> Metric:
    return Metric(metric.value, metric.unit, (metric.ci.low, metric.ci.high), metric.n, metric.self_reported)


def _finding(model: lockfile.LockedArtifact, finding: metric_types.Finding) -> Finding:
    ratio = finding.ratio
    return Finding(
        metric=finding.metric,
        model=f"{model.name}@{model.version}",
        ratio=ratio.value,
        interval=(ratio.ci.low, ratio.ci.high),
        margin=finding.margin,
        answer=finding.answer,
        reason=finding.reason,
        self_reported=finding.self_reported,
    )


def _row(run: run_types.Run, lock: lockfile.Lock | None) -> dict[str, Any]:
    """Return the columns of a run that do not depend on its metrics."""
    row: dict[str, Any] = {
        "run": run.id,
        "started_at": run.start.started_at,
        "outcome": "running" if run.end is None else run.end.outcome,
    }
    for kind in ("model", "dataset", "framework"):
        entry = None if lock is None else lock.subject if kind == "model" else lock.artifacts().get(kind)
        row |= {kind: entry and entry.name, f"{kind}_version": entry and entry.version}
        if kind == "dataset":
            row["split"] = None if lock is None else lock.inputs[1] or None
    return row | {
        "isolation": run.start.isolation,
        "platform": run.start.platform_name,
        "lock": run.start.lock,
        "times_unusable": explain_unusable_times(run),
    }


def _metric_columns(metrics: Mapping[str, Metric]) -> dict[str, float | None]:
    """Return three columns per metric: the value and both ends of its interval."""
    columns: dict[str, float | None] = {}
    for name, metric in metrics.items():
        low, high = metric.interval
        columns |= {name: metric.value, f"{name}_low": low, f"{name}_high": high}
    return columns


def _import_library(name: str) -> Any:  # noqa: ANN401 - a module without types
    """Import a library that only this conversion needs."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UnavailableError(
            f"{name} is not installed", where=name, next_step=f"pip install {name}, or use to_dicts()"
        ) from error


def _metric_cells(metric: Metric) -> tuple[str, str]:
    mark = " (self-reported)" if metric.self_reported else ""
    low, high = (format_value(end, metric.unit) for end in metric.interval)
    return format_value(metric.value, metric.unit) + mark, f"[{low}, {high}]"


def _cell(value: object) -> str:
    """Format the value of a field."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_cell, value))}]"
    return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else str(value)


def _short(digest: str) -> str:
    return digest[: len("sha256:") + 8]


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table; every text in it is escaped."""
    caption = f"<caption>{_escape(title)}</caption>" if title else ""
    head = f"<thead>{_cells('th', columns)}</thead>" if any(columns) else ""
    body = "".join(_cells("td", row) for row in rows)
    return f"<table>{caption}{head}<tbody>{body}</tbody></table>"


def _cells(tag: str, texts: Iterable[str]) -> str:
    return f"<tr>{''.join(_tagged(tag, texts))}</tr>"


def _tagged(tag: str, texts: Iterable[str]) -> Iterator[str]:
    return (f"<{tag}>{_escape(text)}</{tag}>" for text in texts)


def _escape(text: str) -> str:
    """Escape HTML, and characters that are not printable or change the direction of text."""
    return escape(escape_line(text))
