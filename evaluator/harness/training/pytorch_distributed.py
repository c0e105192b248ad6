"""Distributed training in PyTorch: ranks that share gradients by gloo, and the same arithmetic in one process."""

import os
import random
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ..core.distributed_job import DistributedJob
from ..core.failures import classify_errors
from ..core.training_job import derive_purpose_seed
from ..predictors import Tensors

_STORE = "ranks.store"
_TIMEOUT = timedelta(days=1)
"""How long a rank waits for another; the limit of the run ends it earlier, and a rank that dies at once."""
_MEBIBYTE = 1 << 20
_INFO_SIZE, _ACKED = 256, 120
"""The size of ``struct tcp_info`` (Linux), at most, and the offset of ``tcpi_bytes_acked``."""

Generators = tuple[Any, Any, Any]
"""The states of the generators of Python, NumPy and PyTorch."""

_KEPT: list[Any] = []
"""The trainer of this process, until its end.

PyTorch's destructor of the group holds Python's lock while it waits for a thread that may need it, which can deadlock.
The process therefore never destroys the group: it ends by ``end_process``, which runs no destructor.
"""


class Reference:
    """One process with the arithmetic of several ranks: it adds their gradients, each divided by their number.

    With two ranks the sum has one order, so its bits are those of the ranks.
    """

    def __init__(self, trainer: Any, seed: int, processes: int) -> None:  # noqa: ANN401 - the trainer of PyTorch
        """Give each rank its states of the generators."""
        self._trainer = trainer
        self._states = []
        for rank in range(processes):
            _seed_rank(seed, rank)
            self._states.append(_read_generators())

    def step(self, shares: Sequence[tuple[Tensors, NDArray[np.int64]]]) -> list[float]:
        """Update the weights with the parts of a batch; return the mean loss of each part."""
        losses: list[float] = []
        total: list[Any] = []
        for rank, (batch, labels) in enumerate(shares):
            _restore_generators(self._states[rank])
            loss, gradients = self._trainer.find_gradients(batch, labels)
            self._states[rank] = _read_generators()
            losses.append(loss)
            parts = [gradient.div_(len(shares)) for gradient in gradients]
            total = [first.add_(part) for first, part in zip(total, parts, strict=True)] if total else parts
        self._trainer.update(total)
        return losses


class Group:
    """The ranks of a training, and the bytes that this one sends."""

    def __init__(self, processes: int) -> None:
        """Start without bytes."""
        self._processes, self._logical = processes, 0

    def reduce(self, _state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Average the gradients of a bucket over the ranks, and count its bytes; PyTorch checks these types."""
        gradients = bucket.buffer()
        self._logical += gradients.numel() * gradients.element_size()
        gradients.div_(self._processes)
        return dist.all_reduce(gradients, async_op=True).get_future().then(lambda future: future.value()[0])

    def count_bytes(self) -> tuple[int, int]:
        """Wait for all ranks; return the bytes that others acknowledged, and the bytes of gradients."""
        dist.barrier()
        return sum(_list_acknowledged()), self._logical


@contextmanager
def open_group(job: DistributedJob, trainer: Any, output: Path, rank: int) -> Iterator[Group]:  # noqa: ANN401 - as above
    """Join the ranks, and let the trainer share its gradients with them.

    Args:
        job: The job.
        trainer: The trainer of this rank.
        output: The folder in which the ranks find one another.
        rank: The number of this rank.

    Raises:
        Failure: ``load``: the ranks cannot connect.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # a container without network has no other interface
    group = Group(job.processes)
    with classify_errors("load", "the connection of the ranks"):
        store = dist.FileStore(str(output / _STORE), job.processes)
        store.set_timeout(_TIMEOUT)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=job.processes, timeout=_TIMEOUT)
        _KEPT.append(trainer)
        trainer.distribute(lambda module: _wrap(module, group, job.bucket_bytes))
    _seed_rank(job.seeds[0], rank)
    yield group
    # A rank that ends closes its connections, which gloo may report to one that still waits, though its data arrived:
    # so the ranks part by the file.
    store.set(f"parted {rank}", "")
    store.wait([f"parted {other}" for other in range(job.processes)])


def _wrap(module: Any, group: Group, bucket_bytes: int) -> Any:  # noqa: ANN401 - torch has no types here
    # Buffers are not sent, so that buffers that differ between ranks are detected.
    wrapped = torch.nn.parallel.DistributedDataParallel(
        module, bucket_cap_mb=bucket_bytes / _MEBIBYTE, broadcast_buffers=False
    )
    wrapped.register_comm_hook(None, group.reduce)
    return wrapped


def _seed_rank(seed: int, rank: int) -> None:
    random.seed(derive_purpose_seed(seed, f"rank {rank} python"))
    np.random.seed(derive_purpose_seed(seed, f"rank {rank} numpy"))  # noqa: NPY002 - code of a recipe may use it
    torch.manual_seed(derive_purpose_seed(seed, f"rank {rank}"))


def _read_generators() -> Generators:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - as above


def _restore_generators(states: Generators) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002 - as above
    torch.set_rng_state(states[2])


def _list_acknowledged() -> Iterator[int]:
    """Yield the acknowledged bytes of each TCP socket of this process, by the kernel's own count."""
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            if not str(descriptor.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(descriptor.name))) as duplicate:
                if duplicate.family not in (socket.AF_INET, socket.AF_INET6) or duplicate.type != socket.SOCK_STREAM:
                    continue
                info = duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_SIZE)
        except OSError:  # the descriptor of the listing itself, or one that another thread has closed
            continue
        yield int(struct.unpack_from("=Q", info, _ACKED)[0])
