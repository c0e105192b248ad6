"""The walk through the API that the README prints, by a real shell and curl: each block prints what stands below it."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.api.commands import Commands, copied
from tests.support.registry.digits import DIGITS
from tests.support.servers.registry_server import free_port

pytestmark = pytest.mark.image

README = Path(__file__).parents[2] / "README.md"
SECTION = "## The same over HTTP, with curl\n"
BLOCK = re.compile(r"^```bash\n(.*?)^```\n(?:^```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


@pytest.fixture
def checkout(built_once: Commands, tmp_path: Path) -> Path:
    """A folder as `make demo` leaves it, as far as the walk looks at it."""
    commands = copied(built_once, tmp_path / ".demo" / "registry", "")
    commands.done("publish", DIGITS / "dataset.yaml")
    (tmp_path / "examples").symlink_to(DIGITS.parent)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    return tmp_path


def ran(script: str, folder: Path) -> tuple[str, str]:
    """What a shell of its own session says to a script, to both ends; nothing that it started outlives it."""
    environment = Commands(folder / "none").environment() | {
        "BENCHLOCK_HOST_LOCK": str(folder / "host.lock"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        return shell.communicate(timeout=500)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def test_the_walk_through_the_api_works_as_printed(checkout: Path) -> None:
    section = README.read_text().partition(SECTION)[2].partition("\n## ")[0]
    blocks = BLOCK.findall(section)
    assert len(blocks) == section.count("```bash\n") == 4
    port = str(free_port())
    script = "printf '\\0'\n".join(commands for commands, _ in blocks)
    script = script.replace(":8080", f":{port}").replace("benchlock serve ", f"benchlock serve --port {port} ")
    said, complaints = ran(script, checkout)
    logs = "\n".join(path.read_text() for path in sorted((checkout / ".demo").glob("*.log")))
    assert said.split("\0") == [printed for _, printed in blocks], (complaints, logs)
    assert complaints == ""
