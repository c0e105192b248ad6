"""The spans of an experiment, laid out so that viewers can nest them.

A profiler's clock may be coarser than that of the calls, and some have no start times. Children are therefore moved, as
little as needed, behind one another and inside their parent; they are shortened only where they take longer than it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from benchlock.evaluator.analysis.operator_kinds import kind_of
from benchlock.evaluator.analysis.trace_types import UNKNOWN, Experiment, Row, Times, Trace

_CALL: Final = "call"
_PREDICT: Final = "predict"


@dataclass(frozen=True)
class Track:
    """The spans of an experiment, the same in every call.

    Attributes:
        name: The deepest profiler.
        rows: The row of each span; the call is one, too.
        parents: The position of the parent of each span; None for the outermost.
        starts: [calls, spans] in nanoseconds of CLOCK_MONOTONIC.
        ends: [calls, spans].
    """

    name: str
    rows: tuple[Row, ...]
    parents: tuple[int | None, ...]
    starts: Times
    ends: Times

    def calls(self) -> Iterator[tuple[int, list[int], list[int]]]:
        """Yield the number of each call, and when its spans begin and end."""
        for call, times in enumerate(zip(self.starts, self.ends, strict=True)):
            yield call, times[0].tolist(), times[1].tolist()

    @cached_property
    def children(self) -> dict[int | None, list[int]]:
        """The positions of the spans within each span, in the order of execution."""
        groups: dict[int | None, list[int]] = {}
        for position, parent in enumerate(self.parents):
            groups.setdefault(parent, []).append(position)
        return groups

    @cached_property
    def edges(self) -> tuple[tuple[int, bool], ...]:
        """The spans of a call in the order in which they begin (True) and end (False)."""
        return tuple(self._walk(None))

    def _walk(self, parent: int | None) -> Iterator[tuple[int, bool]]:
        for position in self.children.get(parent, ()):
            yield position, True
            yield from self._walk(position)
            yield position, False

    @property
    def order(self) -> list[int]:
        """The spans in the order in which they begin."""
        return [position for position, begins in self.edges if begins]

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each span; ``call`` for parts of a call."""
        return tuple(_CALL if row.level == "model" else kind_of(row) for row in self.rows)


def list_tracks(trace: Trace) -> Iterator[Track]:
    """Yield a track per experiment, with the call as a span above all rows that have no other parent."""
    for name, experiment in trace.experiments.items():
        yield _lay_out(name, experiment)


def _lay_out(name: str, experiment: Experiment) -> Track:
    rows, starts, durations = experiment.header.rows, experiment.starts, experiment.durations
    root = next((row.index for row in rows if row.level == "model" and row.name == _PREDICT), len(rows))
    if root == len(rows):
        rows = (*rows, Row(index=root, level="model", name=_PREDICT, type=_PREDICT))
        starts = np.column_stack([starts, experiment.call_start])
        durations = np.column_stack([durations, experiment.call_duration])
    parents = tuple(row.parent if row.parent is not None or row.level == "model" else root for row in rows)
    durations = np.maximum(durations, 0)
    track = Track(name, rows, parents, starts.copy(), starts + durations)
    _place(track, None, durations, (experiment.call_start, None))
    return track


def _place(track: Track, parent: int | None, durations: Times, bounds: tuple[Times, Times | None]) -> None:
    """Move the children of a span behind one another, then back inside of it, and their children with them."""
    children = track.children.get(parent, [])
    first, last = bounds
    cursor = first if parent is not None else np.zeros_like(first)
    for child in children:
        unknown = track.starts[:, child] == UNKNOWN
        begin = np.where(unknown, np.maximum(cursor, first), track.starts[:, child])
        track.starts[:, child] = np.maximum(begin, cursor)
        track.ends[:, child] = cursor = track.starts[:, child] + durations[:, child]
    for child in reversed(children):
        if last is None:
            break
        track.ends[:, child] = np.maximum(np.minimum(track.ends[:, child], last), first)
        track.starts[:, child] = last = np.maximum(track.ends[:, child] - durations[:, child], first)
    for child in children:
        _place(track, child, durations, (track.starts[:, child], track.ends[:, child]))
