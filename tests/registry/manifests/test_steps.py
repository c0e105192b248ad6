"""Steps of sounds and texts that contradict themselves or one another are refused where they are written."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.manifests.step_shapes import apply_steps
from benchlock.registry.manifests.steps import AudioStep, TensorStep, TextStep
from benchlock.registry.manifests.tensor_shapes import Tensor
from benchlock.registry.text.parsed_text import Place
from benchlock.registry.text.yaml import read_yaml
from tests.support.registry.authored import read_authored

EVERYTHING = Path(__file__).resolve().parents[2] / "cases" / "manifests" / "good" / "everything-else.yaml"
MONO = {"decode": {"channels": "mono"}}
KEEP = {"decode": {"channels": "keep"}}
TEXT = {"decode": {"encoding": "utf-8"}}
JSON = {
    "tokenize": {
        "kind": "tokenizer-json", "file": "t.json", "length": 8, "truncate": "end", "pad_side": "end", "pad": "",
        "yields": "ids",
    }
}  # fmt: skip


def padded(length: int) -> dict[str, Any]:
    return {"pad": {"length": length, "value": 0, "side": "end"}}


def frame(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - of several types
    return {"frame": {"length": 400, "step": 200, "pad_start": 0, "pad_end": False, "calls": "one"} | changes}


def spectrogram(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - of several types
    arguments = {"frame_length": 400, "frame_step": 200, "fft_length": 512, "window": "hann", "power": 1}
    return {"spectrogram": arguments | changes}


def mfcc(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - of several types
    arguments = {"rate": 8000, "mels": 20, "low": 20, "high": 4000, "mel": "htk", "log_offset": 1e-6}
    return {"mfcc": arguments | {"coefficients": 13, "dct": "ortho"} | changes}


def patches() -> dict[str, Any]:
    return {"frame": {"length": 9, "step": 9, "pad_start": 0, "pad_end": False, "calls": "each"}}


def words(pattern: str) -> dict[str, Any]:
    arguments = {"vocabulary": "v", "lowercase": True, "start": None, "unknown": "?", "pad": "?", "length": 5}
    sides = {"truncate": "end", "pad_side": "end", "yields": "ids"}
    return {"tokenize": {"kind": "words", "pattern": pattern} | arguments | sides}


@pytest.mark.parametrize(
    ("kind", "steps", "path", "message"),
    [
        (AudioStep, [MONO, padded(399), frame()], "steps[2].frame.length", "no frame of 400 in [399]"),
        (AudioStep, [KEEP, spectrogram()], "steps[1].spectrogram", "one channel; its input is [?, ?]"),
        (AudioStep, [MONO, frame(), spectrogram()], "steps[2].spectrogram", "one channel; its input is [?, 400]"),
        (AudioStep, [MONO, spectrogram(fft_length=256)], "steps[1].spectrogram.fft_length", "does not fit into 256"),
        (AudioStep, [MONO, padded(9), spectrogram()], "steps[2].spectrogram.frame_length", "no frame of 400"),
        (AudioStep, [MONO, mfcc()], "steps[1].mfcc", "requires a spectrogram; its input is [?]"),
        (AudioStep, [MONO, spectrogram(), mfcc(high=4001)], "steps[2].mfcc.high", "above half of the rate, 4000 Hz"),
        (AudioStep, [MONO, spectrogram(), mfcc(low=4000)], "steps[2].mfcc.high", "not above low"),
        (AudioStep, [MONO, spectrogram(), mfcc(coefficients=21)], "steps[2].mfcc.coefficients", "20 mels have no 21"),
        (AudioStep, [MONO, spectrogram(fft_length=511), mfcc()], "steps[2].mfcc", "do not end at half of the rate"),
        (
            AudioStep,
            [MONO, spectrogram(fft_length=511), patches(), mfcc()],
            "steps[3].mfcc",
            "with fft_length 511 do not end",
        ),
        (TextStep, [TEXT, {"cast": {"dtype": "int32"}}], "steps[1].cast", "requires numbers; its input is text"),
        (TextStep, [TEXT, words("(")], "steps[1].tokenize.pattern", "invalid Python regular expression '(': missing )"),
        (TextStep, [TEXT, JSON, JSON], "steps[2].tokenize", "requires text; its input is int64"),
    ],
)
def test_a_step_that_cannot_be_done_is_refused(
    kind: type[TensorStep], steps: list[dict[str, Any]], path: str, message: str
) -> None:
    typed = msgspec.convert(steps, tuple[kind, ...])  # type: ignore[valid-type]
    with pytest.raises(InvalidInputError) as caught:
        apply_steps(Tensor(), typed, Place(read_yaml("{}", "model.yaml")).at("steps"))
    assert message in caught.value.what
    assert caught.value.where is not None
    assert caught.value.where.startswith(path + " ")


FRAMES = "      - frame: {length: 9, step: 9, pad_start: 0, pad_end: true, calls: each}\n"
SIDES = "length: 128, truncate: end, pad_side: end"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("calls: each}\n", f"calls: each}}\n{FRAMES}", "calls: each stands in steps[2] too"),
        (
            f'- tokenize: {{kind: tokenizer-json, file: code/tokenizer.json, {SIDES}, pad: "[PAD]", yields: mask}}\n',
            "",
            "the steps end with text",
        ),
    ],
)
def test_a_manifest_whose_steps_make_no_input_is_refused(old: str, new: str, message: str) -> None:
    text = EVERYTHING.read_text(encoding="utf-8")
    assert old in text
    with pytest.raises(InvalidInputError) as caught:
        read_authored(text.replace(f"      {old}" if new == "" else old, new, 1), "model.yaml")
    assert message in caught.value.what
