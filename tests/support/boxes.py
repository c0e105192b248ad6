"""How often the interval of average precision holds the truth, of sets of pictures with boxes drawn at random.

``python -m tests.support.boxes`` prints it of every sort of set, beside what the basic bootstrap would hold.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluator.harness.datasets import Boxes
from evaluator.harness.quality.boxes import evaluate
from evaluator.statistics.figures import Interval
from evaluator.statistics.quality import _THRESHOLDS, _average_precision, bootstrap, jackknife

Floats = npt.NDArray[np.float64]

PICTURES = 30
_TRUTH, _PICTURES_OF_TRUTH = 999, 2000
_SETS = 100
_DRAWS = 200


@dataclass(frozen=True, slots=True)
class Drawn:
    """Sets of so many ``pictures``, whose boxes are of so many ``classes``: alike often, or the k-th as 1 / k²."""

    name: str
    pictures: int
    classes: int = 3
    rare: bool = False


FEW = Drawn("30 pictures", PICTURES)
MORE = Drawn("100 pictures", 100)
RARE = Drawn("30 pictures in which most of 12 classes are rare", PICTURES, 12, rare=True)


def detections_of(seed: int, pictures: int = PICTURES, of: Drawn = FEW) -> tuple[Floats, list[Boxes]]:
    """Boxes of the classes of ``of``, some crowds, found nearly, wrongly, twice or not at all."""
    random = np.random.default_rng(seed)
    odds = 1.0 / np.arange(1, of.classes + 1) ** 2
    labels, rows = [], []
    for picture in range(pictures):
        count = int(random.integers(0, 6))
        corners = random.uniform(0, 60, (count, 2))
        xyxy = np.hstack([corners, corners + random.uniform(8, 40, (count, 2))])
        if of.rare:
            classes = 1 + random.choice(of.classes, count, p=odds / odds.sum())
        else:
            classes = random.integers(1, of.classes + 1, count)
        areas = np.prod(xyxy[:, 2:] - xyxy[:, :2], axis=1)
        labels.append(Boxes(classes, xyxy, areas, random.random(count) < 0.15))
        for label, box in zip(classes, xyxy, strict=True):
            for _ in range(int(random.integers(0, 3))):
                found = label if random.random() < 0.8 else random.integers(1, of.classes + 2)
                rows.append([picture, found, round(random.random(), 2), *(box + random.normal(0, 3, 4))])
        rows.append([picture, random.integers(1, of.classes + 1), random.random(), 5, 5, 30, 30])
    return np.asarray(rows, np.float64), labels


@cache
def truth_of(drawn: Drawn) -> Mapping[str, float]:
    """What ``map`` and ``map_50`` are of very many such pictures."""
    precision, _ = evaluate(*detections_of(_TRUTH, _PICTURES_OF_TRUTH, drawn))
    parts = {metric: precision[part] for metric, part in _THRESHOLDS.items()}
    return {metric: float(part[part > -1].mean()) for metric, part in parts.items()}


@cache
def measures_of(drawn: Drawn, sets: int) -> tuple[Mapping[str, npt.NDArray[Any]], ...]:
    """What each of so many sets adds to the metrics."""
    return tuple(evaluate(*detections_of(seed, drawn.pictures, drawn))[1] for seed in range(sets))


def held(drawn: Drawn, metric: str, sets: int) -> int:
    """In how many of the sets the interval of a run holds the truth."""
    return sum(_holds(ci, truth_of(drawn)[metric]) for ci in _jackknives(drawn, metric, sets))


def _jackknives(drawn: Drawn, metric: str, sets: int) -> Iterator[Interval]:
    for measures in measures_of(drawn, sets):
        yield jackknife(_average_precision(measures, drawn.pictures, _THRESHOLDS[metric]), drawn.pictures)


def _bootstraps(drawn: Drawn, metric: str, sets: int) -> Iterator[Interval]:
    for measures in measures_of(drawn, sets):
        statistic = _average_precision(measures, drawn.pictures, _THRESHOLDS[metric])
        yield bootstrap(statistic, drawn.pictures, draws=_DRAWS)


def _holds(ci: Interval, truth: float) -> bool:
    assert ci.low is not None
    assert ci.high is not None
    return ci.low <= truth <= ci.high


if __name__ == "__main__":
    for drawn in (FEW, MORE, RARE):
        for metric in _THRESHOLDS:
            others = sum(_holds(ci, truth_of(drawn)[metric]) for ci in _bootstraps(drawn, metric, _SETS))
            told = (
                f"{metric}, {drawn.name}: jackknife {held(drawn, metric, _SETS)}, basic bootstrap {others} of {_SETS}"
            )
            sys.stdout.write(f"{told}\n")
