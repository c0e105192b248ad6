"""Steps from a sound to what a network hears of it. All is computed in float64 and rounded once."""

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .tensor import StepError, Tensor, floating

# Slaney, "Auditory Toolbox", 1998: even up to 1000 Hz, 15 mel, then 27 steps to each factor of 6.4.
_SLANEY_HERTZ, _SLANEY_KNEE, _SLANEY_STEP = 200 / 3, 1000.0, np.log(6.4) / 27
_SPECTROGRAM_AXES = 2


def spectrogram(
    tensor: Tensor, *, frame_length: int, frame_step: int, fft_length: int, window: str, power: int
) -> Tensor:
    """Magnitudes, or with ``power`` 2 their squares, [frames, fft_length // 2 + 1], in the tensor's floating type.

    Frames are full ones alone, the first at the first sample; each is multiplied by the window, then zeros fill it up
    to ``fft_length``.
    """
    values = floating(tensor.values)
    if values.ndim != 1:
        raise StepError(f"spectrogram takes a sound of one channel, [time], here it gets {list(values.shape)}")
    if not frame_length <= fft_length:
        raise StepError(f"a frame of {frame_length} samples does not fit into an fft_length of {fft_length}")
    if len(values) < frame_length:
        raise StepError(f"no frame of {frame_length} in {len(values)} samples")
    frames = sliding_window_view(values.astype(np.float64), frame_length)[::frame_step] * _window(window, frame_length)
    spectrum = np.fft.rfft(frames, fft_length)
    squares = spectrum.real**2 + spectrum.imag**2
    found = squares if power == 2 else np.sqrt(squares)  # noqa: PLR2004 - the manifest's number
    return tensor._replace(values=found.astype(values.dtype), layout=None)


@lru_cache(maxsize=8)
def _window(name: str, length: int) -> NDArray[np.float64]:
    """Symmetric ones have their ends equal; the periodic one lacks the last of a symmetric one of one more."""
    if name == "hann_periodic":
        return np.hanning(length + 1)[:-1]
    if name == "hann":
        return np.hanning(length)
    if name == "hamming":
        return np.hamming(length)
    if name == "none":
        return np.ones(length)
    raise StepError(f"no window {name!r}")


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
    """The first ``coefficients`` of the orthonormal DCT-II of ``log(spectrogram @ filters + log_offset)``.

    [frames, bins] become [frames, coefficients], in the tensor's floating type. The bins lie evenly from 0 to half of
    ``rate`` (hertz); the logarithm is natural.
    """
    values = floating(tensor.values)
    if values.ndim != _SPECTROGRAM_AXES:
        raise StepError(f"mfcc takes a spectrogram, [frames, bins], here it gets {list(values.shape)}")
    if tensor.rate not in (None, rate):
        raise StepError(f"mfcc says {rate} Hz, the sound has {tensor.rate}; resample it, or correct the rate")
    if coefficients > mels or dct != "ortho":
        raise StepError(f"no {coefficients} coefficients of {mels} mels with dct {dct!r}")
    energies = np.einsum("tb,bm->tm", values.astype(np.float64), filters(values.shape[1], rate, mels, low, high, mel))
    if log_offset == 0 and not (energies > 0).all():
        raise StepError("the logarithm of 0: give a log_offset above 0")
    found = np.einsum("tm,mc->tc", np.log(energies + log_offset), _cosines(mels)[:, :coefficients])
    return tensor._replace(values=found.astype(values.dtype), layout=None)


@lru_cache(maxsize=8)
def filters(bins: int, rate: int, mels: int, low: float, high: float, mel: str) -> NDArray[np.float64]:
    """Triangles [bins, mels] whose corners lie evenly on the mel scale from ``low`` to ``high`` hertz.

    ``htk``: 2595 log10(1 + f / 700), triangles straight in mel, of height 1, without the bin of 0 Hz, as tf.signal
    makes them. ``slaney``: the Auditory Toolbox's scale, triangles straight in hertz, of area 1, as librosa makes them.
    """
    if not 0 <= low < high <= rate / 2:
        raise StepError(f"mels from {low} to {high} Hz do not lie between 0 and {rate / 2}, half of the rate")
    hertz = np.linspace(0.0, rate / 2, bins)
    if mel == "htk":
        places, corners = _htk(hertz), _between(_htk(np.array([low, high])), mels)
    elif mel == "slaney":
        places, corners = hertz, _from_slaney(_between(_slaney(np.array([low, high])), mels))
    else:
        raise StepError(f"no scale {mel!r}")
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    rising = (places[:, None] - left) / (centre - left)
    falling = (right - places[:, None]) / (right - centre)
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
    """The orthonormal DCT-II: column c is ``sqrt(2 / size) * cos(pi * c * (n + 0.5) / size)``, the first / sqrt(2)."""
    numbers = np.arange(size)
    found: NDArray[np.float64] = np.sqrt(2.0 / size) * np.cos(np.pi / size * np.outer(numbers + 0.5, numbers))
    found[:, 0] /= np.sqrt(2.0)
    return found
