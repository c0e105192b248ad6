"""A table of runs, from the folder of what `benchlock --json run` printed: one file a model, named as it."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLUMNS = ("model", "isolation", "top-1", "95 %", "p50", "p99", "samples/s", "run")


def row(model: str, run: dict[str, Any]) -> tuple[str, ...]:
    """The cells of one run: fractions in per cent, times in microseconds."""
    metrics = {metric["name"]: metric for metric in run["end"]["metrics"]}
    low, high = metrics["top1"]["ci"]
    return (
        model,
        run["start"]["isolation"],
        f"{metrics['top1']['value']:.2%}",
        f"{low:.2%} to {high:.2%}",
        f"{metrics['latency_p50']['value'] * 1e6:.0f} µs",
        f"{metrics['latency_p99']['value'] * 1e6:.0f} µs",
        f"{metrics['throughput']['value']:.0f}",
        run["run"],
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (COLUMNS, ["---"] * len(COLUMNS), *rows))


if __name__ == "__main__":
    print(table([row(path.stem, json.loads(path.read_bytes())) for path in sorted(Path(sys.argv[1]).glob("*.json"))]))
