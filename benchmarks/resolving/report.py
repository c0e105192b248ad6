"""What was measured, as tables, and whether the bars are met."""

import math
import os
import platform
import sqlite3
import statistics
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from benchmarks.resolving.families import Family
from benchmarks.resolving.index import UV

WHOLE_BAR, SOLVING_BAR, BAR_AT = 0.5, 0.05, 100_000
"""Seconds of CPU, and the number of versions at which they hold."""

YARDSTICK_BAR = 0.5
"""Seconds of CPU of the yardstick on the machine for which the bars were set."""

GROWTH_BAR = math.sqrt(10)
"""What a tenfold catalogue may cost."""


@dataclass(slots=True)
class Taken:
    """Seconds of CPU of one request over one universe, a value a round; none where it took too long.

    ``yardstick``: of the process that is measured once in the same round.
    """

    whole: list[float] = field(default_factory=list)
    solving: list[float] = field(default_factory=list)
    yardstick: list[float] = field(default_factory=list)
    over: bool = False

    def median(self, of: str) -> float:
        values: list[float] = getattr(self, of)
        return statistics.median(values) if values and not self.over else math.inf

    def share(self, of: str) -> float:
        """What it takes in parts of the yardstick."""
        return self.median(of) / statistics.median(self.yardstick)


@dataclass(slots=True)
class Row:
    """One request of a family: what it took by step; the outcome, and what others took, as the table says it."""

    title: str
    taken: dict[int, Taken] = field(default_factory=dict)
    outcome: str = ""
    resolvelib: str = ""
    uv: str = ""

    def growth(self, of: str) -> float:
        """The largest factor from one step to the next, for a tenfold step."""
        medians = [(step, self.taken[step].median(of)) for step in sorted(self.taken)]
        pairs = pairwise(medians)
        return max((_factor(*one, *other) for one, other in pairs), default=1)


def _factor(step: int, seconds: float, next_step: int, next_seconds: float) -> float:
    if math.isinf(seconds):
        return math.inf
    return float((next_seconds / seconds) ** (1 / math.log10(next_step / step)))


def table(family: Family, rows: Sequence[Row]) -> str:
    """The family's rows: milliseconds of CPU of the whole process / of solving alone."""
    steps = sorted(family.steps)
    asked = family.others_at in family.steps
    heads = ["request", "answer", *(f"{step:,}" for step in steps), "largest growth, tenfold"]
    heads += (
        [f"resolvelib at {family.others_at:,}, solving", f"`uv pip compile` at {family.others_at:,}"] if asked else []
    )
    lines = [_line(heads), _line(["---", "---"] + ["---:"] * (len(heads) - 2))]
    lines.append(_line(["(the yardstick)", "", *_yardsticks(rows, steps), *[""] * (len(heads) - 2 - len(steps))]))
    for row in rows:
        cells = [
            f"{milliseconds(row.taken[step].median('whole'))} / {milliseconds(row.taken[step].median('solving'))}"
            for step in steps
        ]
        growth = " / ".join(_shown("{:.2f}", row.growth(of)) for of in ("whole", "solving"))
        others = [row.resolvelib, row.uv] if asked else []
        lines.append(_line([row.title, row.outcome, *cells, growth, *others]))
    return f"### {family.title}\n\n{family.about}\n\n" + "\n".join(lines) + "\n"


def _yardsticks(rows: Sequence[Row], steps: Sequence[int]) -> Iterator[str]:
    for step in steps:
        yield milliseconds(statistics.median(rows[0].taken[step].yardstick))


def _shown(form: str, value: float) -> str:
    return "over" if math.isinf(value) else form.format(value)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def milliseconds(seconds: float) -> str:
    """As the tables show seconds."""
    if math.isinf(seconds):
        return "over"
    return f"{seconds * 1000:,.0f}" if seconds >= 0.1 else f"{seconds * 1000:.1f}"


def bars(measured: Sequence[tuple[Family, Sequence[Row]]]) -> Iterator[str]:
    """A line for each bar: met or not, by the worst figure; then what misses it."""
    grown = [
        (f"{what}, {row.title}, {family.title}", row.growth(of))
        for family, rows in measured
        for row in rows
        for of, what in (("whole", "whole process"), ("solving", "solving"))
    ]
    yield from _bar(f"a tenfold catalogue costs at most {GROWTH_BAR:.2f} times as much", grown, GROWTH_BAR, "{:.2f}")
    for of, bar, what in (("whole", WHOLE_BAR, "the whole process"), ("solving", SOLVING_BAR, "solving")):
        at = [
            (f"{row.title}, {family.title}", row.taken[BAR_AT].median(of) * 1000)
            for family, rows in measured
            for row in rows
            if BAR_AT in row.taken
        ]
        title = f"at {BAR_AT:,} versions {what} takes under {bar * 1000:.0f} ms of CPU"
        yield from _bar(title, at, bar * 1000, "{:.1f} ms")
        shares = [
            (f"{row.title}, {family.title}", row.taken[BAR_AT].share(of))
            for family, rows in measured
            for row in rows
            if BAR_AT in row.taken
        ]
        title = f"at {BAR_AT:,} versions {what} takes under {bar / YARDSTICK_BAR:.1f} of the yardstick"
        yield from _bar(title, shares, bar / YARDSTICK_BAR, "{:.2f}")


def _bar(title: str, found: Sequence[tuple[str, float]], bar: float, form: str) -> Iterator[str]:
    if not found:
        yield f"- not measured: {title}"
        return
    missing = sorted(((value, name) for name, value in found if value > bar), reverse=True)
    worst = max(value for _, value in found)
    verdict = "not met" if missing else "met"
    yield f"- {verdict}: {title} (worst {_shown(form, worst)}; {len(missing)} of {len(found)} miss)"
    yield from (f"  - {_shown(form, value)}: {name}" for value, name in missing)


def machine() -> Iterator[str]:
    """The machine and the versions, a line each."""
    facts = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    names = {key.strip(): value.strip() for key, value in facts.items()}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield f"- {names.get('model name', platform.machine())}, {os.cpu_count()} cores, {memory:.0f} GiB of memory"
    system = f"{platform.system()} {platform.release()}"
    yield f"- {system}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    uv = subprocess.run([UV, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    libraries = ", ".join(f"{name} {version(name)}" for name in ("benchlock", "sqlalchemy", "msgspec", "resolvelib"))
    yield f"- {libraries}, uv {uv}"


def write(path: Path, name: str, text: str) -> None:
    """Put ``text`` between the markers of ``name`` in the file; both are added where they are not there."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    old = (
        path.read_text(encoding="utf-8") if path.exists() else "# Results\n\nWritten by the scripts beside this file.\n"
    )
    before, found, rest = old.partition(begin)
    if not found:
        before = before.rstrip("\n") + "\n\n"
    after = rest.partition(end)[2] if found else "\n"
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
