"""Validation rules of model calls: constants, states, batch axes, and several calls per sample."""

from collections.abc import Sequence

from msgspec import UNSET

from benchlock.artifacts.display import format_count
from benchlock.artifacts.errors import InvalidInputError
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
from benchlock.registry.text.problems import Problems
from benchlock.registry.text.yaml import Place

_ANSWERS = ("class-scores", "class-index", "mask", "value")
_INDICES = ("class-index", "mask")
_OF_NUMBERS = ("max", "mean")


def check_calls(model: Model, place: Place, problems: Problems) -> None:
    """``place`` is the manifest's; what breaks a rule goes to ``problems``."""
    with problems.noted():
        if not any(_is_fed(port) for port in model.inputs):
            raise place.at("inputs").error("no input takes anything of a sample", "give one that is fed by the dataset")
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
                "every output is a state, and none a prediction", "give one of another type"
            )


def _is_fed(port: Input) -> bool:
    return isinstance(port, ImageInput | AudioInput | TextInput | TensorInput)


def has_several_calls(port: Input) -> bool:
    """Whether a sample takes a call for each of its frames."""
    return isinstance(port, AudioInput) and any(
        isinstance(step.frame, Frame) and step.frame.calls == "each" for step in port.steps
    )


def _check_constant(port: ConstantInput, place: Place) -> None:
    """``value`` is one sample of the constant: of its shape, and of numbers that its dtype has."""
    here = place.at("value")
    _check_lists(port.value, here)
    wanted = declare_tensor(port, place).sizes or ()
    found = _sizes(port.value)
    if not _alike(wanted, found):
        what = f"the value is {format_sizes(found)}, the shape says {format_sizes(wanted)} a sample"
        raise here.error(what, "write lists as deep and as long as the shape, or change the shape")
    for number in _numbers(port.value):
        if not _fits(number, port.dtype):
            raise here.error(f"{number} is no {port.dtype}", "write another number, or change the dtype")


def _check_lists(value: object, place: Place) -> None:
    """A number, or lists of equal form."""
    if isinstance(value, list):
        for index, inner in enumerate(value):
            _check_lists(inner, place.at(index))
        if len({len(inner) if isinstance(inner, list) else None for inner in value}) > 1:
            raise place.error("the lists inside differ in length", "write as many values in each")
    elif not isinstance(value, int | float):
        raise place.error("expected a number, true, false, or lists of them")


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    return (len(value), *(_sizes(value[0]) if value else ()))


def _numbers(value: object) -> Sequence[float]:
    if isinstance(value, list):
        return [number for inner in value for number in _numbers(inner)]
    assert isinstance(value, int | float)
    return [value]


def _fits(number: float, dtype: str) -> bool:
    """Whether ``dtype`` has the number; a floating type has the nearest one."""
    if dtype.startswith("float"):
        return True
    if dtype == "bool":
        return number in (0, 1)
    bits, signed = int(dtype.partition("int")[2]), dtype.startswith("int")
    least, beyond = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    return number == int(number) and least <= number < beyond


def _check_state(model: Model, port: StateInput, place: Place) -> None:
    """It begins with zeros, and goes on as an output of type state: of the same shape and dtype."""
    outputs = {output.name: (index, output) for index, output in enumerate(model.outputs) if output.type == "state"}
    if port.from_ not in outputs:
        raise place.at("from").error(f"no output of type state is called {port.from_!r}", "name one that is")
    wanted = declare_tensor(port, place)
    for axis, size in enumerate(port.shape):
        if isinstance(size, str):
            what = f"the size of axis {axis} is not known, and the state begins with zeros"
            raise place.at("shape", axis).error(what, "write its number, or null if it is the batch axis")
    index, output = outputs[port.from_]
    if output.dtype != port.dtype:
        what = f"the state is {port.dtype}, and outputs[{index}], which it comes from, is {output.dtype}"
        raise place.at("dtype").error(what, "give both the same dtype")
    given = declare_tensor(output, place).sizes
    if given is not None and not _alike(wanted.sizes or (), given):
        source = f"outputs[{index}], which it comes from, {format_sizes(given)}"
        what = f"the state is {format_sizes(wanted.sizes or ())} a sample, {source}"
        raise place.at("shape").error(what, "give both the same shape")


def _alike(wanted: Sizes, given: Sizes) -> bool:
    """Whether two shapes can be the same."""
    if len(wanted) != len(given):
        return False
    pairs = zip(wanted, given, strict=True)
    return all(not isinstance(is_, int) or not isinstance(must, int) or is_ == must for is_, must in pairs)


def _check_output(model: Model, output: Output, place: Place) -> None:
    if output.type == "state":
        for key in ("steps", "reduce", "tolerance"):
            if getattr(output, key) is not UNSET:
                what = f"a state has no {key}: it is fed back as it is, and is no prediction"
                raise place.at(key).error(what, "leave it out")
        return
    several = any(has_several_calls(port) for port in model.inputs)
    if output.reduce is UNSET:
        if several and output.type in _ANSWERS:
            what = "the key 'reduce' is missing: a sample has several calls, and as many answers"
            raise place.at("reduce").error(what, "write max, mean, last, or none for a label a call")
        return
    if not several:
        what = "a sample has one call, so there is nothing to reduce"
        raise place.at("reduce").error(what, "leave it out, or give a frame calls: each")
    if output.type in _INDICES and output.reduce in _OF_NUMBERS:
        raise place.at("reduce").error(f"a class index has no {output.reduce}", "write last or none")


def check_batches(model: Model, place: Place, problems: Problems) -> None:
    """Add to ``problems`` each output whose shape fixes another batch than a call has, and each axis of no shape."""
    for kind, ports in (("inputs", model.inputs), ("outputs", model.outputs)):
        for index, port in enumerate(ports):
            with problems.noted():
                if port.shape == () and isinstance(port.batch_axis, int):
                    there = place.at(kind, index, "batch_axis")
                    raise there.error(f"the shape has no axis {port.batch_axis}", "write batch_axis: none")
    try:
        size = _call_size(model, place)
    except InvalidInputError:  # a port that breaks a rule of its own, which is another problem
        return
    for index, output in enumerate(model.outputs):
        with problems.noted():
            _check_batch_output(output, size, place.at("outputs", index))


def _check_batch_output(output: Output, size: int | None, place: Place) -> None:
    axis, fixed = batch_axis(output, place), fixed_batch(output, place)
    if axis is None or fixed in (None, size):
        return
    batch = "leave their batch free" if size is None else f"make calls of {format_count(size, 'sample')}"
    what = f"axis {axis} is the batch axis and has {fixed}, but the inputs {batch}"
    step = f"write {size or 'null'} in place of the {fixed}; if the output has no batch axis, write batch_axis: none"
    raise place.at("shape", axis).error(what, step)


def _call_size(model: Model, place: Place) -> int | None:
    """Return the samples a call, as the harness decides them; None if the scenario does.

    Raises:
        InvalidInputError: an input or output does not say its batch axis.
    """
    inputs = [(port, place.at("inputs", index)) for index, port in enumerate(model.inputs)]
    fixed = [size for size in (fixed_batch(port, there) for port, there in inputs) if size is not None]
    if fixed:
        return min(fixed)
    fed = [batch_axis(port, there) for port, there in inputs if not isinstance(port, ConstantInput | StateInput)]
    answers = [
        batch_axis(output, place.at("outputs", index))
        for index, output in enumerate(model.outputs)
        if output.type != "state"
    ]
    stateful = any(isinstance(port, StateInput) for port in model.inputs)
    alone = stateful or None in (*fed, *answers) or any(has_several_calls(port) for port in model.inputs)
    return 1 if alone else None
