"""Fathom: few kinds of operators take most of the time, by a traced run."""

from collections.abc import Iterator

from benchmarks.claims.measured_runs import EXAMPLES, Laboratory, abbreviate
from benchmarks.claims.rows import Row, format_rows, format_table

MOST = 0.9


def measure(laboratory: Laboratory) -> Iterator[str]:
    """Yield the section."""
    digits = EXAMPLES / "digits"
    laboratory.publish(digits / "dataset.yaml", digits / "models" / "digits-onnx.yaml")
    run = laboratory.run(digits / "requests" / "digits-onnx-traced.yaml")
    (table,) = laboratory.commands.done("inspect", run.id, "--analysis", "A6")["tables"]
    columns = [column["name"] for column in table["columns"]]
    rows = [dict(zip(columns, row, strict=True)) for row in table["rows"]]
    shares = sorted(((row["share"], row["kind"]) for row in rows if row["share"] is not None), reverse=True)
    needed = count_kinds([share for share, _ in shares])
    yield from format_rows(
        [
            Row(
                "Fathom: a few kinds of operators make 90 % of the time",
                f"{needed} of {len(shares)} kinds make {MOST:.0%} of the layers of the digits network",
                "partly" if needed <= len(shares) // 2 else "no",
                f"a small network has {len(shares)} kinds in all, so few cannot stand out",
                abbreviate(run),
            )
        ]
    )
    yield ""
    yield from format_table(("kind", "share"), ((kind, f"{share:.1%}") for share, kind in shares))


def count_kinds(shares: list[float]) -> int:
    """Return how many of the largest shares make 90 % of their sum."""
    total, reached = sum(shares), 0.0
    for number, share in enumerate(sorted(shares, reverse=True), 1):
        reached += share
        if reached >= MOST * total:
            return number
    return len(shares)
