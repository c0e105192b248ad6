"""The command line as a user calls it, for tests: real processes, JSON answers."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

BENCHLOCK = Path(sys.executable).parent / "benchlock"
SECONDS = 1500
"""After so long a command is taken to hang."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command left: its exit code, the JSON document of standard output, and standard error."""

    code: int
    document: dict[str, Any]
    stderr: str


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands on one registry. ``engine`` is the URL of the engine that they find, none where it is empty."""

    registry: Path
    engine: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("BENCHLOCK_")}
        # A socket that is not there: no engine answers, whatever else runs on this machine.
        engine = self.engine or f"unix://{self.registry}/no-engine.sock"
        return inherited | {"DOCKER_HOST": engine, "BENCHLOCK_REGISTRY": str(self.registry)} | self.variables

    def command(self, *words: str | Path) -> list[str]:
        return [str(BENCHLOCK), "--json", *map(str, words)]

    def finished(self, *words: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*words), env=self.environment(), capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def call(self, *words: str | Path) -> Answer:
        """Run one command to its end."""
        done = self.finished(*words)
        document = json.loads(done.stdout) if done.stdout.strip() else {}
        return Answer(done.returncode, document, done.stderr)

    def done(self, *words: str | Path) -> Any:  # noqa: ANN401 - a JSON document
        """Run one command that must succeed; its document."""
        answer = self.call(*words)
        assert answer.code == 0, (words, answer)
        return answer.document

    def error(self, code: int, *words: str | Path) -> dict[str, Any]:
        """Run one command that must fail with ``code``, in one message and without a traceback; its error."""
        answer = self.call(*words)
        assert answer.code == code, (words, answer)
        assert "Traceback" not in answer.stderr
        error: dict[str, Any] = answer.document["error"]
        return error


def link_environments(registry: Path, home: Path) -> None:
    """Let the registry in ``home`` use the environments of processes of another, which take long to make.

    A run verifies the one that it uses.
    """
    shared = (registry / "environments").resolve()
    shared.mkdir(exist_ok=True)
    home.mkdir(parents=True, exist_ok=True)
    (home / "environments").symlink_to(shared)


def copied(commands: Commands, home: Path, engine: str) -> Commands:
    """The same on a copy of the registry in ``home``; its blobs are links to the same files.

    What is derived is not copied. Environments of processes are shared.
    """
    left_out = shutil.ignore_patterns("blobs", "builds", "environments", "runs")
    shutil.copytree(commands.registry, home, ignore=left_out)
    shutil.copytree(commands.registry / "blobs" / "sha256", home / "blobs" / "sha256", copy_function=os.link)
    link_environments(commands.registry, home)
    return replace(commands, registry=home, engine=engine)
