"""The network, and what every script that touches it shares: its shape, its inputs, its weights in a file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from examples.digits.idx import read_idx
from examples.digits.weights import WEIGHTS

DATA = Path(__file__).parent / "data"
INK = 16  # the darkest pixel


def network(channels: Sequence[int]) -> nn.Sequential:
    """Three 3x3 convolutions and a linear layer: ``[N, 1, 8, 8]`` with ink from 0 to 1 -> logits ``[N, 10]``."""
    first, second, third = channels
    return nn.Sequential(
        nn.Conv2d(1, first, 3, padding=1), nn.ReLU(),
        nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(second, third, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(third * 4, 10),
    )  # fmt: skip


def split(name: str) -> tuple[Tensor, Tensor]:
    """Pictures ``[N, 1, 8, 8]`` as the network wants them, and their labels ``[N]``."""
    pictures = torch.tensor(read_idx(DATA / f"{name}-images.idx"), dtype=torch.float32)
    labels = torch.tensor(read_idx(DATA / f"{name}-labels.idx"), dtype=torch.int64)
    return pictures[:, None] / INK, labels


def be_deterministic(seed: int) -> None:
    """One thread, one seed, and algorithms that give the same bits every time on one CPU."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    torch.manual_seed(seed)


def save_weights(model: nn.Sequential) -> None:
    arrays: dict[str, NDArray[np.float32]] = {name: value.numpy() for name, value in model.state_dict().items()}
    np.savez(WEIGHTS, allow_pickle=False, **arrays)


def trained() -> nn.Sequential:
    """The network with the weights of the file, ready to predict."""
    with np.load(WEIGHTS) as stored:
        weights = {name: torch.from_numpy(stored[name]) for name in stored.files}
    channels = [len(weights[f"{layer}.bias"]) for layer in (0, 2, 5)]
    model = network(channels)
    model.load_state_dict(weights)
    return model.eval().requires_grad_(requires_grad=False)
