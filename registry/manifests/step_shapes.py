"""Output shape, dtype and layout of each step, derived from its input without reading any bytes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from msgspec import UNSET, UnsetType

from benchlock.registry.manifests import steps as vocabulary
from benchlock.registry.manifests.steps import Step
from benchlock.registry.manifests.tensor_shapes import TEXT, Sizes, Tensor, format_sizes
from benchlock.registry.text.parsed_text import Place

_SPECTROGRAM_AXES = 2


def _decode_audio(step: vocabulary.DecodeAudio, tensor: Tensor, place: Place) -> Tensor:  # noqa: ARG001 - all alike
    return Tensor((None,) if step.channels == "mono" else (None, None), "float32")


def _resample(step: vocabulary.Resample, tensor: Tensor, place: Place) -> Tensor:  # noqa: ARG001
    sizes: Sizes | None = None if tensor.sizes is None else (None, *tensor.sizes[1:])
    return replace(tensor.floating(), sizes=sizes)


def _frame(step: vocabulary.Frame, tensor: Tensor, place: Place) -> Tensor:
    if tensor.sizes is None:
        return replace(tensor, layout=None)
    count = None
    if tensor.sizes and isinstance(tensor.sizes[0], int):
        time = tensor.sizes[0] + step.pad_start
        full = (time - step.length) // step.step + 1 if time >= step.length else 0
        count = -(-time // step.step) if step.pad_end else full
    if count == 0:
        raise place.at("length").error(
            f"no frame of {step.length} in {format_sizes(tensor.sizes)}", "write pad_end: true"
        )
    frames: Sizes = (count,) if step.calls == "one" else ()
    sizes = (*frames, step.length, *tensor.sizes[1:])
    return Tensor(sizes, tensor.dtype, fft_length=tensor.fft_length)


def _spectrogram(step: vocabulary.Spectrogram, tensor: Tensor, place: Place) -> Tensor:
    if step.fft_length < step.frame_length:
        what = f"a frame of {step.frame_length} samples does not fit into {step.fft_length}"
        raise place.at("fft_length").error(what, "write at least frame_length")
    frames = None
    if tensor.sizes is not None:
        if len(tensor.sizes) != 1:
            what = f"spectrogram requires audio with one channel; its input is {format_sizes(tensor.sizes)}"
            raise place.error(what, "decode with channels: mono")
        time = tensor.sizes[0]
        if isinstance(time, int):
            frames = (time - step.frame_length) // step.frame_step + 1
    if frames is not None and frames < 1:
        raise place.at("frame_length").error(
            f"no frame of {step.frame_length} samples in {format_sizes(tensor.sizes or ())}"
        )
    sizes = (frames, step.fft_length // 2 + 1)
    return replace(tensor.floating(), sizes=sizes, layout=None, fft_length=step.fft_length)


def _mfcc(step: vocabulary.Mfcc, tensor: Tensor, place: Place) -> Tensor:
    if tensor.sizes is not None and len(tensor.sizes) != _SPECTROGRAM_AXES:
        raise place.error(
            f"mfcc requires a spectrogram; its input is {format_sizes(tensor.sizes)}", "add spectrogram before it"
        )
    if tensor.fft_length is not None and tensor.fft_length % 2:
        # For an odd length the last bin is below half of the rate, where the filters expect it.
        what = f"the bins of a spectrogram with fft_length {tensor.fft_length} do not end at half of the rate"
        raise place.error(what, "write an even fft_length")
    if step.high <= step.low:
        raise place.at("high").error(f"{step.high:g} Hz is not above low, {step.low:g} Hz")
    if step.high > step.rate / 2:
        raise place.at("high").error(f"{step.high:g} Hz is above half of the rate, {step.rate / 2:g} Hz")
    if step.coefficients > step.mels:
        raise place.at("coefficients").error(f"{step.mels} mels have no {step.coefficients} coefficients")
    frames = tensor.sizes[0] if tensor.sizes else None
    return replace(tensor.floating(), sizes=(frames, step.coefficients), layout=None)


SOUNDS: Mapping[type[object], Callable[..., Tensor]] = {
    vocabulary.DecodeAudio: _decode_audio,
    vocabulary.Resample: _resample,
    vocabulary.Frame: _frame,
    vocabulary.Spectrogram: _spectrogram,
    vocabulary.Mfcc: _mfcc,
}


def check_rates(steps: Sequence[Step], place: Place) -> None:
    """Check that a sound is resampled only where its rate is known.

    Raises:
        InvalidInputError: A ``python`` step before it leaves the rate unknown.
    """
    names = [step.name for step in steps if len(step.present()) == 1]
    if len(names) == len(steps) and "python" in names and "resample" in names[names.index("python") :]:
        index = names.index("resample", names.index("python"))
        what = f"the sample rate is unknown after the python step, steps[{names.index('python')}]"
        raise place.at(index, "resample").error(what, "put resample before the python step")


def _decode_text(step: vocabulary.DecodeText, tensor: Tensor, place: Place) -> Tensor:  # noqa: ARG001 - all alike
    return Tensor((), TEXT)


def _words(step: vocabulary.Words, tensor: Tensor, place: Place) -> Tensor:
    try:
        re.compile(step.pattern)
    except (re.error, OverflowError) as error:
        what = f"invalid Python regular expression {step.pattern!r}: {error}"
        raise place.at("pattern").error(what, r"write one that splits, such as '\\s+'") from error
    return _tokens(step, tensor, place)


def _tokens(step: vocabulary.Words | vocabulary.TokenizerJson, tensor: Tensor, place: Place) -> Tensor:
    if tensor.dtype not in (TEXT, None):
        raise place.error(f"tokenize requires text; its input is {tensor.dtype}", "put it after decode")
    return Tensor((step.length,), "int64")


TEXTS: Mapping[type[object], Callable[..., Tensor]] = {
    vocabulary.DecodeText: _decode_text,
    vocabulary.Words: _words,
    vocabulary.TokenizerJson: _tokens,
}


_CHANNELS = {"RGB": 3, "BGR": 3, "L": 1}
_ALWAYS_ANTIALIASED = ("lanczos", "area")
_PICTURE_TYPES = ("uint8", "float32", None)
_OF_TEXTS = (vocabulary.Words, vocabulary.TokenizerJson, vocabulary.Python)


def apply_steps(tensor: Tensor, steps: tuple[Step, ...] | UnsetType, place: Place) -> Tensor:
    """Return ``tensor`` after ``steps``.

    Args:
        tensor: The tensor before the first step.
        steps: The steps in their order.
        place: The place of the steps.

    Raises:
        InvalidInputError: A step does not fit its input.
    """
    for index, step in enumerate(() if steps is UNSET else steps):
        here = place.at(index, step.name)
        if tensor.dtype == TEXT and not isinstance(step.arguments, _OF_TEXTS):
            raise here.error(f"{step.name} requires numbers; its input is text", "add tokenize before it")
        tensor = _EFFECTS.get(type(step.arguments), _unknown)(step.arguments, tensor, here)
    return tensor


def _decode_image(step: vocabulary.DecodeImage, tensor: Tensor, place: Place) -> Tensor:  # noqa: ARG001 - all alike
    if step.levels is not UNSET and not step.levels[0] < step.levels[1]:
        raise place.at("levels").error("black is not less than white", "write [black, white], such as [0, 65535]")
    return Tensor((None, None, _CHANNELS[step.color]), "uint8", "HWC")


def _picture(tensor: Tensor, place: Place) -> None:
    """Raise unless the tensor has the layout of a picture."""
    if tensor.layout is None:
        raise place.error(f"{place.path.rpartition('.')[2]} needs a picture: a tensor with a layout")


def _resize(step: vocabulary.Resize, tensor: Tensor, place: Place) -> Tensor:
    _picture(tensor, place)
    _one_of(place, size=step.size, shorter=step.shorter)
    if step.rounding is not UNSET and step.shorter is UNSET:
        raise place.at("rounding").error("rounding applies only to shorter, not to size", "remove it")
    if step.antialias and step.coordinates is not UNSET:
        raise place.at("coordinates").error("coordinates has no effect with antialias: true", "remove it")
    if not step.antialias:
        if step.method in _ALWAYS_ANTIALIASED:
            raise place.at("antialias").error(f"the method {step.method} requires antialias")
        if step.coordinates is UNSET:
            what = "the key 'coordinates' is missing: antialias: false requires it"
            raise place.at("coordinates").error(what, "write one of half_pixel, align_corners, asymmetric")
    if tensor.dtype not in _PICTURE_TYPES:
        raise place.error(f"resize requires uint8 or float32; its input is {tensor.dtype}", "cast to float32 before it")
    if step.size is not UNSET:
        return tensor.with_sizes(H=step.size[0], W=step.size[1])
    return tensor.with_sizes(H=None, W=None)


def _center_crop(step: vocabulary.CenterCrop, tensor: Tensor, place: Place) -> Tensor:
    _picture(tensor, place)
    _one_of(place, size=step.size, fraction=step.fraction)
    if step.size is UNSET:
        return tensor.with_sizes(H=None, W=None)
    for letter, side in zip("HW", step.size, strict=True):
        size = tensor.size(letter)
        if isinstance(size, int) and size < side:
            raise place.at("size").error(f"no crop of {side} out of {size} pixels")
    return tensor.with_sizes(H=step.size[0], W=step.size[1])


def _cast(step: vocabulary.Cast | vocabulary.Dequantize, tensor: Tensor, place: Place) -> Tensor:  # noqa: ARG001
    return replace(tensor, dtype=step.dtype)


def _floating(step: object, tensor: Tensor, place: Place) -> Tensor:  # noqa: ARG001
    return tensor.floating()


def _normalize(step: vocabulary.Normalize, tensor: Tensor, place: Place) -> Tensor:
    if len(step.mean) != len(step.std):
        raise place.at("std").error(
            f"{len(step.mean)} means and {len(step.std)} deviations", "write one of each per channel"
        )
    if len(step.mean) > 1:
        if tensor.layout is None:
            raise place.at("mean").error("several means need a layout, to know the channel", "write one mean, one std")
        channels = tensor.size("C")
        if isinstance(channels, int) and channels != len(step.mean):
            raise place.at("mean").error(f"{len(step.mean)} means for {channels} channels")
    return tensor.floating()


def _transpose(step: vocabulary.Transpose, tensor: Tensor, place: Place) -> Tensor:
    layout = step.layout.replace("N", "")
    if tensor.layout is None:
        raise place.error("transpose requires an input with a layout")
    assert tensor.sizes is not None
    return Tensor(tuple(tensor.size(letter) for letter in layout), tensor.dtype, layout)


def _reshape(step: vocabulary.Reshape, tensor: Tensor, place: Place) -> Tensor:
    open_axes = [index for index, size in enumerate(step.shape) if size == -1]
    if len(open_axes) > 1 or 0 in step.shape:
        raise place.at("shape").error("a size is at least 1, and -1 may stand once, for what is left")
    known = prod(size for size in step.shape if size > 0)
    sizes: list[int | str | None] = [None if size < 0 else size for size in step.shape]
    if tensor.sizes is not None and all(isinstance(size, int) for size in tensor.sizes):
        elements = prod(size for size in tensor.sizes if isinstance(size, int))
        if elements % known or (not open_axes and elements != known):
            raise place.at("shape").error(
                f"{format_sizes(tensor.sizes)} has {elements} elements, which do not fit this shape"
            )
        for axis in open_axes:
            sizes[axis] = elements // known
    return Tensor(tuple(sizes), tensor.dtype)


def _pad(step: vocabulary.Pad, tensor: Tensor, place: Place) -> Tensor:
    margins = {"top": step.top, "bottom": step.bottom, "left": step.left, "right": step.right}
    cut = {"length": step.length, "side": step.side}
    group, other = (margins, cut) if step.length is UNSET and step.side is UNSET else (cut, margins)
    for key, argument in group.items():
        if argument is UNSET:
            raise place.at(key).error(f"the key {key!r} is missing", "write top, bottom, left, right; or length, side")
    for key, argument in other.items():
        if argument is not UNSET:
            raise place.at(key).error(
                "length and side exclude the other keys", "write top, bottom, left, right; or length, side"
            )
    if step.length is not UNSET:
        return replace(tensor, sizes=(step.length, *tensor.sizes[1:]) if tensor.sizes else None)
    _picture(tensor, place)
    grown = {}
    for letter, before, after in (("H", step.top, step.bottom), ("W", step.left, step.right)):
        assert before is not UNSET
        assert after is not UNSET
        size = tensor.size(letter)
        grown[letter] = size + before + after if isinstance(size, int) else None
    return tensor.with_sizes(**grown)


def _quantize(step: vocabulary.Quantize, tensor: Tensor, place: Place) -> Tensor:
    signed, bits = step.dtype.startswith("int"), int(step.dtype.partition("int")[2])
    least, greatest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if not least <= step.zero_point <= greatest:
        raise place.at("zero_point").error(f"{step.zero_point} is outside {step.dtype}: {least} to {greatest}")
    return replace(tensor, dtype=step.dtype)


def _softmax(step: vocabulary.Softmax, tensor: Tensor, place: Place) -> Tensor:
    _axis(step.axis, tensor, place)
    return tensor.floating()


def _argmax(step: vocabulary.Argmax, tensor: Tensor, place: Place) -> Tensor:
    axis = _axis(step.axis, tensor, place)
    sizes = None if tensor.sizes is None or axis is None else (*tensor.sizes[:axis], *tensor.sizes[axis + 1 :])
    return Tensor(sizes, "int64")


def _topk(step: vocabulary.TopK, tensor: Tensor, place: Place) -> Tensor:
    _axis(-1, tensor, place)
    if tensor.sizes is None:
        return Tensor(None, "int64")
    if isinstance(tensor.sizes[-1], int) and tensor.sizes[-1] < step.k:
        raise place.at("k").error(f"k is {step.k}, and the axis has {tensor.sizes[-1]} elements")
    return Tensor((*tensor.sizes[:-1], step.k), "int64")


def _unknown(step: object, tensor: Tensor, place: Place) -> Tensor:  # noqa: ARG001
    """Return a tensor of which nothing is known."""
    return Tensor()


def _axis(axis: int, tensor: Tensor, place: Place) -> int | None:
    """Return ``axis`` counted from the first one; None if the number of axes is unknown."""
    if tensor.sizes is None:
        return None
    rank = len(tensor.sizes)
    if not -rank <= axis < rank:
        raise place.at("axis").error(f"axis {axis} does not exist: the sample has {rank} axes here")
    return axis % rank


def _one_of(place: Place, **choices: object) -> None:
    """Raise unless exactly one of the choices is set."""
    present = [key for key, value in choices.items() if value is not UNSET]
    if len(present) != 1:
        keys = " or ".join(choices)
        raise place.at(next(iter(choices))).error(f"expected exactly one of {keys}, found {len(present)}")


_EFFECTS: dict[type[object], Callable[..., Tensor]] = {
    vocabulary.DecodeImage: _decode_image,
    vocabulary.Resize: _resize,
    vocabulary.CenterCrop: _center_crop,
    vocabulary.Cast: _cast,
    vocabulary.Scale: _floating,
    vocabulary.Normalize: _normalize,
    vocabulary.Transpose: _transpose,
    vocabulary.Reshape: _reshape,
    vocabulary.Pad: _pad,
    vocabulary.Quantize: _quantize,
    vocabulary.Dequantize: _cast,
    vocabulary.Softmax: _softmax,
    vocabulary.Sigmoid: _floating,
    vocabulary.Argmax: _argmax,
    vocabulary.TopK: _topk,
    **SOUNDS,
    **TEXTS,
}
