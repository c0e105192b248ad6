"""ResNet-20 for CIFAR-10 (He et al. 2015, shortcuts of type A) around weights, as a model's code."""

from typing import Any

import blocks
import torch

_PREFIX = "module."


class ResNet20(torch.nn.Module):
    """Three stages of three blocks, of 16, 32 and 64 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(16)
        self.layer1 = blocks.stage(16, 16, 1)
        self.layer2 = blocks.stage(16, 32, 2)
        self.layer3 = blocks.stage(32, 64, 2)
        self.linear = torch.nn.Linear(64, 10)

    def forward(self, pictures: Any) -> Any:  # noqa: ANN401 - torch has no types here
        found = torch.relu(self.bn1(self.conv1(pictures)))
        found = self.layer3(self.layer2(self.layer1(found)))
        return self.linear(found.mean(dim=(2, 3)))


def build(weights: Any) -> ResNet20:  # noqa: ANN401 - of a checkpoint or of the tensors alone
    """The network; a checkpoint has the weights under ``state_dict``, named as ``DataParallel`` names them."""
    tensors = weights.get("state_dict", weights)
    network = ResNet20()
    network.load_state_dict({name.removeprefix(_PREFIX): values for name, values in tensors.items()})
    return network
