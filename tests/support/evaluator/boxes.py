"""How often the interval of average precision holds the truth, of sets of pictures with boxes drawn at random.

``python -m tests.support.evaluator.boxes`` prints it of every sort of set; with ``truths`` it prints
the metrics of very many pictures.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchlock.evaluator.harness.datasets import Boxes
from benchlock.evaluator.harness.quality.detection import evaluate
from benchlock.evaluator.statistics.quality_metrics import THRESHOLDS, average_precision

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Measures = Mapping[str, npt.NDArray[Any]]

PICTURES = 30
DETECTORS = ("blind", "good", "bad")
_SEED_OF_TRUTH, _PICTURES_OF_TRUTH = 99999, {3: 20000, 12: 30000}
_FIRST = 500_000  # beyond the seeds of the sets by which the interval was chosen


@dataclass(frozen=True, slots=True)
class Drawn:
    """Sets of so many ``pictures``, whose boxes are of so many ``classes``: alike often, or of 12 the k-th as 1 / k².

    The scores of the detector ``blind`` say nothing of what is right; those of ``good`` and ``bad`` do.
    """

    detector: str
    pictures: int
    classes: int = 3

    @property
    def rare(self) -> bool:
        return self.classes > 3

    @property
    def name(self) -> str:
        return f"{self.detector}, {self.pictures} pictures, {self.classes} classes"


FEW, RARE = Drawn("blind", PICTURES), Drawn("blind", PICTURES, 12)
_SETS = {(10, 3): 400, (30, 3): 400, (30, 12): 400, (100, 3): 200, (100, 12): 200, (300, 3): 100}
_TRUTHS: Mapping[tuple[str, int], Mapping[str, tuple[float, ...]]] = {
    ("blind", 3): {
        "map": (0.0834, 0.0854, 0.0826),
        "map_50": (0.2421, 0.2494, 0.2415),
    },
    ("blind", 12): {
        "map": (0.121, 0.0987, 0.0696, 0.0488, 0.0352, 0.0283, 0.023, 0.0173, 0.0126, 0.012, 0.0106, 0.0078),
        "map_50": (0.3571, 0.2844, 0.2038, 0.1446, 0.101, 0.0777, 0.0645, 0.0501, 0.0375, 0.0359, 0.0326, 0.025),
    },
    ("good", 3): {
        "map": (0.539, 0.5351, 0.5355),
        "map_50": (0.8569, 0.8544, 0.8551),
    },
    ("good", 12): {
        "map": (0.5357, 0.5346, 0.5328, 0.5316, 0.5225, 0.5245, 0.5279, 0.5138, 0.5067, 0.5165, 0.4876, 0.4733),
        "map_50": (0.8502, 0.8481, 0.8421, 0.842, 0.8391, 0.8339, 0.8413, 0.8079, 0.797, 0.7988, 0.7732, 0.7691),
    },
    ("bad", 3): {
        "map": (0.0488, 0.0482, 0.0523),
        "map_50": (0.1827, 0.1861, 0.1895),
    },
    ("bad", 12): {
        "map": (0.0474, 0.0485, 0.0428, 0.043, 0.0414, 0.0376, 0.0358, 0.0369, 0.0274, 0.0331, 0.0151, 0.026),
        "map_50": (0.1794, 0.1843, 0.1675, 0.1636, 0.1601, 0.1423, 0.1262, 0.1287, 0.1, 0.1121, 0.0593, 0.0975),
    },
}
"""Of the detector and the number of classes: what the metrics are of very many pictures, class by class."""


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
        found = _blind if of.detector == "blind" else _seeing
        rows += [[picture, *row] for row in found(random, of, classes, xyxy)]
    return np.asarray(rows, np.float64), labels


def _blind(random: np.random.Generator, of: Drawn, classes: Integers, xyxy: Floats) -> Iterator[list[float]]:
    for label, box in zip(classes, xyxy, strict=True):
        for _ in range(int(random.integers(0, 3))):
            found = label if random.random() < 0.8 else random.integers(1, of.classes + 2)
            yield [float(found), round(random.random(), 2), *(box + random.normal(0, 3, 4))]
    yield [float(random.integers(1, of.classes + 1)), random.random(), 5, 5, 30, 30]


def _seeing(random: np.random.Generator, of: Drawn, classes: Integers, xyxy: Floats) -> Iterator[list[float]]:
    odds = 1.0 / np.arange(1, of.classes + 1) ** 2
    missed, named, off, scored = (0.08, 0.95, 1.2, 5) if of.detector == "good" else (0.4, 0.7, 4.0, 3)
    for label, box in zip(classes, xyxy, strict=True):
        if random.random() < missed:
            continue
        right = random.random() < named
        found = label if right else random.integers(1, of.classes + 1)
        yield [float(found), random.beta(scored, 2) if right else random.beta(2, 4), *(box + random.normal(0, off, 4))]
    for _ in range(random.poisson(1.0)):
        corner = random.uniform(0, 60, 2)
        found = 1 + random.choice(of.classes, p=odds / odds.sum()) if of.rare else random.integers(1, of.classes + 1)
        yield [float(found), random.beta(2, 5), *corner, *(corner + random.uniform(8, 40, 2))]


def truths_of(drawn: Drawn) -> dict[str, tuple[float, ...]]:
    """What the metrics are of very many such pictures, class by class."""
    pictures = _PICTURES_OF_TRUTH[drawn.classes]
    precision, _ = evaluate(*detections_of(_SEED_OF_TRUTH, pictures, drawn))
    parts = {metric: precision[part, :, : drawn.classes].mean(axis=(0, 1)) for metric, part in THRESHOLDS.items()}
    return {metric: tuple(round(float(one), 4) for one in part) for metric, part in parts.items()}


def measures_of(drawn: Drawn, sets: int) -> Iterator[Measures]:
    """What each of so many sets adds to the metrics."""
    return (evaluate(*detections_of(_FIRST + seed, drawn.pictures, drawn))[1] for seed in range(sets))


@dataclass(slots=True)
class Coverage:
    """Of how many sets the interval of a run holds the truth, of the classes that the set shows and of all classes.

    ``width`` is the mean.
    """

    sets: int = 0
    shown: int = 0
    every: int = 0
    width: float = 0.0


def coverage_of(drawn: Drawn, sets: int) -> dict[str, Coverage]:
    """Of every metric."""
    found = {metric: Coverage() for metric in THRESHOLDS}
    for measures in measures_of(drawn, sets):
        labelled = measures["map.labelled"]
        shown = np.unique(labelled[labelled[:, 2] > 0, 1]) - 1
        for metric, one in found.items():
            truths = np.asarray(_TRUTHS[drawn.detector, drawn.classes][metric])
            _, ci = average_precision(measures, drawn.pictures, THRESHOLDS[metric])
            assert ci.low is not None
            assert ci.high is not None
            one.sets += 1
            one.shown += bool(ci.low <= truths[shown].mean() <= ci.high)
            one.every += bool(ci.low <= truths.mean() <= ci.high)
            one.width += (ci.high - ci.low) / sets
    return found


def _print_coverage(drawn: Drawn, sets: int) -> None:
    for metric, one in coverage_of(drawn, sets).items():
        text = f"{drawn.name}, {metric}: of {sets} sets {one.shown / sets:.1%}, of all classes {one.every / sets:.1%}"
        sys.stdout.write(f"{text}, width {one.width:.3f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:] == ["truths"]:
        for kind in (FEW, RARE):
            for name in DETECTORS:
                sys.stdout.write(f"{name}, {kind.classes} classes: {truths_of(replace(kind, detector=name))}\n")
    else:
        for (pictures, classes), sets in _SETS.items():
            for name in DETECTORS:
                _print_coverage(Drawn(name, pictures, classes), sets)
