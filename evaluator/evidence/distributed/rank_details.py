"""The details of each rank of a distributed training in a record, and the finding in a sentence."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from benchlock.evaluator.statistics.metric_types import format_duration, format_value

RANKS: Final = "ranks"
"""The key of the details."""
COLUMNS: Final = ("rank", "median step", "sent in a step", "gradients", "last loss")


class RankDetail(msgspec.Struct, frozen=True):
    """One rank.

    Attributes:
        seconds: The median duration of its steps, without the warm-up.
        sent: The mean bytes that it sent in a step.
        gradients: The mean bytes of gradients that it exchanged in a step.
        loss: The loss of its part of the last batch.
    """

    seconds: float
    sent: float
    gradients: float
    loss: float


class RankDetails(msgspec.Struct, frozen=True):
    """The ranks of a distributed training.

    Attributes:
        ranks: The ranks, by number.
        is_bit_equal: Whether all their losses and final weights have the bits of the reference.
        loss_difference: The largest difference of the mean loss of a step from that of the reference.
        ratio: The bytes that a rank sent, divided by those that all-reduce needs.
    """

    ranks: tuple[RankDetail, ...]
    is_bit_equal: bool
    loss_difference: float
    ratio: float


def read_rank_details(details: Mapping[str, Any]) -> RankDetails | None:
    """Read the ranks from the details of a record; None if it has none."""
    try:
        return msgspec.convert(details[RANKS], RankDetails) if RANKS in details else None
    except msgspec.ValidationError:
        return None


def describe_ranks(details: RankDetails) -> str:
    """Return the finding on the ranks in a sentence."""
    count = len(details.ranks)
    equality = (
        "with losses and weights that are bit-equal to those of one process"
        if details.is_bit_equal
        else f"with mean losses of steps that differ by at most {details.loss_difference:.2g} from those of one process"
    )
    return (
        f"{count} ranks end with equal weights, {equality}; each sent {details.ratio:.4g} times the bytes that "
        f"all-reduce needs, 2({count} - 1)/{count} of the gradients"
    )


def list_rank_rows(details: RankDetails) -> Iterator[tuple[str, ...]]:
    """Yield a row of ``COLUMNS`` for each rank."""
    for number, rank in enumerate(details.ranks):
        sizes = (format_value(size, "B") for size in (rank.sent, rank.gradients))
        yield (str(number), format_duration(rank.seconds), *sizes, f"{rank.loss:.6g}")
