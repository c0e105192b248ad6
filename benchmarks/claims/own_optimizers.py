"""Optimizers written by hand for the network of ``examples/training``, as a reference for those of PyTorch.

A recipe that uses ``build_adam`` or ``build_sgd`` is trained by them: each parameter is updated as soon as its gradient
is there, and the gradient is removed, so the recipe's own optimizer finds none.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from network import build  # type: ignore[import-not-found] # a file of the same recipe
from torch import Tensor, nn

LR = 2.0e-3
_BETAS = (0.9, 0.999)
_EPS = 1e-8
State = dict[Any, Any]
Update = Callable[[Any, State], None]


def update_sgd(parameter: Any, _state: State) -> None:  # noqa: ANN401 - torch has no types here
    """Update a parameter in place by stochastic gradient descent."""
    parameter.add_(parameter.grad, alpha=-LR)


def update_adam(parameter: Any, state: State) -> None:  # noqa: ANN401 - as above
    """Update a parameter in place by Adam (Kingma and Ba, 2015)."""
    if not state:
        state |= {"step": 0, "mean": torch.zeros_like(parameter), "square": torch.zeros_like(parameter)}
    state["step"] += 1
    first, second = (1 - beta ** state["step"] for beta in _BETAS)
    state["mean"].lerp_(parameter.grad, 1 - _BETAS[0])
    state["square"].mul_(_BETAS[1]).addcmul_(parameter.grad, parameter.grad, value=1 - _BETAS[1])
    root = (state["square"].sqrt() / second**0.5).add_(_EPS)
    parameter.addcdiv_(state["mean"], root, value=-LR / first)


def update_adam_functionally(parameter: Any, state: State) -> None:  # noqa: ANN401 - as above
    """Update a parameter by Adam as the paper writes it: every step makes new tensors."""
    if not state:
        state |= {"step": 0, "mean": torch.zeros_like(parameter), "square": torch.zeros_like(parameter)}
    step = state["step"] + 1
    mean = _BETAS[0] * state["mean"] + (1 - _BETAS[0]) * parameter.grad
    square = _BETAS[1] * state["square"] + (1 - _BETAS[1]) * parameter.grad * parameter.grad
    state |= {"step": step, "mean": mean, "square": square}
    corrected, root = mean / (1 - _BETAS[0] ** step), (square / (1 - _BETAS[1] ** step)).sqrt()
    parameter.copy_(parameter - LR * corrected / (root + _EPS))


def _train_by(update: Update, network: nn.Module) -> nn.Module:
    for parameter in network.parameters():
        state: State = {}

        def apply(parameter: Any, state: State = state) -> None:  # noqa: ANN401 - as above
            with torch.no_grad():
                update(parameter, state)
            parameter.grad = None

        parameter.register_post_accumulate_grad_hook(apply)
    return network


def build_adam(weights: Mapping[str, Tensor]) -> nn.Module:
    """Return the network of the example, trained by ``update_adam``."""
    return _train_by(update_adam, build(weights))


def build_sgd(weights: Mapping[str, Tensor]) -> nn.Module:
    """Return the network of the example, trained by ``update_sgd``."""
    return _train_by(update_sgd, build(weights))
