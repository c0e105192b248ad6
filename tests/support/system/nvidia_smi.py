"""A stand-in for NVIDIA's ``nvidia-smi``, whose accelerators a test's machine has not: a program that prints its words.

It answers the one query that benchlock makes, line by line as the tool does, and refuses any other.
"""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

QUERY = "--query-gpu=name,memory.total,driver_version --format=csv,noheader,nounits"
H200 = "NVIDIA H200 NVL, 143771, 550.54.15"
A100 = "NVIDIA A100-SXM4-40GB, 40960, 535.104.05"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)


def install(folder: Path, lines: Sequence[str] = (), *, ends: int = 0, hangs: bool = False) -> str:
    """Such a program in ``folder``, made where it is not there; the ``PATH`` that finds it first."""
    folder.mkdir(parents=True, exist_ok=True)
    tool = folder / "nvidia-smi"
    answer = ["exec sleep 60"] if hangs else [f"echo {shlex.quote(line)}" for line in lines]
    script = ["#!/bin/sh", f'[ "$*" = {shlex.quote(QUERY)} ] || exit 2', *answer, f"exit {ends}"]
    tool.write_text("\n".join(script) + "\n")
    tool.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
