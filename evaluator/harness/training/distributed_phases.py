"""The phases of a distributed training: ``single``, the reference, and ``rank-R``, one of its processes."""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from ..core.distributed_job import RANK, SINGLE, DistributedJob
from ..core.failures import Failure, classify_errors
from ..core.phase_reports import Progress, Timings
from ..core.training_job import RECIPE
from ..inference.pipeline import Pipeline
from ..predictors import Tensors
from . import build_trainer, digest_tensors, digest_weights, encode_weights
from .pytorch_distributed import Group, Reference, open_group
from .train_phase import apply_environment, list_batches, make_sampler, prepare_split, set_rate

Shares = list[tuple[Tensors, NDArray[np.int64]]]
"""The inputs and the labels of each rank's part of a batch."""


def run_single(job: DistributedJob, folder: Path, output: Path) -> dict[str, Any]:
    """Train in one process, which computes the gradients of every rank; write its losses, times and weights.

    Raises:
        Failure: ``load``, ``step`` or ``predict``.
    """
    training = _Training(job, folder, SINGLE)
    reference = Reference(training.trainer, job.seeds[0], job.processes)
    losses = np.zeros((job.all_steps, job.processes), np.float64)
    for step, shares in training.list_steps(range(job.processes)):
        losses[step] = training.time_step(step, partial(reference.step, shares))
    return training.finish(output, {"loss": losses})


def run_rank(job: DistributedJob, folder: Path, output: Path, rank: int) -> dict[str, Any]:
    """Train as one of several processes, with its part of each batch; write its losses, times, bytes and weights.

    Raises:
        Failure: ``load``, ``step`` or ``predict``.
    """
    training = _Training(job, folder, f"{RANK}{rank}")
    losses = np.zeros(job.all_steps, np.float64)
    sent, logical = (np.zeros(job.all_steps, np.int64) for _ in range(2))
    with open_group(job, training.trainer, output, rank) as group:
        for step, shares in training.list_steps((rank,)):
            before = _count(group, step)
            losses[step] = training.time_step(step, partial(training.trainer.step, *shares[0]))
            after = _count(group, step)
            sent[step], logical[step] = after[0] - before[0], after[1] - before[1]
    return training.finish(output, {"loss": losses, "sent": sent, "logical": logical})


def _count(group: Group, step: int) -> tuple[int, int]:
    """Return the bytes that were sent and the bytes of gradients, once all ranks are at the same place."""
    with classify_errors("predict", f"step {step}"):
        return group.count_bytes()


class _Training:
    """The trainer, the order of samples and the clock of the steps, which both phases share."""

    def __init__(self, job: DistributedJob, folder: Path, phase: str) -> None:
        apply_environment(job)
        self._job, self._phase, self._timings = job, phase, Timings()
        self._step_ns = np.zeros(job.all_steps, np.int64)
        with self._timings.of("init"):
            self.trainer = build_trainer(job, folder / RECIPE, job.seeds[0])
            self._pipeline = Pipeline(job.evaluation.model, folder / RECIPE)
            self._samples, self._labels = prepare_split(job, self._pipeline, job.dataset, folder)

    def list_steps(self, ranks: range | tuple[int, ...]) -> Iterator[tuple[int, Shares]]:
        """Yield the number of each step, and the parts of its batch that the ranks have."""
        progress = Progress(self._phase, self._job.all_steps)
        with self._timings.of("train"):
            for step, numbers in enumerate(islice(self._list_batches(), self._job.all_steps)):
                size, rest = divmod(len(numbers), self._job.processes)
                if rest:
                    what = f"{len(numbers)} samples are not divisible by {self._job.processes} processes"
                    raise Failure("load", f"step {step}: {what}")
                set_rate(self._job.settings, self.trainer, step, len(self._samples))
                parts = (numbers[rank * size : (rank + 1) * size] for rank in ranks)
                yield step, [(self._stack(part), self._labels[part]) for part in parts]
                progress.at(step + 1)
        progress.finish()

    def time_step(self, step: int, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - the result of any function
        """Call ``work`` and return its result; record the duration as that of the step."""
        start = time.perf_counter_ns()
        with classify_errors("predict", f"step {step}"):
            losses = work()
        self._step_ns[step] = time.perf_counter_ns() - start
        if not math.isfinite(float(np.sum(losses))):
            raise Failure("non-finite", f"step {step}: the loss of the {self._phase} phase is not finite")
        return losses

    def finish(self, output: Path, columns: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Write the columns and the weights; return the report of the phase."""
        weights = self.trainer.weights()
        content = encode_weights(weights)
        (output / f"weights-{self._phase}.safetensors").write_bytes(content)
        path = output / f"{self._phase}.safetensors"
        save_file({**columns, "step_ns": self._step_ns}, path, metadata=self._job.file_metadata)
        return {
            "weights": digest_weights(content),
            "tensors": digest_tensors(weights),
            "device": self._job.device,
            "threads": dict(self.trainer.threads),
            "timings": self._timings.seconds,
        }

    def _stack(self, numbers: NDArray[np.int64]) -> Tensors:
        return self._pipeline.stack([self._samples[number] for number in numbers])

    def _list_batches(self) -> Iterator[NDArray[np.int64]]:
        generator = make_sampler(self._job.seeds[0])
        while True:
            yield from list_batches(self._job.settings, len(self._samples), generator)
