"""How often intervals of quality contain the true value, and how often paired tests err or find a difference."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import special

from benchlock.evaluator.statistics.confidence_intervals import fraction, mean_iou_interval, share_interval
from benchlock.evaluator.statistics.equivalence import judge_quality
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.evaluator.statistics.paired_tests import Measures, PairedTests, compare_decisions, compare_measures
from benchlock.evaluator.statistics.quality_metrics import bootstrap_mean_iou, bootstrap_share
from benchmarks.simulation.tables import markdown, percent

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Generator = np.random.Generator

SIZES = (10, 20, 30, 60, 100, 300)
SEED = 23
_TIMES = 500
_TIMES_BOOTSTRAP = 100
_TIMES_EQUAL, _TIMES_WORSE = 1000, 200
_OF_TRUTH = 200_000


@dataclass(frozen=True, slots=True)
class Masks:
    """A kind of masks: ``draw`` gives intersections and unions [samples, classes] in pixels."""

    name: str
    draw: Callable[[Generator, int], tuple[Floats, Floats]]


@cache
def find_truth(masks: Masks) -> Floats:
    """Return the IoU of each class over very many samples."""
    common, union = masks.draw(np.random.default_rng(SEED), _OF_TRUTH)
    found: Floats = common.sum(axis=0) / union.sum(axis=0)
    return found


@dataclass(frozen=True, slots=True)
class Decisions:
    """A kind of samples with several decisions each.

    Attributes:
        name: As tables show it.
        share: The share of right decisions.
        alike: The correlation of decisions of one sample.
        decided: Returns how many decisions each of so many samples has.
    """

    name: str
    share: float
    alike: float
    decided: Callable[[Generator, int], Integers]

    def draw(self, random: Generator, samples: int) -> Integers:
        """Return int64 [samples, 2]: right decisions and all of them."""
        decided = self.decided(random, samples)
        spread = 1 / self.alike - 1
        right = random.binomial(decided, random.beta(self.share * spread, (1 - self.share) * spread, samples))
        return np.stack([right, decided], axis=1).astype(np.int64)


def _sized(random: Generator, shape: tuple[int, int], share: float | Floats, spread: float) -> Floats:
    """Return unions of lognormal sizes, of classes that a sample shows with the chance ``share``."""
    sizes: Floats = np.where(random.random(shape) < share, np.ceil(random.lognormal(6, spread, shape)), 0.0)
    return sizes


def _alike(random: Generator, samples: int) -> tuple[Floats, Floats]:
    union = np.where(random.random((samples, 4)) < 0.7, random.integers(10, 400, (samples, 4)), 0).astype(np.float64)
    return np.floor(union * random.beta(6, 2, union.shape)), union


def _heavy(random: Generator, samples: int) -> tuple[Floats, Floats]:
    union = _sized(random, (samples, 4), 0.7, 1.5)
    return np.floor(union * random.beta(3, 1, union.shape)), union


def _dependent(random: Generator, samples: int) -> tuple[Floats, Floats]:
    """In a sample that is hard, all classes are."""
    union = _sized(random, (samples, 4), 0.7, 1.0)
    noise = 0.8 * random.normal(size=(samples, 1)) + 0.6 * random.normal(size=union.shape)
    return np.floor(union * special.ndtr(noise + 0.8)), union


def _large_are_easy(random: Generator, samples: int) -> tuple[Floats, Floats]:
    union = _sized(random, (samples, 4), 0.6, 1.2)
    ease = (np.log(np.maximum(union, 1)) - 6) * 0.6 + 0.3 + 0.6 * random.normal(size=union.shape)
    return np.floor(union * special.ndtr(ease)), union


def _seldom_wrong(random: Generator, samples: int) -> tuple[Floats, Floats]:
    union = _sized(random, (samples, 3), 0.8, 0.8)
    is_wrong = random.random(union.shape) < 0.05
    shares = np.where(is_wrong, random.beta(2, 2, union.shape), random.beta(60, 2, union.shape))
    return np.floor(union * shares), union


def _rare(random: Generator, samples: int) -> tuple[Floats, Floats]:
    union = _sized(random, (samples, 12), np.minimum(1.0, 1.2 / np.arange(1, 13)), 1.0)
    return np.floor(union * random.beta(4, 2, union.shape)), union


def _binary(random: Generator, samples: int) -> tuple[Floats, Floats]:
    """Three of ten samples show the object; it is missed in 15 % of these, and seen in 30 % of all where it is not."""
    size = np.where(random.random(samples) < 0.3, np.minimum(np.ceil(random.lognormal(7, 1, samples)), 30_000), 0.0)
    seen = np.where(random.random(samples) < 0.15, 0.0, random.beta(8, 2, samples))
    extra = np.where(random.random(samples) < 0.3, np.minimum(np.ceil(random.lognormal(4, 1, samples)), 30_000), 0.0)
    common, union = np.floor(size * seen), size + extra
    rest = 65_536 - union
    return np.stack([common, rest], axis=1), np.stack([union, rest + union - common], axis=1)


MASKS = (
    Masks("4 classes, of like sizes", _alike),
    Masks("4 classes, few large objects", _heavy),
    Masks("4 classes, hard samples", _dependent),
    Masks("4 classes, large objects are easy", _large_are_easy),
    Masks("3 classes, seldom wrong", _seldom_wrong),
    Masks("12 classes, most rare", _rare),
    Masks("an object in 3 of 10 samples", _binary),
)


def _five(_: Generator, samples: int) -> Integers:
    return np.full(samples, 5, np.int64)


def _uneven(random: Generator, samples: int) -> Integers:
    return np.ceil(random.lognormal(1.5, 0.9, samples)).astype(np.int64)


DECISIONS = tuple(
    Decisions(f"{name}, {share:.0%} right, correlation {alike:g}", share, alike, decided)
    for name, decided in (("5 a sample", _five), ("1 to 60 a sample", _uneven))
    for share in (0.6, 0.9, 0.97)
    for alike in (0.05, 0.3, 0.9)
)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of simulated sets: the share with an interval, of these the share with the true value inside; the mean width."""

    given: float
    held: float
    width: float


def coverage_of_masks(masks: Masks, samples: int, times: int = _TIMES, *, bootstrap: bool = False) -> Coverage:
    """Return how often the interval of ``miou`` holds that of very many samples, of the classes that a set shows."""
    random, truth = np.random.default_rng([SEED, samples]), find_truth(masks)

    def once() -> tuple[Interval, float]:
        common, union = masks.draw(random, samples)
        where = np.argwhere(union > 0)
        rows = np.column_stack([where, common[union > 0], union[union > 0]]).astype(np.int64)
        ci = bootstrap_mean_iou(rows, samples) if bootstrap else mean_iou_interval(rows, samples)
        return ci, float(truth[union.sum(axis=0) > 0].mean())

    return _coverage([once() for _ in range(times)])


def coverage_of_decisions(kind: Decisions, samples: int, times: int = _TIMES, *, bootstrap: bool = False) -> Coverage:
    """Return how often the interval of decisions that are kept apart holds the share of very many samples."""
    random = np.random.default_rng([SEED, samples])
    drawn = (kind.draw(random, samples) for _ in range(times))
    return _coverage([((bootstrap_share if bootstrap else share_interval)(counts), kind.share) for counts in drawn])


def _coverage(found: Sequence[tuple[Interval, float]]) -> Coverage:
    given = [(ci.low, ci.high, truth) for ci, truth in found if ci.low is not None and ci.high is not None]
    if not given:
        return Coverage(0.0, float("nan"), float("nan"))
    low, high, truth = np.array(given).T
    return Coverage(
        len(given) / len(found), float(((low <= truth) & (truth <= high)).mean()), float((high - low).mean())
    )


def draw_decisions(
    random: Generator, samples: int, discordant: float, lead: float
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Draw which samples two models decide right.

    Args:
        random: The generator.
        samples: How many samples there are.
        discordant: The share of samples that one model alone decides right.
        lead: What share of these the first model decides right.
    """
    chance = random.random(samples)
    first, second = chance < discordant * lead, (chance >= discordant * lead) & (chance < discordant)
    both = (chance >= discordant) & (random.random(samples) < 0.8)
    return first | both, second | both


def answer_of_decisions(random: Generator, samples: int, discordant: float, lead: float) -> tuple[bool, bool]:
    """Return whether two models are called different: in pairs, and by the intervals of both values."""
    first, second = draw_decisions(random, samples, discordant, lead)
    a, b = (
        Metric("top1", float(one.mean()), "fraction", "higher", samples, fraction(int(one.sum()), samples), 2)
        for one in (first, second)
    )
    tests = PairedTests({"top1": compare_decisions(first, second)})
    judged = (judge_quality(a, b, 1, None, one) for one in (tests, PairedTests()))
    in_pairs, apart = (one.answer == "different" for one in judged)
    return in_pairs, apart


def draw_measures(metric: str, random: Generator, samples: int, change: float) -> tuple[Measures, ...]:
    """Draw what each sample adds to a metric of two models: hard samples are hard for both, the second is worse."""
    hardness = random.normal(size=samples)
    noise = random.normal(size=(2, samples))
    if metric == "map":
        shifts = np.array([[0.0], [4 * change]])
        return _draw_detections(random, special.ndtr(hardness + 0.8 + 0.3 * noise - shifts))
    if metric in ("mae", "rmse"):
        errors = np.exp(hardness + 0.3 * noise) * np.array([[1.0], [1 + change]])
        return tuple({metric: one} for one in (errors**2 if metric == "rmse" else errors))
    if metric == "top1":
        chances = special.ndtr(hardness + 0.3 * noise + np.array([[1.0], [1 - 4 * change]]))
        return tuple({metric: np.stack([random.binomial(5, one), np.full(samples, 5)], axis=1)} for one in chances)
    union = random.integers(10, 400, (samples, 3))
    ease = hardness[:, np.newaxis] + 0.8
    rows = []
    for model, shift in enumerate((0.0, 4 * change)):
        common = np.floor(union * special.ndtr(ease + 0.3 * noise[model][:, np.newaxis] - shift))
        numbers = np.indices(union.shape).reshape(2, -1)
        rows.append({metric: np.column_stack([*numbers, common.ravel(), union.ravel()]).astype(np.int64)})
    return tuple(rows)


def _draw_detections(random: Generator, ease: Floats) -> tuple[Measures, ...]:
    """Draw boxes of three classes and the detections of each model, whose IoU follows ``ease`` [models, samples].

    Each box has a detection, and each picture one more that is wrong, mostly with a lower score.
    """
    samples = ease.shape[1]
    boxes = random.poisson(0.7, (samples, 3))
    places = np.indices(boxes.shape).reshape(2, -1).T
    owners = np.repeat(places, boxes.ravel(), axis=0)
    found = []
    for chances in ease:
        wrong = np.column_stack([np.arange(samples), random.integers(0, 3, samples)])
        reached = np.concatenate([random.binomial(10, chances[owners[:, 0]]), np.zeros(samples, np.int64)])
        measures = {
            "map.rows": np.concatenate([owners, wrong]),
            "map.scores": np.concatenate([random.beta(4, 2, len(owners)), random.beta(2, 4, samples)]),
            "map.matches": (np.arange(10) < reached[:, np.newaxis]).astype(np.uint8),
            "map.labelled": np.column_stack([places, boxes.ravel()])[boxes.ravel() > 0],
        }
        found.append(measures)
    return tuple(found)


def share_different(metric: str, samples: int, change: float, times: int) -> float:
    """Return how often two models are called different in pairs, of which the second is worse by ``change``."""
    random = np.random.default_rng([SEED, samples])
    drawn = (draw_measures(metric, random, samples, change) for _ in range(times))
    found = [compare_measures(metric, first, second, samples) for first, second in drawn]
    return sum(one.is_significant for one in found) / times


def tables() -> Iterator[str]:
    """Yield the tables of this module."""
    sizes = tuple(f"{size} samples" for size in SIZES)
    yield "`miou`: how often the interval contains the true value (its mean width):"
    header = ("masks", *sizes, "version 1, 30 samples")
    yield markdown(header, (_coverage_row(one, coverage_of_masks, 30) for one in MASKS))
    yield "`top1` of decisions that are kept apart: how often the interval contains the true value (its mean width):"
    header = ("decisions", *sizes, "version 1, 20 samples")
    yield markdown(header, (_coverage_row(one, coverage_of_decisions, 20) for one in DECISIONS))
    yield "`top1` of two models on the same samples, called different:"
    yield markdown(
        ("samples", "one alone is right", "of these the first", "in pairs", "by both intervals"), _decision_rows()
    )
    yield "Other metrics of two models on the same samples, called different in pairs:"
    header = ("metric", *(f"{size} samples, {kind}" for size in (20, 100) for kind in ("equal", "worse")))
    yield markdown(header, map(_measure_row, ("miou", "map", "top1", "mae", "rmse")))


def _coverage_row(kind: Masks | Decisions, coverage: Callable[..., Coverage], size: int) -> Sequence[str]:
    """Return the coverage at each number of samples, and that of the bootstrap of version 1 at one of them."""
    cells = [
        f"{percent(found.held)} ({found.width:.2f})" if found.given else "null"
        for found in (coverage(kind, one) for one in SIZES)
    ]
    return kind.name, *cells, percent(coverage(kind, size, _TIMES_BOOTSTRAP, bootstrap=True).held)


def _decision_rows() -> Iterator[Sequence[str]]:
    for samples, discordant, lead, times in (
        (30, 0.3, 0.5, 2000),
        (200, 0.1, 0.5, 2000),
        (1000, 0.05, 0.5, 2000),
        (10_000, 0.05, 0.5, 1000),
        (200, 0.1, 0.8, 2000),
        (1000, 0.05, 0.7, 2000),
        (10_000, 0.05, 0.55, 1000),
        (10_000, 0.05, 0.6, 1000),
    ):
        random = np.random.default_rng([SEED, samples])
        found = np.array([answer_of_decisions(random, samples, discordant, lead) for _ in range(times)])
        yield f"{samples:,}", f"{discordant:.0%}", f"{lead:.0%}", *map(percent, found.mean(axis=0))


def _measure_row(metric: str) -> Sequence[str]:
    kinds = ((0.0, _TIMES_EQUAL), (0.1, _TIMES_WORSE))
    shares = (share_different(metric, size, change, times) for size in (20, 100) for change, times in kinds)
    return f"{metric} (5 decisions a sample)" if metric == "top1" else metric, *map(percent, shares)
