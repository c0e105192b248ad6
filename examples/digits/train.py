"""Train the network on the train split; write its weights, and how many pictures of the test split it gets right."""

import json

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.digits.network import be_deterministic, network, save_weights, split
from examples.digits.parameters import parameters
from examples.digits.weights import MODELS


def warp(pictures: Tensor, linear: float, shift: float) -> Tensor:
    """Each picture turned, sheared, scaled and moved by a little, at random."""
    matrix = torch.eye(2) + linear * (2 * torch.rand(len(pictures), 2, 2) - 1)
    move = shift * (2 * torch.rand(len(pictures), 2, 1) - 1)
    grid = functional.affine_grid(torch.cat([matrix, move], 2), list(pictures.shape), align_corners=False)
    return functional.grid_sample(pictures, grid, align_corners=False)


def train(pictures: Tensor, labels: Tensor) -> nn.Sequential:
    """AdamW with a cosine schedule, as params.yaml says."""
    settings = parameters("train")
    be_deterministic(settings["seed"])
    model = network(settings["channels"])
    optimizer = torch.optim.AdamW(model.parameters(), settings["learning_rate"], weight_decay=settings["weight_decay"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings["epochs"])
    for _ in range(settings["epochs"]):
        for batch in torch.randperm(len(pictures)).split(settings["batch"]):
            warped = warp(pictures[batch], settings["linear"], settings["shift"])
            loss = functional.cross_entropy(model(warped), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return model.eval().requires_grad_(requires_grad=False)


def main() -> None:
    """The weights and the count beside them."""
    model = train(*split("train"))
    save_weights(model)
    pictures, labels = split("test")
    ranked = model(pictures).argsort(dim=1, descending=True, stable=True)
    hits = ranked == labels[:, None]
    counts = {"top1": int(hits[:, :1].sum()), "top5": int(hits[:, :5].sum()), "samples": len(labels)}
    (MODELS / "accuracy.json").write_text(json.dumps(counts) + "\n", encoding="utf-8")
    print(f"test split: {counts['top1']} of {counts['samples']} right")


if __name__ == "__main__":
    main()
