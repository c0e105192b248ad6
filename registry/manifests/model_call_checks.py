"""Validation rules of model calls: constants, states, batch axes, and several calls per sample."""

from collections.abc import Sequence

from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.user_output import format_count
from benchlock.registry.manifests.manifest_types import (
    AudioInput,
    ConstantInput,
    ImageInput,
    Input,
    Model,
    Output,
    StateInput,
    TensorInput,
    TextInput,
)
from benchlock.registry.manifests.steps import Frame
from benchlock.registry.manifests.tensor_shapes import Sizes, batch_axis, declare_tensor, fixed_batch, format_sizes
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.parsed_text import Place

_ANSWERS = ("class-scores", "class-index", "mask", "value")
_INDICES = ("class-index", "mask")
_OF_NUMBERS = ("max", "mean")


def check_calls(model: Model, place: Place, problems: Problems) -> None:
    """Check the constants, states and outputs of a model's calls.

    Args:
        model: The model.
        place: The place of the manifest.
        problems: Receives every broken rule.
    """
    with problems.noted():
        if not any(isinstance(port, ImageInput | AudioInput | TextInput | TensorInput) for port in model.inputs):
            raise place.at("inputs").error(
                "no input reads a field of the sample", "add an input that the dataset feeds"
            )
    for index, port in enumerate(model.inputs):
        here = place.at("inputs", index)
        with problems.noted():
            if isinstance(port, ConstantInput):
                _check_constant(port, here)
            elif isinstance(port, StateInput):
                _check_state(model, port, here)
    for index, output in enumerate(model.outputs):
        with problems.noted():
            _check_output(model, output, place.at("outputs", index))
    with problems.noted():
        if all(output.type == "state" for output in model.outputs):
            raise place.at("outputs").error(
                "every output is a state; none is a prediction", "add an output of another type"
            )


def has_several_calls(port: Input) -> bool:
    """Return whether each frame of a sample is a call of its own."""
    return isinstance(port, AudioInput) and any(
        isinstance(step.frame, Frame) and step.frame.calls == "each" for step in port.steps
    )


def _check_constant(port: ConstantInput, place: Place) -> None:
    """Check that ``value`` has the shape of one sample, and numbers that the dtype can represent."""
    here = place.at("value")
    _check_lists(port.value, here)
    declared = declare_tensor(port, place).sizes or ()
    sizes = _sizes(port.value)
    if not _are_compatible(declared, sizes):
        what = f"the value is {format_sizes(sizes)}, but the shape is {format_sizes(declared)} per sample"
        raise here.error(what, "write lists as deep and as long as the shape, or change the shape")
    for number in _numbers(port.value):
        if not _fits(number, port.dtype):
            raise here.error(f"{number} is not a valid {port.dtype}", "write another number, or change the dtype")


def _check_lists(value: object, place: Place) -> None:
    """Check that a value is a number, or lists of equal form."""
    if isinstance(value, list):
        for index, inner in enumerate(value):
            _check_lists(inner, place.at(index))
        if len({len(inner) if isinstance(inner, list) else None for inner in value}) > 1:
            raise place.error("the lists inside differ in length", "write the same number of values in each")
    elif not isinstance(value, int | float):
        raise place.error("expected a number, true, false, or lists of them")


def _sizes(value: object) -> tuple[int, ...]:
    """Return the sizes of nested lists."""
    if not isinstance(value, list):
        return ()
    return (len(value), *(_sizes(value[0]) if value else ()))


def _numbers(value: object) -> Sequence[float]:
    """Return the numbers in nested lists."""
    if isinstance(value, list):
        return [number for inner in value for number in _numbers(inner)]
    assert isinstance(value, int | float)
    return [value]


def _fits(number: float, dtype: str) -> bool:
    """Return whether ``dtype`` can represent the number; a floating-point type has the nearest one."""
    if dtype.startswith("float"):
        return True
    if dtype == "bool":
        return number in (0, 1)
    bits, signed = int(dtype.partition("int")[2]), dtype.startswith("int")
    least, beyond = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    return number == int(number) and least <= number < beyond


def _check_state(model: Model, port: StateInput, place: Place) -> None:
    """Check that an output of type ``state`` with the same shape and dtype feeds the state, which begins with zeros."""
    outputs = {output.name: (index, output) for index, output in enumerate(model.outputs) if output.type == "state"}
    if port.from_ not in outputs:
        raise place.at("from").error(
            f"unknown state output {port.from_!r}", "write the name of an output of type state"
        )
    state = declare_tensor(port, place)
    for axis, size in enumerate(port.shape):
        if isinstance(size, str):
            what = f"the size of axis {axis} is not known, and the state begins with zeros"
            raise place.at("shape", axis).error(what, "write its number, or null if it is the batch axis")
    index, output = outputs[port.from_]
    if output.dtype != port.dtype:
        what = f"the state is {port.dtype}, and outputs[{index}], which it comes from, is {output.dtype}"
        raise place.at("dtype").error(what, "give both the same dtype")
    sizes = declare_tensor(output, place).sizes
    if sizes is not None and not _are_compatible(state.sizes or (), sizes):
        source = f"outputs[{index}], which it comes from, {format_sizes(sizes)}"
        what = f"the state is {format_sizes(state.sizes or ())} a sample, {source}"
        raise place.at("shape").error(what, "give both the same shape")


def _are_compatible(first: Sizes, second: Sizes) -> bool:
    """Return whether two shapes can be equal."""
    if len(first) != len(second):
        return False
    pairs = zip(first, second, strict=True)
    return all(
        not isinstance(first_size, int) or not isinstance(second_size, int) or first_size == second_size
        for first_size, second_size in pairs
    )


def _check_output(model: Model, output: Output, place: Place) -> None:
    """Check an output against the number of calls per sample."""
    if output.type == "state":
        for key in ("steps", "reduce", "tolerance"):
            if getattr(output, key) is not UNSET:
                what = f"a state has no {key}: it is fed back as it is, and is no prediction"
                raise place.at(key).error(what, "remove it")
        return
    has_calls = any(has_several_calls(port) for port in model.inputs)
    if output.reduce is UNSET:
        if has_calls and output.type in _ANSWERS:
            what = "the key 'reduce' is missing: a sample has several calls, and as many answers"
            raise place.at("reduce").error(what, "write max, mean, last, or none for a label a call")
        return
    if not has_calls:
        what = "a sample has one call, so there is nothing to reduce"
        raise place.at("reduce").error(what, "remove it, or give a frame calls: each")
    if output.type in _INDICES and output.reduce in _OF_NUMBERS:
        raise place.at("reduce").error(f"a class index has no {output.reduce}", "write last or none")


def check_batches(model: Model, place: Place, problems: Problems) -> None:
    """Check that the shapes of outputs have the same batch size as a call, and that each batch axis exists.

    Args:
        model: The model.
        place: The place of the manifest.
        problems: Receives every broken rule.
    """
    for kind, ports in (("inputs", model.inputs), ("outputs", model.outputs)):
        for index, port in enumerate(ports):
            with problems.noted():
                if port.shape == () and isinstance(port.batch_axis, int):
                    axis_place = place.at(kind, index, "batch_axis")
                    raise axis_place.error(f"the shape has no axis {port.batch_axis}", "write batch_axis: none")
    try:
        size = _call_size(model, place)
    except InvalidInputError:  # a broken rule of a single port is reported elsewhere
        return
    for index, output in enumerate(model.outputs):
        with problems.noted():
            _check_batch_output(output, size, place.at("outputs", index))


def _check_batch_output(output: Output, size: int | None, place: Place) -> None:
    """Check that the batch size in an output's shape is the number of samples per call."""
    axis, fixed = batch_axis(output, place), fixed_batch(output, place)
    if axis is None or fixed in (None, size):
        return
    batch = "leave their batch free" if size is None else f"make calls of {format_count(size, 'sample')}"
    what = f"axis {axis} is the batch axis and has {fixed}, but the inputs {batch}"
    step = f"write {size or 'null'} in place of the {fixed}; if the output has no batch axis, write batch_axis: none"
    raise place.at("shape", axis).error(what, step)


def _call_size(model: Model, place: Place) -> int | None:
    """Return the number of samples per call, as the harness decides it; None if the scenario decides.

    Raises:
        InvalidInputError: An input or output has no batch axis and does not say so.
    """
    inputs = [(port, place.at("inputs", index)) for index, port in enumerate(model.inputs)]
    fixed = [size for size in (fixed_batch(port, port_place) for port, port_place in inputs) if size is not None]
    if fixed:
        return min(fixed)
    sample_axes = [
        batch_axis(port, port_place) for port, port_place in inputs if not isinstance(port, ConstantInput | StateInput)
    ]
    output_axes = [
        batch_axis(output, place.at("outputs", index))
        for index, output in enumerate(model.outputs)
        if output.type != "state"
    ]
    stateful = any(isinstance(port, StateInput) for port in model.inputs)
    is_single = (
        stateful or None in (*sample_axes, *output_axes) or any(has_several_calls(port) for port in model.inputs)
    )
    return 1 if is_single else None
