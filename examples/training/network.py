"""A small convolutional network for digits of 8x8 pixels: new, or with trained weights."""

from collections.abc import Mapping

from torch import Tensor, nn


def build(weights: Mapping[str, Tensor]) -> nn.Module:
    """Return the network ``[N, 1, 8, 8]`` -> scores ``[N, 10]``; with no weights, PyTorch initialises it."""
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    if weights:
        network.load_state_dict(dict(weights))
    return network
