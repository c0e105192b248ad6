"""Golden tensors in the harness: each fault that evaluations are known for is caught, and said where, by how much."""

import io
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps
from PIL.Image import Resampling

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job import Model, Step, Tolerance
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.datasets import Samples
from benchlock.evaluator.harness.datasets.samples import choose_spread
from benchlock.evaluator.harness.inference.finite_checks import FiniteCheck
from benchlock.evaluator.harness.inference.golden_tensors import (
    GoldenSample,
    check_golden,
    explain_deviation,
    find_deviation,
    open_golden_samples,
    predict_sample,
    read_golden,
    stack_inputs,
    write_golden,
)
from benchlock.evaluator.harness.inference.model_session import Session
from benchlock.evaluator.harness.inference.pipeline import Pipeline
from benchlock.evaluator.harness.phases.golden_phase import list_unnoticed_faults
from tests.evaluator.harness.conftest import CELLS, JOB, Finished
from tests.evaluator.harness.predictors.linear import Linear

Array = NDArray[Any]
Run = Callable[[dict[str, Any]], Finished]

MEAN, STD = [120.0, 110.0, 100.0], [58.0, 57.0, 56.0]
DECODE: dict[str, Any] = {"decode": {"color": "RGB", "exif": "apply"}}
RESIZE: dict[str, Any] = {"resize": {"shorter": 36, "method": "bilinear", "antialias": True}}
CROP: dict[str, Any] = {"center_crop": {"size": [32, 32]}}
CAST: dict[str, Any] = {"cast": {"dtype": "float32"}}
NORMALIZE: dict[str, Any] = {"normalize": {"mean": MEAN, "std": STD}}
TRANSPOSE: dict[str, Any] = {"transpose": {"layout": "NCHW"}}
EXACT = {"largest": 0.0, "absolute": 1e-5, "relative": 0.0}
STEPS = [DECODE, RESIZE, CROP, CAST, NORMALIZE, TRANSPOSE]


def _unsmoothed(coordinates: str) -> dict[str, Any]:
    arguments = {"shorter": 36, "method": "bilinear", "antialias": False, "coordinates": coordinates}
    return {"resize": arguments}


def _kernel(method: str) -> dict[str, Any]:
    return {"resize": {"shorter": 36, "method": method, "antialias": True}}


FAULTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "kernel bicubic": ([DECODE, _kernel("bicubic"), CROP, CAST, NORMALIZE, TRANSPOSE], "check resize"),
    "kernel nearest": ([DECODE, _kernel("nearest"), CROP, CAST, NORMALIZE, TRANSPOSE], "check resize"),
    "kernel lanczos": ([DECODE, _kernel("lanczos"), CROP, CAST, NORMALIZE, TRANSPOSE], "check resize"),
    "kernel area": ([DECODE, _kernel("area"), CROP, CAST, NORMALIZE, TRANSPOSE], "check resize"),
    "no antialias": ([DECODE, _unsmoothed("half_pixel"), CROP, CAST, NORMALIZE, TRANSPOSE], "check resize"),
    "corners": ([DECODE, _unsmoothed("align_corners"), CROP, CAST, NORMALIZE, TRANSPOSE], "check resize"),
    "asymmetric": ([DECODE, _unsmoothed("asymmetric"), CROP, CAST, NORMALIZE, TRANSPOSE], "check resize"),
    "colour order": (
        [{"decode": {"color": "BGR", "exif": "apply"}}, RESIZE, CROP, CAST, NORMALIZE, TRANSPOSE],
        "sample",
    ),
    "colour order of the means": (
        [DECODE, RESIZE, CROP, CAST, {"normalize": {"mean": MEAN[::-1], "std": STD[::-1]}}, TRANSPOSE],
        "mean and std",
    ),
    "layout": ([DECODE, RESIZE, CROP, CAST, NORMALIZE, {"reshape": {"shape": [3, 32, 32]}}], "[1, 2, 0]"),
    "crop": (
        [
            DECODE,
            {"resize": {"size": [32, 32], "method": "bilinear", "antialias": True}},
            CAST,
            NORMALIZE,
            TRANSPOSE,
        ],
        "check",
    ),
    "scale": ([DECODE, RESIZE, CROP, CAST, {"scale": {"factor": 1 / 255}}, TRANSPOSE], "mean and std"),
    "no scale": ([DECODE, RESIZE, CROP, CAST, TRANSPOSE], "mean and std"),
    "another mean": (
        [DECODE, RESIZE, CROP, CAST, {"normalize": {"mean": [127.5] * 3, "std": STD}}, TRANSPOSE],
        "mean and std",
    ),
    "another deviation": (
        [DECODE, RESIZE, CROP, CAST, {"normalize": {"mean": MEAN, "std": [64.0] * 3}}, TRANSPOSE],
        "mean and std",
    ),
    "scale of all": (
        [DECODE, RESIZE, CROP, CAST, NORMALIZE, {"scale": {"factor": 1 / 255}}, TRANSPOSE],
        "times 0.00392157: check scale",
    ),
    "rounding": ([DECODE, CAST, RESIZE, CROP, NORMALIZE, TRANSPOSE], "rounding"),
    "rounding to whole numbers": (
        [
            DECODE,
            RESIZE,
            CROP,
            {"scale": {"factor": 1 / 255}},
            {"cast": {"dtype": "uint8"}},
            CAST,
            NORMALIZE,
            TRANSPOSE,
        ],
        "sample",
    ),
    "exif": ([{"decode": {"color": "RGB", "exif": "ignore"}}, *STEPS[1:]], "sample 1"),
}


def pictures() -> list[bytes]:
    """Three pictures of 61 x 50: one as usual, one held upside down (EXIF 3), one of 8-bit grey."""
    rows, columns = np.mgrid[0:50, 0:61].astype(np.float64)
    waves = [127 + 120 * np.sin(rows / (4 + shift)) * np.cos(columns / (2 + shift)) for shift in range(3)]
    waves[2] = waves[2] * columns / 61
    picture = Image.fromarray(np.stack(waves, axis=2).astype(np.uint8))
    turned = picture.getexif()
    turned[0x0112] = 3
    return [_encoded(picture), _encoded(picture, exif=turned), _encoded(picture.convert("L"))]


def _encoded(picture: Image.Image, **options: Any) -> bytes:  # noqa: ANN401 - of Pillow
    stream = io.BytesIO()
    picture.save(stream, "PNG", **options)
    return stream.getvalue()


def by_hand(content: bytes) -> Array:
    """What the steps must give, out of Pillow and numpy alone."""
    picture = ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB")
    small = picture.resize((round(61 * 36 / 50), 36), Resampling.BILINEAR)
    left = (small.width - 32) // 2
    values = np.asarray(small.crop((left, 2, left + 32, 34))).astype(np.float32)
    normalized = (values - np.asarray(MEAN, np.float32)) / np.asarray(STD, np.float32)
    return np.ascontiguousarray(normalized.transpose(2, 0, 1))


def model(steps: list[dict[str, Any]], *, channels: int = 3, layout: str = "NCHW") -> Model:
    job = deepcopy(JOB)
    shape = [None, channels, 32, 32] if layout == "NCHW" else [None, 32, 32, channels]
    changes = {"shape": shape, "layout": layout, "steps": steps, "tolerance": {"absolute": 1e-5, "relative": 0}}
    job["model"]["inputs"][0] |= changes
    job["model"]["outputs"][0]["tolerance"] = {"absolute": 1e-5, "relative": 0}
    job["model"]["files"].append({"path": "golden.npz", "role": "golden"})
    return parse_job(job).model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's files: weights of six classes, and golden inputs that were made by hand."""
    folder = tmp_path_factory.mktemp("model")
    random = np.random.default_rng(7)
    weights = random.normal(size=(3 * 32 * 32, len(CELLS))).astype(np.float32) / 100
    np.savez(folder / "weights.npz", weights=weights, offset=np.zeros(len(CELLS), np.float32))
    arrays = {f"raw/picture/{number}": np.frombuffer(one, np.uint8) for number, one in enumerate(pictures())}
    np.savez(folder / "golden.npz", **arrays, **{"input/picture": np.stack([by_hand(one) for one in pictures()])})  # type: ignore[arg-type]
    return folder


@pytest.fixture
def predictor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Linear:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Linear(folder / "weights.npz")


def check(found: Model, predictor: Linear, folder: Path) -> dict[str, Any] | None:
    return check_golden(found, predictor, Pipeline(found, folder), folder)


def refused(found: Model, predictor: Linear, folder: Path) -> str:
    with pytest.raises(Failure) as raised:
        check(found, predictor, folder)
    assert raised.value.kind == "golden", raised.value.message
    return raised.value.message


def test_steps_that_give_what_was_made_by_hand_pass(folder: Path, predictor: Linear) -> None:
    report = check(model(STEPS), predictor, folder)
    assert report is not None
    assert (report["samples"], report["outputs"]) == (3, {})
    assert report["inputs"]["picture"]["largest"] < 1e-6


@pytest.mark.parametrize("fault", FAULTS)
def test_each_known_fault_of_a_pipeline_is_caught(fault: str, folder: Path, predictor: Linear) -> None:
    steps, advice = FAULTS[fault]
    message = refused(model(steps), predictor, folder)
    assert message.startswith("input picture deviates in ")
    assert " of 3 golden samples, most in sample " in message
    assert "(tolerance 1e-05 + 0 * |expected|)" in message
    assert advice in message, message
    assert "\n" not in message


def test_a_picture_that_was_turned_deviates_alone(folder: Path, predictor: Linear) -> None:
    assert "in 1 of 3 golden samples, most in sample 1" in refused(model(FAULTS["exif"][0]), predictor, folder)


def test_another_way_to_grey_is_caught(predictor: Linear, tmp_path: Path) -> None:
    """Expected is the mean of the channels, ours are weighed as ITU-R 601 says: of a grey picture alone that is one."""
    steps = [{"decode": {"color": "L", "exif": "ignore"}}, CAST, CROP, TRANSPOSE]
    kept = {f"raw/picture/{number}": np.frombuffer(one, np.uint8) for number, one in enumerate(pictures())}
    grey = [np.asarray(Image.open(io.BytesIO(one)).convert("RGB")).mean(axis=2)[9:41, 14:46] for one in pictures()]
    expected = np.stack(grey).astype(np.float32)[:, np.newaxis]
    np.savez(tmp_path / "golden.npz", **kept, **{"input/picture": expected})  # type: ignore[arg-type]
    assert "in 2 of 3 golden samples" in refused(model(steps, channels=1), predictor, tmp_path)


def test_a_model_that_answers_otherwise_is_caught(folder: Path, predictor: Linear, tmp_path: Path) -> None:
    found, samples = (
        model(STEPS),
        Samples(lambda number: {"image": pictures()[number]}, ["0", "1", "2"], None, frozenset()),
    )
    made = []
    pipeline, session = Pipeline(found, folder), Session(predictor, found)
    for number in range(3):
        prepared = pipeline.prepare(samples, number)
        answer = predict_sample(pipeline, session, prepared, (number, "here"), FiniteCheck(found))
        made.append(GoldenSample(samples.read(number), stack_inputs(prepared), answer))
    write_golden(tmp_path / "golden.npz", found, made)
    assert check_golden(found, predictor, pipeline, tmp_path) == {
        "samples": 3,
        "inputs": {"picture": EXACT},
        "outputs": {"scores": EXACT},
    }
    predictor._weights = predictor._weights * np.float32(1.01)
    message = refused(found, predictor, tmp_path)
    assert message.startswith("output scores deviates in 3 of 3 golden samples, most in sample ")


def test_an_answer_of_one_number_a_sample_is_compared(folder: Path, predictor: Linear, tmp_path: Path) -> None:
    found = model(STEPS)
    output = replace(found.outputs[0], type="class-index", steps=(Step("argmax", {"axis": -1}),))
    found = replace(found, outputs=(output,))
    samples = Samples(lambda number: {"image": pictures()[number]}, ["0", "1", "2"], None, frozenset())
    pipeline, session = Pipeline(found, folder), Session(predictor, found)
    prepared = [pipeline.prepare(samples, number) for number in range(3)]
    answers = [predict_sample(pipeline, session, one, (0, "here"), FiniteCheck(found)) for one in prepared]
    assert answers[0]["scores"].shape == ()
    made = [GoldenSample(samples.read(number), {}, answers[number]) for number in range(3)]
    write_golden(tmp_path / "golden.npz", found, made)
    assert check_golden(found, predictor, pipeline, tmp_path) == {
        "samples": 3,
        "inputs": {},
        "outputs": {"scores": EXACT},
    }
    wrong = [{"scores": np.asarray(one["scores"] + 1)} for one in answers]
    write_golden(tmp_path / "golden.npz", found, [replace(made[n], outputs=wrong[n]) for n in range(3)])
    message = refused(found, predictor, tmp_path)
    assert message.startswith(
        "output scores deviates in 3 of 3 golden samples, most in sample 0: 1 of 1 values deviate"
    )


def test_one_number_may_be_none_or_infinite() -> None:
    one, inf, nan = (np.asarray(value, np.float32) for value in (1.0, np.inf, np.nan))
    largest = [
        find_deviation(*pair, Tolerance(1, 0)).largest for pair in ((inf, inf), (nan, nan), (one, nan), (one, inf))
    ]
    assert largest == [0, 0, np.inf, np.inf]


def test_what_is_written_twice_is_the_same_bytes(tmp_path: Path) -> None:
    found = model(STEPS)
    made = [
        GoldenSample({"image": pictures()[0]}, {"picture": by_hand(pictures()[0])}, {"scores": np.zeros(6, np.float32)})
    ]
    write_golden(tmp_path / "a.npz", found, made)
    write_golden(tmp_path / "b.npz", found, made)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    golden = read_golden(tmp_path / "a.npz", found)
    assert golden.raw == {"picture": (pictures()[0],)}


def _without(name: str) -> Callable[[dict[str, Array]], object]:
    return lambda arrays: arrays.pop(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("raw/picture/1"), "'raw/picture/2' is not a sample"),
        (_without("input/picture"), "no expected values"),
        (_without("raw/picture/0"), "is not a sample"),
        (lambda arrays: arrays.update(other=np.zeros(3)), "'other' is not a sample, input or output"),
        (lambda arrays: arrays.update({"input/picture": np.zeros((2, 3, 32, 32), np.float32)}), "expected 3 samples"),
    ],
)
def test_a_file_that_is_not_of_the_model_is_no_golden_file(
    change: Callable[[dict[str, Array]], object], message: str, folder: Path, tmp_path: Path
) -> None:
    with np.load(folder / "golden.npz") as found:
        arrays = {name: found[name] for name in found.files}
    change(arrays)
    np.savez(tmp_path / "golden.npz", **arrays)
    with pytest.raises(Failure, match=message) as raised:
        read_golden(tmp_path / "golden.npz", model(STEPS))
    assert raised.value.kind == "load"


def test_texts_and_arrays_come_back_as_a_dataset_holds_them(tmp_path: Path) -> None:
    base = model(STEPS)
    (port,) = base.inputs
    text, tensor = (
        replace(port, name="words", type="text", field="a"),
        replace(port, name="x", type="tensor", field="b"),
    )
    found = replace(base, inputs=(text, tensor))
    values = np.arange(6, dtype=np.uint8)
    made = [GoldenSample({"a": "grün\0", "b": values}, {"words": np.zeros(2)}, {"scores": np.zeros(6)})]
    write_golden(tmp_path / "golden.npz", found, made)
    golden = read_golden(tmp_path / "golden.npz", found)
    samples = open_golden_samples(found, golden.raw)
    fields = samples.read(0)
    assert fields["a"] == "grün\0"
    assert np.array_equal(np.asarray(fields["b"]), values)
    assert samples.fields == {"a", "b"}


def test_a_deviation_says_how_much_and_where() -> None:
    expected = np.asarray([[1.0, 2.0], [np.inf, np.nan]], np.float32)
    found = np.asarray([[1.0, 2.5], [np.inf, np.nan]], np.float32)
    difference = find_deviation(found, expected, Tolerance(0.1, 0.1))
    assert (difference.values, difference.beyond, difference.largest, difference.worst) == (4, 1, 0.5, (0, 1))
    assert str(difference) == "1 of 4 values deviate, most at [0, 1]: expected 2, found 2.5"
    assert find_deviation(found, expected, Tolerance(0.1, 0.25)).beyond == 0
    assert find_deviation(-expected, expected, Tolerance(1e9, 1e9)).beyond == 1  # no finite tolerance spans infinity


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        (lambda x: x[..., ::-1], "channels are reversed"),
        (lambda x: x[::-1], "axis 0 is reversed: check exif"),
        (np.rot90, "the picture is rotated"),
        (lambda x: x.transpose(2, 0, 1), "axes are in order [2, 0, 1]"),
        (lambda x: x.reshape(-1), "but not the shape"),
        (lambda x: x.astype(np.int64), "check cast"),
        (lambda x: x / 127.5 - 1, "times 0.00784314 -1: check scale"),
        (lambda x: np.roll(x, 3, axis=0), "not similar"),
    ],
)
def test_the_advice_names_the_fault(change: Callable[[Array], Array], advice: str) -> None:
    values = np.random.default_rng(1).integers(0, 255, (12, 12, 3)).astype(np.float32)
    assert advice in explain_deviation(change(values), values)


def made_of(found: Model, folder: Path, sources: list[bytes]) -> list[GoldenSample]:
    """What the steps make of pictures; of the model nothing."""
    samples = Samples(lambda number: {"image": sources[number]}, sources, None, frozenset())  # type: ignore[arg-type]
    prepared = [Pipeline(found, folder).prepare(samples, number) for number in range(len(sources))]
    return [GoldenSample(samples.read(number), stack_inputs(one), {}) for number, one in enumerate(prepared)]


def test_faults_that_no_sample_would_show_are_told(folder: Path) -> None:
    upright, turned, grey = pictures()
    found = model(STEPS)
    assert list_unnoticed_faults(found, folder, made_of(found, folder, [upright, turned])) == []
    assert list_unnoticed_faults(found, folder, made_of(found, folder, [upright])) == ["exif: no picture is rotated"]
    told = list_unnoticed_faults(found, folder, made_of(found, folder, [grey]))
    assert told == ["exif: no picture is rotated", "color: every picture is gray"]
    small = _encoded(Image.new("RGB", (32, 32), (1, 2, 3)))
    same = model([DECODE, {"resize": {"shorter": 32, "method": "bilinear", "antialias": True}}, *STEPS[2:]])
    told = list_unnoticed_faults(same, folder, made_of(same, folder, [small]))
    assert "resize: every picture has that size" in told
    assert "crop: no picture is cropped" in told


def test_samples_are_spread_over_a_split() -> None:
    assert choose_spread(1000, 4) == [0, 250, 500, 750]
    assert choose_spread(3, 4) == [0, 1, 2]


def test_a_run_whose_golden_tensors_deviate_times_nothing(run: Run, job: dict[str, Any], tmp_path: Path) -> None:
    """With an accuracy phase and without one; the performance phase is not reached."""
    place = tmp_path / "job" / "model"
    place.mkdir(parents=True)
    grey = np.arange(96, dtype=np.uint8).reshape(8, 12)
    expected = grey[np.newaxis, np.newaxis].astype(np.float32)
    np.savez(place / "golden.npz", **{"raw/picture/0": grey, "input/picture": expected})  # type: ignore[arg-type]
    job["model"]["inputs"][0]["tolerance"] = {"absolute": 0, "relative": 0}
    job["model"]["files"].append({"path": "golden.npz", "role": "golden"})
    job["metrics"] = ["latency_p50"]
    done = run(job).result
    assert (done["outcome"], done["golden"]["samples"]) == ("done", 1)
    assert {"golden", "performance"} <= done["timings"].keys()
    job["model"]["inputs"][0]["steps"].append({"scale": {"factor": 1 / 255}})
    for metrics, phase in ((["latency_p50"], "golden"), (["top1", "latency_p50"], "accuracy")):
        failed = run(job | {"metrics": metrics}).result
        assert (failed["outcome"], failed["performance"]) == ("failed", None)
        assert (failed["failure"]["class"], failed["failure"]["phase"]) == ("golden", phase)
        assert "times 0.00392157: check scale" in failed["failure"]["message"]
