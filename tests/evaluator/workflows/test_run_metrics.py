"""Every metric of classes, and the resources, of a whole run: the record has them and agrees with its evidence."""

import pytest

from benchlock.api.cli.run_tables import print_outcome, print_run
from benchlock.evaluator.evidence.class_details import read_classes
from benchlock.evaluator.harness.core.job import CLASS_METRICS
from benchlock.registry.lock.lockfile import dump
from tests.evaluator.evaluation import Evaluation
from tests.evaluator.workflows.test_run import Bench, bare, bench  # noqa: F401 - fixtures

PRICE = {"amount": 0.1, "currency": "USD", "per": "hour", "date": "2026-11-20", "source": "a list"}
MORE = ("throughput_per_core", "cost_per_million")


def test_a_run_has_metrics_of_classes_resources_and_cost(
    bench: Bench,  # noqa: F811
    bare: Evaluation,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    lock = bench.stored(bare.lock(metrics=("top1", *CLASS_METRICS, "throughput", *MORE), price=PRICE))
    run = bench.runner(None).run(lock, isolation="process", allow_code=True)
    assert run.end is not None
    assert run.end.outcome == "done", run.end.failure_message
    values = {metric.name: metric.value for metric in run.end.metrics}
    assert values["top1"] == pytest.approx(0.9)
    assert 0.8 < values["f1_macro"] < 1
    assert 0.8 < values["auroc"] <= 1
    assert values["throughput_per_core"] == pytest.approx(values["throughput"])
    assert values["cost_per_million"] == pytest.approx(1e6 / values["throughput"] / 3600 * 0.1, rel=0.2)
    classes = read_classes(run.end.details).per_class
    assert (sum(each.samples for each in classes), sum(each.right for each in classes)) == (30, 27)
    assert run.end.details["resources"]["peak_memory"]["scope"] == "largest process"
    assert run.end.details["performance"]["resources"]["cpu_seconds"] > 0
    assert run.end.details["energy"].keys() & {"joules", "unavailable"}
    assert dump(lock)
    print_outcome(run, lock)
    print_run(run, lock, None)
    shown = capsys.readouterr().out
    assert "0.1 USD per hour (a list, 2026-11-20)" in shown
    for text in ("peak memory", "CPU utilization", "precision", "predicted as"):
        assert text in shown
