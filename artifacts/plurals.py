"""Counts of things in words."""


def count_of(number: object, noun: str) -> str:
    """Return a number with its noun: ``1 sample``, ``2 samples``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
