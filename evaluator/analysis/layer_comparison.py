"""Layers of two runs side by side: which layers made the second one slower, adding up to the whole difference.

Layers are joined by kind and output shape in the order of execution, then by kind and order. The order of the axes of a
shape is ignored, so that runs of frameworks with other layouts can be joined.
"""

from collections import defaultdict
from typing import Final, NamedTuple

from benchlock.evaluator.analysis.call_profiles import Profile, Subject, match_positions, model_latency, profile_notes
from benchlock.evaluator.analysis.layers import REMAINDER, add_times, layer_profile, shape_text
from benchlock.evaluator.analysis.tables import Cell, Column, Table

_KIND: Final = Column("kind", None, "Kind of operator.")
_COLUMNS: Final = (
    Column("first", "s", "Mean of the first run over its middle calls."),
    Column("second", "s", "Mean of the second run."),
    Column("difference", "s", "second - first; a layer of one run counts in full."),
)


class Pair(NamedTuple):
    """A layer of the first run and its counterpart in the second; None where one has none."""

    first: int | None
    second: int | None
    join: str


def join_layers(first: Profile, second: Profile) -> list[Pair]:
    """Pair the layers of two profiles, in the order of the first one, then those of the second alone."""
    by_shape = match_positions(first.signatures, second.signatures)
    sides = ((first.kinds, by_shape.keys()), (second.kinds, by_shape.values()))
    free = [{index: kind for index, kind in enumerate(kinds) if index not in set(used)} for kinds, used in sides]
    joined = by_shape | match_positions(*free)
    pairs = [
        Pair(left, joined.get(left), "shape" if left in by_shape else "order" if left in joined else "first only")
        for left in range(len(first.rows))
    ]
    alone = sorted(set(range(len(second.rows))) - set(joined.values()))
    return pairs + [Pair(None, right, "second only") for right in alone]


def compare_layers(first: Subject, second: Subject) -> tuple[Table, Table]:
    """Compare the layers of two traces: by kind, the largest difference first, and layer by layer.

    Both tables end with the remainders of the calls, so that their differences add up to that of the traced calls.
    """
    subjects, profiles = (first, second), (layer_profile(first), layer_profile(second))
    pairs = join_layers(*profiles)
    rows = [_describe_pair(pair, *profiles) for pair in pairs]
    groups: defaultdict[str, list[tuple[float | None, float | None]]] = defaultdict(list)
    for kind, times in zip(
        (str(row[0]) for row in rows), (_pair_times(pair, *profiles) for pair in pairs), strict=True
    ):
        groups[kind].append(times)
    sums = {kind: [add_times(side) for side in zip(*group, strict=True)] for kind, group in groups.items()}
    differences = {kind: subtract(second, first) for kind, (first, second) in sums.items()}
    order = sorted(sums, key=lambda kind: (-abs(differences[kind] or 0.0), kind))
    kinds: list[tuple[Cell, ...]] = [(kind, *sums[kind], differences[kind]) for kind in order]
    facts: dict[str, Cell] = {
        **{f"first_{name}": value for name, value in first.facts.items()},
        **{f"second_{name}": value for name, value in second.facts.items()},
        "traced_difference_s": profiles[1].call - profiles[0].call,
        "untraced_difference_s": model_latency(second.trace)[0] - model_latency(first.trace)[0],
        "largest_difference": order[0] if order else None,
    }
    notes = tuple(
        f"{side}: {note}"
        for side, subject, part in zip(("first", "second"), subjects, profiles, strict=True)
        for note in profile_notes(subject, part)
    )
    ends = (profiles[0].remainder, profiles[1].remainder, profiles[1].remainder - profiles[0].remainder)
    columns = (
        _KIND,
        Column("first_layer", None, "Name of the layer in the first run."),
        Column("second_layer", None, "Name of the layer in the second run."),
        Column("output_shape", None, "Shape of the first output."),
        Column("join", None, "How the layers were joined: by shape, by order, or in one run only."),
        *_COLUMNS,
    )
    last = (REMAINDER, None, None, None, None, *ends)
    return (
        Table("compare-kinds", "Difference by kind", (_KIND, *_COLUMNS), (*kinds, (REMAINDER, *ends)), facts, notes),
        Table("compare-layers", "Difference by layer", columns, (*rows, last), facts, notes),
    )


def _describe_pair(pair: Pair, first: Profile, second: Profile) -> tuple[Cell, ...]:
    """Return the row of a pair."""
    left, right = (None if at is None else part.rows[at] for part, at in ((first, pair.first), (second, pair.second)))
    before, after = _pair_times(pair, first, second)
    texts = [text for row in (left, right) if row is not None and (text := shape_text(row))]
    return (
        first.kinds[pair.first] if pair.first is not None else second.kinds[pair.second or 0],
        None if left is None else left.name,
        None if right is None else right.name,
        " / ".join(dict.fromkeys(texts)) or None,
        pair.join,
        None if left is None else before,
        None if right is None else after,
        subtract(after, before),
    )


def _pair_times(pair: Pair, first: Profile, second: Profile) -> tuple[float | None, float | None]:
    """Return the times of a pair; 0 in a run without the layer, None where the time is unknown."""
    return (
        0.0 if pair.first is None else first.latencies[pair.first],
        0.0 if pair.second is None else second.latencies[pair.second],
    )


def subtract(after: float | None, before: float | None) -> float | None:
    """Return the difference; None if a term is unknown."""
    return None if after is None or before is None else after - before
