"""What was measured, as tables, and whether the bars are met."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

MAX_MICROSECONDS, MAX_SHARE = 5.0, 0.02
"""What may lie between a timer around predict and the latency that a run tells."""

CONTAINER_SHARE = 0.02
START_FACTOR, START_SECONDS = 1.15, 0.15
PICTURES_SHARE = 0.9
WATCHING_SECONDS = 0.1
WAYS = ("loop", "loadgen", "process", "container")


@dataclass(slots=True)
class Taken:
    """One network in one framework: seconds of the median call, a value a round, by the way of calling.

    ``fastest`` is that of the call that a tenth of the calls do not exceed. ``turns`` are of ``turns.py``: by the way,
    the median and the fastest tenth of each turn.
    ``null`` is what runs in a process measured of themselves, seconds; ``watching`` their parents' CPU.
    """

    calls: dict[str, list[float]] = field(default_factory=dict)
    fastest: dict[str, list[float]] = field(default_factory=dict)
    null: list[float] = field(default_factory=list)
    watching: list[float] = field(default_factory=list)
    starts: dict[str, list[float]] = field(default_factory=dict)
    turns: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def in_turn(self, way: str, figure: str) -> "Estimate":
        """Microseconds of ``figure`` (``p50``, ``p10``) above the call alone of the same turn."""
        pairs = zip(self.turns[way], self.turns["call"], strict=True)
        return estimate([(one[figure] - call[figure]) * 1e6 for one, call in pairs])

    def above(self, way: str) -> "Estimate":
        """Microseconds above the loop of the same round."""
        pairs = zip(self.calls[way], self.calls["loop"], strict=True)
        return estimate([(value - loop) * 1e6 for value, loop in pairs])

    def share(self, way: str) -> float:
        return self.above(way).middle / (statistics.median(self.calls["loop"]) * 1e6)

    def contained(self) -> "Estimate":
        """The container's steady state in parts of the process's, minus one."""
        pairs = zip(self.calls["container"], self.calls["process"], strict=True)
        logs = estimate([math.log(container / process) for container, process in pairs])
        return Estimate(*(math.expm1(value) for value in (logs.middle, logs.low, logs.high)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median over rounds, and an interval of the mean by Student's t, two-sided, 95 %."""

    middle: float
    low: float
    high: float


def estimate(values: Sequence[float]) -> Estimate:
    if len(values) < 2:
        return Estimate(values[0], -math.inf, math.inf)
    mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    reach = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return Estimate(float(np.median(values)), mean - reach, mean + reach)


def calls_table(found: Mapping[str, Taken]) -> str:
    heads = ["framework", "bare loop, µs", "LoadGen alone", "a process", "a container", "of the bare loop", "null, µs"]
    lines = ["### Calls", "", _line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    for framework, taken in found.items():
        loop = statistics.median(taken.calls["loop"]) * 1e6
        cells = [_above(taken, way) for way in WAYS[1:]]
        null = f"{statistics.median(taken.null) * 1e6:.2f}" if taken.null else ""
        lines.append(_line([framework, f"{loop:.1f}", *cells, f"{taken.share('process'):+.1%}", null]))
    return "\n".join(lines) + "\n"


def fastest_table(found: Mapping[str, Taken]) -> str:
    heads = ["framework", "bare loop, µs", "in LoadGen alone", "a process", "a container"]
    lines = ["### The fastest tenth of the calls", "", _line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    for framework, taken in found.items():
        least = {way: min(values) * 1e6 for way, values in taken.fastest.items()}
        cells = [f"{least[way] - least['loop']:+.1f}" if way in least else "" for way in WAYS[1:]]
        lines.append(_line([framework, f"{least['loop']:.1f}", *cells]))
    return "\n".join(lines) + "\n"


def turns_table(found: Mapping[str, Taken]) -> str:
    heads = [
        "framework",
        "call alone, µs",
        "in LoadGen alone",
        "in benchlock",
        "fastest tenth, µs",
        "LoadGen",
        "benchlock",
    ]
    lines = ["### In turns, in one process", "", _line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    for framework, taken in found.items():
        cells = [framework]
        for figure in ("p50", "p10"):
            cells.append(f"{statistics.median(turn[figure] for turn in taken.turns['call']) * 1e6:.1f}")
            cells += [_interval(taken.in_turn(way, figure)) for way in ("loadgen", "benchlock")]
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def starts_table(found: Mapping[str, Taken]) -> str:
    heads = ["framework", "`docker run`, s", "benchlock", "factor", "image", "verification", "job folder"]
    lines = ["### Starts", "", _line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    for framework, taken in found.items():
        if taken.starts:
            middle = {name: statistics.median(values) for name, values in taken.starts.items()}
            factor = f"{middle['benchlock'] / middle['docker']:.2f}"
            cells = [f"{middle[name]:.2f}" for name in ("image", "verification", "job")]
            lines.append(_line([framework, f"{middle['docker']:.2f}", f"{middle['benchlock']:.2f}", factor, *cells]))
    return "\n".join(lines) + "\n"


def bars(found: Mapping[str, Taken], pictures: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """A line for each bar: met or not, and by which figure."""
    for framework, taken in found.items():
        yield _turns(framework, taken)
        above, share = taken.above("process"), taken.share("process")
        met = above.middle <= MAX_MICROSECONDS and share <= MAX_SHARE
        title = f"{framework}: a run's median at most {MAX_MICROSECONDS:.0f} µs and {MAX_SHARE:.0%} above a bare loop's"
        yield _bar(title, f"{above.middle:+.1f} µs, {share:+.1%}", met=met)
        yield _fastest(framework, taken.fastest)
        if "container" in taken.calls:
            yield _contained(framework, taken.contained())
        if taken.starts:
            yield _started(framework, taken.starts)
    watching = [value for taken in found.values() for value in taken.watching]
    title = f"under {WATCHING_SECONDS} s of CPU in the parent while a run lasts"
    yield _bar(title, f"at most {max(watching):.3f} s", met=max(watching) < WATCHING_SECONDS)
    if pictures:
        pairs = zip(pictures["benchlock"], pictures["by hand"], strict=True)
        share = statistics.median(ours / theirs for ours, theirs in pairs)
        rates = ", ".join(f"{name} {statistics.median(values):.0f}" for name, values in pictures.items())
        title = f"JPEG files at {PICTURES_SHARE} of a pipeline of two threads by hand"
        yield _bar(title, f"{share:.2f}; images a second: {rates}", met=share >= PICTURES_SHARE)


def _turns(framework: str, taken: Taken) -> str:
    above = taken.in_turn("benchlock", "p50")
    share = above.middle / (statistics.median(turn["p50"] for turn in taken.turns["call"]) * 1e6)
    met = above.middle <= MAX_MICROSECONDS and share <= MAX_SHARE
    title = f"{framework}: in turns, at most {MAX_MICROSECONDS:.0f} µs and {MAX_SHARE:.0%} above the call alone"
    return _bar(title, f"{_interval(above)} µs, {share:+.1%}", met=met)


def _fastest(framework: str, fastest: Mapping[str, Sequence[float]]) -> str:
    loop, process = (min(fastest[way]) * 1e6 for way in ("loop", "process"))
    above, share = process - loop, process / loop - 1
    title = f"{framework}: a run's fastest tenth at most {MAX_MICROSECONDS:.0f} µs and {MAX_SHARE:.0%} above the loop's"
    return _bar(title, f"{above:+.1f} µs, {share:+.1%}", met=above <= MAX_MICROSECONDS and share <= MAX_SHARE)


def _contained(framework: str, ratio: Estimate) -> str:
    met = ratio.low >= -CONTAINER_SHARE and ratio.high <= CONTAINER_SHARE
    said = f"{ratio.middle:+.1%}, from {ratio.low:+.1%} to {ratio.high:+.1%}"
    return _bar(f"{framework}: a container within {CONTAINER_SHARE:.0%} of a process, interval included", said, met=met)


def _started(framework: str, starts: Mapping[str, Sequence[float]]) -> str:
    docker, ours = (statistics.median(starts[name]) for name in ("docker", "benchlock"))
    title = (
        f"{framework}: from the container's start to its end {START_FACTOR} of `docker run`, or {START_SECONDS} s more"
    )
    met = ours <= max(docker * START_FACTOR, docker + START_SECONDS)
    return _bar(title, f"{ours / docker:.2f}, {ours - docker:+.2f} s", met=met)


def _above(taken: Taken, way: str) -> str:
    if way not in taken.calls:
        return ""
    return _interval(taken.above(way))


def _interval(found: Estimate) -> str:
    return f"{found.middle:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"


def _bar(title: str, said: str, *, met: bool) -> str:
    return f"- {'met' if met else 'not met'}: {title} ({said})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
