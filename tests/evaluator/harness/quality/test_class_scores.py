"""Metrics of classes and probabilities: equal to scikit-learn's and to published formulas, and what each refuses."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import metrics as sklearn

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job import CLASS_METRICS, UNDECIDED
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.quality.class_scores import ClassTally, auroc, average_precision, bin_of, f1
from benchlock.evaluator.harness.quality.tally import open_tally

Scores = NDArray[np.float64]
SAMPLES = 300


def tally_of(job: dict[str, Any], metrics: Sequence[str], **output: Any) -> ClassTally:  # noqa: ANN401 - keys
    """The tally of a job whose output says what is given."""
    job["metrics"] = list(metrics)
    job["model"]["outputs"] = [{"name": "scores", "type": "class-scores"} | output]
    tally = open_tally(parse_job(job))
    assert isinstance(tally, ClassTally)
    return tally


def drawn(classes: int, seed: int = 0) -> tuple[NDArray[np.int64], Scores]:
    """Labels and probabilities of a fair classifier, rounded so that some are equal."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, SAMPLES)
    powers = np.exp(random.normal(size=(SAMPLES, classes)) + 1.5 * np.eye(classes)[labels])
    return labels, np.round(powers / powers.sum(axis=1, keepdims=True), 2)


def values_of(tally: ClassTally) -> dict[str, float]:
    return {name: entry["value"] for name, entry in tally.document().items()}


@pytest.mark.parametrize("classes", [3, 10])
def test_metrics_of_many_classes_are_those_of_scikit_learn(job: dict[str, Any], classes: int) -> None:
    labels, scores = drawn(classes)
    tally = tally_of(job, CLASS_METRICS, label_offset=0)
    assert tally.add_all(scores, labels.tolist())
    decided = scores.argmax(axis=1)
    hot = np.eye(classes)[labels]
    found = values_of(tally)
    assert found == {
        "f1_macro": pytest.approx(sklearn.f1_score(labels, decided, average="macro")),
        "f1_weighted": pytest.approx(sklearn.f1_score(labels, decided, average="weighted")),
        "auroc": pytest.approx(sklearn.roc_auc_score(hot, scores, average="macro")),
        "average_precision": pytest.approx(sklearn.average_precision_score(hot, scores, average="macro")),
        "ece_15": pytest.approx(published_ece(scores.max(axis=1), decided == labels)),
        "brier": pytest.approx(np.square(scores - hot).sum() / SAMPLES),
    }
    normal = scores / scores.sum(axis=1, keepdims=True)
    again = tally_of(job, ["brier"])
    again.add_all(normal, labels.tolist())
    assert values_of(again)["brier"] == pytest.approx(
        sklearn.brier_score_loss(labels, normal, scale_by_half=False, labels=range(classes))
    )


def published_ece(confidence: Scores, right: NDArray[np.bool_]) -> float:
    """Guo et al., ICML 2017, equation 3, bin by bin."""
    error = 0.0
    for number in range(15):
        inside = (confidence > number / 15) & (confidence <= (number + 1) / 15)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return error


def test_a_bin_contains_its_upper_end() -> None:
    ends = np.arange(16) / 15
    assert bin_of(ends).tolist() == [0, *range(15)]
    assert bin_of(np.nextafter(ends[:-1], 1)).tolist() == list(range(15))


def test_probabilities_that_add_up_to_more_than_1_keep_the_brier_score_within_2(job: dict[str, Any]) -> None:
    tally = tally_of(job, ["brier"])
    assert tally.add_all(np.array([[1.0, 0.04, 0.0]] * 2), [2, 2])
    assert values_of(tally) == {"brier": 2.0}


@pytest.mark.parametrize("width", [1, 2])
def test_metrics_of_two_classes_are_those_of_the_second(job: dict[str, Any], width: int) -> None:
    labels, scores = drawn(2)
    scores[:, 0] = 1 - scores[:, 1]
    tally = tally_of(job, ["auroc", "average_precision", "brier"], **({"threshold": 0.5} if width == 1 else {}))
    for label, row in zip(labels.tolist(), scores, strict=True):
        tally.add({"scores": row[2 - width :]}, label, None)
    assert values_of(tally) == {
        "auroc": pytest.approx(sklearn.roc_auc_score(labels, scores[:, 1])),
        "average_precision": pytest.approx(sklearn.average_precision_score(labels, scores[:, 1])),
        "brier": pytest.approx(2 * sklearn.brier_score_loss(labels, scores[:, 1])),
    }


def test_samples_one_by_one_give_the_same_as_all_at_once(job: dict[str, Any]) -> None:
    labels, scores = drawn(4)
    one, all_ = (tally_of(job, ["top1", *CLASS_METRICS], label_offset=1) for _ in range(2))
    for label, row in zip(labels.tolist(), scores, strict=True):
        one.add({"scores": row}, label - 1, None)
    assert all_.add_all(scores, (labels - 1).tolist())
    assert one.document() == all_.document()
    for name, values in one.samples().items():
        assert np.array_equal(values, all_.samples()[name])


@pytest.mark.parametrize("metric", ["auroc", "average_precision", "f1_weighted", "f1_macro"])
def test_the_influence_is_the_derivative_by_the_weight(metric: str) -> None:
    labels, scores = drawn(3)
    decided = scores.argmax(axis=1)

    def weighted(weights: Scores) -> float:
        if metric.startswith("f1"):
            return float(sklearn.f1_score(labels, decided, average=metric[3:], sample_weight=weights))
        function = sklearn.roc_auc_score if metric == "auroc" else sklearn.average_precision_score
        return float(function(labels == 1, scores[:, 1], sample_weight=weights))

    if metric.startswith("f1"):
        parts = f1(np.column_stack([labels, decided]), by_samples=metric == "f1_weighted")
    else:
        parts = (auroc if metric == "auroc" else average_precision)(labels == 1, scores[:, 1])
    assert parts[:, 0].sum() == pytest.approx(weighted(np.ones(SAMPLES)))
    assert parts[:, 1].sum() == pytest.approx(0, abs=1e-12)
    for sample in (0, 5, 17, 123):
        heavier = np.ones(SAMPLES)
        heavier[sample] += 1e-5
        slope = (weighted(heavier) - weighted(np.ones(SAMPLES))) / 1e-5
        assert parts[sample, 1] == pytest.approx(slope, abs=1e-6)


def test_a_sample_without_a_decision_has_a_label_and_no_prediction(job: dict[str, Any]) -> None:
    tally = tally_of(job, ["f1_macro"], allow_non_finite=True)
    assert tally.add_all(np.array([[0.1, 0.9], [np.nan, 0.2], [0.6, 0.4]]), [1, 1, 0])
    decided = tally.decided()
    assert decided is not None
    assert decided.tolist() == [[1, 1], [1, UNDECIDED], [0, 0]]
    assert values_of(tally) == {"f1_macro": pytest.approx((2 / 3 + 1) / 2)}


@pytest.mark.parametrize(
    ("metric", "scores", "labels", "message"),
    [
        ("auroc", [[-2.0, 3.0], [1.0, 0.5]], [0, 1], "auroc needs probabilities, but the scores are from -2 to 3"),
        ("auroc", [[np.nan, 0.5], [1.0, 0.5]], [0, 1], "needs probabilities, but the scores are from nan"),
        ("ece_15", [[0.9, 0.8], [0.9, 0.1]], [0, 1], "miss the sum 1 by 0.7"),
        ("brier", [[0.9, 0.1], [0.9, 0.1]], [0, 2], "no score for the label 2"),
        ("average_precision", [[0.9, 0.1], [0.9, 0.1]], [1, 1], "at least two classes, but all have label 1"),
    ],
)
def test_what_has_no_value_is_refused(
    job: dict[str, Any], metric: str, scores: list[list[float]], labels: list[int], message: str
) -> None:
    tally = tally_of(job, [metric], allow_non_finite=True)
    tally.add_all(np.array(scores), labels)
    with pytest.raises(Failure, match=message):
        tally.document()


def test_a_score_that_is_no_probability_ranks_two_classes(job: dict[str, Any]) -> None:
    tally = tally_of(job, ["auroc"], threshold=0.0)
    for value, label in ((-3.0, 0), (2.5, 1), (0.5, 0), (0.4, 1)):
        tally.add({"scores": np.array([value])}, label, None)
    assert values_of(tally) == {"auroc": 0.75}


def test_decisions_of_calls_have_no_metrics_of_classes(job: dict[str, Any]) -> None:
    with pytest.raises(Failure, match="f1_macro needs one decision per sample"):
        tally_of(job, ["f1_macro"], reduce="none")
