"""Images a second from JPEG files to scores: the harness beside two threads by hand, PyTorch's loader and tf.data.

``python -m benchmarks.pipeline --python PYTHON`` with an environment of ``requirements/pipeline.txt``.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.piping.material import write_network, write_pictures
from benchmarks.resolving.report import machine, write

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
PYTHON = ROOT / ".venv-pipeline" / "bin" / "python"
NAMES = {
    "benchlock": "benchlock, `offline`",
    "hand": "two threads by hand",
    "dataloader": "`torch.utils.data.DataLoader`, two processes",
    "tfdata": "`tf.data`, two threads",
}
BARS = {"hand": 0.9, "dataloader": 1.0, "tfdata": 1.0}
"""The least that benchlock's rate is to be in parts of each."""

METHOD = """\
The same pictures (JPEG files made from a seed) go through decode, resize with antialiasing, crop and scale to a
MobileNet v1 of width 0.25 with random weights in ONNX Runtime, a picture a call, on two processors. benchlock is the
harness's pipeline phase in `offline`; the others are loops of calls. The clock of the two loaders starts when they
have prefetched pictures and stops when they have prefetched as many. In every round each is measured once, in a process
of its own and in another order; a ratio is the median over rounds of benchlock's rate and the other's in the same
round. tf.data decodes and resizes with its own kernels, so that its pixels differ. CPU is that of the process and its
children while the clock runs: where other work shares the machine, it says more than the rates.
"""


def main() -> int:
    """Measure in rounds; print the table and the bars, and write them into RESULTS.md where asked to."""
    options = _parse()
    if not options.python.exists():
        print(f"{options.python}: no such interpreter; `make bench` makes it, --python names another", file=sys.stderr)
        return 2
    rates: dict[str, list[float]] = {name: [] for name in NAMES}
    cpu: dict[str, list[float]] = {name: [] for name in NAMES}
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="benchlock-pipeline-") as temporary:
        asked = _prepare(Path(temporary), options.samples)
        for number in range(options.rounds):
            order = list(NAMES)[number % len(NAMES) :] + list(NAMES)[: number % len(NAMES)]
            for name in order:
                answer = _measure(options.python, {"way": name, **asked})
                rates[name].append(answer["rate"])
                cpu[name].append(answer["cpu"] * 1000)
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    took = f"{time.monotonic() - start:.0f} s, {options.rounds} rounds of {options.samples} pictures"
    text = _report(rates, cpu, f"{took}, load average {os.getloadavg()[0]:.2f} at the end")
    print(text)
    if not options.dry_run:
        write(RESULTS, "pipeline", text)
    return 0


def _prepare(folder: Path, samples: int) -> dict[str, Any]:
    """Write what is measured, in the layout of a job; return what every way is told."""
    for name in ("model", "dataset"):
        (folder / name).mkdir()
    model = folder / "model" / "model.onnx"
    write_network(model)
    paths = [str(path) for path in write_pictures(folder / "dataset")]
    cpus = sorted(os.sched_getaffinity(0))[:2]
    return {"folder": str(folder), "model": str(model), "pictures": paths, "samples": samples, "cpus": cpus}


def _measure(python: Path, asked: Mapping[str, Any]) -> dict[str, float]:
    """Return the answer of one way."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(len(asked["cpus"]))}
    command = [str(python), "-B", "-m", "benchmarks.piping.ways", json.dumps(asked)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{asked['way']} failed: {done.stderr.strip()[-2000:]}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _report(rates: Mapping[str, Sequence[float]], cpu: Mapping[str, Sequence[float]], took: str) -> str:
    lines = ["## The pipeline of JPEG files", "", *machine(), "", METHOD]
    lines += [
        "| pipeline | images a second | benchlock in parts of it | CPU, ms a picture |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, title in NAMES.items():
        share = f"{_ratio(rates, name):.2f}" if name in BARS else ""
        median = statistics.median(rates[name])
        lines.append(f"| {title} | {median:.0f} | {share} | {statistics.median(cpu[name]):.1f} |")
    lines.append("")
    for name, bar in BARS.items():
        ratio = _ratio(rates, name)
        lines.append(f"- {'met' if ratio >= bar else 'not met'}: at least {bar:g} of {NAMES[name]} ({ratio:.2f})")
    return "\n".join([*lines, "", f"Measured {datetime.now(UTC):%Y-%m-%d}: {took}."])


def _ratio(rates: Mapping[str, Sequence[float]], other: str) -> float:
    """Return the median over rounds of benchlock's rate in parts of the other's."""
    return statistics.median(ours / theirs for ours, theirs in zip(rates["benchlock"], rates[other], strict=True))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--samples", type=int, default=1000, help="pictures of a round and way (default: 1000)")
    parser.add_argument(
        "--python", type=Path, default=PYTHON, help=f"the environment's interpreter (default: {PYTHON})"
    )
    parser.add_argument("--dry-run", action="store_true", help="print only, leave RESULTS.md as it is")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
