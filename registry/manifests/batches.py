"""Rules of batches that authored manifests must keep; ones that were published before these rules may break them."""

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.plurals import count_of
from benchlock.registry.manifests.call_checks import has_several_calls
from benchlock.registry.manifests.model import ConstantInput, Model, Output, StateInput
from benchlock.registry.manifests.tensors import batch_axis, fixed_batch
from benchlock.registry.problems import Problems
from benchlock.registry.yaml import Place


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
            _check_output(output, size, place.at("outputs", index))


def _check_output(output: Output, size: int | None, place: Place) -> None:
    axis, fixed = batch_axis(output, place), fixed_batch(output, place)
    if axis is None or fixed in (None, size):
        return
    batch = "leave their batch free" if size is None else f"make calls of {count_of(size, 'sample')}"
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
