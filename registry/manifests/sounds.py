"""What the steps of sounds do to shape and dtype; the time is the first axis."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from benchlock.registry.manifests import steps as vocabulary
from benchlock.registry.manifests.steps import Step
from benchlock.registry.manifests.tensors import Sizes, Tensor, shown
from benchlock.registry.yaml import Place

_SPECTROGRAM_AXES = 2


def _decode(step: vocabulary.DecodeAudio, tensor: Tensor, place: Place) -> Tensor:  # noqa: ARG001 - all alike
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
        raise place.at("length").error(f"no frame of {step.length} in {shown(tensor.sizes)}", "write pad_end: true")
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
            what = f"spectrogram takes a sound of one channel, here it gets {shown(tensor.sizes)}"
            raise place.error(what, "decode with channels: mono")
        time = tensor.sizes[0]
        if isinstance(time, int):
            frames = (time - step.frame_length) // step.frame_step + 1
    if frames is not None and frames < 1:
        raise place.at("frame_length").error(f"no frame of {step.frame_length} samples in {shown(tensor.sizes or ())}")
    sizes = (frames, step.fft_length // 2 + 1)
    return replace(tensor.floating(), sizes=sizes, layout=None, fft_length=step.fft_length)


def _mfcc(step: vocabulary.Mfcc, tensor: Tensor, place: Place) -> Tensor:
    if tensor.sizes is not None and len(tensor.sizes) != _SPECTROGRAM_AXES:
        raise place.error(f"mfcc takes a spectrogram, here it gets {shown(tensor.sizes)}", "add spectrogram before it")
    if tensor.fft_length is not None and tensor.fft_length % 2:
        # The last bin of an odd one is below half of the rate, where the filters take it to be.
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
    vocabulary.DecodeAudio: _decode,
    vocabulary.Resample: _resample,
    vocabulary.Frame: _frame,
    vocabulary.Spectrogram: _spectrogram,
    vocabulary.Mfcc: _mfcc,
}


def check_rates(steps: Sequence[Step], place: Place) -> None:
    """Check that the rate of a sound is known where it is resampled.

    Raises:
        InvalidInputError: Code comes before, which says no rate.
    """
    names = [step.name for step in steps if len(step.present()) == 1]
    if len(names) == len(steps) and "python" in names and "resample" in names[names.index("python") :]:
        index = names.index("resample", names.index("python"))
        what = f"the rate of the sound is not known after the python step, steps[{names.index('python')}]"
        raise place.at(index, "resample").error(what, "put resample before the python step")
