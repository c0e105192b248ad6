"""Durations and amounts of memory in text form, such as ``10m`` and ``2GiB``."""

import re
from dataclasses import dataclass, field
from decimal import Decimal

from benchlock.artifacts.errors import InvalidInputError

_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]+)")
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_BYTES = {"B": Decimal(1)} | {
    f"{prefix}{unit}": Decimal(base) ** power
    for unit, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate(("k" if base == 1000 else "K", "M", "G", "T"), start=1)  # noqa: PLR2004 - SI's kilo
}


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of memory with its original ``text``; amounts are equal if their bytes are."""

    bytes: int
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> "Amount":
        """Parse an amount of memory; errors as ``parse_bytes``."""
        return cls(parse_bytes(text), text)

    def __str__(self) -> str:
        """Return the original text."""
        return self.text


def parse_seconds(text: str) -> float:
    """Parse a duration, a number and ``ms``, ``s``, ``m`` or ``h``, into seconds.

    Raises:
        InvalidInputError: The text is not a duration.
    """
    return float(_parse(text, _SECONDS, "a duration", "0.1ms or 10m"))


def parse_bytes(text: str) -> int:
    """Parse an amount of memory into bytes.

    The units are ``B``, ``kB`` to ``TB`` (powers of 1000), and ``KiB`` to ``TiB`` (powers of 1024).

    Raises:
        InvalidInputError: The text is not an amount, or not a whole number of bytes.
    """
    amount = _parse(text, _BYTES, "an amount of memory", "2GiB")
    if amount != amount.to_integral_value():
        raise InvalidInputError(f"{text!r} is not a whole number of bytes")
    return int(amount)


def spell_bytes(amount: int) -> str:
    """Format bytes in the largest fitting power of 1024, rounded down to a tenth: ``23.4GiB``, ``512MiB``."""
    units = [(size, unit) for unit, size in _BYTES.items() if unit == "B" or unit.endswith("iB")]
    size, unit = max((entry for entry in units if entry[0] <= amount), default=units[0])
    tenths = int(amount * 10 // size)
    return f"{tenths // 10}{f'.{tenths % 10}' if tenths % 10 else ''}{unit}"


def _parse(text: str, units: dict[str, Decimal], subject: str, example: str) -> Decimal:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        raise InvalidInputError(
            f"{text[:40]!r} is not {subject}",
            next_step=f"write a number and one of {', '.join(units)}, such as {example}",
        )
    return Decimal(match[1]) * units[match[2]]
