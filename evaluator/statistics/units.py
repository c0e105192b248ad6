"""Values with their units, as a person reads them."""

_MILLION = 1e6


def in_unit(value: float | None, unit: str) -> str:
    """``231 µs``, ``0.7500``, ``84.6 queries/s``; ``-`` for what is not known."""
    if value is None:
        return "-"
    if unit == "s":
        return duration(value)
    if unit == "fraction":
        return f"{value:.4f}"
    return f"{_rounded(value, 4)} {unit}".rstrip()


def duration(seconds: float | None) -> str:
    """Seconds in the unit that keeps three digits: ``231 µs``, ``1.69 ms``, ``2.5 s``."""
    if seconds is None:
        return "-"
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        text = _rounded(seconds * factor, 3)
        if float(text) < 1000:  # noqa: PLR2004 - the next unit begins there
            return f"{text} {unit}"
    return f"{_rounded(seconds, 3)} s"


def _rounded(value: float, digits: int) -> str:
    """``value`` to so many digits, but whole rather than with an exponent up to a million."""
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < _MILLION else text


def change(share: float, digits: int = 1) -> str:
    """A relative change: ``+1.8%``. One that rounds to nothing has no sign to speak of: ``0.0%``."""
    text = f"{share:+.{digits}%}"
    return text if any(digit in text for digit in "123456789") else text[1:]
