"""Execute the notebook of the digits example: ``python -m tests.examples.notebook_execution TARGET`` writes it anew.

A second argument is a folder of environments of processes, which take long to make, for the notebook's registry.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import nbformat

from tests.support.api.kernels import ROOT, execute

DIGITS: Final = ROOT / "examples" / "digits"
NOTEBOOK: Final = DIGITS / "digits.ipynb"


def is_empty(output: nbformat.NotebookNode) -> bool:
    """Whether an output is what progress bars leave."""
    return output.output_type == "display_data" and not any(output.data.values())


def main() -> None:
    """Execute a copy of the example, whose registry is beside the copy, and write the notebook with its outputs."""
    with tempfile.TemporaryDirectory(prefix="benchlock-notebook-") as temporary:
        folder = Path(temporary)
        work = folder / "examples" / "digits"
        shutil.copytree(DIGITS, work)
        if environments := sys.argv[2:]:
            registry = folder / ".demo" / "registry"
            registry.mkdir(parents=True)
            (registry / "environments").symlink_to(environments[0])
        os.environ["DOCKER_HOST"] = f"unix://{folder}/none.sock"  # no engine: the output is the same everywhere
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        execute(notebook, work, folder)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not is_empty(output)]
    notebook.metadata.pop("language_info", None)  # versions of this machine
    nbformat.write(notebook, sys.argv[1])


if __name__ == "__main__":
    main()
