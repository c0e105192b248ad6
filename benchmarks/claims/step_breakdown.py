"""Fathom and TBD: what takes time and memory within a step of a training."""

from collections.abc import Iterator
from typing import Final

from benchlock.evaluator.report.training_sections import PARTS
from benchmarks.claims.measured_runs import EXAMPLES, Laboratory, abbreviate
from benchmarks.claims.rows import Row, format_rows, format_table

_ASKED: Final = "".join(f"\n  - memory_{part}" for part in PARTS)
_FEW: Final = 0.2
"""The largest share of the kinds that counts as few."""
_MOST: Final = 0.5
_SHOWN: Final = 20
_KIB: Final = 1024


def measure(laboratory: Laboratory) -> Iterator[str]:
    """Yield the section."""
    laboratory.publish(EXAMPLES / "digits" / "dataset.yaml", EXAMPLES / "training" / "recipe.yaml")
    run = laboratory.run(
        EXAMPLES / "training" / "requests" / "digits.yaml",
        **{"repeats: 10": "repeats: 1", "  - final_quality": f"  - final_quality\n  - step_memory{_ASKED}"},
    )
    breakdown = run.details["training"]["breakdown"]
    needed, kinds = breakdown["kinds_for_90_percent"], breakdown["kinds"]
    whole, parts = (
        run.metric("step_memory")["value"],
        {part: run.metric(f"memory_{part}")["value"] for part in PARTS},
    )
    largest = max(parts, key=lambda part: parts[part])
    yield from format_rows(
        [
            Row(
                "Fathom: a few kinds of operators make 90 % of the time",
                f"{needed} of {kinds} kinds make 90 % of the CPU time of a training step of the digits network",
                "yes" if needed <= kinds * _FEW else "no",
                "a small network spends much on many short operators; the first kind alone has "
                f"{breakdown['operators'][0]['share']:.0%}. Fathom's own workloads are a row of their own",
                abbreviate(run),
            ),
            Row(
                "TBD: what a training saves for the backward pass takes most memory, weights take little",
                f"{largest} is the largest part, {parts[largest] / whole:.0%} of {whole / _KIB:.0f} KiB; "
                f"weights are {parts['weights'] / whole:.1%}",
                "yes" if parts["saved"] > _MOST * whole and parts["weights"] < whole / 10 else "partly",
                "counted on the CPU by the allocator, at the instant of the largest amount",
                abbreviate(run),
            ),
        ]
    )
    yield ""
    yield from format_table(
        ("memory of a step", "KiB", "share"),
        ((part, f"{value / _KIB:.1f}", f"{value / whole:.1%}") for part, value in parts.items()),
    )
    yield ""
    shown = breakdown["operators"][:_SHOWN]
    yield from format_table(("kind", "share"), ((entry["kind"], f"{entry['share']:.1%}") for entry in shown))
