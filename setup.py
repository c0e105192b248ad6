"""Writes the commit into the wheel: BENCHLOCK_COMMIT says which, else git does. pyproject.toml says all the rest."""

import os
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


def read_commit() -> str:
    """Return the commit that the wheel is built of; empty where nothing tells it."""
    if given := os.environ.get("BENCHLOCK_COMMIT"):
        return given
    here = Path(__file__).resolve().parent
    if not (here / ".git").exists():
        return ""
    try:
        command = ["git", "rev-parse", "HEAD"]
        return subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class BuildWithCommit(build_py):
    """Builds the packages, and benchlock/api/commit.txt where the commit is known."""

    def run(self) -> None:
        """Write the commit of this build beside the modules."""
        super().run()
        commit = read_commit()
        if commit and not self.editable_mode:
            Path(self.build_lib, "benchlock", "api", "commit.txt").write_text(f"{commit}\n", encoding="ascii")


setup(cmdclass={"build_py": BuildWithCommit})
