"""Sounds for tests."""

import io
import wave
from typing import Any

from numpy.typing import NDArray


def wav(samples: NDArray[Any], rate: int = 8000) -> bytes:
    """A WAV file of int16, [time] or [time, channels], as Python's own ``wave`` writes it."""
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        channels = samples.shape[1] if samples.ndim > 1 else 1
        file.setparams((channels, 2, rate, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return stream.getvalue()
