"""What a command must not leave behind: containers, processes, folders of runs, drafts of blobs."""

import subprocess
import time
from pathlib import Path

from tests.support.api.commands import Commands

_PATIENCE_SECONDS = 30


def remains(commands: Commands) -> list[str]:
    """Everything that is left of runs and of writing, each in words; empty where all is tidy.

    What was killed may need a moment to be gone, and what a killed command had started to notice it.
    """
    end = time.monotonic() + _PATIENCE_SECONDS
    while (found := _left(commands)) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def _left(commands: Commands) -> list[str]:
    return [
        *(f"container {found}" for found in containers(commands)),
        *(f"process {found}" for found in processes(commands.registry)),
        *(f"folder {path}" for path in (commands.registry / "runs").glob("*")),
        *(f"draft {path}" for path in (commands.registry / "blobs" / "incoming").glob("*")),
    ]


def containers(commands: Commands) -> list[str]:
    """The ids of the containers of the commands' engine, of stopped ones too."""
    if not commands.engine:
        return []
    command = ["docker", f"--host={commands.engine}", "ps", "--all", "--quiet", "--no-trunc"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def processes(folder: Path) -> list[str]:
    """The command lines of the living processes that were given a path below ``folder``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it ended meanwhile
            continue
        if f"{folder}/" in line:
            found.append(line)
    return found
