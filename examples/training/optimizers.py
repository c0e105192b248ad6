"""Adam and SGD in plain PyTorch, as references for those of ``torch.optim``.

They update in place, by the operations of ``torch.optim`` with ``foreach=False`` and in their order, so the losses of a
training have the same bits.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

Update = Callable[[Tensor, dict[str, Any], Mapping[str, float]], None]


class CustomOptimizer(torch.optim.Optimizer):  # type: ignore[misc, unused-ignore] # torch may have no types here
    """An optimizer that calls ``update(parameter, state, settings)`` for each parameter with a gradient."""

    def __init__(self, parameters: Iterable[Tensor], settings: Mapping[str, float], update: Update) -> None:
        super().__init__(parameters, dict(settings))
        self._update = update

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore] # as above
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, self.state[parameter], group)


def update_adam(parameter: Any, state: dict[str, Any], settings: Mapping[str, float]) -> None:  # noqa: ANN401 - as above
    """Update a parameter by Adam (Kingma and Ba, 2015, algorithm 1): ``m``, ``v`` and ``t`` of the paper are the state.

    ``v`` is corrected after its root, as in PyTorch: sqrt(v) / sqrt(1 - beta2^t) is sqrt(v / (1 - beta2^t)).
    """
    if not state:
        state |= {"t": 0, "m": torch.zeros_like(parameter), "v": torch.zeros_like(parameter)}
    state["t"] += 1
    beta1, beta2 = settings["beta1"], settings["beta2"]
    state["m"].lerp_(parameter.grad, 1 - beta1)  # beta1 m + (1 - beta1) g
    state["v"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
    root = (state["v"].sqrt() / (1 - beta2 ** state["t"]) ** 0.5).add_(settings["eps"])
    parameter.addcdiv_(state["m"], root, value=-settings["lr"] / (1 - beta1 ** state["t"]))


def update_sgd(parameter: Any, _state: dict[str, Any], settings: Mapping[str, float]) -> None:  # noqa: ANN401 - as above
    """Update a parameter by stochastic gradient descent (Robbins and Monro, 1951)."""
    parameter.add_(parameter.grad, alpha=-settings["lr"])


def make_adam(parameters: Iterable[Tensor], settings: Mapping[str, float]) -> CustomOptimizer:
    """Return Adam with the settings lr, beta1, beta2 and eps."""
    return CustomOptimizer(parameters, settings, update_adam)


def make_sgd(parameters: Iterable[Tensor], settings: Mapping[str, float]) -> CustomOptimizer:
    """Return SGD with the setting lr."""
    return CustomOptimizer(parameters, settings, update_sgd)
