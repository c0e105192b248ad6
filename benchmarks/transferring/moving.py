"""One load moved in and out by everyone, round by round; and every store damaged once."""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.transferring.contestants import Contestant, Copying, Digesting
from benchmarks.transferring.damage import KINDS, outcome
from benchmarks.transferring.loads import Load
from benchmarks.transferring.measuring import calm, files_below, succeeded
from benchmarks.transferring.report import Measured, Row

LONG = 30
"""Seconds in and out: what takes longer is measured once."""

Kind = Callable[[Path], Contestant]


def measure(load: Load, kinds: Sequence[tuple[str, Kind]], rounds: int, folder: Path) -> Measured:
    """Move the load in and out by every contestant, beside the limits; ``folder`` is for stores that do not stay."""
    measured = Measured(load)
    for round_ in range(rounds):
        for limit_kind in (Digesting, Copying):
            limit = limit_kind(folder / "limit")
            calm([load.source])
            measured.limits.setdefault(limit.title, {})[round_] = limit.take(load.source).seconds
            limit.close()
        for title, kind in kinds:
            row = measured.row(title)
            if not round_ or row.publish[0].seconds + row.fetch[0].seconds < LONG:
                with _store(kind, folder) as (contestant, target):
                    _move(contestant, load, row, round_, target)
    return measured


def _move(contestant: Contestant, load: Load, row: Row, round_: int, target: Path) -> None:
    brought = contestant.bring(load.source)
    calm([brought])
    row.publish[round_] = contestant.publish(brought)
    calm(contestant.stored())
    row.fetch[round_] = succeeded(contestant.fetch(target))
    delivered = {file.name: file.stat().st_size for file in files_below(target)}
    wanted = {file.name: file.stat().st_size for file in files_below(load.source)}
    assert wanted.items() <= delivered.items(), f"{row.title} delivered something else"
    took = f"in {row.publish[round_].seconds:.1f} s, out {row.fetch[round_].seconds:.1f} s"
    sys.stderr.write(f"{load.title}, round {round_ + 1}, {row.title}: {took}\n")


def damaged(kind: Kind, source: Path, folder: Path) -> dict[str, str]:
    """What a reader gets of ``source`` from a damaged store, by the damage."""
    found = {}
    for title, damage in KINDS.items():
        with _store(kind, folder) as (contestant, target):
            found[title] = outcome(contestant, source, damage, target)
    return found


@contextmanager
def _store(kind: Kind, folder: Path) -> Iterator[tuple[Contestant, Path]]:
    """A contestant with an empty store, and a folder to write to that is not there yet; both go afterwards."""
    target = folder / "out"
    contestant = kind(folder / "store")
    try:
        yield contestant, target
    finally:
        contestant.close()
        shutil.rmtree(target, ignore_errors=True)
