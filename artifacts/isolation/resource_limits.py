"""Resource limits of isolated calls: limits of one call, and slots that bound the memory of all.

The memory is the limit of the process's cgroup, or all of the machine's if that is less, minus what the process itself
needs. It is divided evenly into as many slots as the largest call allows, but at least two, so that no caller of a
service can occupy all of them.
"""

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BusyError, InvalidInputError

_MIB: Final = 1 << 20


class Limits(Struct, frozen=True, kw_only=True):
    """The resources of one isolated call.

    Attributes:
        memory: Bytes of address space, including the interpreter.
        cpu_seconds: Seconds of processor time.
        seconds: Seconds of wall time, without the time spent waiting for the calling process.
        files: Descriptors that may be open at once.
        result: Bytes of the result as JSON.
    """

    memory: int = 1024 * _MIB
    cpu_seconds: int = 60
    seconds: float = 300.0
    files: int = 64
    result: int = 8 * _MIB


class LimitExceededError(InvalidInputError):
    """An isolated call exceeded its limits. ``blob`` is the last blob that it opened, or ``None``."""

    code = "limit-exceeded"
    blob: Digest | None = None


class IsolatedFaultError(InvalidInputError):
    """An isolated call failed with an unexpected error. ``blob`` is the last blob that it opened, or ``None``."""

    code = "isolated-fault"
    blob: Digest | None = None


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """The claim of a request to a slot.

    Attributes:
        owner: The caller of the request, who may hold all slots but one; empty outside of a service, without that
            bound.
        urgent: Whether the request is served before all that are not urgent.
        deadline: The end of the wait, on the clock of ``time.monotonic``; ``None`` waits without a limit.
        timeout: Seconds that the request waits for each slot at most; ``None`` waits without a limit.
    """

    owner: str = ""
    urgent: bool = False
    deadline: float | None = None
    timeout: float | None = None


_NO_SERVICE: Final = SlotClaim()
SLOT_CLAIM: Final = ContextVar("SLOT_CLAIM", default=_NO_SERVICE)
"""The claim of the current request."""

LARGEST_CALL: Final = 4 << 30
"""Bytes of address space of the largest call: the recomputation of a run's metrics."""
_OWN_MEMORY: Final = 1 << 30
_LEAST_SLOTS: Final = 2
_SMALLEST_SLOT: Final = 1 << 30
"""Smallest slot, in bytes: an interpreter with the libraries of a parser maps half of it."""
_CGROUPS: Final = Path("/sys/fs/cgroup")


class ChildSlots:
    """``count`` slots of ``memory`` bytes each; ``taken`` counts the slots that each caller holds.

    Urgent claims are served first, otherwise in order of arrival. A claim is skipped while its caller holds as many
    slots as allowed.
    """

    def __init__(self, budget: int) -> None:
        """Divide ``budget`` bytes into slots."""
        self.count = max(_LEAST_SLOTS, budget // LARGEST_CALL)
        self.memory = max(_SMALLEST_SLOT, budget // self.count)
        self._free = self.count
        self.taken: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._claims: dict[int, SlotClaim] = {}
        self._tickets = itertools.count()

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot; wait until the claim of this context is next.

        Raises:
            BusyError: No slot was free until the deadline of the claim.
        """
        claim = SLOT_CLAIM.get()
        owner = claim.owner
        with self._changed:
            ticket = next(self._tickets)
            self._claims[ticket] = claim
            seconds = claim.timeout if claim.deadline is None else claim.deadline - time.monotonic()
            try:
                if not self._changed.wait_for(lambda: self._find_next() == ticket, seconds):
                    raise BusyError(
                        "no slot for a child process became free in time", next_step="try again in a few seconds"
                    )
            finally:
                del self._claims[ticket]
                self._changed.notify_all()  # the turn may be another claim's now
            self._free -= 1
            self.taken[owner] += 1
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self.taken[owner] -= 1
                if not self.taken[owner]:
                    del self.taken[owner]
                self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """The number of claims that wait for a slot."""
        return len(self._claims)

    def _find_next(self) -> int | None:
        """Return the ticket of the claim that is served next; ``None`` if no claim can be served."""
        if not self._free:
            return None
        servable = (  # no owner holds all slots
            ticket for ticket, claim in self._claims.items() if self.taken[claim.owner] < self.count - bool(claim.owner)
        )
        return min(servable, key=lambda ticket: (not self._claims[ticket].urgent, ticket), default=None)


@lru_cache(1)
def child_slots() -> ChildSlots:
    """Return the slots of this process."""
    return ChildSlots(find_memory() - _OWN_MEMORY)


def find_memory(cgroups: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes of memory that this process may use.

    Args:
        cgroups: The mount point of the cgroups.
        own: The file that names the cgroup of this process.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    lines = own.read_text().splitlines() if own.exists() else ()  # no Linux
    for _, controllers, path in (line.split(":", 2) for line in lines):
        group = cgroups / controllers / path.lstrip("/")
        folders = (group, *group.parents)  # in a container the root may be its own cgroup
        for file in (folder / name for folder in folders for name in ("memory.max", "memory.limit_in_bytes")):
            with suppress(OSError, ValueError):  # "max" is no number
                limits.append(int(file.read_text()))
    return min(limits)
