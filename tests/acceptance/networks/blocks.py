"""The blocks of ResNet-20, a file of their own: code of a model may lie in several."""

from typing import Any

import torch


class Block(torch.nn.Module):
    """Two convolutions and a shortcut without weights: every second pixel, and channels of zeros on both sides."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(given, made, 3, stride=stride, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(made)
        self.conv2 = torch.nn.Conv2d(made, made, 3, padding=1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(made)
        self.stride = stride
        self.margin = (made - given) // 2

    def forward(self, values: Any) -> Any:  # noqa: ANN401 - torch has no types here
        found = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(values)))))
        sparse = values[:, :, :: self.stride, :: self.stride]
        margins = (0, 0, 0, 0, self.margin, self.margin)
        return torch.relu(found + torch.nn.functional.pad(sparse, margins))


def stage(given: int, made: int, stride: int) -> Any:  # noqa: ANN401 - torch has no types here
    """Three blocks, of which the first makes ``made`` channels of ``given``."""
    return torch.nn.Sequential(Block(given, made, stride), Block(made, made, 1), Block(made, made, 1))
