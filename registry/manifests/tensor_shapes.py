"""Shapes and dtypes of tensors, as far as a manifest declares them.

Steps see one sample, so these are the shapes of a sample. A size is None where it depends on the sample, a name where
it is a free axis.
"""

from dataclasses import dataclass, replace

from msgspec import UNSET

from benchlock.registry.manifests.manifest_types import Input, Output
from benchlock.registry.text.yaml import Place

Sizes = tuple[int | str | None, ...]
TEXT = "text"
"""Stands as the dtype of a text that no step has made numbers of."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """What is known of a tensor; None is unknown. ``layout`` names the axes of a sample: ``HWC``.

    ``fft_length`` is that of the spectrogram which it was made of.
    """

    sizes: Sizes | None = None
    dtype: str | None = None
    layout: str | None = None
    fft_length: int | None = None

    def axis(self, letter: str) -> int | None:
        return self.layout.index(letter) if self.layout else None

    def size(self, letter: str) -> int | str | None:
        axis = self.axis(letter)
        return self.sizes[axis] if self.sizes and axis is not None else None

    def with_sizes(self, **sizes: int | str | None) -> "Tensor":
        """Another size for each axis that is named by its letter."""
        if self.sizes is None:
            return self
        changed = list(self.sizes)
        for letter, size in sizes.items():
            axis = self.axis(letter)
            assert axis is not None
            changed[axis] = size
        return replace(self, sizes=tuple(changed))

    def floating(self) -> "Tensor":
        """As what computes with fractions leaves it: integers have become float32."""
        whole = self.dtype is not None and not self.dtype.startswith("float")
        return replace(self, dtype="float32") if whole else self


def batch_axis(port: Input | Output, place: Place) -> int | None:
    """The batch axis of a shape: where null stands, else what ``batch_axis`` says; None if there is none.

    Where neither says, an input is refused, and of an output it is axis 0. The harness reads them by the same rule.

    Raises:
        InvalidInputError: the two disagree, or neither says, where an input needs it.
    """
    shape = () if port.shape is UNSET else port.shape
    for index, size in enumerate(shape):
        if size == "" or (isinstance(size, int) and size < 1):
            what = f"{size!r} is no size"
            raise place.at("shape", index).error(what, "write a number from 1, null (the batch axis) or a name")
    nulls = [index for index, size in enumerate(shape) if size is None]
    stated = port.batch_axis
    if len(nulls) > 1:
        raise place.at("shape", nulls[1]).error("a second null: null is the batch axis", "name the other free axis")
    if nulls:
        if stated not in (UNSET, nulls[0]):
            raise place.at("batch_axis").error(f"null makes {nulls[0]} the batch axis, not {stated}", "leave it out")
        return nulls[0]
    if stated == "none":
        return None
    if stated is UNSET:
        if isinstance(port, Output):
            return None if port.shape == () else 0
        what = "the shape has no null, so nothing says which axis is the batch"
        raise place.at("batch_axis").error(what, "write batch_axis: 0 if the batch is fixed, or batch_axis: none")
    assert isinstance(stated, int)
    if not 0 <= stated < max(len(shape), 1):
        raise place.at("batch_axis").error(f"the shape has no axis {stated}")
    return stated


def fixed_batch(port: Input | Output, place: Place) -> int | None:
    """The number of samples that the shape fixes for each call; None if it is free. Raises as ``batch_axis``."""
    axis = batch_axis(port, place)
    size = None if axis is None or not port.shape else port.shape[axis]
    return size if isinstance(size, int) else None


def declare_tensor(port: Input | Output, place: Place) -> Tensor:
    """One sample of the tensor that an input or output declares."""
    axis = batch_axis(port, place)
    layout = None if isinstance(port, Output) or port.layout is UNSET else port.layout.replace("N", "")
    if port.shape is UNSET:
        return Tensor(dtype=port.dtype)
    sizes = tuple(size for index, size in enumerate(port.shape) if index != axis)
    if layout and len(sizes) != len(layout):
        raise place.at("layout").error(f"{layout} names {len(layout)} axes of a sample, the shape has {len(sizes)}")
    return Tensor(sizes, port.dtype, layout)


def check_result(found: Tensor, wanted: Tensor, place: Place) -> None:
    """The steps' result must have exactly the declared shape, dtype and layout.

    Raises:
        InvalidInputError: it certainly has another.
    """
    if found.dtype == TEXT:
        raise place.at("steps").error("the steps leave a text, and a model takes numbers", "add tokenize as a step")
    if found.dtype is not None and found.dtype != wanted.dtype:
        quantized = wanted.dtype in ("int8", "uint8")
        step = "add a quantize as a step, or a cast where the values stay" if quantized else "add a cast as a step"
        raise place.at("dtype").error(f"the steps give {found.dtype}, not {wanted.dtype}", step)
    if found.layout is not None and found.layout != wanted.layout:
        what = f"the steps give {found.layout}, not {wanted.layout or 'a tensor without a layout'}"
        raise place.at("layout").error(what, f"write layout: N{found.layout}, or add a transpose as a step")
    if found.sizes is None or wanted.sizes is None:
        return
    pairs = zip(found.sizes, wanted.sizes, strict=False)
    fitting = all(not isinstance(is_, int) or not isinstance(must, int) or is_ == must for is_, must in pairs)
    if len(found.sizes) != len(wanted.sizes) or not fitting:
        what = f"the steps give {format_sizes(found.sizes)} a sample, the shape says {format_sizes(wanted.sizes)}"
        raise place.at("shape").error(what, "change the shape or the steps")


def format_sizes(sizes: Sizes) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in sizes)}]"
