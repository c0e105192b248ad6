"""The outside tools that building runs, where the build is interrupted."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from benchlock.evaluator.images.external_tools import run_tool

TOOL = """
trap 'echo cleaned > cleaned; exit 1' TERM
sh -c 'echo $$ > pid.draft; mv pid.draft pid; exec sleep 600' &
wait
"""


def test_an_interrupted_tool_cleans_up_and_ends_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_tool(["sh", "-c", TOOL], what="sleeping", next_step="wake it")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "cleaned").exists()
    end = time.monotonic() + 60
    while not has_ended(int((tmp_path / "pid").read_text())):
        assert time.monotonic() < end
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or waits for its parent to notice its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True
