"""Steps of sounds: the time is always the first axis."""

from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .tensor import Source, StepError, Tensor, as_file, floating
from .wav import read_wav

_FULL_SCALE = {"u1": 2.0**7, "i1": 2.0**7, "i2": 2.0**15, "i4": 2.0**31}
_LARGEST = np.nextafter(np.float32(1), np.float32(0))
# Of the low-pass filter: the Kaiser window's parameter, and its zero crossings on each side.
_BETA = 5.0
_CROSSINGS = 10
_MONO, _CHANNELS = 1, 2  # the axes of a sound


def decode(source: Source, *, channels: str) -> Tensor:
    """``source`` as float32: integers over their full scale, in [-1, 1); floats as they are.

    ``mono`` is the mean of the channels, [time]; ``keep`` keeps them, [time, channels], also where there is one. An
    array is taken like the samples of a file, but says no rate.
    """
    source = as_file(source)
    if isinstance(source, str):
        raise StepError("a text is no sound")
    samples, rate = read_wav(source) if isinstance(source, bytes) else (_sound(source), None)
    values = _scaled(samples)
    return Tensor(_as_float32(values.mean(axis=1) if channels == "mono" else values), rate=rate)


def _sound(samples: NDArray[Any]) -> NDArray[Any]:
    if samples.ndim not in (_MONO, _CHANNELS):
        raise StepError(f"an array of {list(samples.shape)} is no sound: it is [time] or [time, channels]")
    return samples if samples.ndim == _CHANNELS else samples[:, np.newaxis]


def _scaled(samples: NDArray[Any]) -> NDArray[np.float64]:
    """In float64, so that the mean of channels is rounded once."""
    dtype = samples.dtype
    if dtype.kind == "f":
        if not np.isfinite(samples).all():
            raise StepError("the sound has values that are no numbers")
        return samples.astype(np.float64)
    if dtype.str[1:] not in _FULL_SCALE:
        raise StepError(f"samples of type {dtype} have no known full scale")
    scale = _FULL_SCALE[dtype.str[1:]]
    middle = scale if dtype.kind == "u" else 0.0
    return (samples.astype(np.float64) - middle) / scale


def _as_float32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rounded, but to nothing outside of [-1, 1) that was inside."""
    rounded = values.astype(np.float32)
    return np.where((rounded == 1) & (values < 1), _LARGEST, rounded)


def resample(tensor: Tensor, *, rate: int, method: str) -> Tensor:
    """The sound at ``rate`` hertz: ``ceil(time * up / down)`` samples, in the tensor's floating type.

    A polyphase filter, the sinc of the lower of both rates under a Kaiser window (beta 5), ten zero crossings to each
    side; silence before and after. The sums are in float64, without a BLAS.
    """
    if method != "polyphase":
        raise StepError(f"no method {method!r}")
    if tensor.rate is None:
        raise StepError("resample needs a sound of a known rate: that of a WAV file, before python steps")
    values = floating(tensor.values)
    common = gcd(rate, tensor.rate)
    up, down = rate // common, tensor.rate // common
    if up == down or not len(values):
        return tensor._replace(values=values, rate=rate)
    return tensor._replace(values=_polyphase(values, up, down).astype(values.dtype), rate=rate)


def _polyphase(values: NDArray[Any], up: int, down: int) -> NDArray[np.float64]:
    """Result n is the sum over k of ``filter[half + n * down - k * up] * values[k]``."""
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
    """The filter's values [up, taps] that meet a sample at once; the gain is ``up``, which stuffed the signal."""
    greater = max(up, down)
    half = _CROSSINGS * greater
    values = np.sinc(np.arange(-half, half + 1) / greater) * np.kaiser(2 * half + 1, _BETA)
    values *= up / values.sum()
    taps = -(-len(values) // up)
    padded = np.concatenate((values, np.zeros(taps * up - len(values))))
    return padded.reshape(taps, up).T.copy()


def frame(tensor: Tensor, *, length: int, step: int, pad_start: int, pad_end: bool, calls: str) -> Tensor:
    """Overlapping pieces of the first axis, [frames, length, ...]: each begins ``step`` after the one before.

    ``pad_start`` zeros come first. Without ``pad_end`` only full frames count; with it every frame that begins inside
    of the signal does, filled with zeros. ``calls`` says what the frames are, not how they are cut.
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
