"""WAV files: PCM of 8, 16, 24 and 32 bits and floats of 32 and 64, little-endian, as Microsoft and IBM define them.

The layout is that of "Multimedia Programming Interface and Data Specifications 1.0" (1991), with the extensible format
of 1999. What a file promises and does not hold is an error, never silence in its place.
"""

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .tensor import StepError

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
# The tail of a subformat's GUID, behind the two bytes of a format of old.
_SUBFORMAT = bytes.fromhex("000000001000800000aa00389b71")
_UNKNOWN_SIZE = 0xFFFFFFFF  # what is written where the size was not known yet: the sound lasts to the end of the file
_BYTES = {_PCM: (1, 2, 3, 4), _FLOAT: (4, 8)}
_PACKED = 3


class Sound(NamedTuple):
    """``samples`` [time, channels] as the file has them, 24 bits as the upper ones of 32; ``rate`` in hertz."""

    samples: NDArray[Any]
    rate: int


class _Form(NamedTuple):
    tag: int
    channels: int
    rate: int
    width: int  # bytes of one sample of one channel


def read_wav(content: bytes) -> Sound:
    """The sound that the file holds.

    Raises:
        StepError: it is no WAV file, ends early, or is compressed.
    """
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise StepError("the file is no WAV file")
    form, position = None, 12
    while position + 8 <= len(content):
        name, size = content[position : position + 4], int.from_bytes(content[position + 4 : position + 8], "little")
        start = position + 8
        if name == b"fmt ":
            form = _form(content[start : start + size])
        elif name == b"data":
            if form is None:
                raise StepError("the WAV file has no format before its sound")
            return Sound(_samples(form, _sound(content, start, size)), form.rate)
        position = start + size + size % 2  # chunks begin at even places
    raise StepError("the WAV file has no sound")


def _form(chunk: bytes) -> _Form:
    if len(chunk) < struct.calcsize("<HHIIHH"):
        raise StepError("the format of the WAV file is cut off")
    tag, channels, rate, _, block, _ = struct.unpack_from("<HHIIHH", chunk)
    if tag == _EXTENSIBLE and chunk[26:40] == _SUBFORMAT:
        tag = int.from_bytes(chunk[24:26], "little")
    width, rest = divmod(block, channels) if channels else (0, 0)
    if tag not in _BYTES:
        raise StepError(f"the WAV file is of format {tag:#06x}; PCM and floats are read")
    if width not in _BYTES[tag] or rest or not rate:
        raise StepError(f"the WAV file says {channels} channels of {block} bytes together, {rate} Hz")
    return _Form(tag, channels, rate, width)


def _sound(content: bytes, start: int, size: int) -> memoryview:
    held = len(content) - start
    if size not in (_UNKNOWN_SIZE, min(size, held)):
        raise StepError(f"the WAV file ends early: {held} of {size} bytes of its sound are there")
    return memoryview(content)[start : start + min(size, held)]


def _samples(form: _Form, sound: memoryview) -> NDArray[Any]:
    block = form.width * form.channels
    whole = np.frombuffer(sound[: len(sound) // block * block], np.uint8).reshape(-1, form.channels, form.width)
    if form.width == _PACKED:
        wide = np.zeros((*whole.shape[:2], 4), np.uint8)
        wide[..., 1:] = whole
        return wide.view("<i4")[..., 0]
    kinds = {1: "u1", 2: "<i2", 4: "<i4"} if form.tag == _PCM else {4: "<f4", 8: "<f8"}
    return whole.view(kinds[form.width])[..., 0]
