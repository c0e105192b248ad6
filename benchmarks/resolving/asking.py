"""One universe asked: `benchlock lock` and the resolver over a registry of it, and others over the same shape."""

import json
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchlock.registry.artifact_names import Kind
from benchmarks.resolving import index, plain
from benchmarks.resolving.documents import request
from benchmarks.resolving.filling import DATABASE, fill
from benchmarks.resolving.measuring import Process, alone, environment, forget, run
from benchmarks.resolving.report import Row, Taken, milliseconds
from benchmarks.resolving.solving import solve
from benchmarks.resolving.universes import NAMES, Ask, Universe

BENCHLOCK = Path(sys.executable).parent / "benchlock"
LIMIT = 10
"""Seconds of CPU after which benchlock is ended."""

YARDSTICK = "import sqlalchemy.orm, rich.console, rich.table, rich.progress, alembic.command"
"""What a process does that is measured beside the others, once a round: it does not depend on what benchlock does."""

_LONG = 1  # second of others, after which one round will do
_INVALID, _CONFLICT = 2, 3  # exit codes


def measure(universe: Universe, step: int, rows: Mapping[str, Row], rounds: int) -> None:
    """Fill a registry, ask it each request once a round, and remove it; what took too long is not asked again."""
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(Path(folder), universe)
        for seed in range(rounds):
            yardstick = run([sys.executable, "-c", YARDSTICK], environment(), LIMIT)
            assert yardstick is not None
            for ask in universe.asks():
                taken = rows[ask.title].taken.setdefault(step, Taken())
                taken.yardstick.append(yardstick.seconds)
                if not taken.over:
                    rows[ask.title].outcome = registry.ask(ask, seed, taken)


class Registry:
    """A registry of a universe in the folder, beside the requests and locks of it."""

    def __init__(self, folder: Path, universe: Universe) -> None:
        self._folder, self._home, self._out = folder, folder / "registry", folder / "lock"
        self._universe = universe
        fill(universe, self._home)

    def ask(self, ask: Ask, seed: int, taken: Taken) -> str:
        """Take the figures of one request; its outcome, in words."""
        document, answer = request(ask, seed), self._universe.answer(ask)
        solved = alone(LIMIT, solve, self._home, document)
        process = None if solved is None else self._lock(document)
        if solved is None or process is None:
            taken.over = True
            return "none in time"
        taken.solving.append(solved.seconds)
        taken.whole.append(process.seconds)
        assert solved.chosen == answer, (ask, solved, answer)
        assert (process.code == 0) == (answer is not None), (ask, process)
        assert process.code in (0, _INVALID, _CONFLICT), (ask, process)
        if answer is None:
            return f"{process.output.count(chr(10))} lines"
        assert self._locked() == answer, (ask, process)
        return "a lock"

    def _lock(self, document: Mapping[str, object]) -> Process | None:
        path = self._folder / "request.yaml"
        path.write_text(json.dumps(document), encoding="utf-8")
        self._out.unlink(missing_ok=True)  # else it would be preferred
        forget(self._home / DATABASE)
        command = [str(BENCHLOCK), "--registry", str(self._home), "lock", str(path), "-o", str(self._out)]
        return run(command, environment(), LIMIT)

    def _locked(self) -> dict[Kind, str]:
        locked = tomllib.loads(self._out.read_text(encoding="utf-8"))
        return {kind: f"{locked[kind]['name']} {locked[kind]['version']}" for kind in NAMES}


def ask_others(universe: Universe, rows: Mapping[str, Row], limit: int, rounds: int) -> None:
    """Take what resolvelib and uv take for the same requests into their rows."""
    with index.served(universe) as address, tempfile.TemporaryDirectory() as folder:
        for ask in universe.asks():
            row, solvable = rows[ask.title], universe.answer(ask) is not None
            row.resolvelib = _resolvelib(universe, ask, limit, rounds)
            row.uv = _uv(index.command(ask, address, Path(folder)), limit, rounds, solvable=solvable)


def _resolvelib(universe: Universe, ask: Ask, limit: int, rounds: int) -> str:
    found = []
    for _ in range(rounds):
        one = alone(limit, plain.answer, universe, ask)
        if one is None:
            return f"over {limit} s"
        assert one.chosen == universe.answer(ask), (ask, one)
        found.append(one)
        if one.seconds > _LONG:
            break
    seconds = statistics.median(one.seconds for one in found)
    return f"{milliseconds(seconds)} ({found[0].rounds:,} rounds)"


def _uv(command: Sequence[str], limit: int, rounds: int, *, solvable: bool) -> str:
    """The first call fills the cache, and is not counted."""
    found = []
    for _ in range(rounds + 1):
        one = run(command, environment(), limit)
        if one is None:
            return f"over {limit} s"
        assert (one.code == 0) == solvable, (command, one)
        found.append(one)
        if len(found) > 1 and one.seconds > _LONG:
            break
    seconds = statistics.median(one.seconds for one in found[1:])
    return milliseconds(seconds) + ("" if solvable else f" ({found[0].output.count(chr(10))} lines)")
