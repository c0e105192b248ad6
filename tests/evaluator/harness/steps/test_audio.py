"""Steps of sounds, against SciPy, sums written out by hand, and figures that TensorFlow and librosa made.

The figures are in ``tests/cases/steps/audio.npz``, made once of the signal that ``chirp`` makes: ``stft`` (magnitudes),
``mel``, ``mfcc`` and ``tiny`` with tf.signal of tensorflow 2.21.0, ``slaney`` with librosa.filters.mel of 0.11.0.
Those in ``mfcc-256.npz`` are of tf.signal too, with an FFT of 256 points.
"""

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.fft import dct, fft
from scipy.linalg import hankel
from scipy.signal import get_window, resample_poly

from benchlock.evaluator.harness.core.job import Step
from benchlock.evaluator.harness.steps import StepError, Tensor, bind
from benchlock.evaluator.harness.steps.audio import filters, frame, mfcc, resample, spectrogram
from benchlock.registry.text.yaml import read_yaml
from tests.support.evaluator.sounds import htk_filters, triangles, wav

ROOT = Path(__file__).resolve().parents[4]
FIGURES = ROOT / "tests" / "cases" / "steps" / "audio.npz"


def chirp(rate: int = 16000, samples: int = 4800) -> NDArray[np.float32]:
    """From 100 Hz up, with a beat, and hiss; rounded to 16 bits, so that it is the same wherever it is made."""
    time = np.arange(samples) / rate
    sound = 0.6 * np.sin(2 * np.pi * (100 + 9000 * time) * time) * (1 + np.cos(2 * np.pi * 7 * time)) / 2
    hiss = np.random.default_rng(5).integers(-900, 900, samples)
    return np.asarray((np.rint(sound * 2**15) + hiss) / 2**15, np.float32)


def noise(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(11).normal(0, 0.3, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("samples", "have", "want"),
    [(1000, 8000, 16000), (999, 48000, 16000), (1001, 44100, 16000), (500, 16000, 44100), (3, 22050, 16000), (1, 1, 7)],
)
def test_resample_is_scipys(samples: int, have: int, want: int) -> None:
    """Within 1e-7 of full scale: both sum in float64, and the result is rounded to float32."""
    for shape in ((samples,), (samples, 2)):
        sound = noise(*shape)
        common = np.gcd(have, want)
        reference = resample_poly(sound.astype(np.float64), want // common, have // common, axis=0)
        found = resample(Tensor(sound, rate=have), rate=want, method="polyphase")
        assert (found.rate, str(found.values.dtype)) == (want, "float32")
        np.testing.assert_allclose(found.values, reference, rtol=0, atol=1e-7)


def test_resample_to_the_same_rate_changes_nothing() -> None:
    sound = noise(77)
    np.testing.assert_array_equal(resample(Tensor(sound, rate=8000), rate=8000, method="polyphase").values, sound)
    with pytest.raises(StepError, match="audio with a known rate"):
        resample(Tensor(sound), rate=8000, method="polyphase")


@pytest.mark.parametrize(
    ("samples", "length", "step", "pad_start", "pad_end", "expected"),
    [
        (7, 3, 2, 0, False, [[1, 2, 3], [3, 4, 5], [5, 6, 7]]),
        (8, 3, 2, 0, False, [[1, 2, 3], [3, 4, 5], [5, 6, 7]]),  # the eighth begins no full frame
        (8, 3, 2, 0, True, [[1, 2, 3], [3, 4, 5], [5, 6, 7], [7, 8, 0]]),
        (7, 3, 2, 0, True, [[1, 2, 3], [3, 4, 5], [5, 6, 7], [7, 0, 0]]),  # every frame that begins inside
        (4, 3, 3, 2, False, [[0, 0, 1], [2, 3, 4]]),
        (2, 4, 4, 1, True, [[0, 1, 2, 0]]),
        (5, 1, 4, 0, True, [[1], [5]]),
        (5, 2, 4, 0, True, [[1, 2], [5, 0]]),
    ],
)
def test_frames_begin_a_step_apart(  # the frames were written down by the definition of tf.signal.frame
    samples: int, length: int, step: int, pad_start: int, pad_end: bool, expected: list[list[int]]
) -> None:
    sound = np.arange(1, samples + 1, dtype=np.float32)
    for calls in ("one", "each"):
        found = frame(
            Tensor(sound, rate=8000), length=length, step=step, pad_start=pad_start, pad_end=pad_end, calls=calls
        )
        assert (found.values.tolist(), found.rate) == (expected, 8000)


@pytest.mark.parametrize("pad_end", [False, True])
@pytest.mark.parametrize("pad_start", [0, 5])
@pytest.mark.parametrize(("length", "step"), [(1, 1), (7, 3), (16, 16), (10, 25), (64, 20)])
def test_frames_are_rows_of_scipys_hankel_matrix(length: int, step: int, pad_start: int, pad_end: bool) -> None:
    """Exactly. Row i of the matrix begins at element i; which rows begin a frame is the definition of tf.signal's."""
    sound = noise(131)
    padded = np.array([0.0] * pad_start + sound.tolist() + [0.0] * length, np.float32)
    end = pad_start + len(sound)
    starts = list(range(0, end if pad_end else end - length + 1, step))
    expected = hankel(padded[:end], padded[end - 1 : end - 1 + length])[starts]
    found = frame(Tensor(sound), length=length, step=step, pad_start=pad_start, pad_end=pad_end, calls="one").values
    np.testing.assert_array_equal(found, expected)


def test_frames_of_channels_and_of_features_keep_their_other_axes() -> None:
    features = noise(9, 4)
    found = frame(Tensor(features), length=3, step=2, pad_start=0, pad_end=False, calls="one").values
    np.testing.assert_array_equal(found, [features[at : at + 3] for at in (0, 2, 4, 6)])


def test_a_sound_that_makes_no_frame_is_refused() -> None:
    with pytest.raises(StepError, match="no frame of 5 in 4 samples"):
        frame(Tensor(noise(4)), length=5, step=1, pad_start=0, pad_end=False, calls="each")
    with pytest.raises(StepError, match="no frame of 5 in 0 samples"):
        frame(Tensor(noise(0)), length=5, step=1, pad_start=0, pad_end=True, calls="one")


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(
    ("window", "scipys"),
    [
        ("hann_periodic", get_window("hann", 30)),
        ("hann", get_window("hann", 30, fftbins=False)),
        ("hamming", get_window("hamming", 30, fftbins=False)),
        ("none", np.ones(30)),
    ],
)
def test_a_spectrogram_is_scipys_transform_of_windowed_frames(
    window: str, scipys: NDArray[np.float64], power: int
) -> None:
    """Within 1e-6 of the largest value, which float32 rounds by 6e-8."""
    sound = noise(200)
    starts = range(0, 200 - 30 + 1, 11)
    frames = np.array([np.pad(sound[at : at + 30] * scipys, (0, 34)) for at in starts])
    reference = np.abs(fft(frames))[:, :33] ** power
    found = spectrogram(Tensor(sound), frame_length=30, frame_step=11, fft_length=64, window=window, power=power)
    assert str(found.values.dtype) == "float32"
    np.testing.assert_allclose(found.values, reference, rtol=0, atol=1e-6 * reference.max())


def test_a_spectrogram_of_what_cannot_have_one_is_refused() -> None:
    arguments = {"frame_length": 30, "frame_step": 10, "window": "hann", "power": 1}
    with pytest.raises(StepError, match=r"one channel, \[time\], found \[60, 2\]"):
        spectrogram(Tensor(noise(60, 2)), fft_length=32, **arguments)  # type: ignore[arg-type]
    with pytest.raises(StepError, match="a frame of 30 samples does not fit into an fft_length of 16"):
        spectrogram(Tensor(noise(60)), fft_length=16, **arguments)  # type: ignore[arg-type]
    with pytest.raises(StepError, match="no frame of 30 in 29 samples"):
        spectrogram(Tensor(noise(29)), fft_length=32, **arguments)  # type: ignore[arg-type]


def test_htk_filters_are_triangles_in_mel() -> None:
    """Within 1e-9 of values worked out one by one."""
    reference = htk_filters(65, 8000, 10, 20.0, 3500.0)
    np.testing.assert_allclose(filters(65, 8000, 10, 20.0, 3500.0, "htk"), reference, atol=1e-9)


def test_htk_filters_leave_out_what_is_constant() -> None:
    assert filters(65, 8000, 10, 0.0, 4000.0, "htk")[0].max() == 0


def test_slaneys_filters_are_triangles_in_hertz_of_area_one() -> None:
    """Within 1e-9 of values worked out one by one."""

    def hertz(mel: float) -> float:
        return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)

    low, rate, bins, mels = 0.0, 16000, 129, 12
    top = 15 + 27 * float(np.log(8)) / float(np.log(6.4))  # of 8000 Hz
    corners = [hertz(top * number / (mels + 1)) for number in range(mels + 2)]
    places = [rate / 2 * number / (bins - 1) for number in range(bins)]
    reference = triangles(corners, places) * [2 / (corners[band + 2] - corners[band]) for band in range(mels)]
    np.testing.assert_allclose(filters(bins, rate, mels, low, 8000.0, "slaney"), reference, atol=1e-9)


@pytest.mark.parametrize("mel", ["htk", "slaney"])
def test_coefficients_are_scipys_orthonormal_cosine_transform(mel: str) -> None:
    """Within 1e-6 of the largest value, which float32 rounds by 6e-8."""
    energies = np.abs(noise(7, 65))
    banks = filters(65, 8000, 20, 50.0, 4000.0, mel)
    reference = dct(np.log(energies.astype(np.float64) @ banks + 1e-4), norm="ortho")[:, :9]
    found = mfcc(
        Tensor(energies, rate=8000), rate=8000, mels=20, low=50, high=4000, mel=mel, log_offset=1e-4, coefficients=9,
        dct="ortho",
    )  # fmt: skip
    assert str(found.values.dtype) == "float32"
    np.testing.assert_allclose(found.values, reference, rtol=0, atol=1e-6 * np.abs(reference).max())


def coefficients(tensor: Tensor, **changes: float) -> Tensor:
    arguments = {"rate": 8000, "mels": 20, "low": 50, "high": 4000, "log_offset": 1e-4, "coefficients": 9} | changes
    return mfcc(tensor, mel="htk", dct="ortho", **arguments)  # type: ignore[arg-type]


def test_coefficients_that_would_be_wrong_are_refused() -> None:
    energies = Tensor(np.abs(noise(7, 65)), rate=16000)
    with pytest.raises(StepError, match="mfcc has rate 8000 Hz, but the audio 16000"):
        coefficients(energies)
    with pytest.raises(StepError, match=r"mels from 50 to 4001 Hz are not between 0 and 4000"):
        coefficients(energies._replace(rate=8000), high=4001)
    with pytest.raises(StepError, match="21 coefficients of 20 mels"):
        coefficients(energies._replace(rate=None), coefficients=21)
    with pytest.raises(StepError, match="logarithm of 0"):
        coefficients(Tensor(np.zeros((2, 65), np.float32)), log_offset=0)
    with pytest.raises(StepError, match=r"a spectrogram, \[frames, bins\], found \[65\]"):
        coefficients(Tensor(np.ones(65, np.float32)))


def test_the_front_end_of_a_keyword_spotter_is_tensorflows() -> None:
    """Within 2e-6 of the largest value: TensorFlow computes in float32.

    Its first coefficient is sqrt(2) times that of the orthonormal transform; it follows HTK there, and says so.
    """
    figures = np.load(FIGURES)
    heard = spectrogram(
        Tensor(chirp(), rate=16000), frame_length=480, frame_step=320, fft_length=512, window="hann_periodic", power=1
    )
    np.testing.assert_allclose(heard.values, figures["stft"], rtol=0, atol=2e-6 * figures["stft"].max())
    np.testing.assert_allclose(filters(257, 16000, 40, 20.0, 4000.0, "htk"), figures["mel"], rtol=0, atol=2e-5)
    found = coefficients(heard, rate=16000, mels=40, low=20, high=4000, log_offset=1e-6, coefficients=10).values
    reference = figures["mfcc"] / np.array([np.sqrt(2)] + [1] * 9)
    np.testing.assert_allclose(found, reference, rtol=0, atol=2e-6 * np.abs(reference).max())


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("signal", ["chirp", "noise"])
def test_coefficients_of_256_points_are_tensorflows_within_what_the_page_says(
    signal: str, power: Literal[1, 2]
) -> None:
    """Within 1.2e-5 of the largest value: narrow filters at 256 points catch few bins, and TensorFlow's are float32."""
    hiss = np.rint(np.random.default_rng(2).normal(0, 0.1, 4800) * 2**15).astype(np.float32) / np.float32(2**15)
    sound = chirp() if signal == "chirp" else hiss
    heard = spectrogram(
        Tensor(sound, rate=16000), frame_length=256, frame_step=128, fft_length=256, window="hann_periodic", power=power
    )
    found = coefficients(heard, rate=16000, mels=40, low=20, high=4000, log_offset=1e-6, coefficients=13).values
    reference = np.load(FIGURES.with_name("mfcc-256.npz"))[f"{signal}_{power}"] / np.array([np.sqrt(2)] + [1] * 12)
    np.testing.assert_allclose(found, reference, rtol=0, atol=1.2e-5 * np.abs(reference).max())


def test_the_documented_front_end_of_mlperf_tiny_is_its_own(tmp_path: Path) -> None:
    """Within 2e-6 of the largest value. ``tiny`` was made with the calls that the benchmark's training makes."""
    documented = (ROOT / "docs" / "reference" / "steps.md").read_text(encoding="utf-8").split("MLPerf Tiny's")[1]
    (steps,) = re.findall(r"```yaml\n(.*?)```", documented, re.DOTALL)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "tiny.py").write_text(*re.findall(r"```python\n(.*?)```", documented, re.DOTALL))
    told = [
        Step(name, arguments)
        for step in read_yaml(steps, "steps.md").value["steps"]
        for name, arguments in step.items()
    ]
    tensor: Any = wav((chirp() * 2**15), 16000)
    for bound in bind("audio", told, tmp_path):
        tensor = bound.apply(tensor)
    reference = np.load(FIGURES)["tiny"][..., None]
    np.testing.assert_allclose(tensor.values, reference, rtol=0, atol=2e-6 * np.abs(reference).max())


def test_slaneys_filters_are_librosas() -> None:
    """Within 1e-7 of the largest value: librosa gives them in float32."""
    figures = np.load(FIGURES)["slaney"]
    np.testing.assert_allclose(
        filters(257, 16000, 40, 20.0, 8000.0, "slaney"), figures, rtol=0, atol=1e-7 * figures.max()
    )
