"""Claims that are not measured: those that cannot be had here, and those whose level has no claim here yet."""

from collections.abc import Iterator
from typing import Final

from benchmarks.claims.measured_runs import Laboratory
from benchmarks.claims.rows import Row, format_rows

_PENDING: Final = "not yet measured here"
PENDING = (
    Row("Deep500 L1: micro-batches avoid out-of-memory", "-", _PENDING, "level `network`, scenario `micro_batch`"),
    Row("Deep500 L3: volume and equality of distributed steps", "-", _PENDING, "level `distributed`, scenario `steps`"),
)
IMPOSSIBLE = (
    Row("Deep500 L3: weak scaling on Piz Daint, on par with Horovod", "-", "no", "needs a cluster with its network"),
    Row("TBD: utilisation of the GPU and of its FP32 units", "-", "no", "runs here are on the CPU alone"),
    Row("DAWNBench: times and costs of its hardware", "-", "no", "other hardware has other times"),
    Row("A result with the name MLPerf", "-", "no", "the name needs a submission that MLCommons reviewed"),
    Row("Fathom: its eight workloads", "-", "no", "they need TensorFlow 1 and files that may not be redistributed"),
)


def measure(_: Laboratory) -> Iterator[str]:
    """Yield the section."""
    yield from format_rows((*PENDING, *IMPOSSIBLE))
