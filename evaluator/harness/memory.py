"""How often the kernel has killed for memory in the control group of this process, in both versions of cgroups."""

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def oom_kills(membership: Path = _MEMBERSHIP, root: Path = _ROOT) -> int:
    """The counter ``oom_kill`` of the group; 0 where the kernel has none to show."""
    for counters in _counter_files(membership, root):
        if counters.is_file():
            for line in counters.read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return 0


def _counter_files(membership: Path, root: Path) -> Iterator[Path]:
    """Where the counter may be: below the group's path or, in a container that sees its own group alone, at the top."""
    lines = membership.read_text(encoding="utf-8").splitlines() if membership.is_file() else []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for place in (path.lstrip("/"), ""):
            if not controllers:
                yield root / place / "memory.events"
            elif "memory" in controllers.split(","):
                yield root / "memory" / place / "memory.oom_control"
