"""Cells in a Jupyter kernel: ``python -m tests.support.api.kernels FOLDER < CELLS`` prints their outputs as JSON.

The kernel runs in a process of its own, whose warnings are not those of the tests.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

ROOT: Final = Path(__file__).resolve().parents[3]
SECONDS: Final = 1200
"""After so long a cell is taken to hang."""


class Recorder(NotebookClient):
    """Executes a notebook and records what its cells display, each state of it."""

    displays: list[tuple[int, str, dict[str, str]]]

    def process_message(self, message: dict[str, Any], cell: nbformat.NotebookNode, index: int) -> Any:  # noqa: ANN401
        """Record the message: the number of the cell, the type and the data."""
        if message["msg_type"] in ("display_data", "update_display_data"):
            self.displays.append((index, message["msg_type"], message["content"]["data"]))
        return super().process_message(message, cell, index)


def execute(notebook: nbformat.NotebookNode, folder: Path, scratch: Path) -> list[tuple[int, str, dict[str, str]]]:
    """Execute a notebook in ``folder``, and return what it displayed. Jupyter's own files go to ``scratch``."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        os.environ[name] = str(scratch / name.lower())
    recorder = Recorder(notebook, timeout=SECONDS, record_timing=False, resources={"metadata": {"path": str(folder)}})
    recorder.displays = []
    recorder.execute()
    return recorder.displays


def run_cells(folder: Path, *cells: str) -> dict[str, Any]:
    """Run cells in a kernel; their outputs and every state of what they displayed."""
    command = [sys.executable, "-m", "tests.support.api.kernels", str(folder)]
    done = subprocess.run(command, input=json.dumps(cells), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main() -> None:
    """Execute the cells of standard input in a folder."""
    folder, cells = Path(sys.argv[1]), json.load(sys.stdin)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    displays = execute(notebook, folder, folder)
    json.dump({"outputs": [cell.outputs for cell in notebook.cells], "displays": displays}, sys.stdout)


if __name__ == "__main__":
    main()
