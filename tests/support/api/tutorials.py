"""The command blocks of a tutorial, run by a real shell as they are printed."""

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support.api.commands import Commands

_BLOCK = re.compile(r"^```bash\n(.*?)^```\n(?:^```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
SECONDS = 500


def read_blocks(page: Path) -> list[tuple[str, str]]:
    """The commands of each block of a page, and the output that stands below it: empty where none does."""
    text = page.read_text(encoding="utf-8")
    blocks = _BLOCK.findall(text)
    assert len(blocks) == text.count("```bash\n"), page
    assert not re.search(r"^```(console|sh)\n", text, re.MULTILINE), f"{page}: a block that no test runs"
    return blocks


def run_script(script: str, folder: Path) -> tuple[str, str]:
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
        return shell.communicate(timeout=SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def is_as_printed(output: str, printed: str) -> bool:
    """Whether the output is the printed one, where ``…`` stands for any text, and white space for white space."""
    pattern = "[\\s\\S]*".join(re.escape(part) for part in re.split(r"\s*…\s*", _squeeze(printed)))
    return re.fullmatch(pattern, _squeeze(output)) is not None


def _squeeze(text: str) -> str:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)
