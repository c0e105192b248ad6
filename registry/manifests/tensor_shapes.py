"""Shapes and dtypes of tensors, as far as a manifest declares them.

Steps see one sample, so these are shapes of a sample. A size is None where it depends on the sample, and a name where
the axis is free.
"""

from dataclasses import dataclass, replace

from msgspec import UNSET

from benchlock.registry.manifests.manifest_types import Input, Output
from benchlock.registry.text.parsed_text import Place

Sizes = tuple[int | str | None, ...]
TEXT = "text"
"""The dtype of a text before tokenization."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """The known properties of a tensor; None is unknown.

    Attributes:
        sizes: The sizes of the axes of a sample.
        dtype: The type of the elements.
        layout: The axes of a sample by letter: ``HWC``.
        fft_length: The FFT length of the spectrogram that the tensor was made of.
    """

    sizes: Sizes | None = None
    dtype: str | None = None
    layout: str | None = None
    fft_length: int | None = None

    def axis(self, letter: str) -> int | None:
        """Return the index of an axis; None without a layout."""
        return self.layout.index(letter) if self.layout else None

    def size(self, letter: str) -> int | str | None:
        """Return the size of an axis; None if it is unknown."""
        axis = self.axis(letter)
        return self.sizes[axis] if self.sizes and axis is not None else None

    def with_sizes(self, **sizes: int | str | None) -> "Tensor":
        """Return the tensor with other sizes of the axes with these letters."""
        if self.sizes is None:
            return self
        changed = list(self.sizes)
        for letter, size in sizes.items():
            axis = self.axis(letter)
            assert axis is not None
            changed[axis] = size
        return replace(self, sizes=tuple(changed))

    def floating(self) -> "Tensor":
        """Return the tensor after floating-point arithmetic: integers become float32."""
        is_integer = self.dtype is not None and not self.dtype.startswith("float")
        return replace(self, dtype="float32") if is_integer else self


def batch_axis(port: Input | Output, place: Place) -> int | None:
    """Return the batch axis of a shape: the axis with null, else the key ``batch_axis``; None if there is none.

    Without either, an input is rejected, and an output has axis 0. The harness follows the same rule.

    Raises:
        InvalidInputError: Null and ``batch_axis`` disagree, or an input has neither.
    """
    shape = () if port.shape is UNSET else port.shape
    for index, size in enumerate(shape):
        if size == "" or (isinstance(size, int) and size < 1):
            what = f"invalid size {size!r}"
            raise place.at("shape", index).error(what, "write a number from 1, null (the batch axis) or a name")
    nulls = [index for index, size in enumerate(shape) if size is None]
    stated = port.batch_axis
    if len(nulls) > 1:
        raise place.at("shape", nulls[1]).error(
            "a second null: null is the batch axis", "give the other dynamic axis a name"
        )
    if nulls:
        if stated not in (UNSET, nulls[0]):
            raise place.at("batch_axis").error(f"null makes {nulls[0]} the batch axis, not {stated}", "remove it")
        return nulls[0]
    if stated == "none":
        return None
    if stated is UNSET:
        if isinstance(port, Output):
            return None if port.shape == () else 0
        what = "the shape has no null, so the batch axis is unknown"
        raise place.at("batch_axis").error(what, "write batch_axis: 0 if the batch is fixed, or batch_axis: none")
    assert isinstance(stated, int)
    if not 0 <= stated < max(len(shape), 1):
        raise place.at("batch_axis").error(f"the shape has no axis {stated}")
    return stated


def fixed_batch(port: Input | Output, place: Place) -> int | None:
    """Return the number of samples per call that the shape fixes; None if it is free. Raises as ``batch_axis``."""
    axis = batch_axis(port, place)
    size = None if axis is None or not port.shape else port.shape[axis]
    return size if isinstance(size, int) else None


def declare_tensor(port: Input | Output, place: Place) -> Tensor:
    """Return one sample of the tensor that an input or output declares."""
    axis = batch_axis(port, place)
    layout = None if isinstance(port, Output) or port.layout is UNSET else port.layout.replace("N", "")
    if port.shape is UNSET:
        return Tensor(dtype=port.dtype)
    sizes = tuple(size for index, size in enumerate(port.shape) if index != axis)
    if layout and len(sizes) != len(layout):
        raise place.at("layout").error(f"{layout} has {len(layout)} axes per sample; the shape has {len(sizes)}")
    return Tensor(sizes, port.dtype, layout)


def check_result(result: Tensor, declared: Tensor, place: Place) -> None:
    """Check that the result of the steps has exactly the declared shape, dtype and layout.

    Raises:
        InvalidInputError: It certainly differs.
    """
    if result.dtype == TEXT:
        raise place.at("steps").error("the steps end with text; a model requires numbers", "add tokenize as a step")
    if result.dtype is not None and result.dtype != declared.dtype:
        quantized = declared.dtype in ("int8", "uint8")
        step = "add a quantize as a step, or a cast where the values stay" if quantized else "add a cast as a step"
        raise place.at("dtype").error(f"the steps give {result.dtype}, not {declared.dtype}", step)
    if result.layout is not None and result.layout != declared.layout:
        what = f"the steps give {result.layout}, not {declared.layout or 'a tensor without a layout'}"
        step = f"write layout: N{result.layout}"
        if declared.layout is not None:
            step = f"add {{transpose: {{layout: N{declared.layout}}}}} as the last step, or {step}"
        raise place.at("layout").error(what, step)
    if result.sizes is None or declared.sizes is None:
        return
    pairs = zip(result.sizes, declared.sizes, strict=False)
    fitting = all(
        not isinstance(size, int) or not isinstance(declared_size, int) or size == declared_size
        for size, declared_size in pairs
    )
    if len(result.sizes) != len(declared.sizes) or not fitting:
        what = f"the steps give {format_sizes(result.sizes)} per sample; the shape is {format_sizes(declared.sizes)}"
        raise place.at("shape").error(what, "change the shape or the steps")


def format_sizes(sizes: Sizes) -> str:
    """Write the sizes of a sample; ``?`` is an unknown size."""
    return f"[{', '.join('?' if size is None else str(size) for size in sizes)}]"
