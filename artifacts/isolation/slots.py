"""Slots for child processes, so that the memory of all of them together stays within what this process may use.

The memory is the limit of the process's cgroup, or all of the machine where that is less, without what the process
itself needs. It is shared out evenly: as many slots as the largest call fits in, and two at least, so that no caller of
a service has all of them.
"""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Final

OWNER: Final = ContextVar("OWNER", default="")
"""Who a service works for. All slots but one are theirs at most; whoever works for nobody may have all."""

LARGEST: Final = 4 << 30
"""Bytes of address space of the largest call: the recomputation of a run's figures."""
_OWN: Final = 1 << 30
_LEAST_SLOTS: Final = 2
_LEAST: Final = 1 << 30
"""Bytes of a slot at least: an interpreter with the libraries of a parser has half of it mapped."""
_CGROUPS: Final = Path("/sys/fs/cgroup")


class ChildSlots:
    """``count`` slots of ``memory`` bytes each. ``taken`` are those of each caller that are held."""

    def __init__(self, budget: int) -> None:
        """Share out ``budget`` bytes."""
        self.count = max(_LEAST_SLOTS, budget // LARGEST)
        self.memory = max(_LEAST, budget // self.count)
        self._free = self.count
        self.taken: Counter[str] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot; wait until there is one for the caller of this context."""
        owner = OWNER.get()
        most = self.count - 1 if owner else self.count
        with self._changed:
            self._changed.wait_for(lambda: self._free and self.taken[owner] < most)
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


@lru_cache(1)
def child_slots() -> ChildSlots:
    """Return the slots of this process."""
    return ChildSlots(find_memory() - _OWN)


def find_memory(cgroups: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes of memory that this process may use.

    Args:
        cgroups: Where the cgroups are mounted.
        own: The file that names the cgroup of this process.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError):  # no Linux
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            group = cgroups / controllers / path.lstrip("/")
            for one in (group, *group.parents):  # in a container its own cgroup may be the root
                limits += _read_limits(one)
    return min(limits)


def _read_limits(group: Path) -> list[int]:
    limits = []
    for name in ("memory.max", "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" is no number
            limits.append(int((group / name).read_text()))
    return limits
