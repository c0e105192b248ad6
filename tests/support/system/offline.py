"""Commands as on an air-gapped machine: no network but for sockets in the file system, an empty home."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.api.commands import Commands

_CUT = ("unshare", "--net")
"""A network namespace of its own, in which even the loopback is down."""


@dataclass(frozen=True, slots=True)
class Offline(Commands):
    """Commands in a network namespace without any interface that is up."""

    def command(self, *words: str | Path) -> list[str]:
        return [*_CUT, *Commands.command(self, *words)]


def offline(home: Path, engine: str = "") -> Offline:
    """Commands on the registry in the empty folder ``home``, or a skip that says why there can be none."""
    tried = subprocess.run([*_CUT, "cat", "/proc/net/dev"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"needs the right to make a network namespace (root): {tried.stderr.strip()}")
    interfaces = [line.split(":")[0].strip() for line in tried.stdout.splitlines() if ":" in line]
    assert interfaces == ["lo"]
    home.mkdir()
    assert os.listdir(home) == []  # noqa: PTH208 - it is empty
    return Offline(home / ".local" / "share" / "benchlock", engine, {"HOME": str(home)})
