"""MobileNet v1 of a quarter of the width around weights, with batch norms folded, as a model's code."""

from itertools import pairwise
from typing import Any

import torch

_WIDTHS = (8, 16, 32, 32, 64, 64, *[128] * 6, 256, 256)
_HALVING = (2, 4, 6, 12)
"""The blocks whose depthwise convolution goes two pixels a step, from 1 on."""


class MobileNet(torch.nn.Module):
    """A convolution, then thirteen blocks: one of each channel alone, one of all channels of a pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([torch.nn.Conv2d(3, _WIDTHS[0], 3, stride=2)])
        for number, (given, made) in enumerate(pairwise(_WIDTHS), start=1):
            stride = 2 if number in _HALVING else 1
            self.convs.append(torch.nn.Conv2d(given, given, 3, stride=stride, groups=given))
            self.convs.append(torch.nn.Conv2d(given, made, 1))
        self.fc = torch.nn.Conv2d(_WIDTHS[-1], 1001, 1)

    def forward(self, pictures: Any) -> Any:  # noqa: ANN401 - torch has no types here
        found = pictures
        for layer in self.convs:
            if layer.kernel_size == (3, 3):
                # TensorFlow's SAME: of an even picture and stride 2 the far sides alone.
                sides = (0, 1, 0, 1) if layer.stride == (2, 2) else (1, 1, 1, 1)
                found = torch.nn.functional.pad(found, sides)
            found = torch.nn.functional.relu6(layer(found))
        scores = self.fc(found.mean(dim=(2, 3), keepdim=True))
        return torch.softmax(torch.flatten(scores, 1), dim=1)


def build(weights: Any) -> MobileNet:  # noqa: ANN401 - tensors by name
    network = MobileNet()
    network.load_state_dict(weights)
    return network
