"""Results of classes: equal to scikit-learn's, from the cells that a record keeps."""

import numpy as np
import pytest
from msgspec.structs import replace
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from benchlock.evaluator.evidence import class_details
from benchlock.evaluator.evidence.class_details import describe_classes, read_classes
from benchlock.evaluator.harness.core.job import UNDECIDED
from tests.support.resolution.variants import variant

LOCK = variant({}).lock
OF_TODAY = replace(LOCK, harness=replace(LOCK.harness, version="1.4.0"))


def test_the_results_of_classes_are_those_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    labels, predicted = random.integers(0, 5, 200), random.integers(0, 6, 200)
    found = read_classes(describe_classes(OF_TODAY, np.column_stack([labels, predicted])))
    matrix = np.zeros((6, 6), int)
    for label, decision, count in found.confusion:
        matrix[label, decision] = count
    assert np.array_equal(matrix, confusion_matrix(labels, predicted, labels=range(6)))
    precision, recall, f1, support = precision_recall_fscore_support(labels, predicted, zero_division=0)
    for each in found.per_class:
        assert each.samples == support[each.label]
        assert (each.precision or 0) == pytest.approx(precision[each.label])
        assert (each.recall or 0) == pytest.approx(recall[each.label])
        assert each.f1 == pytest.approx(f1[each.label])


def test_a_class_that_is_no_label_has_no_recall_and_no_decision_is_no_class() -> None:
    decided = np.array([[0, 0], [0, 7], [0, 0], [0, UNDECIDED], [0, 0]])
    found = read_classes(describe_classes(OF_TODAY, decided))
    right, other = found.per_class
    assert found.confusion == ((0, None, 1), (0, 0, 3), (0, 7, 1))
    assert (right.samples, right.predicted, right.recall, right.precision) == (5, 3, 0.6, 1.0)
    assert (other.label, other.samples, other.recall, other.precision, other.f1) == (7, 0, None, 0.0, 0.0)


def test_records_of_older_harnesses_and_of_calls_have_no_classes() -> None:
    decided = np.zeros((3, 2), np.int64)
    old = replace(LOCK, harness=replace(LOCK.harness, version="1.3.0"))
    assert describe_classes(old, decided) == {}
    assert describe_classes(OF_TODAY, None) == {}


def test_a_matrix_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_details, "MOST_CELLS", 2)
    reason = "there are 2 classes and 3 cells of the confusion matrix; the maximum of each is 2"
    found = describe_classes(OF_TODAY, np.array([[0, 0], [0, 1], [1, 1]]))
    assert found == {"classes": {"unavailable": reason, "per_class": [[0, 2, 1, 1], [1, 1, 2, 1]]}}
    assert read_classes(found).unavailable == reason
    assert [each.f1 for each in read_classes(found).per_class] == [pytest.approx(2 / 3), pytest.approx(2 / 3)]
    assert describe_classes(OF_TODAY, np.arange(6).reshape(3, 2)) == {
        "classes": {"unavailable": reason.replace("2 classes", "6 classes")}
    }


@pytest.mark.parametrize(
    "part",
    [
        {"confusion": [[1, 2]]},
        {"confusion": 5},
        {"confusion": [[True, 1, 1]]},
        {"per_class": [[1, 0, 0.5, 0]]},
        [],
        None,
    ],
)
def test_malformed_results_of_a_record_are_none(part: object) -> None:
    empty = read_classes({})
    assert read_classes({"classes": part}) == empty
    assert read_classes({"classes": {"per_class": [[1, 0, 0, 0]]}}).per_class[0].f1 is None
