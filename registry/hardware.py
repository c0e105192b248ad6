"""The platforms that a request admits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from posixpath import commonprefix

Wanted = tuple[str, ...] | None
"""What will do of one key; ``None`` is anything."""

KEYS = ("os", "arch", "device")


@dataclass(frozen=True, slots=True)
class Hardware:
    """The platforms that will do, key by key; without a key any."""

    os: Wanted = None
    arch: Wanted = None
    device: Wanted = None

    @classmethod
    def only(cls, platform: Mapping[str, str]) -> "Hardware":
        """That platform alone; keys that ``platform`` has not are any."""
        return cls(*(None if platform.get(key) is None else (platform[key],) for key in KEYS))

    @property
    def keys(self) -> tuple[Wanted, Wanted, Wanted]:
        return (self.os, self.arch, self.device)

    def admits(self, platform: Sequence[object]) -> bool:
        """Whether a platform, whose first parts are os, arch and device, is one of these."""
        return self.distance(platform) == 0

    def distance(self, platform: Sequence[object]) -> int:
        """The number of keys in which the platform is not one of these."""
        return sum(not will_do for will_do in starmap(_will_do, zip(self.keys, platform, strict=False)))

    def likeness(self, platform: tuple[str, ...]) -> int:
        """How many first letters its parts share with what is wanted: cuda12 is more like cuda13 than cpu."""
        pairs = ((one, have) for wanted, have in zip(self.keys, platform, strict=False) for one in wanted or ())
        return sum(len(commonprefix(pair)) for pair in pairs)

    def __str__(self) -> str:
        return "/".join("*" if wanted is None else " or ".join(wanted) for wanted in self.keys)


def _will_do(wanted: Wanted, have: object) -> bool:
    return wanted is None or have in wanted


ANYWHERE = Hardware()
"""Every platform."""
