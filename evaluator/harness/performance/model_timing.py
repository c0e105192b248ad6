"""LoadGen scenarios on prepared tensors: the time of the model alone."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..core.failures import Failure, classify_errors
from ..core.job import Job
from ..core.resource_usage import measure_usage
from ..core.scenarios import LoadGenScenario, Server, samples_per_query
from ..inference.mlperf_audits import check_answers, check_caching
from ..inference.model_session import query
from ..inference.predictions import PREDICTIONS
from ..predictors import Tensors
from . import measurement_overhead
from .accelerator_usage import measure_accelerators
from .call_meter import Meter, collect_columns, save
from .loadgen import drive, per_unit
from .loadgen_traces import describe_account, describe_phase, describe_probe
from .measurement_overhead import overhead
from .phase_setup import PreparedSamples, Stage, estimate, open_stage, time_call, warm_up

SAMPLES = "samples.safetensors"


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Time the model on prepared tensors; write the raw samples and return the report of the phase.

    Raises:
        Failure: Of class ``load``, ``step``, ``predict``, ``loadgen-invalid`` or ``out-of-memory``.
    """
    scenario = job.scenario
    assert isinstance(scenario, LoadGenScenario)
    cost = measurement_overhead.measure_trace_cost(job, folder, output) if isinstance(scenario, Server) else None
    stage = open_stage("performance", job, folder)
    prepared = PreparedSamples(stage, per_unit(stage, scenario))
    first_call = partial(prepared.ask, prepared.first)
    warmup = warm_up(stage, first_call)
    caching = audit_caching(stage)
    overhead_report = overhead(stage, per_unit(stage, scenario))
    meter = Meter(stage.predictor, job.threads)
    seconds = estimate(stage, prepared.asks)
    with measure_accelerators(job.device) as accelerators, measure_usage() as usage:
        log = drive(stage, meter, prepared, seconds, output / "loadgen")
    columns, comparisons = collect_columns(meter, scenario, log, output / "loadgen")
    audits = {"caching": caching, "answers": _audit_answers(stage, meter, prepared, output / PREDICTIONS)}
    stage.predictor.close()
    save(columns, warmup, output / SAMPLES, job.file_metadata)
    arrival = "from the scheduled arrival of a query, through its wait, " if isinstance(scenario, Server) else ""
    return {
        "performance": {
            **describe_phase(columns, samples_per_query(scenario)),
            "cpu_scope": meter.scope,
            "batch": prepared.batch,
            "loaded_samples": prepared.most,
            "warmup_calls": len(warmup),
            "timed": f"{arrival}predict on prepared tensors",
            "overhead": overhead_report,
            "resources": usage | ({"accelerators": accelerators} if accelerators else {}),
        },
        "loadgen": describe_account(log, columns, comparisons) | ({"trace_cost": cost} if cost else {}),
        "audits": audits,
        **stage.report(),
    }


def probe(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Run LoadGen at the scenario's rate; return whether the run is valid, and the audit of its answers."""
    scenario = job.scenario
    assert isinstance(scenario, Server)
    stage = open_stage("probe", job, folder)
    prepared = PreparedSamples(stage, 1)
    first_call = partial(prepared.ask, prepared.first)
    warm_up(stage, first_call)
    meter = Meter(stage.predictor, job.threads)
    log = drive(stage, meter, prepared, estimate(stage, prepared.asks), output / "loadgen-probe")
    audit = _audit_answers(stage, meter, prepared, output / PREDICTIONS)
    stage.predictor.close()
    results = log.results
    if not log.valid and not results["result_overlatency_query_count"]:
        raise Failure(
            "loadgen-invalid",
            f"{results['result_query_count']} queries were answered in time, too few for LoadGen to decide: "
            "increase min_queries (at least 459)",
        )
    return {
        "probe": describe_probe(scenario.target_qps, log),
        "audits": {"answers": audit},
        **stage.report(),
    }


def audit_caching(stage: Stage) -> dict[str, Any]:
    """Run the audit after TEST04 on calls of one sample, before any other call."""

    def calls_of(index: int) -> list[Tensors]:
        return [stage.pipeline.stack([call]) for call in stage.pipeline.prepare(stage.samples, index).calls]

    with stage.timings.of("audit"), classify_errors("predict", "audit"):
        first_calls = calls_of(0)
        zero_calls = [{name: np.zeros_like(values) for name, values in call.items()} for call in first_calls]
        wake = partial(query, stage.session, zero_calls)
        wake()  # a framework prepares itself for a new shape, which is not a cache of answers

        def prepared(index: int) -> Callable[[], int] | None:
            calls = calls_of(index)
            return (
                partial(time_call, partial(query, stage.session, calls))
                if _shapes(calls) == _shapes(first_calls)
                else None
            )

        audit = check_caching(prepared, wake, len(stage.samples))
    stage.session.restart()
    return audit


def _shapes(calls: Sequence[Tensors]) -> list[dict[str, tuple[int, ...]]]:
    return [{name: values.shape for name, values in call.items()} for call in calls]


def _audit_answers(stage: Stage, meter: Meter, prepared: PreparedSamples, path: Path) -> dict[str, Any] | None:
    answers = (
        pair
        for indices, answer in meter.reservoir.answers
        for pair in zip(indices, prepared.predictions(len(indices), answer), strict=True)
    )
    with stage.timings.of("audit"):
        return check_answers(answers, stage.job.model, path)
