"""MLPerf, DAWNBench and TBD: time to quality over repeats, its olympic mean, cost, and tests of convergence."""

from collections.abc import Iterator
from typing import Any

from benchmarks.claims.measured_runs import EXAMPLES, Laboratory, MeasuredRun, abbreviate
from benchmarks.claims.rows import Row, format_interval, format_rows, format_table

_REQUEST = EXAMPLES / "training" / "requests" / "digits.yaml"
_SAME, _FASTER = "the same with other seeds (A/A)", "twice the learning rate, other seeds"
_PRICE = "price: {amount: 0.0416, currency: USD, per: hour, date: 2026-11-20, source: example}\nreproduce: bits"
_WITH_COST = {"reproduce: bits": _PRICE, "  - final": "  - training_cost\n  - final"}


def measure(laboratory: Laboratory) -> Iterator[str]:
    """Yield the section."""
    laboratory.publish(EXAMPLES / "digits" / "dataset.yaml", EXAMPLES / "training" / "recipe.yaml")
    reference = laboratory.run(_REQUEST, **_WITH_COST)
    others = {
        _SAME: laboratory.run(_REQUEST, **_WITH_COST, **{"seed: 42": "seed: 1042"}),
        _FASTER: laboratory.run(_REQUEST, **_WITH_COST, **{"seed: 42": "settings: {optimizer.lr: 4.0e-3}\nseed: 2042"}),
    }
    speeds = {
        name: laboratory.commands.done("compare", reference.id, run.id)["speeds"][0] for name, run in others.items()
    }
    yield from format_rows(_list_rows(reference, others, speeds))
    yield '\nAgainst the reference; p is that of "it needs fewer epochs":\n'
    heads = ("training", "epochs, ratio", "Welch", "permutation", "answer", "olympic mean", "MLPerf's least mean")
    yield from format_table(heads, (_format_speed(name, speed) for name, speed in speeds.items()))


def _list_rows(reference: MeasuredRun, others: dict[str, MeasuredRun], speeds: dict[str, Any]) -> Iterator[Row]:
    epochs, olympic = (reference.metric(name) for name in ("epochs_to_quality", "epochs_to_quality_olympic"))
    wall, cpu = (reference.metric(name) for name in ("time_to_quality", "cpu_time_to_quality"))
    yield Row(
        "MLPerf Training: time to train to a quality, olympic mean of the runs",
        f"digits to 97 %: olympic mean {olympic['value']:.4g} epochs; median {_format(epochs)} epochs, "
        f"{_format(wall)} s, {_format(cpu)} s of CPU; {epochs['n']} repeats",
        "partly",
        "the method, on a small network; the olympic mean is of epochs, of times there is the median with its interval",
        abbreviate(reference),
    )
    texts = (f"{name}: {speed['answer']} (Welch p = {speed['welch_p']:.2g})" for name, speed in speeds.items())
    yield Row(
        "MLPerf Training: reference convergence points find trainings that converge too fast",
        "; ".join(texts),
        "yes" if (speeds[_SAME]["answer"], speeds[_FASTER]["answer"]) == ("undecided", "fewer epochs") else "partly",
        "Welch's test on all repeats decides, MLPerf's figure stands beside it; see the level of both below",
        abbreviate(reference, *others.values()),
    )
    cost = reference.metric("training_cost")
    yield Row(
        "DAWNBench: time to accuracy and its cost",
        f"median {_format(wall)} s, {cost['value']:.2g} USD at 0.0416 USD an hour; {wall['n']} repeats",
        "partly",
        "the method, with 10 seeds instead of one run; the numbers of its hardware cannot be had on this one",
        abbreviate(reference),
    )
    throughput = reference.metric("training_throughput")
    yield Row(
        "TBD: throughput of trainings, utilisation of the CPU",
        f"{_format(throughput)} samples/s; CPU time is {cpu['value'] / wall['value']:.0%} of the time on one CPU",
        "yes",
        "from the same runs; utilisation of the GPU is a row of its own",
        abbreviate(reference),
    )


def _format(metric: Any) -> str:  # noqa: ANN401 - a JSON document
    return f"{metric['value']:.3g} {format_interval(*metric['ci'])}"


def _format_speed(name: str, speed: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON document
    check = speed["mlperf"] or {"mean": float("nan"), "cut": float("nan")}
    return (
        name,
        f"{speed['ratio']:.3g}",
        f"{speed['welch_p']:.2g}",
        f"{speed['permutation_p']:.2g}",
        speed["answer"],
        f"{check['mean']:.4g}",
        f"{check['cut']:.4g}",
    )
