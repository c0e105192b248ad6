"""Claims that cannot be measured here."""

from collections.abc import Iterator

from benchmarks.claims.measured_runs import Laboratory
from benchmarks.claims.rows import Row, format_rows

IMPOSSIBLE = (
    Row(
        "Deep500 L3: weak and strong scaling on Piz Daint, on par with Horovod; "
        "parameter servers, stale and sparse updates",
        "-",
        "no",
        "needs a cluster with its network; ranks here only all-reduce",
    ),
    Row("TBD: utilisation of the GPU and of its FP32 units", "-", "no", "runs here are on the CPU alone"),
    Row("DAWNBench: times and costs of its hardware", "-", "no", "other hardware has other times"),
    Row("A result with the name MLPerf", "-", "no", "the name needs a submission that MLCommons reviewed"),
    Row("Fathom: its eight workloads", "-", "no", "they need TensorFlow 1 and files that may not be redistributed"),
    Row(
        "Deep500 L1, L2: the overhead of a framework for a whole network; the latency of formats of datasets and the "
        "bias of samplers; the convergence of ResNet",
        "-",
        "no",
        "not measured yet",
    ),
)


def measure(_: Laboratory) -> Iterator[str]:
    """Yield the section."""
    yield from format_rows(IMPOSSIBLE)
