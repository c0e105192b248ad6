"""What was measured, as tables, and whether the bars are met."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.answering.blobs import BlobTaken
from benchmarks.answering.load import Answered

OURS, MLFLOW, REGISTRY = "benchlock", "mlflow", "docker-registry"
READ_FACTOR, REGISTER_FACTOR, GROWTH = 20, 5, 1.5
UP_SHARE, DOWN_SHARE = 0.7, 1.0
START_SECONDS, MEMORY = 1.5, 150 << 20
READS = ("read one version", "list a page")
Memory = Mapping[tuple[str, int], tuple[float, int]]
"""Seconds of the start and bytes, by server and versions."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One way of asking one server."""

    server: str
    versions: int
    way: str
    clients: int


Taken = Mapping[Key, Sequence[Answered]]


def rate(taken: Taken, key: Key) -> float:
    return statistics.median(one.rate for one in taken[key])


def times(taken: Taken, key: Key, other: Key) -> float:
    """How many times the rate of ``other``: of pairs, since a machine's speed changes between two rounds."""
    return statistics.median(one.rate / its.rate for one, its in zip(taken[key], taken[other], strict=True))


def slowest(taken: Taken, key: Key) -> float:
    return statistics.median(one.p99 for one in taken[key])


def rates_table(taken: Taken) -> str:
    heads = ["asked", "clients", "server", "versions", "a second", "p50, ms", "p99, ms"]
    lines = ["### Requests", "", _line(heads), _line(["---", "---:", "---", *["---:"] * 4])]
    for key in sorted(taken, key=lambda key: (key.way, key.clients, key.server, key.versions)):
        p50 = statistics.median(one.p50 for one in taken[key])
        figures = [f"{rate(taken, key):,.0f}", f"{p50 * 1e3:.2f}", f"{slowest(taken, key) * 1e3:.2f}"]
        lines.append(
            _line([key.way, str(key.clients), key.server, f"{key.versions:,}" if key.versions else "", *figures])
        )
    return "\n".join(lines) + "\n"


def blobs_table(blobs: Mapping[str, Sequence[BlobTaken]]) -> str:
    lines = ["### Blobs, MB a second", "", _line(["server", "up", "down"]), _line(["---", "---:", "---:"])]
    for server, several in blobs.items():
        up, down = (statistics.median(getattr(one, way) for one in several) / 1e6 for way in ("up", "down"))
        lines.append(_line([server, f"{up:,.0f}", f"{down:,.0f}"]))
    return "\n".join(lines) + "\n"


def starts_table(memory: Memory) -> str:
    heads = ["server", "versions", "start, s", "memory at the end, MiB"]
    lines = ["### Starts", "", _line(heads), _line(["---", *["---:"] * 3])]
    for (server, versions), (seconds, used) in memory.items():
        lines.append(_line([server, f"{versions:,}" if versions else "", f"{seconds:.2f}", f"{used / 2**20:.0f}"]))
    return "\n".join(lines) + "\n"


def bars(taken: Taken, blobs: Mapping[str, Sequence[BlobTaken]], memory: Memory) -> Iterator[str]:
    """A line for each bar: met or not, and by which figure."""
    for key in sorted(taken):
        if key.server == OURS:
            yield from _beside(taken, key)
    yield from _growth(taken)
    if {OURS, REGISTRY} <= blobs.keys():
        for way, share in (("up", UP_SHARE), ("down", DOWN_SHARE)):
            pairs = zip(blobs[OURS], blobs[REGISTRY], strict=True)
            found = statistics.median(getattr(ours, way) / getattr(theirs, way) for ours, theirs in pairs)
            yield _bar(f"blobs {way} at {share} of docker-registry's rate", f"{found:.2f}", met=found >= share)
    for (server, versions), (seconds, used) in memory.items():
        if server == OURS:
            met = seconds < START_SECONDS and used < MEMORY
            title = f"{versions:,} versions: first answer in {START_SECONDS} s, under {MEMORY >> 20} MiB"
            yield _bar(title, f"{seconds:.2f} s, {used / 2**20:.0f} MiB", met=met)


def _beside(taken: Taken, key: Key) -> Iterator[str]:
    peer = Key(MLFLOW, key.versions, key.way, key.clients)
    if peer in taken and (key.way in READS or key.way == "register"):
        least = READ_FACTOR if key.way in READS else REGISTER_FACTOR
        factor = times(taken, key, peer)
        yield _bar(f"{_title(key)}: {least} times MLflow's rate", f"{factor:.1f}", met=factor >= least)
    registry = Key(REGISTRY, 0, key.way, key.clients)
    if key.way == READS[0] and registry in taken:
        factor = times(taken, key, registry)
        yield _bar(f"{_title(key)}: ahead of docker-registry's manifests", f"{factor:.2f} times", met=factor > 1)


def _growth(taken: Taken) -> Iterator[str]:
    ours = [key for key in taken if key.server == OURS]
    small, large = min(key.versions for key in ours), max(key.versions for key in ours)
    for key in sorted(key for key in ours if key.versions == large and large > small):
        factor = slowest(taken, key) / slowest(taken, Key(OURS, small, key.way, key.clients))
        title = (
            f"{key.way}, {key.clients} clients: p99 grows less than {GROWTH} times from {small:,} to {large:,} versions"
        )
        yield _bar(title, f"{factor:.2f}", met=factor < GROWTH)


def _title(key: Key) -> str:
    return f"{key.way}, {key.clients} clients, {key.versions:,} versions"


def _bar(title: str, said: str, *, met: bool) -> str:
    return f"- {'met' if met else 'not met'}: {title} ({said})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
