"""The version, commit and schema revision of this build of benchlock."""

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchlock.migrations import HEAD

COMMIT_FILE: Final = "commit.txt"
"""The file beside this module with the commit of a wheel. ``setup.py`` writes it; a checkout has none."""
UNKNOWN: Final = "unknown"
_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Build:
    """The identity of a build of benchlock: version, source commit and schema revision."""

    version: str
    commit: str
    schema: str


@cache
def this_build() -> Build:
    """Describe this build; the commit is ``unknown`` outside of a wheel and a git checkout."""
    return Build(version("benchlock"), _read_commit(Path(__file__).resolve().parent), HEAD)


def _read_commit(folder: Path) -> str:
    """Read the commit from the file in ``folder``, else from git if ``folder`` is in the root of a checkout."""
    try:
        return (folder / COMMIT_FILE).read_text(encoding="ascii").strip() or UNKNOWN
    except (OSError, ValueError):
        pass
    checkout = folder.parent
    if not (checkout / ".git").exists():
        return UNKNOWN
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        result = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=checkout,
            env=plain,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return result.stdout.strip()
