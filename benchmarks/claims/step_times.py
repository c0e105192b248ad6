"""Steps of optimizers alone against PyTorch's Adam: a program for the environment of a locked image.

``python step_times.py FOLDER BLOCKS``, where FOLDER has ``network.py`` and ``optimizers.py``. It prints a JSON
object: for each contestant the relative difference of every ABBA block, and the seconds of a step of PyTorch's Adam.
The clock is the CPU time of the thread, so other work on the host matters little.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import torch

_CALLS = 8
_WARMUP = 20
_SETTINGS = {"lr": 2e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
Step = Callable[[], None]


def _network() -> Any:  # noqa: ANN401 - torch has no types here
    build = import_module("network").build
    torch.manual_seed(7)
    network = build({})
    torch.nn.functional.cross_entropy(network(torch.randn(64, 1, 8, 8)), torch.arange(64) % 10).backward()
    return network


def _torch_step(**options: bool) -> Step:
    optimizer = torch.optim.Adam(_network().parameters(), lr=2e-3, **options)
    return lambda: optimizer.step() and None


def update_adam_functionally(parameter: Any, state: dict[str, Any], settings: Mapping[str, float]) -> None:  # noqa: ANN401 - as above
    """Update a parameter by Adam (Kingma and Ba, 2015) as the paper writes it: every step makes new tensors."""
    if not state:
        state |= {"t": 0, "m": torch.zeros_like(parameter), "v": torch.zeros_like(parameter)}
    t, beta1, beta2 = state["t"] + 1, settings["beta1"], settings["beta2"]
    m = beta1 * state["m"] + (1 - beta1) * parameter.grad
    v = beta2 * state["v"] + (1 - beta2) * parameter.grad * parameter.grad
    state |= {"t": t, "m": m, "v": v}
    corrected, root = m / (1 - beta1**t), (v / (1 - beta2**t)).sqrt()
    parameter.copy_(parameter - settings["lr"] * corrected / (root + settings["eps"]))


def _own_step(update: Callable[..., None]) -> Step:
    pairs: list[tuple[Any, dict[Any, Any]]] = [(parameter, {}) for parameter in _network().parameters()]

    def step() -> None:
        with torch.no_grad():
            for parameter, state in pairs:
                update(parameter, state, _SETTINGS)

    return step


def _time(step: Step) -> int:
    start = time.thread_time_ns()
    for _ in range(_CALLS):
        step()
    return time.thread_time_ns() - start


def _blocks(reference: Step, other: Step, count: int) -> Iterator[tuple[int, int]]:
    """Yield the times of both in each block, in the order reference, other, other, reference."""
    for step in (reference, other) * _WARMUP:
        step()
    for _ in range(count):
        first, second, third, last = _time(reference), _time(other), _time(other), _time(reference)
        yield first + last, second + third


def main(folder: str, blocks: int) -> None:
    """Measure all contestants and print their differences."""
    sys.path.insert(0, folder)
    torch.set_num_threads(1)
    contestants = {
        "PyTorch's Adam again (A/A)": _torch_step(foreach=False),
        "own Adam, in place": _own_step(import_module("optimizers").update_adam),
        "own Adam, functional": _own_step(update_adam_functionally),
        "PyTorch's Adam, foreach": _torch_step(foreach=True),
        "PyTorch's Adam, fused": _torch_step(fused=True),
    }
    reference, answer = _torch_step(foreach=False), {}
    for name, step in contestants.items():
        times = list(_blocks(reference, step, blocks))
        seconds = sorted(first / (2 * _CALLS) / 1e9 for first, _ in times)[len(times) // 2]
        answer[name] = {"differences": [second / first - 1 for first, second in times], "step": seconds}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
