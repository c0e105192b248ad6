"""The profile of one training step in PyTorch: each change of memory with its purpose, and the time of operators."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile, record_function

from . import GRADIENTS, SAVED, TRANSIENT, StepProfile

_FORWARD: Final = "benchlock.forward"


class ProfiledStep:
    """One step of a module, recorded by PyTorch's profiler and by hooks of saved tensors.

    Tensors that are saved for the backward pass are known by their storage, which lives until the forward pass ends;
    tensors that views share count once.
    """

    def __init__(self, module: Any, optimizer: Any) -> None:  # noqa: ANN401 - torch has no types here
        """Remove gradients, so that those of the step count in it."""
        optimizer.zero_grad(set_to_none=True)
        self._module, self._optimizer = module, optimizer
        self._saved: list[set[int]] = []
        self._held = (_count_bytes([*module.parameters(), *module.buffers()]), _count_bytes(_list_state(optimizer)))
        self._profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)

    def run(self, parts: Sequence[Any], find_loss: Any, update: Callable[[], None]) -> StepProfile:  # noqa: ANN401 - as above
        """Run the step.

        Args:
            parts: The parts of the batch.
            find_loss: The forward pass, of inputs and labels.
            update: The step of the optimizer.
        """
        loss: Any = None
        with self._profiler:
            for part in parts:
                self._saved.append(set())
                with record_function(_FORWARD), saved_tensors_hooks(self._note, lambda tensor: tensor):
                    loss = find_loss(part.inputs, part.labels)
                loss.backward(torch.full_like(loss, part.share))
            update()
            del loss
        return self._describe()

    def _note(self, tensor: torch.Tensor) -> torch.Tensor:
        self._saved[-1].add(tensor.untyped_storage().data_ptr())
        return tensor.detach()  # an output that keeps itself would never be released without a backward pass

    def _describe(self) -> StepProfile:
        changes, ends = _list_changes(self._profiler)
        gradients = {
            parameter.grad.untyped_storage().data_ptr()
            for parameter in self._module.parameters()
            if parameter.grad is not None
        }
        weights, optimizer = self._held
        return StepProfile(
            weights=weights,
            optimizer=optimizer,
            bytes=np.asarray([change.size for change in changes], np.int64),
            categories=_categorise(changes, list(zip(ends, self._saved, strict=True)), gradients),
            operators=_sum_operators(self._profiler),
        )


class _Change(NamedTuple):
    """An allocation, or a release of memory, whose size is negative."""

    time: int
    pointer: int
    size: int


def _categorise(
    changes: Sequence[_Change], forwards: Sequence[tuple[int, set[int]]], gradients: set[int]
) -> NDArray[np.int64]:
    """Return the purpose of each change; a release has the purpose of its allocation.

    An address is used again after its release. So a saved tensor is what lives at the end of its forward pass, and a
    gradient what lives at the end of the step.

    Args:
        changes: The changes in order.
        forwards: The end of each forward pass, in order, and the addresses that it saved.
        gradients: The addresses of gradients at the end.
    """
    categories = np.full(len(changes), TRANSIENT, np.int64)
    living: dict[int, int] = {}
    waiting = list(forwards)
    for number, change in enumerate(changes):
        while waiting and change.time > waiting[0][0]:
            saved = waiting.pop(0)[1]
            categories[[index for pointer, index in living.items() if pointer in saved]] = SAVED
        if change.size > 0:
            living[change.pointer] = number
        elif change.pointer in living:
            categories[number] = categories[living.pop(change.pointer)]
    categories[[index for pointer, index in living.items() if pointer in gradients]] = GRADIENTS
    return categories


def _list_changes(profiler: profile) -> tuple[list[_Change], list[int]]:
    """Return all changes of memory in order, and when each forward pass ended, in order."""
    events = list(_walk(profiler.profiler.kineto_results.experimental_event_tree()))
    ends = sorted(event.end_time_ns for event in events if event.name == _FORWARD)
    changes = [
        _Change(event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size)
        for event in events
        if event.tag.name == "Allocation"
    ]
    return sorted(changes, key=lambda change: change.time), ends


def _walk(events: Any) -> Iterator[Any]:  # noqa: ANN401 - torch has no types here
    waiting = list(events)
    while waiting:
        event = waiting.pop()
        yield event
        waiting.extend(event.children)


def _sum_operators(profiler: profile) -> Mapping[str, int]:
    """Return the CPU time of each kind of operator, without that of the operators that it calls, in nanoseconds."""
    times: Counter[str] = Counter()
    for event in profiler.key_averages():
        if event.key.startswith("aten::"):
            times[event.key.removeprefix("aten::")] += round(event.self_cpu_time_total * 1000)
    return times


def _list_state(optimizer: Any) -> list[torch.Tensor]:  # noqa: ANN401 - torch has no types here
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]


def _count_bytes(tensors: Any) -> int:  # noqa: ANN401 - as above
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())
