"""What runs say of claims, as text for a person."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchlock.api.cli import output
from benchlock.api.cli.run_tables import figure, interval
from benchlock.evaluator.statistics.units import in_unit
from benchlock.registry.metrics import DEFINITIONS

if TYPE_CHECKING:
    from benchlock.evaluator.claims import Judged


def print_claims(judged: "Sequence[Judged]") -> None:
    """What a run says of each claim, with the interval; together, those of which its scenario can say nothing."""
    if not judged:
        return
    output.echo()
    asked, never = [one for one in judged if one.possible], [one for one in judged if not one.possible]
    if asked:
        output.print_table(("claim", "stated", "measured", "the claim"), [_row(one) for one in asked])
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in asked:
        if one.answer != "holds":
            reasons.setdefault((one.answer, one.reason), []).append(one.claim.metric)
    for (answer, reason), metrics in reasons.items():
        output.echo_wrapped(f"  {', '.join(dict.fromkeys(metrics))}: {answer}: {reason}")
    if never:
        names = ", ".join(dict.fromkeys(one.claim.metric for one in never))
        output.echo_wrapped(f"  can't be said of runs of this scenario, which does not give them: {names}")


def _row(one: "Judged") -> tuple[str, str, str, str]:
    claim, measured = one.claim, one.measured
    unit = DEFINITIONS[claim.metric].unit if claim.metric in DEFINITIONS else ""
    stated = f"{in_unit(claim.value, unit)} ± {in_unit(claim.tolerance, unit)}"
    found = "-" if measured is None else f"{figure(measured)} {interval(measured)}"
    return claim.metric, stated, found, one.answer
