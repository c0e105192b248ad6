"""Claims that were not measured."""

from collections.abc import Iterator
from typing import Final

from benchmarks.claims.measured_runs import Laboratory
from benchmarks.claims.rows import Row, format_rows

_NOT: Final = "not measured"
NOT_MEASURED = (
    Row(
        "Deep500 L3: weak and strong scaling on Piz Daint, on par with Horovod",
        "-",
        _NOT,
        "needs a cluster with its network; ranks here are processes of one host",
    ),
    Row(
        "Deep500 L3: parameter servers, stale updates, sparse communication",
        "-",
        _NOT,
        "not implemented: `strategy` is `all-reduce` alone",
    ),
    Row("Deep500 L0: frameworks against DeepBench's own times", "-", _NOT, "its sizes and times are those of GPUs"),
    Row("TBD: utilisation of the GPU and of its FP32 units", "-", _NOT, "runs here are on the CPU alone"),
    Row("DAWNBench: times and costs of its hardware", "-", _NOT, "other hardware has other times"),
    Row("A result with the name MLPerf", "-", _NOT, "the name needs a submission that MLCommons reviewed"),
    Row("Fathom: its eight workloads", "-", _NOT, "they need TensorFlow 1 and files that may not be redistributed"),
    Row(
        "Deep500 L1, L2: the overhead of a framework for a whole network; the latency of formats of datasets and the "
        "bias of samplers; the convergence of ResNet",
        "-",
        _NOT,
        "not tried yet",
    ),
)


def measure(_: Laboratory) -> Iterator[str]:
    """Yield the section."""
    yield from format_rows(NOT_MEASURED)
