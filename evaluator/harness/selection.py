"""Samples that stand for all of a split."""


def spread(count: int, wanted: int) -> list[int]:
    """Return ``wanted`` of ``count`` numbers, or all of them, as far apart as they can be."""
    return [number * count // min(wanted, count) for number in range(min(wanted, count))]
