"""ResNet-8 of MLPerf Tiny around weights, with batch norms folded into its convolutions, as a model's code."""

from typing import Any

import torch

_ALL_SIDES, _FAR_SIDES = (1, 1, 1, 1), (0, 1, 0, 1)  # TensorFlow's SAME, of stride 1 and of stride 2


class ResNet8(torch.nn.Module):
    """Three blocks of 16, 32 and 64 channels; ``s1`` and ``s2`` are the shortcuts of those that halve a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.c0 = torch.nn.Conv2d(3, 16, 3)
        self.c1, self.c2 = torch.nn.Conv2d(16, 16, 3), torch.nn.Conv2d(16, 16, 3)
        self.c3, self.c4 = torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.Conv2d(32, 32, 3)
        self.c5, self.c6 = torch.nn.Conv2d(32, 64, 3, stride=2), torch.nn.Conv2d(64, 64, 3)
        self.s1, self.s2 = torch.nn.Conv2d(16, 32, 1, stride=2), torch.nn.Conv2d(32, 64, 1, stride=2)
        self.fc = torch.nn.Linear(64, 10)

    def forward(self, pictures: Any) -> Any:  # noqa: ANN401 - torch has no types here
        found = torch.relu(self.c0(_padded(pictures, _ALL_SIDES)))
        found = torch.relu(found + self._pair(found, self.c1, self.c2, _ALL_SIDES))
        found = torch.relu(self.s1(found) + self._pair(found, self.c3, self.c4, _FAR_SIDES))
        found = torch.relu(self.s2(found) + self._pair(found, self.c5, self.c6, _FAR_SIDES))
        return torch.softmax(self.fc(found.mean(dim=(2, 3))), dim=1)

    def _pair(self, values: Any, first: Any, second: Any, sides: tuple[int, ...]) -> Any:  # noqa: ANN401 - as above
        found = torch.relu(first(_padded(values, sides)))
        return second(_padded(found, _ALL_SIDES))


def _padded(values: Any, sides: tuple[int, ...]) -> Any:  # noqa: ANN401 - as above
    return torch.nn.functional.pad(values, sides)


def build(weights: Any) -> ResNet8:  # noqa: ANN401 - tensors by name
    network = ResNet8()
    network.load_state_dict(weights)
    return network
