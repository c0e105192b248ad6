"""Deep500, level 0: the overhead of a wrapper and the accuracy of operators, in three frameworks."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.claims.measured_runs import EXAMPLES, FRAMEWORKS, Laboratory, MeasuredRun, abbreviate, read_document
from benchmarks.claims.rows import Row, format_interval, format_rows, format_seconds, format_table

EPSILON = 2.0**-23
"""The distance of 1 to the next number in float32."""
_LEAST, _SHARE = 1e-6, 0.01
_OPERATORS = EXAMPLES / "operators"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case of an operator in one framework: seconds of a call and of the wrapper, and the largest error."""

    name: str
    framework: str
    latency: float
    overhead: float
    interval: tuple[float | None, float | None]
    error: float
    bound: float
    gradient: float | None

    @property
    def answer(self) -> str:
        """Return whether the overhead is within the larger of 1 µs and 1 % of a call."""
        margin, (low, high) = max(_LEAST, _SHARE * self.latency), self.interval
        if high is not None and high <= margin:
            return "within"
        return "above" if low is not None and low > margin else "undecided"


def measure(laboratory: Laboratory) -> Iterator[str]:
    """Yield the section."""
    runs, cases = list[MeasuredRun](), list[CaseResult]()
    for operator in ("conv", "gemm"):
        manifest = _OPERATORS / f"deepbench-{operator}.yaml"
        laboratory.publish(manifest)
        described = {case["name"]: case for case in read_document(manifest)["cases"]}
        for framework in FRAMEWORKS:
            request = _OPERATORS / "requests" / f"{operator}-{framework}.yaml"
            runs.append(laboratory.run(request, **{"elements: 16": "elements: 2"}))
            cases += _read_cases(runs[-1], framework, described)
    cases.sort(key=lambda case: case.latency)
    yield from format_rows((_overhead_row(cases, runs), _accuracy_row(cases, runs), _gradient_row(cases, runs)))
    yield (
        "\nNine sizes after DeepBench, scaled down for a CPU (`examples/operators`); the paper measured GPUs, so its "
        "times are not comparable.\n"
        "\nBy the length of a call (`operator_latency`); the interval is that of the overhead in µs:\n"
    )
    heads = ("case", "framework", "a call", "overhead", "95 %", "share", "max(1 µs, 1 %)", "error", "of eps·√K")
    yield from format_table(heads, map(_format_case, cases))


def _read_cases(run: MeasuredRun, framework: str, described: dict[str, Any]) -> Iterator[CaseResult]:
    latency, overhead, error, gradient = (
        run.metrics(name) for name in ("operator_latency", "wrapper_overhead", "error_linf", "gradient_error")
    )
    for name, case in described.items():
        yield CaseResult(
            name,
            framework,
            latency[name]["value"],
            overhead[name]["value"],
            tuple(overhead[name]["ci"]),
            error[name]["value"],
            EPSILON * math.sqrt(case["reduction"]),
            gradient[name]["value"] if name in gradient else None,
        )


def _format_case(case: CaseResult) -> tuple[str, ...]:
    return (
        case.name,
        case.framework,
        format_seconds(case.latency),
        format_seconds(case.overhead),
        format_interval(*case.interval, 1e6),
        f"{case.overhead / case.latency:.2%}",
        case.answer,
        f"{case.error:.2g}",
        f"{case.error / case.bound:.2f}",
    )


def _overhead_row(cases: list[CaseResult], runs: list[MeasuredRun]) -> Row:
    counts = {answer: sum(case.answer == answer for case in cases) for answer in ("within", "above", "undecided")}
    texts = []
    for framework in FRAMEWORKS:
        own = [case for case in cases if case.framework == framework]
        shares = sorted(case.overhead / case.latency for case in own)
        within = sum(case.answer == "within" for case in own)
        texts.append(f"{framework}: {within} of {len(own)}, median {shares[len(shares) // 2]:.2%}")
    return Row(
        "Deep500 L0: the overhead of its wrapper is insignificant (< 1 %)",
        f"{counts['within']} of {len(cases)} cells within max(1 µs, 1 %), {counts['above']} above, "
        f"{counts['undecided']} undecided; {'; '.join(texts)}",
        "yes" if counts["within"] == len(cases) else "partly" if counts["within"] else "no",
        "a cost per call is a small share of long calls alone; copies to and from TensorFlow's tensors grow with size; "
        "1 µs is allowed where 1 % is less",
        abbreviate(*runs),
    )


def _accuracy_row(cases: list[CaseResult], runs: list[MeasuredRun]) -> Row:
    worst = max(cases, key=lambda case: case.error / case.bound)
    held = sum(case.error <= case.bound for case in cases)
    return Row(
        "Deep500 L0: operators are as accurate as the reference",
        f"{held} of {len(cases)} cells within eps·√K; worst {worst.error / worst.bound:.2f} of it "
        f"({worst.name}, {worst.framework})",
        "yes" if held == len(cases) else "partly",
        "against float64, with a bound that depends on the length K of the sums; Deep500 compares frameworks",
        abbreviate(*runs),
    )


def _gradient_row(cases: list[CaseResult], runs: list[MeasuredRun]) -> Row:
    errors = [case.gradient for case in cases if case.gradient is not None]
    return Row(
        "Deep500 L0: gradients agree with central differences",
        f"largest error {max(errors):.2g} in {len(errors)} cells",
        "yes" if max(errors) <= 1e-6 else "partly",
        "in float64 with a step of 1e-6; Deep500's step of 1e-5 in float32 compares rounding errors",
        abbreviate(*(run for run in runs if run.metrics("gradient_error"))),
    )
