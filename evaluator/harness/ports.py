"""The inputs and outputs of a model, read out of ``job.json``."""

from collections.abc import Mapping, Sequence
from typing import Any

from .job import Axes, Input, Output, Step, Tolerance
from .tables import JobError, demanded, optional

_INPUTS = ("image", "audio", "text", "tensor", "constant", "state")
_OUTPUTS = ("class-scores", "class-index", "tensor", "value", "mask", "boxes", "box-scores", "state")
_RESETS = ("sample", "never")
_REDUCTIONS = ("max", "mean", "last", "none")


def read_input(table: Mapping[str, Any], where: str) -> Input:
    """Raises ``JobError`` with the path of the key that is wrong, as all here do."""
    kind = _one_of(_INPUTS, demanded(table, "type", str, where), f"{where}.type")
    axes = _axes(table, where)
    if axes is None:
        raise JobError(f"{where}.shape: no axis is null and batch_axis is absent")
    state = kind == "state"
    if state:
        _one_of(("zeros",), demanded(table, "initial", str, where), f"{where}.initial")
    if kind == "constant" and "value" not in table:
        raise JobError(f"{where}.value: absent")
    steps = (optional if kind in ("tensor", "constant", "state") else demanded)(table, "steps", list, where)
    return Input(
        name=demanded(table, "name", str, where),
        type=kind,
        dtype=demanded(table, "dtype", str, where),
        layout=optional(table, "layout", str, where),
        axes=axes,
        steps=_steps(steps or [], f"{where}.steps"),
        field=optional(table, "field", str, where),
        value=table.get("value"),
        source=demanded(table, "from", str, where) if state else None,
        reset=_one_of(_RESETS, demanded(table, "reset", str, where), f"{where}.reset") if state else None,
        tolerance=_tolerance(table, where),
    )


def read_output(table: Mapping[str, Any], where: str) -> Output:
    threshold = optional(table, "threshold", (int, float), where)
    reduce = optional(table, "reduce", str, where)
    return Output(
        name=demanded(table, "name", str, where),
        type=_one_of(_OUTPUTS, demanded(table, "type", str, where), f"{where}.type"),
        dtype=optional(table, "dtype", str, where),
        axes=_axes(table, where) or _output_axes(table),
        label_offset=optional(table, "label_offset", int, where) or 0,
        threshold=None if threshold is None else float(threshold),
        steps=_steps(optional(table, "steps", list, where) or [], f"{where}.steps"),
        reduce=None if reduce is None else _one_of(_REDUCTIONS, reduce, f"{where}.reduce"),
        tolerance=_tolerance(table, where),
        allow_non_finite=optional(table, "allow_non_finite", bool, where) or False,
    )


def _tolerance(table: Mapping[str, Any], where: str) -> Tolerance | None:
    found = optional(table, "tolerance", dict, where)
    if found is None:
        return None
    absolute, relative = (demanded(found, key, (int, float), f"{where}.tolerance") for key in ("absolute", "relative"))
    return Tolerance(float(absolute), float(relative))


def _one_of(known: Sequence[str], value: str, where: str) -> str:
    if value not in known:
        raise JobError(f"{where}: {value!r} is not built")
    return value


def _axes(table: Mapping[str, Any], where: str) -> Axes | None:
    """None where neither ``shape`` nor ``batch_axis`` says which axis is the batch."""
    shape: Sequence[Any] | None = optional(table, "shape", list, where)
    declared = table.get("batch_axis")
    if declared == "none":
        return Axes(None, 1, None if shape is None else _sizes(shape))
    axis = declared if declared is not None else (shape.index(None) if shape and None in shape else None)
    if axis is None:
        return None
    return _batched(shape, axis, where)


def _output_axes(table: Mapping[str, Any]) -> Axes:
    """Return the axes of an output that does not say its batch axis: it is axis 0, if there is one."""
    shape: Sequence[Any] | None = table.get("shape")
    return Axes(None, 1, ()) if shape is not None and not shape else _batched(shape, 0, "")


def _batched(shape: Sequence[Any] | None, axis: object, where: str) -> Axes:
    if not isinstance(axis, int) or axis < 0 or (shape is not None and axis >= len(shape)):
        raise JobError(f"{where}.batch_axis: {axis!r} is no axis of {shape}")
    if shape is None:
        return Axes(axis, None, None)
    size = shape[axis]
    return Axes(axis, size if isinstance(size, int) else None, _sizes([*shape[:axis], *shape[axis + 1 :]]))


def _sizes(shape: Sequence[Any]) -> tuple[int | None, ...]:
    """A name is a free axis."""
    return tuple(size if isinstance(size, int) else None for size in shape)


def _steps(entries: Sequence[Any], where: str) -> tuple[Step, ...]:
    steps = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or len(entry) != 1:
            raise JobError(f"{where}[{index}]: a step has one key, its name")
        ((name, arguments),) = entry.items()
        if not isinstance(arguments, dict):
            raise JobError(f"{where}[{index}].{name}: no table of arguments")
        steps.append(Step(name, arguments))
    return tuple(steps)
