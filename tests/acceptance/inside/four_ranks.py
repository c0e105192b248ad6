"""Runs inside PyTorch's image: four ranks share the gradients of a network, more than a small host has CPUs for.

``python SCRIPT HARNESS OUT``; the bytes that each rank sent in each step go to ``OUT/found.json``.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

sys.path.insert(0, sys.argv[1])

import torch
from harness.core.supervisor import end_process
from harness.training.pytorch_distributed import open_group

OUT = Path(sys.argv[2])
RANKS, STEPS, BUCKET = 4, 4, 25 << 20


class Trainer:
    """A network of two layers with 614 KB of gradients, which sees random samples."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        layers = (torch.nn.Linear(64, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10))
        self.module: Any = torch.nn.Sequential(*layers)
        self.size = sum(weight.numel() * weight.element_size() for weight in self.module.parameters())

    def distribute(self, wrap: Callable[[Any], Any]) -> None:
        """Share the gradients as the harness does."""
        self.module = wrap(self.module)

    def step(self) -> None:
        """Compute the gradients of some samples."""
        self.module.zero_grad()
        self.module(torch.randn(8, 64)).square().mean().backward()


def run_rank(rank: int) -> NoReturn:
    """Take the steps, write what this rank sent, and end the process."""
    trainer, sent = Trainer(), []
    job: Any = SimpleNamespace(processes=RANKS, bucket_bytes=BUCKET, seeds=(3,))
    with open_group(job, trainer, OUT, rank) as group:
        for _ in range(STEPS):
            before, _ = group.count_bytes()
            trainer.step()
            sent.append(group.count_bytes()[0] - before)
    (OUT / f"rank-{rank}.json").write_text(json.dumps({"gradients": trainer.size, "sent": sent}))
    end_process(0)


def main() -> None:
    """Start the ranks, as forks because each import of PyTorch takes seconds, and gather what they wrote."""
    running = []
    for rank in range(RANKS):
        if not (process := os.fork()):
            run_rank(rank)
        running.append(process)
    assert [os.waitpid(process, 0)[1] for process in running] == [0] * RANKS
    found = [json.loads((OUT / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]
    (OUT / "found.json").write_text(json.dumps({"ranks": found}))


if __name__ == "__main__":
    main()
