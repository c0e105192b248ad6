"""Series of calls that depend on each other, whose true quantiles are known."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import signal

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator

_TRUTH_SERIES, _TRUTH_LENGTH = 50, 200_000


@dataclass(frozen=True, slots=True)
class Process:
    """A stationary process of latencies.

    Attributes:
        name: As tables show it.
        q: The quantile that is estimated.
        truth: Its true value.
        draw: Returns so many series of such a length, [series, calls].
    """

    name: str
    q: float
    truth: float
    draw: Callable[[Generator, int, int], Floats]


def autoregressive(rho: float) -> Process:
    """Return the Gaussian process whose neighbours correlate by ``rho``; its median is 0."""

    def draw(random: Generator, series: int, calls: int) -> Floats:
        shocks = random.standard_normal((series, calls))
        shocks[:, 0] /= math.sqrt(1 - rho**2)
        values: Floats = signal.lfilter([1.0], [1.0, -rho], shocks, axis=1)
        return values

    return Process(f"autocorrelation {rho:g}", 0.5, 0.0, draw)


def exponential_queue(load: float) -> Process:
    """Return the sojourn times of an M/M/1 queue at the utilisation ``load``; they are exponential."""

    def draw(random: Generator, series: int, calls: int) -> Floats:
        waiting = random.random(series) < load
        first = np.where(waiting, random.exponential(1 / (1 - load), series), 0.0)
        return _sojourns(first, random.exponential(1.0, (series, calls)), _arrivals(random, series, calls, load))

    return Process(f"M/M/1, {load:.0%}", 0.99, -math.log(0.01) / (1 - load), draw)


def constant_queue(load: float) -> Process:
    """Return the sojourn times of an M/D/1 queue, whose calls all take as long; its truth is simulated."""

    def draw(random: Generator, series: int, calls: int) -> Floats:
        ahead = 2000  # calls until the queue has forgotten that it began empty
        service = np.ones((series, ahead + calls))
        found = _sojourns(np.zeros(series), service, _arrivals(random, series, ahead + calls, load))
        return found[:, ahead:]

    truth = float(np.quantile(draw(np.random.default_rng(99), _TRUTH_SERIES, _TRUTH_LENGTH), 0.99))
    return Process(f"M/D/1, {load:.0%}", 0.99, truth, draw)


def _arrivals(random: Generator, series: int, calls: int, load: float) -> Floats:
    return random.exponential(1 / load, (series, calls))


def _sojourns(first: Floats, service: Floats, between: Floats) -> Floats:
    """Return waiting plus service times by Lindley's recursion: no wait is below 0."""
    steps = np.cumsum(service[:, :-1] - between[:, 1:], axis=1)
    walk = first[:, None] + np.concatenate([np.zeros((len(first), 1)), steps], axis=1)
    waits: Floats = walk - np.minimum(np.minimum.accumulate(walk, axis=1), 0.0)
    return waits + service
