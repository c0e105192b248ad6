"""COCO's average precision and its interval, out of which detection matches a labelled box at which threshold."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from benchlock.evaluator.statistics.figures import Interval
from benchlock.evaluator.statistics.intervals import LEVEL, UNBOUNDED
from benchlock.evaluator.statistics.tensors import Tensor, series

Floats = npt.NDArray[np.float64]

GROUPS = 32
SEED = 7
THRESHOLDS: Mapping[str, slice] = {"map": slice(None), "map_50": slice(0, 1)}
"""Of the thresholds of IoU, 0.5 to 0.95 in steps of 0.05, those that a metric is the mean over."""

_TAIL = (1 - LEVEL) / 2
_LEAST = 2
_RECALLS = np.linspace(0.0, 1.00, 101)  # as COCO's evaluation makes them, to the bit
_TRUE, _IGNORED = 1, 2
_SLOW, _FAST = 1 / (math.sqrt(2) - 1), 1.0
"""What a metric is above that of very many samples, over what its halves are above it.

The first where that falls as the root of the samples, as it does where scores tell nothing, the second where it falls
as their number.
"""


@dataclass(frozen=True, slots=True)
class Ranked:
    """The detections of one label, best first: of which sample, and [thresholds, D] whether right, whether wrong.

    ``to_find`` [samples]: how many boxes of the label.
    """

    samples: Tensor
    right: Tensor
    wrong: Tensor
    to_find: Tensor


def average_precision(measures: Mapping[str, Tensor], samples: int, thresholds: slice) -> tuple[float | None, Interval]:
    """The mean over the labels that have a box to find, None without one, and :func:`interval_of` it.

    Boxes in fewer than two samples bound nothing.

    Raises:
        ValueError, KeyError, TypeError: the measures are malformed or missing.
    """
    ranked = [one for one in ranks(measures, samples, thresholds) if one.to_find.any()]
    if not ranked:
        return None, UNBOUNDED
    sides = balanced_halves(samples)
    group = np.random.RandomState(SEED).permutation(samples) % sides.shape[1]  # its numbers never change
    found = precisions(ranked, group, np.vstack([np.ones((1, sides.shape[1])), sides]))
    value = float(found[0].mean())
    if np.count_nonzero(sum(one.to_find for one in ranked)) < _LEAST:
        return value, UNBOUNDED
    return value, interval_of(found[0], found[1:].reshape(-1, 2, len(ranked)))


def interval_of(whole: Floats, halves: Floats) -> Interval:
    """Of the mean of ``whole`` [labels], by ``halves`` [pairs, 2, labels] of its samples; NaN: a half without a box.

    Balanced half-samples (Wolter, Introduction to Variance Estimation, chapter 3) of the arcsine of the root. Half the
    difference of two halves that complete each other varies as the metric does: the mean of its squares is the
    variance, with Student's t. Halves lie above the whole as the whole does above the truth: the low end takes away
    more of it than the high end. A label that a half does not show counts there as in the whole; the share of the pairs
    in which that is so tells how little is known of it: for half of that share it is nothing at the low end, and so
    much of the variance between labels is added. The interval is cut at 0 and 1 and widened to hold the value itself.
    """
    value = float(whole.mean())
    missing = np.isnan(halves).any(axis=1).mean(axis=0)
    centre = float(_angles(whole.mean()))
    angles = _angles(np.where(np.isnan(halves), whole, halves).mean(axis=2))
    above = float(angles.mean()) - centre
    variance = float(np.mean(((angles[:, 0] - angles[:, 1]) / 2) ** 2))
    if 0 < value < 1:
        between = float(whole.var(ddof=1)) if len(whole) > 1 else value * (1 - value)
        variance += missing.sum() * between / len(whole) ** 2 / (4 * value * (1 - value))
    half = float(special.stdtrit(len(halves), 1 - _TAIL)) * math.sqrt(variance)
    least = float(_angles((whole * (1 - missing / 2)).mean()))
    low = _fraction(least - _SLOW * above - half)
    high = _fraction(centre - _FAST * above + half)
    return Interval(min(low, value), max(high, value))


def _angles(fractions: Floats) -> Floats:
    found: Floats = np.arcsin(np.sqrt(np.clip(fractions, 0.0, 1.0)))
    return found


def _fraction(angle: float) -> float:
    return math.sin(min(max(angle, 0.0), math.pi / 2)) ** 2


def balanced_halves(samples: int) -> Floats:
    """Which groups are in each half [halves, groups], pairs that complete each other after one another.

    There are as many groups as the greatest power of two up to 32 and ``samples``; the halves are the rows of a
    Hadamard matrix, in which any two groups are as often in the same half as not.
    """
    signs = np.ones((1, 1))
    while 2 * len(signs) <= min(samples, GROUPS):
        signs = np.block([[signs, signs], [signs, -signs]])
    halves: Floats = np.stack([signs[1:] > 0, signs[1:] < 0], axis=1).reshape(-1, len(signs)).astype(np.float64)
    return halves


def precisions(ranked: Sequence[Ranked], group: Tensor, weights: Floats) -> Floats:
    """Average precision [draws, labels] where each sample counts as often as ``weights`` [draws, groups] say.

    ``group`` [samples] is the group of each. NaN where no box of the label is to be found.
    """
    found = np.full((len(weights), len(ranked)), np.nan)
    for number, one in enumerate(ranked):
        to_find = weights @ np.bincount(group, weights=one.to_find, minlength=weights.shape[1])
        there = to_find > 0
        owners = group[one.samples]
        lines = zip(one.right, one.wrong, strict=True)
        parts = [_precision(right, wrong, owners, weights[there], to_find[there]) for right, wrong in lines]
        found[there, number] = np.mean(parts, axis=0)
    return found


def _precision(right: Tensor, wrong: Tensor, owners: Tensor, weights: Floats, to_find: Floats) -> Floats:
    """[draws]: the mean of the best precision at a recall of at least each of COCO's, at one threshold.

    Precision is best at a right detection: so wrong ones are counted up to each of these, group by group.
    """
    groups = weights.shape[1]
    hits = np.flatnonzero(right)
    if not len(hits):
        return np.zeros(len(weights))
    misses = np.flatnonzero(wrong[: hits[-1]])
    places = np.searchsorted(hits, misses) * groups + owners[misses]
    missed = np.bincount(places, minlength=len(hits) * groups).reshape(-1, groups)
    found = np.zeros_like(missed)
    found[np.arange(len(hits)), owners[hits]] = 1
    true = weights @ np.cumsum(found, axis=0, dtype=np.float64).T
    false = weights @ np.cumsum(missed, axis=0, dtype=np.float64).T
    precision = true / (false + true + np.spacing(1))
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    reached = np.searchsorted(_RECALLS, true / to_find[:, None], side="right")
    steps = np.diff(reached, axis=1, prepend=0)
    mean: Floats = np.einsum("ij,ij->i", steps, best) / len(_RECALLS)
    return mean


def ranks(measures: Mapping[str, Tensor], samples: int, thresholds: slice) -> Iterator[Ranked]:
    """Each label's detections, of what the harness keeps.

    Raises:
        ValueError, KeyError, TypeError: it is malformed, or part of it missing.
    """
    scores, rows = measures["map.scores"], series(measures["map.rows"], (len(measures["map.scores"]), 2), "i")
    matches = measures["map.matches"]
    if matches.shape != (len(rows), 10) or matches.dtype != np.uint8 or not np.isfinite(scores).all():
        raise ValueError(f"{matches.dtype} {list(matches.shape)} matches of {len(rows)} detections")
    labelled = series(measures["map.labelled"], (None, 3), "i")
    for label in np.unique(labelled[:, 1]):
        mine = np.flatnonzero(rows[:, 1] == label)
        mine = mine[np.argsort(-scores[mine], kind="stable")]
        found = matches[mine, thresholds].T
        boxes = labelled[labelled[:, 1] == label]
        to_find = np.bincount(boxes[:, 0], weights=boxes[:, 2], minlength=samples).astype(np.int64)
        if len(to_find) > samples or (len(mine) and rows[mine, 0].max() >= samples):
            raise ValueError(f"a sample beyond the {samples}")
        yield Ranked(rows[mine, 0], found == _TRUE, found == 0, to_find)
