"""The resolver alone, over a catalogue that this process has just opened."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

from benchlock.artifacts.errors import UnknownNameError
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.engine import open_engine
from benchlock.registry.lock.lock_assembly import question_of
from benchlock.registry.requests.evaluation_request import parse_request
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.resolution.resolver import resolve
from benchmarks.resolving.filling import DATABASE


@dataclass(frozen=True, slots=True)
class Solved:
    """Seconds of CPU from question to answer or explanation; ``chosen`` is ``NAME VERSION`` by kind, if anything is."""

    seconds: float
    chosen: Mapping[str, str] | None
    explanation: str


def solve(home: Path, request: dict[str, Any]) -> Solved:
    """Resolve a request in the registry ``home``; reading and importing are over when the clock starts."""
    question = question_of(parse_request(request, "request"))
    catalogue = Catalogue(open_engine(home / DATABASE), lambda: datetime.now(UTC))
    with catalogue.snapshot() as snapshot:
        start = process_time()
        try:
            found = resolve(question, snapshot, {})
        except (ConflictError, UnknownNameError) as error:
            text = str(error)
            return Solved(process_time() - start, None, text)
        seconds = process_time() - start
    return Solved(seconds, {kind: f"{one.name} {one.version}" for kind, one in found.chosen().items()}, "")
