"""Golden tensors of answers, worked out here with NumPy alone: of one call, of several, of several outputs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.inference.golden_tensors import check_golden
from benchlock.evaluator.harness.inference.pipeline import Pipeline
from tests.evaluator.harness.conftest import JOB
from tests.support.evaluator.sounds import wav

Array = NDArray[Any]
Answer = Callable[[Mapping[str, Array]], dict[str, Array]]

RANDOM = np.random.default_rng(3)
POINTS = RANDOM.normal(size=(4, 5)).astype(np.float32)
WEIGHTS = RANDOM.normal(size=(5, 3)).astype(np.float32)
EXACT = {"largest": 0.0, "absolute": 1e-5, "relative": 0.0}
SOFTMAX: list[dict[str, Any]] = [{"softmax": {"axis": -1}}]


class Answering:
    """A model that is a function of its inputs."""

    in_caller = True
    device = "cpu"
    threads: Mapping[str, int] = {}

    def __init__(self, answer: Answer) -> None:
        self.predict = answer

    def close(self) -> None:
        """Nothing is held."""


def port(name: str, shape: list[int | None], kind: str = "tensor", **more: object) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "dtype": "float32",
        "shape": shape,
        "tolerance": {"absolute": 1e-5, "relative": 0},
        **more,
    }


def checked(
    folder: Path, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]], answer: Answer, **more: object
) -> dict[str, Any]:
    """How near the model comes to ``golden.npz`` in ``folder``."""
    files = [{"path": "model.bin", "role": "graph"}, {"path": "golden.npz", "role": "golden"}]
    described = {"format": "npz", "predictor": "linear", "inputs": inputs, "outputs": outputs, "files": files, **more}
    model = parse_job({**JOB, "model": described, "metrics": ["latency_p50"]}).model
    report = check_golden(model, Answering(answer), Pipeline(model, folder), folder)
    assert report is not None
    return report


def raw(name: str, samples: Any) -> dict[str, Array]:  # noqa: ANN401 - arrays, or the bytes of files
    kept = [np.frombuffer(one, np.uint8) if isinstance(one, bytes) else one for one in samples]
    return {f"raw/{name}/{number}": one for number, one in enumerate(kept)}


def classes(folder: Path, steps: list[dict[str, Any]], answer: Answer) -> dict[str, Any]:
    return checked(folder, [port("x", [None, 5])], [port("scores", [None, 3], steps=steps)], answer)


def in_whole_steps(rounding: Callable[[Array], Array], weights: Array = WEIGHTS) -> Answer:
    """Scores in steps of 1/16, as a quantised graph gives them."""

    def answer(batch: Mapping[str, Array]) -> dict[str, Array]:
        return {"scores": (rounding((batch["x"] @ weights) * 16) / 16).astype(np.float32)}

    return answer


@pytest.fixture
def classified(tmp_path: Path) -> Path:
    """A folder with what a classifier must answer: the exponentials of its scores, over their sum."""
    scores = np.rint(POINTS.astype(np.float64) @ WEIGHTS * 16) / 16
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.savez(tmp_path / "golden.npz", **raw("x", POINTS), **{"output/scores": shares.astype(np.float32)})  # type: ignore[arg-type]
    return tmp_path


def test_answers_that_were_worked_out_by_hand_pass(classified: Path) -> None:
    report = classes(classified, SOFTMAX, in_whole_steps(np.rint))
    assert report["outputs"]["scores"]["largest"] < 1e-6


@pytest.mark.parametrize(
    ("steps", "answer"),
    [
        pytest.param(SOFTMAX, in_whole_steps(np.rint, WEIGHTS * np.float32(1.2)), id="other weights"),
        pytest.param(SOFTMAX, in_whole_steps(np.rint, WEIGHTS[:, [1, 0, 2]]), id="weights in another order"),
        pytest.param([], in_whole_steps(np.rint), id="no output step"),
        pytest.param([{"sigmoid": {}}], in_whole_steps(np.rint), id="another output step"),
        pytest.param([*SOFTMAX, *SOFTMAX], in_whole_steps(np.rint), id="an output step twice"),
        pytest.param(SOFTMAX, in_whole_steps(np.floor), id="another rounding"),
    ],
)
def test_each_known_fault_of_an_answer_is_caught(steps: list[dict[str, Any]], answer: Answer, classified: Path) -> None:
    with pytest.raises(Failure, match=r"output scores deviates in \d of 4 golden samples, most in sample ") as raised:
        classes(classified, steps, answer)
    assert raised.value.kind == "golden"
    assert "look at" not in raised.value.message  # an answer is no picture: nothing about those explains it


SOUNDS = RANDOM.integers(-(2**14), 2**14, (3, 12)).astype(np.int16)


def heard(folder: Path, length: int, answer: Answer, reduce: str = "max") -> dict[str, Any]:
    frames = {"frame": {"length": length, "step": 4, "pad_start": 0, "pad_end": False, "calls": "each"}}
    given = port("sound", [None, length], "audio", steps=[{"decode": {"channels": "mono"}}, frames])
    return checked(folder, [given], [port("peak", [None, 1], reduce=reduce)], answer)


def peak(batch: Mapping[str, Array]) -> dict[str, Array]:
    return {"peak": batch["sound"].max(axis=1, keepdims=True)}


def test_a_sample_of_several_calls_has_the_calls_on_the_second_axis(tmp_path: Path) -> None:
    calls = (SOUNDS / 2**15).astype(np.float32).reshape(3, 3, 4)
    expected = {"input/sound": calls, "output/peak": calls.max(axis=(1, 2))[:, np.newaxis]}
    np.savez(tmp_path / "golden.npz", **raw("sound", map(wav, SOUNDS)), **expected)  # type: ignore[arg-type]
    assert heard(tmp_path, 4, peak) == {
        "samples": 3,
        "inputs": {"sound": EXACT},
        "outputs": {"peak": EXACT},
    }
    with pytest.raises(Failure, match=r"input sound.*expected float32 \[3, 4\], found float32 \[2, 5\]"):
        heard(tmp_path, 5, peak)
    with pytest.raises(Failure, match="output peak deviates"):
        heard(tmp_path, 4, peak, reduce="last")


def test_of_several_inputs_the_one_that_deviates_is_named(tmp_path: Path) -> None:
    left, right = POINTS, np.ascontiguousarray(POINTS[::-1])
    expected = {"input/a": left, "input/b": right * np.float32(2), "output/sum": left + right * np.float32(2)}
    np.savez(tmp_path / "golden.npz", **raw("a", left), **raw("b", right), **expected)  # type: ignore[arg-type]

    def check(factor: float) -> dict[str, Any]:
        steps = [{"scale": {"factor": factor}}]
        ports = [port("a", [None, 5], field="left"), port("b", [None, 5], field="right", steps=steps)]
        return checked(tmp_path, ports, [port("sum", [None, 5])], lambda batch: {"sum": batch["a"] + batch["b"]})

    report = check(2)
    assert (sorted(report["inputs"]), sorted(report["outputs"])) == (["a", "b"], ["sum"])
    with pytest.raises(Failure, match=r"input b deviates in 4 of 4 golden samples.*times 1.5: check scale"):
        check(3)


def test_a_detector_is_held_to_its_outputs_as_it_gives_them(tmp_path: Path) -> None:
    """Boxes and scores before they are made detections: a threshold cannot hide what deviates below it."""
    corners = RANDOM.uniform(0, 8, (4, 6, 2))
    boxes = np.concatenate([corners, corners + 2], axis=2).astype(np.float32)
    scores = RANDOM.uniform(0, 0.4, (4, 6, 1)).astype(np.float32)
    expected = {"output/boxes": boxes, "output/scores": scores}
    np.savez(tmp_path / "golden.npz", **raw("x", POINTS), **expected)  # type: ignore[arg-type]
    terms = {
        "type": "detections",
        "boxes": "boxes",
        "scores": "scores",
        "box_format": "xyxy-absolute",
        "label_offset": 0,
        "score_threshold": 0.5,
    }

    def check(shown: Array, sure: Array) -> dict[str, Any]:
        def answer(batch: Mapping[str, Array]) -> dict[str, Array]:
            number = int(np.argmax((batch["x"] == POINTS).all(axis=1)))
            return {"boxes": shown[number : number + 1], "scores": sure[number : number + 1]}

        ports = [port("boxes", [None, 6, 4]), port("scores", [None, 6, 1])]
        return checked(tmp_path, [port("x", [None, 5])], ports, answer, predictions=terms)

    assert check(boxes, scores)["outputs"] == {"boxes": EXACT, "scores": EXACT}
    with pytest.raises(Failure, match="output boxes deviates in 4 of 4 golden samples"):
        check(np.ascontiguousarray(boxes[..., [1, 0, 3, 2]]), scores)
    with pytest.raises(Failure, match="output scores deviates in 4 of 4 golden samples"):
        check(boxes, scores[:, ::-1])
