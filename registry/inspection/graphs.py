"""What a graph says of its inputs and outputs, whatever the format that it is written in."""

from dataclasses import dataclass

Size = int | str | None
"""A size of a tensor: a number, the name of a free axis, None for a free axis without a name."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """How integers stand for numbers: ``(x - zero_point) * scale``."""

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class FoundTensor:
    """An input or output as a graph declares it; None where it does not say, or where manifests have no word for it.

    ``other`` is what it is where it is no tensor: ``a sequence``.
    """

    name: str
    dtype: str | None = None
    sizes: tuple[Size, ...] | None = None
    quantization: Quantization | None = None
    other: str | None = None


@dataclass(frozen=True, slots=True)
class FoundGraph:
    """What a framework must be fed, and what it can be asked for; ``producer`` is the tool that wrote the graph."""

    inputs: tuple[FoundTensor, ...]
    outputs: tuple[FoundTensor, ...]
    producer: str = ""
