"""Sounds for tests, and what is heard of them, worked out step by step with the definitions alone."""

import io
import wave
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct, fft


def wav(samples: NDArray[Any], rate: int = 8000) -> bytes:
    """A WAV file of int16, [time] or [time, channels], as Python's own ``wave`` writes it."""
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        channels = samples.shape[1] if samples.ndim > 1 else 1
        file.setparams((channels, 2, rate, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return stream.getvalue()


def triangles(corners: list[float], places: list[float]) -> NDArray[np.float64]:
    """Triangles over three neighbouring corners each, [places, triangles], point by point."""
    found = np.zeros((len(places), len(corners) - 2))
    for band in range(len(corners) - 2):
        left, centre, right = corners[band : band + 3]
        for row, place in enumerate(places):
            if left <= place <= centre:
                found[row, band] = (place - left) / (centre - left)
            elif centre < place <= right:
                found[row, band] = (right - place) / (right - centre)
    return found


def htk_filters(bins: int, rate: int, mels: int, low: float, high: float) -> NDArray[np.float64]:
    """Triangles that are straight in mel; ``low`` is above 0, so that the first bin is in none."""

    def mel(hertz: float) -> float:
        return 1127 * float(np.log(1 + hertz / 700))

    width = (mel(high) - mel(low)) / (mels + 1)
    corners = [mel(low) + width * number for number in range(mels + 2)]
    return triangles(corners, [mel(rate / 2 * number / (bins - 1)) for number in range(bins)])


def heard(sound: NDArray[Any], length: int, step: int, filters: NDArray[np.float64], offset: float) -> NDArray[Any]:
    """All cepstral coefficients of ``sound`` [time]: Hann's periodic window, magnitudes, ``length`` points."""
    window = [0.5 - 0.5 * np.cos(2 * np.pi * n / length) for n in range(length)]
    frames = np.array([sound[at : at + length] * window for at in range(0, len(sound) - length + 1, step)])
    magnitudes = np.abs(fft(frames)[:, : length // 2 + 1])
    return np.asarray(dct(np.log(magnitudes @ filters + offset), norm="ortho"))
