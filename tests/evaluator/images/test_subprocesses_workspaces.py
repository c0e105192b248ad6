import os
import signal
import subprocess
import sys
from pathlib import Path

from benchlock.evaluator.images.external_tools import workspace

HOLD = """
import sys, time, pathlib
from benchlock.evaluator.images.external_tools import workspace
with workspace(pathlib.Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    print(folder, flush=True)
    time.sleep(600)
"""


def held(root: Path) -> tuple["subprocess.Popen[str]", Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_workspace_is_removed_at_the_end(tmp_path: Path) -> None:
    with workspace(tmp_path / "root") as folder:
        (folder / "file").write_text("x")
    assert not folder.exists()


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    process, left = held(tmp_path)
    with process:
        os.kill(process.pid, signal.SIGKILL)
    assert (left / "half").exists()
    with workspace(tmp_path) as folder:
        assert folder.exists()
        assert not left.exists()


def test_what_a_living_process_works_in_stays(tmp_path: Path) -> None:
    process, other = held(tmp_path)
    with process:
        try:
            with workspace(tmp_path) as folder:
                assert folder != other
                assert (other / "half").exists()
        finally:
            process.kill()
