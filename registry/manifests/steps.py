"""The step vocabulary: preprocessing of a sample before the model, and postprocessing of outputs.

A step is a mapping with one key, its name. Its arguments state everything that changes a result, so none has a default.
Steps see one sample without the batch axis: the layout ``NCHW`` means C, H, W here. Rounding is half to even.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from benchlock.registry.manifests.field_types import (
    MAX_AXES,
    MAX_CHANNELS,
    Count,
    DType,
    FloatType,
    Fraction,
    IntegerType,
    Layout,
    NotNegative,
    Part,
    PathText,
    Positive,
    Text,
)

Pixels = Annotated[int, Meta(ge=1, description="pixels")]
Margin = Annotated[int, Meta(ge=0, description="pixels added on this side")]
Size = Annotated[tuple[Pixels, Pixels], Meta(description="[height, width] in pixels")]
Axis = Annotated[int, Meta(description="an axis of one sample; negative counts from the last")]
Dimension = Annotated[int, Meta(ge=-1, description="elements; -1 once, for what is left")]
Hertz = Annotated[int, Meta(ge=1, description="samples a second")]
Frequency = Annotated[float, Meta(ge=0, description="hertz")]
Samples = Annotated[int, Meta(ge=1, description="samples of the signal")]
Tokens = Annotated[int, Meta(ge=1, description="tokens")]
Side = Literal["start", "end"]
Rounding = Literal["down", "half_even"]


class DecodeImage(Part, frozen=True, kw_only=True):
    """Decoding of a picture as by Pillow's ``convert``, without alpha; the result is uint8 in H, W, C.

    An array is only converted.
    """

    color: Literal["RGB", "BGR", "L"]
    exif: Annotated[
        Literal["ignore", "apply"], Meta(description="whether the orientation that a file states is applied")
    ]
    levels: (
        Annotated[
            tuple[float, float],
            Meta(description="[black, white]: the values that become 0 and 255 in a file of more than 8 bits a sample"),
        ]
        | UnsetType
    ) = UNSET


class Resize(Part, frozen=True, kw_only=True):
    """Resizing to ``size``, or of the shorter side to ``shorter``; on 8 bits before ``cast``, on float32 after it."""

    size: Size | UnsetType = UNSET
    shorter: (
        Annotated[Pixels, Meta(description="pixels; the other side is round(side * shorter / shorter side)")]
        | UnsetType
    ) = UNSET
    rounding: (
        Annotated[
            Rounding,
            Meta(description="of the other side, only with shorter; absent: half_even; torchvision's is down"),
        ]
        | UnsetType
    ) = UNSET
    method: Literal["nearest", "bilinear", "bicubic", "lanczos", "area"]
    antialias: bool
    coordinates: (
        Annotated[
            Literal["half_pixel", "align_corners", "asymmetric"],
            Meta(description="required with antialias: false, else absent"),
        ]
        | UnsetType
    ) = UNSET


class CenterCrop(Part, frozen=True, kw_only=True):
    """The centre of a picture, of ``size`` or of a ``fraction`` of each side."""

    size: Size | UnsetType = UNSET
    fraction: Annotated[Fraction, Meta(description="of each side")] | UnsetType = UNSET
    offset: (
        Annotated[
            Rounding,
            Meta(description="rounding of half of the cropped pixels; absent: down; torchvision's is half_even"),
        ]
        | UnsetType
    ) = UNSET


class Cast(Part, frozen=True, kw_only=True):
    """Conversion of each element to ``dtype``."""

    dtype: DType


class Scale(Part, frozen=True, kw_only=True):
    """Multiplication of each element by ``factor``; integers become float32."""

    factor: float


class Normalize(Part, frozen=True, kw_only=True):
    """``(x - mean) / std`` with one value, or one per channel; integers become float32."""

    mean: Annotated[tuple[float, ...], Meta(min_length=1, max_length=MAX_CHANNELS)]
    std: Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=MAX_CHANNELS)]


class Transpose(Part, frozen=True, kw_only=True):
    """The order of axes given by ``layout``."""

    layout: Layout


class Reshape(Part, frozen=True, kw_only=True):
    """Another shape for the elements, in row-major order; the layout is lost."""

    shape: Annotated[tuple[Dimension, ...], Meta(max_length=MAX_AXES)]


class Pad(Part, frozen=True, kw_only=True):
    """Margins of an image; or the first axis of another tensor padded or cut to ``length`` at ``side``."""

    top: Margin | UnsetType = UNSET
    bottom: Margin | UnsetType = UNSET
    left: Margin | UnsetType = UNSET
    right: Margin | UnsetType = UNSET
    length: Annotated[int, Meta(ge=1, description="elements of the first axis")] | UnsetType = UNSET
    side: Side | UnsetType = UNSET
    value: float


class Quantize(Part, frozen=True, kw_only=True):
    """``round(x / scale) + zero_point``, clipped to the range of ``dtype``."""

    scale: Positive
    zero_point: int
    dtype: IntegerType


class Dequantize(Part, frozen=True, kw_only=True):
    """``(x - zero_point) * scale`` as ``dtype``."""

    scale: Positive
    zero_point: int
    dtype: FloatType


class Python(Part, frozen=True, kw_only=True):
    """A call of ``function(value: ndarray) -> ndarray`` on one sample; ``file`` may import its siblings."""

    file: PathText
    function: Text


class DecodeAudio(Part, frozen=True, kw_only=True):
    """Decoding of a WAV file to float32 in [-1, 1): int16 / 32768.

    ``mono`` is the mean, [time]; ``keep`` is [time, channels].
    """

    channels: Literal["mono", "keep"]


class Resample(Part, frozen=True, kw_only=True):
    """Another sampling rate: a sinc under a Kaiser window (beta 5), ten zero crossings on each side."""

    rate: Hertz
    method: Literal["polyphase"]


class Frame(Part, frozen=True, kw_only=True):
    """Frames of the first axis; with ``calls: each`` every frame of a sample is one call, in order."""

    length: Samples
    step: Samples
    pad_start: Annotated[int, Meta(ge=0, description="zeros put before the signal")]
    pad_end: Annotated[
        bool, Meta(description="whether frames that begin inside and end outside count, zeros at the end")
    ]
    calls: Literal["one", "each"]


class Spectrogram(Part, frozen=True, kw_only=True):
    """The spectrogram of overlapping full frames without centring: [frames, fft_length // 2 + 1].

    ``hann`` and ``hamming`` are symmetric, with equal ends.
    """

    frame_length: Samples
    frame_step: Samples
    fft_length: Samples
    window: Literal["hann_periodic", "hann", "hamming", "none"]
    power: Literal[1, 2]


class Mfcc(Part, frozen=True, kw_only=True):
    """Mel-frequency cepstral coefficients of a spectrogram: [frames, coefficients].

    ``htk``: triangles in mel, of height 1, like tf.signal. ``slaney``: triangles in hertz, of area 1, like librosa.
    """

    rate: Hertz
    mels: Count
    low: Frequency
    high: Frequency
    mel: Literal["htk", "slaney"]
    log_offset: Annotated[NotNegative, Meta(description="added to the energies before the natural logarithm")]
    coefficients: Count
    dct: Literal["ortho"]


class DecodeText(Part, frozen=True, kw_only=True):
    """Decoding of bytes to text."""

    encoding: Literal["utf-8"]


class Words(Part, frozen=True, kw_only=True, tag_field="kind", tag="words"):
    """Words between matches of a pattern, looked up in a vocabulary of lines TOKEN, numbered from 0, or TOKEN ID."""

    vocabulary: PathText
    pattern: Annotated[Text, Meta(description="a regular expression of Python that splits")]
    lowercase: bool
    start: Annotated[str | None, Meta(description="the token put first, before truncating, or null")]
    unknown: str
    pad: str
    length: Tokens
    truncate: Side
    pad_side: Side
    yields: Literal["ids", "mask", "types"]


class TokenizerJson(Part, frozen=True, kw_only=True, tag_field="kind", tag="tokenizer-json"):
    """Tokens of a text by a tokenizer.json file; special tokens are never cut off."""

    file: PathText
    length: Tokens
    truncate: Side
    pad_side: Side
    pad: str
    yields: Literal["ids", "mask", "types"]


class Softmax(Part, frozen=True, kw_only=True):
    """The softmax along ``axis``."""

    axis: Axis


class Sigmoid(Part, frozen=True, kw_only=True):
    """The sigmoid of each element."""


class Argmax(Part, frozen=True, kw_only=True):
    """The index of the greatest element along ``axis``, as int64, without that axis.

    Ties go to the lowest index.
    """

    axis: Axis


class TopK(Part, frozen=True, kw_only=True):
    """The indices of the ``k`` greatest elements of the last axis, greatest first, as int64.

    Ties go to the lowest index.
    """

    k: Count


class TensorStep(Part, frozen=True, kw_only=True):
    """One step on any numeric tensor: exactly one key is present."""

    cast: Cast | UnsetType = UNSET
    scale: Scale | UnsetType = UNSET
    normalize: Normalize | UnsetType = UNSET
    transpose: Transpose | UnsetType = UNSET
    reshape: Reshape | UnsetType = UNSET
    pad: Pad | UnsetType = UNSET
    quantize: Quantize | UnsetType = UNSET
    dequantize: Dequantize | UnsetType = UNSET
    python: Python | UnsetType = UNSET

    @property
    def name(self) -> str:
        """The name of the step: the one key that is present."""
        return self.present()[0]

    @property
    def arguments(self) -> Part:
        """The arguments of the step."""
        arguments: Part = getattr(self, self.name)
        return arguments

    def present(self) -> tuple[str, ...]:
        """Return the keys that are present; exactly one in a checked manifest."""
        return tuple(field for field in self.__struct_fields__ if getattr(self, field) is not UNSET)


class ImageStep(TensorStep, frozen=True, kw_only=True):
    """One step on a picture."""

    decode: DecodeImage | UnsetType = UNSET
    resize: Resize | UnsetType = UNSET
    center_crop: CenterCrop | UnsetType = UNSET


class AudioStep(TensorStep, frozen=True, kw_only=True):
    """One step on a sound."""

    decode: DecodeAudio | UnsetType = UNSET
    resample: Resample | UnsetType = UNSET
    frame: Frame | UnsetType = UNSET
    spectrogram: Spectrogram | UnsetType = UNSET
    mfcc: Mfcc | UnsetType = UNSET


class TextStep(TensorStep, frozen=True, kw_only=True):
    """One step on a text."""

    decode: DecodeText | UnsetType = UNSET
    tokenize: Words | TokenizerJson | UnsetType = UNSET


class OutputStep(TensorStep, frozen=True, kw_only=True):
    """One step on an output of the model."""

    softmax: Softmax | UnsetType = UNSET
    sigmoid: Sigmoid | UnsetType = UNSET
    argmax: Argmax | UnsetType = UNSET
    topk: TopK | UnsetType = UNSET


Step = ImageStep | AudioStep | TextStep | TensorStep | OutputStep
