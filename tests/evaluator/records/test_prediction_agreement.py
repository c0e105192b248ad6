"""Predictions held against each other: every degree of agreement, and what each is made of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from benchlock.evaluator.records import prediction_agreement
from benchlock.evaluator.records.prediction_agreement import PredictionAgreement, Terms, compare_predictions

Tensor = npt.NDArray[Any]
SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]], np.float32)
CLASSES = Terms("class-scores")
LENIENT = Terms("class-scores", (1e-5, 1e-4))


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., PredictionAgreement]:
    def made(
        a: dict[str, Tensor], b: dict[str, Tensor], terms: Terms = CLASSES, *, other: bool = False
    ) -> PredictionAgreement:
        save_file(a, tmp_path / "a", {"written": "first"})
        save_file(b, tmp_path / "b", {"written": "second"})
        named = dict.fromkeys((*a, *b), terms) if terms.type != "detections" else {}
        return compare_predictions(tmp_path / "a", tmp_path / "b", named, other_processor=other)

    return made


def moved(amount: float, row: int = 0, column: int = 0) -> Tensor:
    tensor = SCORES.copy()
    tensor[row, column] += amount
    return tensor


def test_equal_bits_are_bit_equal_whatever_the_files_say_besides(compare: Callable[..., PredictionAgreement]) -> None:
    assert compare({"p": SCORES}, {"p": SCORES.copy()}) == PredictionAgreement("bit-equal", (), 3, {1: 0, 5: 0})


@pytest.mark.parametrize(("end", "shapes"), [("rows", [2, 1]), ("shapes", [[1, 4], [1, 5]])])
def test_samples_of_several_shapes_are_counted_by_their_shapes(
    compare: Callable[..., PredictionAgreement], end: str, shapes: list[Any]
) -> None:
    both = {"p": SCORES, f"p.{end}": np.array(shapes, np.int64)}
    assert compare(both, both).samples == 2


def test_a_negative_zero_is_no_zero(compare: Callable[..., PredictionAgreement]) -> None:
    found = compare({"p": np.zeros((1, 2), np.float32)}, {"p": -np.zeros((1, 2), np.float32)})
    assert found.agreement == "different"
    assert "2 of 2 values differ, by 0 at most" in found.reasons[0]


def test_numbers_that_are_none_can_be_bit_equal(compare: Callable[..., PredictionAgreement]) -> None:
    assert compare({"p": moved(np.nan)}, {"p": moved(np.nan)}).agreement == "bit-equal"


@pytest.mark.parametrize("other", [False, True])
def test_within_the_declared_tolerance(compare: Callable[..., PredictionAgreement], *, other: bool) -> None:
    found = compare({"p": SCORES}, {"p": moved(1e-5)}, LENIENT, other=other)
    assert found.agreement == "within tolerance"
    assert found.reasons == ("output p: 1 of 9 values differ, by 1e-05 at most, all within the declared tolerance",)


@pytest.mark.parametrize("other", [False, True])
def test_beyond_the_declared_tolerance_is_different_on_any_processor(
    compare: Callable[..., PredictionAgreement], *, other: bool
) -> None:
    found = compare({"p": SCORES}, {"p": moved(1e-3)}, LENIENT, other=other)
    assert found.agreement == "different"
    assert "1 of them beyond the declared tolerance" in found.reasons[0]


@pytest.mark.parametrize(
    ("before", "after"), [(0.1, np.nan), (np.nan, 0.1), (0.1, np.inf), (np.inf, 0.1), (np.inf, -np.inf)]
)
def test_no_tolerance_holds_what_is_no_number(
    compare: Callable[..., PredictionAgreement], before: float, after: float
) -> None:
    a, b = SCORES.copy(), SCORES.copy()
    a[0, 0], b[0, 0] = before, after
    found = compare({"p": a}, {"p": b}, LENIENT)
    assert found.agreement == "different"
    assert "some by a non-finite amount" in found.reasons[0]


def test_two_that_are_no_number_and_equal_infinities_do_not_count(compare: Callable[..., PredictionAgreement]) -> None:
    a, b = moved(np.nan), moved(np.nan)
    a[1, 0] = b[1, 0] = np.inf
    b[2, 0] += 1e-6
    assert compare({"p": a}, {"p": b}, LENIENT).agreement == "within tolerance"


@pytest.mark.parametrize(
    ("terms", "shape"),
    [(CLASSES, (3, 3)), (Terms("class-scores", threshold=0.5), (3, 1)), (Terms("class-scores", calls=True), (3, 2, 3))],
)
def test_no_decision_is_made_of_nan(
    compare: Callable[..., PredictionAgreement], terms: Terms, shape: tuple[int, ...]
) -> None:
    nan = np.full(shape, np.nan, np.float32)
    found = compare({"p": nan}, {"p": -nan}, terms, other=True)
    assert found.agreement == "different"
    decisions = shape[0] * shape[1] if terms.calls else 3
    assert f"{decisions} decisions ({decisions} cannot be compared, because of NaN)" in found.reasons[0]
    assert found.changed == {1: decisions, 5: decisions}


def test_without_a_tolerance_equal_processors_must_give_equal_bits(compare: Callable[..., PredictionAgreement]) -> None:
    found = compare({"p": SCORES}, {"p": moved(1e-7)})
    assert found.agreement == "different"
    assert "on the same kind of processor, and no tolerance is declared" in found.reasons[0]


def test_on_another_processor_the_same_decisions_will_do(compare: Callable[..., PredictionAgreement]) -> None:
    found = compare({"p": SCORES}, {"p": moved(0.01)}, other=True)
    assert found.agreement == "same decisions"
    assert "every decision is the same" in found.reasons[0]
    assert found.changed == {1: 0, 5: 0}


def test_on_another_processor_one_other_decision_is_different(compare: Callable[..., PredictionAgreement]) -> None:
    found = compare({"p": SCORES}, {"p": moved(0.9)}, other=True)
    assert found.agreement == "different"
    assert "and 1 decisions" in found.reasons[0]
    assert found.changed[1] == 1


def test_ties_go_to_the_lowest_index(compare: Callable[..., PredictionAgreement]) -> None:
    tied = np.array([[0.5, 0.5]], np.float32)
    first = np.array([[0.6, 0.4]], np.float32)
    assert compare({"p": tied}, {"p": first}, other=True).agreement == "same decisions"
    second = np.array([[0.4, 0.6]], np.float32)
    assert compare({"p": tied}, {"p": second}, other=True).agreement == "different"


def test_the_five_best_are_a_set(compare: Callable[..., PredictionAgreement]) -> None:
    scores = np.array([[9, 8, 7, 6, 5, 4]], np.float32)
    reordered = np.array([[9, 7, 8, 5, 6, 4]], np.float32)
    assert compare({"p": scores}, {"p": reordered}, other=True).changed == {1: 0, 5: 0}
    replaced = np.array([[9, 8, 7, 6, 4, 5]], np.float32)
    assert compare({"p": scores}, {"p": replaced}, other=True).changed == {1: 0, 5: 1}


def test_one_score_is_decided_by_its_threshold(compare: Callable[..., PredictionAgreement]) -> None:
    binary = Terms("class-scores", threshold=0.5)
    scores = np.array([[0.49], [0.9]], np.float32)
    assert compare({"p": scores}, {"p": scores - np.float32(0.01)}, binary, other=True).agreement == "same decisions"
    assert compare({"p": scores}, {"p": scores + np.float32(0.02)}, binary, other=True).agreement == "different"


def test_a_class_index_is_its_own_decision(compare: Callable[..., PredictionAgreement]) -> None:
    index = Terms("class-index")
    found = compare({"p": np.array([3, 4])}, {"p": np.array([3, 5])}, index, other=True)
    assert (found.agreement, found.changed[1]) == ("different", 1)


def test_an_output_without_decisions_leaves_it_to_the_metrics(compare: Callable[..., PredictionAgreement]) -> None:
    found = compare({"p": SCORES}, {"p": moved(1e-7)}, Terms("value"), other=True)
    assert found.agreement is None
    assert "the metrics decide" in found.reasons[0]


def test_the_weakest_output_decides(compare: Callable[..., PredictionAgreement]) -> None:
    a = {"p": SCORES, "q": SCORES}
    assert compare(a, {"p": SCORES, "q": moved(0.01)}, other=True).agreement == "same decisions"
    found = compare(a, {"p": moved(0.9), "q": moved(0.01)}, other=True)
    assert found.agreement == "different"
    assert [reason.split(":")[0] for reason in found.reasons] == ["output p", "output q"]


def test_other_shapes_and_types_are_different(compare: Callable[..., PredictionAgreement]) -> None:
    found = compare({"p": SCORES}, {"p": SCORES[:2]}, LENIENT, other=True)
    assert (found.agreement, found.reasons) == ("different", ("output p: F32[3, 3] became F32[2, 3]",))
    assert compare({"p": SCORES}, {"p": SCORES.astype(np.float64)}, LENIENT, other=True).agreement == "different"


def test_other_outputs_are_different(compare: Callable[..., PredictionAgreement]) -> None:
    found = compare({"p": SCORES}, {"q": SCORES})
    assert (found.agreement, found.reasons) == ("different", ("only one of the runs has the outputs p, q",))


BOXES = np.array([[0, 3, 0.9, 10, 10, 110, 110], [1, 2, 0.8, 0, 0, 50, 100]], np.float32)


@pytest.mark.parametrize(
    ("column", "amount", "agreement"),
    [
        (2, 0.01, "same decisions"),
        (3, 0.5, "same decisions"),
        (3, 2, "different"),
        (1, 1, "different"),
        (0, 1, "different"),
    ],
    ids=["score", "a hair", "two pixels", "class", "sample"],
)
def test_boxes_are_the_same_where_they_overlap_by_99_percent(
    compare: Callable[..., PredictionAgreement], column: int, amount: float, agreement: str
) -> None:
    other = BOXES.copy()
    other[0, column] += amount
    assert compare({"detections": BOXES}, {"detections": other}, Terms("detections"), other=True).agreement == agreement


def test_boxes_in_another_order_are_different(compare: Callable[..., PredictionAgreement]) -> None:
    found = compare({"detections": BOXES}, {"detections": BOXES[::-1].copy()}, Terms("detections"), other=True)
    assert found.agreement == "different"


def test_pieces_add_up(compare: Callable[..., PredictionAgreement], monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    a = random.random((1000, 7)).astype(np.float32)
    b = a.copy()
    b[[3, 500, 999], [1, 2, 3]] += 0.5
    whole = compare({"p": a}, {"p": b}, other=True)
    monkeypatch.setattr(prediction_agreement, "CHUNK_BYTES", 7 * 8 * 13)
    assert compare({"p": a}, {"p": b}, other=True) == whole
    assert "3 of 7000 values differ, by 0.5 at most" in whole.reasons[0]


@pytest.mark.parametrize("content", [b"", b"no predictions", (1 << 60).to_bytes(8, "little") + b"{}"])
def test_what_is_no_file_of_predictions_agrees_with_nothing(content: bytes, tmp_path: Path) -> None:
    """An imported run says of anything that it is its predictions."""
    (tmp_path / "imported").write_bytes(content)
    save_file({"scores": np.zeros((2, 3), np.float32)}, tmp_path / "again")
    agreed = compare_predictions(tmp_path / "imported", tmp_path / "again", {}, other_processor=False)
    assert agreed.agreement == "different"
    assert "cannot read the predictions" in agreed.reasons[0]


FOUND = np.array([[0, 1, 0.9, 10, 10, 50, 50], [2, 1, 0.8, 0, 0, 40, 40]])


@pytest.mark.parametrize(("derived", "agreement"), [(True, "same decisions"), (False, "different")])
def test_detections_of_outputs_that_may_differ_are_judged_by_their_decisions(
    tmp_path: Path, *, derived: bool, agreement: str
) -> None:
    save_file({"detections": FOUND}, tmp_path / "a")
    save_file({"detections": FOUND * np.array([1, 1, 1 + 1e-6, 1 + 1e-5, 1, 1, 1])}, tmp_path / "b")
    terms = {"detections": Terms("detections", derived=derived)}
    found = compare_predictions(tmp_path / "a", tmp_path / "b", terms, other_processor=False)
    assert (found.agreement, found.samples) == (agreement, 0)


@pytest.mark.parametrize("shape", [(2, 3, 4), (6, 4)])
def test_calls_that_are_kept_apart_are_decisions_of_their_own(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """The best class of the last call changes; of all scores of its sample together the best is still the same."""
    before = np.tile(np.array([0.1, 0.2, 0.3, 0.4], np.float32), (6, 1))
    before[3, 1] = 0.9
    after = before.copy()
    after[5, 0] = 0.5
    save_file({"p": before.reshape(shape)}, tmp_path / "a")
    save_file({"p": after.reshape(shape)}, tmp_path / "b")
    terms = {"p": Terms("class-scores", calls=True)}
    found = compare_predictions(tmp_path / "a", tmp_path / "b", terms, other_processor=True)
    assert (found.agreement, found.changed[1]) == ("different", 1)
