"""Texts about a recorded run, for the command line and for web pages: what ran, where, and what its figures need."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET

from benchlock.artifacts.user_output import format_bytes, format_count
from benchlock.evaluator.records.comparison_types import read_turn
from benchlock.evaluator.records.run_types import Run, RunEnd
from benchlock.evaluator.records.timing_validity import calls_of, clocks_disagree, flag_of, validity_of
from benchlock.evaluator.statistics.metric_types import DISTURBED_AT_MOST, Calls, Metric, format_duration, format_value
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import (
    COST,
    DEFINITIONS,
    DISTRIBUTED,
    MEMORY,
    PARTS,
    TRAINING,
    is_bracketed,
    is_quality,
)
from benchlock.registry.manifests.recipe_checks import WEIGHTS_SUFFIX

_WIDTH: Final = 100
_HEADLINE: Final = 3
_OLYMPIC: Final = "epochs_to_quality_olympic"
_ORDER: Final = {name: place for place, name in enumerate(DEFINITIONS)}
"""The order of metrics in their definitions, where the main ones of each task come first."""
_SPEED: Final = ("latency_p50", "throughput", "cold_start")
_DURATIONS: Final = ("min_duration", "target_latency")


def describe_subject(lock: Lock) -> str:
    """Describe a lock: ``digits 1.0.0 on digits 1.0.0 (test), onnxruntime 1.31.1``."""
    subject, dataset, framework = lock.subject, lock.dataset, lock.framework
    on = "" if dataset is UNSET else f" on {dataset.name} {dataset.version} ({dataset.split})"
    return f"{subject.name} {subject.version}{on}, {framework.name} {framework.version}"


def name_question(lock: Lock) -> str:
    """Return what a lock evaluates, briefly: ``digits 1.0.0 on digits``."""
    on = "" if lock.dataset is UNSET else f" on {lock.dataset.name}"
    return f"{lock.subject.name} {lock.subject.version}{on}"


def describe_question(lock: Lock) -> dict[str, str]:
    """Describe the artifacts, the scenario and the limits of a lock."""
    limits = lock.limits
    settings = {
        name: format_duration(value) if name in _DURATIONS else value
        for name, value in lock.scenario.items()
        if name not in ("name", "seeds")
    }
    fields = {str(kind): f"{artifact.name} {artifact.version}" for kind, artifact in lock.artifacts().items()}
    if lock.dataset is not UNSET:
        fields["dataset"] += f", split {lock.dataset.split}"
    return (
        fields
        | describe_training(lock)
        | {
            "scenario": _format_settings(str(lock.scenario["name"]), settings),
            "limits": f"{format_duration(limits.seconds)}, {format_bytes(limits.bytes)}, "
            f"{format_count(limits.cpus, 'CPU')}, {limits.processes} processes",
            "lock": lock.id,
        }
    )


def describe_training(lock: Lock) -> dict[str, str]:
    """Describe the target or the ranks of a training, and the settings of its recipe that the request changes."""
    if lock.recipe is UNSET:
        return {}
    target = {}
    if lock.target is not UNSET:
        target["target"] = f"{lock.target.metric} {lock.target.value:g} on the split {lock.target.split}"
    if (parts := lock.distribution) is not UNSET:
        threads = format_count(parts.threads, "thread")
        target["distribution"] = f"{parts.processes} ranks of {threads}, {parts.strategy} by {parts.backend}"
    if initial := list_initial_weights(lock):
        target["initial weights"] = ", ".join(f"{path} {digest}" for path, digest in initial.items())
    changed = lock.request.get("settings") or {}
    return target | ({"settings": ", ".join(f"{key} {value}" for key, value in changed.items())} if changed else {})


def list_initial_weights(lock: Lock) -> dict[str, str]:
    """Return the digest of each file of initial weights of a training, by path."""
    files = () if lock.recipe is UNSET else lock.recipe.files
    return {file.path: f"sha256:{file.sha256}" for file in files if file.path.endswith(WEIGHTS_SUFFIX)}


def label_trainings(locks: Sequence[Lock]) -> list[str]:
    """Return what distinguishes each of several trainings, such as ``optimizer.lr 0.002``.

    A label is empty where the locks have the same settings, target, versions and seed.
    """
    if not locks[1:]:
        return [""] * len(locks)
    facts = [dict(_list_training_facts(lock)) for lock in locks]
    names = [
        name for name in dict.fromkeys(name for of in facts for name in of) if len({of.get(name) for of in facts}) > 1
    ]
    if len(names) > 1:
        names = [name for name in names if name != "seed"]  # it is no setting, and each training has its own seeds
    return [", ".join(f"{name} {of.get(name, 'none')}" for name in names) for of in facts]


def _list_training_facts(lock: Lock) -> Iterator[tuple[str, str]]:
    """Yield what a training may differ in, the settings of its recipe first."""
    settings: list[tuple[str, Any]] = [] if lock.settings is UNSET else list(lock.settings.items())
    for name, value in settings:
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", str(part)) for key, part in value.items())
        else:
            yield name, str(value)
    if lock.target is not UNSET:
        yield "target", f"{lock.target.value:g}"
    yield "version", lock.subject.version
    yield "framework", f"{lock.framework.name} {lock.framework.version}"
    yield "most epochs", str(lock.scenario.get("epochs", ""))
    yield "seed", str(lock.request.get("seed", ""))


def _format_settings(name: str, settings: Mapping[str, Any]) -> str:
    return ", ".join((name, *(f"{key.replace('_', ' ')} {value}" for key, value in settings.items())))


def describe_surroundings(run: Run) -> dict[str, str]:
    """Describe when and where a run took place."""
    start, host, flags = run.start, run.start.host, run.start.host.get("cpu_flags")
    fields = {
        "started": f"{start.started_at:%Y-%m-%d %H:%M:%S} UTC, attempt {start.attempt} of this lock",
        "ended": "" if run.end is None else f"{run.end.ended_at:%Y-%m-%d %H:%M:%S} UTC",
        "imported": ""
        if run.imported_at is None
        else f"{run.imported_at:%Y-%m-%d %H:%M:%S} UTC, from another registry",
        "isolation": f"{start.isolation} on {start.platform_name}, Python {start.platform.get('python')}",
        "image": start.image_id or "",
        "CPU": f"{host.get('cores')} of {host.get('cpu_model')}",
        "CPU flags": f"{len(flags)} instruction-set flags, listed in the JSON of the run"
        if isinstance(flags, list)
        else "",
        "memory": _memory(host.get("memory")),
    }
    fields |= {
        fact: str(host[fact]) for fact in ("kernel", "governor", "engine", "accelerator", "driver") if host.get(fact)
    }
    if run.end is not None:
        cpus, missing = run.end.details.get("cpus"), run.end.details.get("not_enforced")
        fields |= {"pinned to": f"CPU {', '.join(map(str, cpus))}" if isinstance(cpus, list) else ""}
        fields |= {"not enforced": ", ".join(map(str, missing)) if isinstance(missing, list) else ""}
    return {name: text for name, text in fields.items() if text}


def _memory(size: object) -> str:
    return format_bytes(size) if isinstance(size, int) else ""


def describe_load_generation(run: Run, end: RunEnd) -> dict[str, str]:
    """Describe the load generator and the thread counts, as far as the record has them in today's form."""
    loadgen, fields = end.details.get("loadgen"), dict[str, str]()
    validity = validity_of(run)
    if isinstance(loadgen, dict):
        verdict = ", no readable result" if validity is None else f", {validity.mark}"
        fields["LoadGen"] = f"{loadgen.get('version')}{verdict if end.outcome == 'done' else ''}"
        if sequence := loadgen.get("sequence_sha256"):
            fields["sequence"] = f"{sequence}, the SHA-256 of the samples in the order in which LoadGen asked for them"
    threads = end.details.get("threads")
    if isinstance(threads, dict):
        counts = threads.get("predictor")
        thread_counts = counts if isinstance(counts, dict) else {}
        fields["threads"] = ", ".join(
            (f"{threads.get('requested')} requested", *(f"{key} {thread_counts[key]}" for key in thread_counts))
        )
    return {name: text for name, text in fields.items() if text}


def format_metric(metric: Metric) -> str:
    """Format the value of a metric with its unit and mark."""
    return format_value(metric.value, metric.unit) + format_mark(is_reported=metric.self_reported)


def format_mark(*, is_reported: bool) -> str:
    """Return the mark of a self-reported metric, empty for others."""
    return " (self-reported)" if is_reported else ""


def format_interval(metric: Metric) -> str:
    """Format the interval of a metric; a single value has none."""
    if metric.n == 1 and metric.ci.low is not None and metric.ci.low == metric.ci.high:
        return "-"
    return f"[{format_value(metric.ci.low, metric.unit)}, {format_value(metric.ci.high, metric.unit)}]"


def describe_extent(metric: Metric) -> str:
    """Return what the interval of a single run's metric covers."""
    if is_bracketed(metric.name):
        return "peak search"
    return "sampling" if is_quality(metric.name) else "within this run"


def list_footnotes(metrics: Sequence[Metric], *, is_server: bool) -> Iterator[str]:
    """Iterate over the footnotes of a table of metrics."""
    names = {metric.name for metric in metrics}
    if "peak_qps" in names:
        yield "peak_qps: highest rate sustained and lowest rate not sustained; not a confidence interval"
    if is_server and names & {"throughput", "pipeline_throughput"}:
        yield "throughput: the arrival rate of queries as long as the model keeps up; not a property of the model"
    without = {metric.name for metric in metrics if None in (metric.ci.low, metric.ci.high)}
    trained = {name for name in without if name in DEFINITIONS and DEFINITIONS[name].scenarios == TRAINING}
    if _OLYMPIC in trained:
        yield f"{_OLYMPIC}: the mean without the best and the worst repeat; it has no interval"
    if trained - {_OLYMPIC, *MEMORY}:
        yield "-: an interval over repeats needs at least 6 of them that reach the target"
    if trained & set(MEMORY):
        yield "-: memory is counted, not sampled, so it has no interval; the parts are those at the instant of the peak"
    if "peak_memory" in names:
        yield "peak_memory: counted once, so it has no interval; pages of files count"
    if "batch_latency" in without:
        yield "-: an interval of batch_latency needs at least 6 repeats"
    distributed = {name for name in without if name in DEFINITIONS and DEFINITIONS[name].scenarios == DISTRIBUTED}
    if distributed:
        yield "-: the steps of one run depend on one another, so they give no interval"
    if any(not is_quality(name) for name in without - trained - distributed - set(PARTS)):
        yield "-: the run is too short, or its calls are too correlated, for an interval"


def format_price(price: object) -> str:
    """Describe the price behind a cost."""
    if not isinstance(price, Mapping):
        return f"{COST}: of an unknown price"
    rate = f"{price.get('amount')} {price.get('currency')} per {price.get('per')}"
    return f"{COST}: at the price that the request states: {rate} ({price.get('source')}, {price.get('date')})"


def select_headline(run: Run) -> list[str]:
    """Return the main quality metric of a run and one metric of speed; without both of them its first metrics."""
    metrics = () if run.end is None else run.end.metrics
    if run.evidence is not None and run.evidence.state != "verified":
        return ["withheld"]

    return [f"{metric.key} {format_metric(metric)}" for metric in select_main_metrics(metrics)]


def select_main_metrics(metrics: Iterable[Metric]) -> list[Metric]:
    """Return the main quality metric and one metric of speed; without both of them the first metrics."""
    ordered = sorted(metrics, key=lambda metric: _ORDER.get(metric.name, len(_ORDER)))
    quality = [metric for metric in ordered if is_quality(metric.name)][:1]
    speed = [metric for metric in ordered if metric.name in _SPEED][:1]
    return [*quality, *speed] or ordered[:_HEADLINE]


def list_remarks(run: Run) -> Iterator[str]:
    """Yield in few words what a reader of a list must know of a run."""
    if run.end is not None and run.end.failure_class:
        yield run.end.failure_class
    if run.evidence is not None and run.evidence.state != "verified":
        yield textwrap.shorten(f"{run.evidence.words}: {'; '.join(run.evidence.reasons)}", _WIDTH)
    validity = validity_of(run)
    if validity is not None and not validity.valid:
        yield validity.mark
    if clocks_disagree(run):
        yield "times unusable: clocks disagree"
    calls = calls_of(run)
    if run.end is not None and calls is not None and flag_of(run):
        yield f"flagged: {_short_flag(calls)}{format_mark(is_reported=run.end.times_self_reported)}"
    if run.start.isolation == "process":
        yield "process"
    if run.imported_at is not None:
        yield "imported"
    if (turn := read_turn(run)) is not None:
        yield f"interleaved, round {turn.round} of {turn.rounds}{', control' if turn.control else ''}"


def _short_flag(calls: Calls) -> str:
    """Return in few words why a run is flagged."""
    if not calls.flagged:
        return "queries issued late"
    if calls.share > DISTURBED_AT_MOST or calls.without_cpu is None:
        return f"{calls.share:.0%} of calls pre-empted"
    return f"off-CPU for {calls.without_cpu:.0%} of call time"
