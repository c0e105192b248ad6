"""Steps for audio: WAV decoding, resampling, frames, spectrograms and MFCC.

The WAV format is that of "Multimedia Programming Interface and Data Specifications 1.0" (1991), with the extensible
format of 1999. A truncated file is an error and is never padded with silence.
"""

import struct
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .step_tensor import Source, StepError, Tensor, as_file, floating

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
# The tail of a subformat's GUID, after the two bytes of the format tag.
_SUBFORMAT = bytes.fromhex("000000001000800000aa00389b71")
_UNKNOWN_SIZE = 0xFFFFFFFF  # a size that was unknown when it was written: the sound lasts to the end of the file
_BYTES = {_PCM: (1, 2, 3, 4), _FLOAT: (4, 8)}
_PACKED = 3


class Sound(NamedTuple):
    """A sound: ``samples`` [time, channels] as stored, 24 bits as the upper bits of 32; ``rate`` in hertz."""

    samples: NDArray[Any]
    rate: int


class _Form(NamedTuple):
    tag: int
    channels: int
    rate: int
    width: int  # bytes of one sample of one channel


def read_wav(content: bytes) -> Sound:
    """Read a WAV file.

    Raises:
        StepError: The content is not a WAV file, ends early, or is compressed.
    """
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise StepError("not a WAV file")
    form, position = None, 12
    while position + 8 <= len(content):
        name, size = content[position : position + 4], int.from_bytes(content[position + 4 : position + 8], "little")
        start = position + 8
        if name == b"fmt ":
            form = _form(content[start : start + size])
        elif name == b"data":
            if form is None:
                raise StepError("the WAV file has no format before its audio data")
            return Sound(_samples(form, _wav_sound(content, start, size)), form.rate)
        position = start + size + size % 2  # chunks begin at even offsets
    raise StepError("the WAV file has no audio data")


def _form(chunk: bytes) -> _Form:
    if len(chunk) < struct.calcsize("<HHIIHH"):
        raise StepError("the format of the WAV file is truncated")
    tag, channels, rate, _, block, _ = struct.unpack_from("<HHIIHH", chunk)
    if tag == _EXTENSIBLE and chunk[26:40] == _SUBFORMAT:
        tag = int.from_bytes(chunk[24:26], "little")
    width, remainder = divmod(block, channels) if channels else (0, 0)
    if tag not in _BYTES:
        raise StepError(f"the WAV file has format {tag:#06x}; only PCM and floats are supported")
    if width not in _BYTES[tag] or remainder or not rate:
        raise StepError(f"the WAV file states {channels} channels of {block} bytes in total, {rate} Hz")
    return _Form(tag, channels, rate, width)


def _wav_sound(content: bytes, start: int, size: int) -> memoryview:
    available = len(content) - start
    if size not in (_UNKNOWN_SIZE, min(size, available)):
        raise StepError(f"the WAV file is truncated: it has {available} of {size} bytes of audio data")
    return memoryview(content)[start : start + min(size, available)]


def _samples(form: _Form, sound: memoryview) -> NDArray[Any]:
    block = form.width * form.channels
    blocks = np.frombuffer(sound[: len(sound) // block * block], np.uint8).reshape(-1, form.channels, form.width)
    if form.width == _PACKED:
        wide = np.zeros((*blocks.shape[:2], 4), np.uint8)
        wide[..., 1:] = blocks
        return wide.view("<i4")[..., 0]
    kinds = {1: "u1", 2: "<i2", 4: "<i4"} if form.tag == _PCM else {4: "<f4", 8: "<f8"}
    return blocks.view(kinds[form.width])[..., 0]


_FULL_SCALE = {"u1": 2.0**7, "i1": 2.0**7, "i2": 2.0**15, "i4": 2.0**31}
_LARGEST = np.nextafter(np.float32(1), np.float32(0))
# The low-pass filter: the parameter of the Kaiser window, and the zero crossings on each side.
_BETA = 5.0
_CROSSINGS = 10
_MONO, _CHANNELS = 1, 2  # the axes of a sound


def decode(source: Source, *, channels: str) -> Tensor:
    """Decode a sound to float32: integers are divided by their full scale, to [-1, 1); floats are unchanged.

    ``mono`` is the mean of the channels, [time]; ``keep`` keeps the channels, [time, channels], also for one channel.
    An array is treated as the samples of a file, but has no rate.
    """
    source = as_file(source)
    if isinstance(source, str):
        raise StepError("expected audio, found text")
    samples, rate = read_wav(source) if isinstance(source, bytes) else (_sound(source), None)
    values = _scale_samples(samples)
    return Tensor(_as_float32(values.mean(axis=1) if channels == "mono" else values), rate=rate)


def _sound(samples: NDArray[Any]) -> NDArray[Any]:
    if samples.ndim not in (_MONO, _CHANNELS):
        raise StepError(f"an array {list(samples.shape)} is not audio: expected [time] or [time, channels]")
    return samples if samples.ndim == _CHANNELS else samples[:, np.newaxis]


def _scale_samples(samples: NDArray[Any]) -> NDArray[np.float64]:
    """Return the samples as float64, so that the mean of channels is rounded only once."""
    dtype = samples.dtype
    if dtype.kind == "f":
        if not np.isfinite(samples).all():
            raise StepError("the audio contains NaN or infinities")
        return samples.astype(np.float64)
    if dtype.str[1:] not in _FULL_SCALE:
        raise StepError(f"samples of type {dtype} have no known full scale")
    scale = _FULL_SCALE[dtype.str[1:]]
    middle = scale if dtype.kind == "u" else 0.0
    return (samples.astype(np.float64) - middle) / scale


def _as_float32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32, keeping values below 1 below 1."""
    rounded = values.astype(np.float32)
    return np.where((rounded == 1) & (values < 1), _LARGEST, rounded)


def resample(tensor: Tensor, *, rate: int, method: str) -> Tensor:
    """Resample a sound to ``rate`` hertz: ``ceil(time * up / down)`` samples in the tensor's floating type.

    The polyphase filter is the sinc of the lower of both rates under a Kaiser window (beta 5), with ten zero crossings
    on each side and silence before and after the sound. Sums are in float64, without a BLAS.
    """
    if method != "polyphase":
        raise StepError(f"unknown method {method!r}")
    if tensor.rate is None:
        raise StepError("resample needs audio with a known rate: from a WAV file, before python steps")
    values = floating(tensor.values)
    common = gcd(rate, tensor.rate)
    up, down = rate // common, tensor.rate // common
    if up == down or not len(values):
        return tensor._replace(values=values, rate=rate)
    return tensor._replace(values=_polyphase(values, up, down).astype(values.dtype), rate=rate)


def _polyphase(values: NDArray[Any], up: int, down: int) -> NDArray[np.float64]:
    """Return, for each n, the sum over k of ``filter[half + n * down - k * up] * values[k]``."""
    phases = _phases(up, down)
    half, taps = _CROSSINGS * max(up, down), phases.shape[1]
    at = np.arange(-(-len(values) * up // down)) * down + half
    start, phase = at // up + taps, at % up
    silence = np.zeros((max(0, int(start[-1]) + 1 - taps - len(values)), *values.shape[1:]))
    before = np.zeros((taps, *values.shape[1:]))
    signal = np.concatenate((before, values.astype(np.float64), silence))
    weight_shape = (len(at), *[1] * (values.ndim - 1))
    total = np.zeros((len(at), *values.shape[1:]))
    for tap in range(taps):
        total += signal[start - tap] * phases[phase, tap].reshape(weight_shape)
    return total


@lru_cache(maxsize=8)
def _phases(up: int, down: int) -> NDArray[np.float64]:
    """Return the filter values [up, taps] that meet a sample together; the gain is ``up``, for the stuffed zeros."""
    greater = max(up, down)
    half = _CROSSINGS * greater
    values = np.sinc(np.arange(-half, half + 1) / greater) * np.kaiser(2 * half + 1, _BETA)
    values *= up / values.sum()
    taps = -(-len(values) // up)
    padded = np.concatenate((values, np.zeros(taps * up - len(values))))
    return padded.reshape(taps, up).T.copy()


def frame(tensor: Tensor, *, length: int, step: int, pad_start: int, pad_end: bool, calls: str) -> Tensor:
    """Cut the first axis into overlapping frames, [frames, length, ...].

    Args:
        tensor: A sound, or another tensor.
        length: The length of a frame.
        step: The distance between the starts of consecutive frames.
        pad_start: The number of zeros before the first value.
        pad_end: Whether every frame that begins inside the signal counts, padded with zeros; else only full frames
            count.
        calls: The use of the frames, which does not affect how they are cut.
    """
    values = np.concatenate((np.zeros((pad_start, *tensor.values.shape[1:]), tensor.values.dtype), tensor.values))
    full = 1 + (len(values) - length) // step if len(values) >= length else 0
    count = -(-len(values) // step) if pad_end else full
    if not count:
        raise StepError(f"no frame of {length} in {len(values)} samples, with calls: {calls}")
    missing = max(0, (count - 1) * step + length - len(values))
    values = np.concatenate((values, np.zeros((missing, *values.shape[1:]), values.dtype)))
    frames = sliding_window_view(values, length, axis=0)[::step][:count]
    return tensor._replace(values=np.moveaxis(frames, -1, 1), layout=None)


# Slaney, "Auditory Toolbox", 1998: linear up to 1000 Hz, 15 mel, then 27 steps for each factor of 6.4.
_SLANEY_HERTZ, _SLANEY_KNEE, _SLANEY_STEP = 200 / 3, 1000.0, np.log(6.4) / 27
_SPECTROGRAM_AXES = 2


def spectrogram(
    tensor: Tensor, *, frame_length: int, frame_step: int, fft_length: int, window: str, power: int
) -> Tensor:
    """Return magnitudes [frames, fft_length // 2 + 1], or with ``power`` 2 their squares.

    Only full frames count, the first at the first sample. Each is multiplied by the window and padded with zeros to
    ``fft_length``. The result has the tensor's floating type.
    """
    values = floating(tensor.values)
    if values.ndim != 1:
        raise StepError(f"spectrogram needs audio with one channel, [time], found {list(values.shape)}")
    if not frame_length <= fft_length:
        raise StepError(f"a frame of {frame_length} samples does not fit into an fft_length of {fft_length}")
    if len(values) < frame_length:
        raise StepError(f"no frame of {frame_length} in {len(values)} samples")
    frames = sliding_window_view(values.astype(np.float64), frame_length)[::frame_step] * _window(window, frame_length)
    spectrum = np.fft.rfft(frames, fft_length)
    squares = spectrum.real**2 + spectrum.imag**2
    magnitudes = squares if power == 2 else np.sqrt(squares)  # noqa: PLR2004 - the manifest's number
    return tensor._replace(values=magnitudes.astype(values.dtype), layout=None)


@lru_cache(maxsize=8)
def _window(name: str, length: int) -> NDArray[np.float64]:
    """Return a window; a symmetric one has equal ends, a periodic one lacks the last value of the longer one."""
    if name == "hann_periodic":
        return np.hanning(length + 1)[:-1]
    if name == "hann":
        return np.hanning(length)
    if name == "hamming":
        return np.hamming(length)
    if name == "none":
        return np.ones(length)
    raise StepError(f"unknown window {name!r}")


def mfcc(  # noqa: PLR0913 - the manifest's
    tensor: Tensor,
    *,
    rate: int,
    mels: int,
    low: float,
    high: float,
    mel: str,
    log_offset: float,
    coefficients: int,
    dct: str,
) -> Tensor:
    """Return the first ``coefficients`` of the orthonormal DCT-II of ``log(spectrogram @ filters + log_offset)``.

    [frames, bins] become [frames, coefficients], in the tensor's floating type. The bins are spaced evenly from 0 to
    half of ``rate`` (hertz); the logarithm is natural.
    """
    values = floating(tensor.values)
    if values.ndim != _SPECTROGRAM_AXES:
        raise StepError(f"mfcc needs a spectrogram, [frames, bins], found {list(values.shape)}")
    if tensor.rate not in (None, rate):
        raise StepError(f"mfcc has rate {rate} Hz, but the audio {tensor.rate} Hz; resample it, or correct the rate")
    if coefficients > mels or dct != "ortho":
        raise StepError(f"cannot compute {coefficients} coefficients of {mels} mels with dct {dct!r}")
    energies = np.einsum("tb,bm->tm", values.astype(np.float64), filters(values.shape[1], rate, mels, low, high, mel))
    if log_offset == 0 and not (energies > 0).all():
        raise StepError("logarithm of 0: set log_offset above 0")
    cepstrum = np.einsum("tm,mc->tc", np.log(energies + log_offset), _cosines(mels)[:, :coefficients])
    return tensor._replace(values=cepstrum.astype(values.dtype), layout=None)


@lru_cache(maxsize=8)
def filters(bins: int, rate: int, mels: int, low: float, high: float, mel: str) -> NDArray[np.float64]:
    """Return triangular filters [bins, mels], with corners evenly spaced in mel from ``low`` to ``high`` hertz.

    ``htk``: 2595 log10(1 + f / 700), triangles linear in mel, of height 1, without the bin of 0 Hz, as in tf.signal.
    ``slaney``: the scale of the Auditory Toolbox, triangles linear in hertz, of area 1, as in librosa.
    """
    if not 0 <= low < high <= rate / 2:
        raise StepError(f"mels from {low} to {high} Hz are not between 0 and {rate / 2}, half of the rate")
    hertz = np.linspace(0.0, rate / 2, bins)
    if mel == "htk":
        positions, corners = _htk(hertz), _between(_htk(np.array([low, high])), mels)
    elif mel == "slaney":
        positions, corners = hertz, _from_slaney(_between(_slaney(np.array([low, high])), mels))
    else:
        raise StepError(f"unknown scale {mel!r}")
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    rising = (positions[:, None] - left) / (centre - left)
    falling = (right - positions[:, None]) / (right - centre)
    triangles: NDArray[np.float64] = np.maximum(0.0, np.minimum(rising, falling))
    if mel == "htk":
        triangles[0] = 0.0
    else:
        triangles *= 2.0 / (right - left)
    return triangles


def _between(ends: NDArray[np.float64], mels: int) -> NDArray[np.float64]:
    return np.linspace(float(ends[0]), float(ends[1]), mels + 2)


def _htk(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
    mels: NDArray[np.float64] = 1127.0 * np.log1p(hertz / 700.0)
    return mels


def _slaney(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
    above = np.log(np.maximum(hertz, _SLANEY_KNEE) / _SLANEY_KNEE) / _SLANEY_STEP
    mels: NDArray[np.float64] = np.minimum(hertz, _SLANEY_KNEE) / _SLANEY_HERTZ + above
    return mels


def _from_slaney(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    knee = _SLANEY_KNEE / _SLANEY_HERTZ
    hertz: NDArray[np.float64] = (
        np.minimum(mels, knee) * _SLANEY_HERTZ * np.exp(np.maximum(mels - knee, 0) * _SLANEY_STEP)
    )
    return hertz


@lru_cache(maxsize=8)
def _cosines(size: int) -> NDArray[np.float64]:
    """Return the matrix of the orthonormal DCT-II.

    Column c is ``sqrt(2 / size) * cos(pi * c * (n + 0.5) / size)``, and the first column is divided by sqrt(2).
    """
    numbers = np.arange(size)
    matrix: NDArray[np.float64] = np.sqrt(2.0 / size) * np.cos(np.pi / size * np.outer(numbers + 0.5, numbers))
    matrix[:, 0] /= np.sqrt(2.0)
    return matrix
