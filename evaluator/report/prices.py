"""Prices of machines, given by the reader of a report: with an amount, a currency and a date, and never a default."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Final

from benchlock.artifacts.errors import InvalidInputError

_FORM: Final = re.compile(
    r"((?P<run>run/[0-9a-z]+)=)?(?P<amount>\d{1,9}(\.\d{1,9})?)(?P<currency>[A-Z]{3})/h@(?P<date>\d{4}-\d{2}-\d{2})",
    re.ASCII,
)
_SAMPLES: Final = 1e6
_HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a machine for an hour, on a date; ``run`` is the run whose machine it is of, None for all."""

    amount: float
    currency: str
    date: date
    run: str | None = None

    def of_million(self, throughput: float) -> float:
        """Return the price of a million samples at a number of samples a second."""
        return _SAMPLES / throughput / _HOUR * self.amount

    def __str__(self) -> str:
        """Return the price as a reader writes it."""
        return f"{self.amount:g} {self.currency}/h on {self.date.isoformat()}"


def parse_prices(texts: Sequence[str], runs: Sequence[str]) -> tuple[Price, ...]:
    """Parse prices such as ``0.10USD/h@2026-11-01``, with ``RUN=`` before the price of one run's machine.

    Args:
        texts: The prices.
        runs: The runs that may have one.

    Raises:
        InvalidInputError: A text has another form, currencies differ, or a run has two prices or is another one.
    """
    prices = tuple(map(_parse, texts))
    if unknown := next((price.run for price in prices if price.run not in (None, *runs)), None):
        reason = f"{unknown} has a price, but is not among the runs"
        raise InvalidInputError(reason, where="price", next_step="add the run, or correct its id")
    if len({price.currency for price in prices}) > 1:
        raise InvalidInputError("the prices have different currencies", where="price", next_step="use one currency")
    if len({price.run for price in prices}) < len(prices):
        raise InvalidInputError("a machine has two prices", where="price", next_step="write RUN=PRICE for each run")
    return prices


def _parse(text: str) -> Price:
    match = _FORM.fullmatch(text)
    with suppress(ValueError):
        if match is not None and (amount := float(match["amount"])) > 0:
            return Price(amount, match["currency"], date.fromisoformat(match["date"]), match["run"])
    raise InvalidInputError(
        f"invalid price {text[:60]!r}",
        where="price",
        next_step="write amount, currency and date, such as 0.10USD/h@2026-11-01",
    )


def find_price(prices: Sequence[Price], runs: Sequence[str]) -> Price | None:
    """Return the price of the machine of some runs: theirs, else the one of all; None without one."""
    own = next((price for price in prices if price.run in runs), None)
    return own or next((price for price in prices if price.run is None), None)
