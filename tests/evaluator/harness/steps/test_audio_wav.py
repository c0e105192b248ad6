"""Reading WAV files, against Python's own ``wave`` as the writer and SciPy as another reader: bit for bit."""

import io
import struct
import wave
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.io import wavfile

from benchlock.evaluator.harness.steps import StepError
from benchlock.evaluator.harness.steps.audio import decode, read_wav

FULL_SCALE = {1: 2**7, 2: 2**15, 3: 2**23, 4: 2**31}


def written(content: bytes, *, width: int, channels: int, rate: int = 16000) -> bytes:
    """A file as ``wave`` writes it."""
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(content)
    return stream.getvalue()


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"".join(name + struct.pack("<I", len(held)) + held + b"\0" * (len(held) % 2) for name, held in chunks)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def form(tag: int = 1, channels: int = 1, rate: int = 8000, block: int = 2, more: bytes = b"") -> bytes:
    return struct.pack("<HHIIHH", tag, channels, rate, rate * block, block, block * 8 // max(channels, 1)) + more


def numbers(content: bytes, width: int, channels: int) -> NDArray[np.int64]:
    """Sample by sample, as Python reads integers: 8 bits have no sign, and 128 in the middle."""
    found = [
        int.from_bytes(content[at : at + width], "little", signed=width > 1) - 128 * (width == 1)
        for at in range(0, len(content), width)
    ]
    return np.array(found).reshape(-1, channels)


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_integers_are_over_their_full_scale(width: int, channels: int) -> None:
    content = np.random.default_rng(width).bytes(width * channels * 97)
    file = written(content, width=width, channels=channels, rate=22050)
    kept = decode(file, channels="keep")
    exact = numbers(content, width, channels) / FULL_SCALE[width]
    assert (kept.rate, kept.layout, str(kept.values.dtype)) == (22050, None, "float32")
    np.testing.assert_array_equal(kept.values, exact.astype(np.float32))
    np.testing.assert_array_equal(decode(file, channels="mono").values, exact.mean(axis=1).astype(np.float32))
    rate, samples = wavfile.read(io.BytesIO(file))
    assert (rate, samples.reshape(97, channels).tolist()) == (22050, read_wav(file).samples.tolist())


def test_the_loudest_samples_stay_below_one() -> None:
    loudest = {1: b"\xff\x00", 2: b"\xff\x7f\x00\x80", 3: b"\xff\xff\x7f\x00\x00\x80", 4: b"\xff\xff\xff\x7f\0\0\0\x80"}
    for width, content in loudest.items():
        values = decode(written(content, width=width, channels=1), channels="mono").values
        assert values[1] == -1
        assert 0.99 < values[0] < 1, width


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_are_taken_as_they_are(dtype: str) -> None:
    samples = np.array([[0.25, -1.5], [3.0, 1e-9], [1.0, -1.0]], dtype)
    stream = io.BytesIO()
    wavfile.write(stream, 44100, samples)
    found = decode(stream.getvalue(), channels="keep")
    assert found.rate == 44100
    np.testing.assert_array_equal(found.values, samples.astype(np.float32))


def test_the_extensible_form_says_the_same_and_other_chunks_are_passed_over() -> None:
    content = struct.pack("<4h", 0, 1, -1, 2**14)
    guid = struct.pack("<H", 1) + bytes.fromhex("000000001000800000aa00389b71")
    extensible = form(0xFFFE, more=struct.pack("<HHI", 22, 16, 4) + guid)
    file = riff((b"LIST", b"odd"), (b"fmt ", extensible), (b"fact", b"\4\0\0\0"), (b"data", content), (b"JUNK", b"x"))
    np.testing.assert_array_equal(decode(file, channels="mono").values, [0, 2**-15, -(2**-15), 0.5])
    np.testing.assert_array_equal(read_wav(file).samples[:, 0], wavfile.read(io.BytesIO(file))[1])
    other = extensible[:24] + b"\7\0" + extensible[26:]
    with pytest.raises(StepError, match="format 0x0007"):
        read_wav(riff((b"fmt ", other), (b"data", content)))


def test_a_size_that_was_not_known_is_the_rest_of_the_file() -> None:
    file = riff((b"fmt ", form()), (b"data", struct.pack("<2h", 7, 8)))
    streamed = file.replace(b"data\4\0\0\0", b"data\xff\xff\xff\xff")
    assert read_wav(streamed).samples[:, 0].tolist() == [7, 8]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a WAV file"),
        (b"RIFX\0\0\0\0WAVE", "not a WAV file"),
        (b"\xff\xfb\x90\x44" + bytes(99), "not a WAV file"),
        (riff((b"fmt ", form())), "has no audio data"),
        (riff((b"data", b"\0\0")), "no format before its audio data"),
        (riff((b"fmt ", form()[:9]), (b"data", b"\0\0")), "format of the WAV file is truncated"),
        (riff((b"fmt ", form(tag=7, block=1)), (b"data", b"\0\0")), "format 0x0007; only PCM and floats are supported"),
        (riff((b"fmt ", form(channels=0)), (b"data", b"\0\0")), "0 channels of 2 bytes"),
        (riff((b"fmt ", form(channels=3, block=4)), (b"data", b"\0\0")), "3 channels of 4 bytes in total"),
        (riff((b"fmt ", form(rate=0)), (b"data", b"\0\0")), "0 Hz"),
        (riff((b"fmt ", form(tag=3)), (b"data", b"\0\0")), "1 channels of 2 bytes"),
        (riff((b"fmt ", form()), (b"data", bytes(64)))[:-4], "is truncated: it has 60 of 64 bytes"),
    ],
)
def test_what_cannot_be_read_is_said(content: bytes, message: str) -> None:
    with pytest.raises(StepError, match=message):
        decode(content, channels="mono")


def test_no_cut_of_a_file_breaks_the_reader() -> None:
    file = riff((b"LIST", b"odd"), (b"fmt ", form()), (b"data", bytes(8)))
    for end in range(len(file)):
        with pytest.raises(StepError):
            read_wav(file[:end])


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (np.array([0, 2**14, -(2**15)], np.int16), [0, 0.5, -1]),
        (np.array([[0], [128], [255]], np.uint8), [-1, 0, 127 / 128]),
        (np.array([[1, 3], [-(2**31), 0]], np.int32), [2**-30, -0.5]),
        (np.array([0.1, -7], np.float64), [0.1, -7]),
        (np.array([], np.float32).reshape(0, 1), []),
    ],
)
def test_an_array_is_taken_like_the_samples_of_a_file(samples: NDArray[Any], expected: list[float]) -> None:
    found = decode(samples, channels="mono")
    assert (found.rate, str(found.values.dtype)) == (None, "float32")
    np.testing.assert_array_equal(found.values, np.array(expected, np.float32))


def test_an_array_of_bytes_is_a_file() -> None:
    file = written(b"\0\x40", width=2, channels=1)
    assert decode(np.frombuffer(file, np.uint8), channels="mono").values.tolist() == [0.5]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a text", "expected audio, found text"),
        (np.zeros((2, 2, 2), np.int16), r"\[2, 2, 2\] is not audio"),
        (np.zeros(3, np.int64), "int64 have no known full scale"),
        (np.array([0, np.nan], np.float32), "contains NaN"),
    ],
)
def test_what_is_no_sound_is_refused(source: Any, message: str) -> None:  # noqa: ANN401 - wrong on purpose
    with pytest.raises(StepError, match=message):
        decode(source, channels="mono")
