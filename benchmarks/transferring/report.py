"""What was measured, as tables, and whether the bars are met."""

import statistics
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.transferring.contestants import Benchlock
from benchmarks.transferring.loads import MIB, Load
from benchmarks.transferring.measuring import Taken

WAYS = ("publish", "fetch")
SERVED = f"{Benchlock.title}, OCI registry"
SHARE_BAR = 0.8
"""Of the slower limit, for the large file."""


@dataclass(slots=True)
class Row:
    """One contestant with one load: a value a round for each way."""

    title: str
    publish: dict[int, Taken] = field(default_factory=dict)
    fetch: dict[int, Taken] = field(default_factory=dict)

    def seconds(self, way: str) -> float:
        taken: dict[int, Taken] = getattr(self, way)
        return statistics.median(one.seconds for one in taken.values())

    def share(self, way: str, limits: Mapping[int, float]) -> float:
        """Of the slower limit's speed, round by round."""
        taken: dict[int, Taken] = getattr(self, way)
        return statistics.median(limits[round_] / one.seconds for round_, one in taken.items())

    def memory(self, way: str) -> int:
        taken: dict[int, Taken] = getattr(self, way)
        return max(one.memory for one in taken.values())


@dataclass(slots=True)
class Measured:
    """One load: its contestants, and the limits, seconds a round by their titles."""

    load: Load
    rows: dict[str, Row] = field(default_factory=dict)
    limits: dict[str, dict[int, float]] = field(default_factory=dict)

    def slower(self) -> dict[int, float]:
        """The seconds of the slower limit in each round."""
        rounds = next(iter(self.limits.values()))
        return {round_: max(limit[round_] for limit in self.limits.values()) for round_ in rounds}

    def row(self, title: str) -> Row:
        return self.rows.setdefault(title, Row(title))


def table(measured: Measured) -> str:
    """The contestants, and below them the limits."""
    amount, unit = measured.load.speed
    heads = ["", f"in, {unit}", f"out, {unit}", "in, of the slower limit", "out", "memory in, MiB", "out", "rounds"]
    lines = [f"### {measured.load.title}", "", _line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    slower = measured.slower()
    for row in measured.rows.values():
        cells = [f"{amount / row.seconds(way):,.0f}" for way in ("publish", "fetch")]
        cells += [f"{row.share(way, slower):.2f}" for way in ("publish", "fetch")]
        cells += [f"{row.memory(way) / MIB:,.0f}" for way in ("publish", "fetch")]
        lines.append(_line([row.title, *cells, str(len(row.publish))]))
    for title, seconds in measured.limits.items():
        speed = f"{amount / statistics.median(seconds.values()):,.0f}"
        lines.append(_line([title, speed, "", "", "", "", "", str(len(seconds))]))
    return "\n".join(lines) + "\n"


def damages(found: Mapping[str, Mapping[str, str]]) -> str:
    """What each contestant's reader got, by the damage."""
    kinds = list(next(iter(found.values())))
    lines = [_line(["", *kinds]), _line(["---"] * (len(kinds) + 1))]
    lines += [_line([title, *(outcomes[kind] for kind in kinds)]) for title, outcomes in found.items()]
    return "### Damaged stores\n\n" + "\n".join(lines) + "\n"


def bars(measured: Measured, careful: Container[str]) -> Iterator[str]:
    """A line for each bar of one load: met or not, and by which figure. ``careful`` are who deliver nothing damaged."""
    ours, served, load = measured.rows[Benchlock.title], measured.rows.get(SERVED), measured.load
    if load.files == 1:
        for way in WAYS:
            share = ours.share(way, measured.slower())
            title = f"{way} of the large file at {SHARE_BAR} of the slower limit"
            yield _bar(title, f"{share:.2f}", met=share >= SHARE_BAR)
    peers = [row for row in measured.rows.values() if not row.title.startswith(Benchlock.title)]
    alike = [row for row in peers if row.title in careful]
    yield from _faster(ours, alike, f"{load.title}, faster than every peer that delivers nothing damaged")
    yield from _faster(ours, peers, f"{load.title}, faster than every peer")
    if served is not None:
        same = [row for row in peers if row.title.startswith("oras")]
        yield from _faster(served, same, f"{load.title}, through the same registry faster than oras")


def integrity_bar(found: Mapping[str, Mapping[str, str]]) -> str:
    """Whether a reader got a byte that was corrupt."""
    outcomes = {said for title, kinds in found.items() if title.startswith(Benchlock.title) for said in kinds.values()}
    met = delivers_nothing({said: said for said in outcomes})
    return _bar("no corrupt byte delivered", "; ".join(sorted(outcomes)), met=met)


def delivers_nothing(outcomes: Mapping[str, str]) -> bool:
    """Whether a reader got nothing of a damaged store, by the damage."""
    return all("nothing delivered" in said for said in outcomes.values())


def _faster(ours: Row, peers: Sequence[Row], title: str) -> Iterator[str]:
    for way in WAYS if peers else ():
        factors = {row.title: row.seconds(way) / ours.seconds(way) for row in peers}
        nearest = min(factors, key=lambda peer: factors[peer])
        yield _bar(f"{way}, {title}", f"{factors[nearest]:.1f} times as fast as {nearest}", met=factors[nearest] > 1)


def _bar(title: str, said: str, *, met: bool) -> str:
    return f"- {'met' if met else 'not met'}: {title} ({said})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
