"""The host's Python interpreters, for environments that run as processes."""

import json
import shutil
import sys
from pathlib import Path

from artifacts.errors import UnavailableError
from evaluator.images.commands import run_tool

_PROBE = """
import json, sys
print(json.dumps([sys.implementation.name, "%d.%d" % sys.version_info[:2], sys.base_exec_prefix]))
"""


def find_interpreter(python: str) -> Path:
    """The CPython of minor version ``python``, such as ``3.11``: the running one, else the one on the path.

    It is never that of a virtual environment: where the found one is, the one that it was made with.

    Raises:
        UnavailableError: there is none.
    """
    for candidate in (sys.executable, shutil.which(f"python{python}")):
        if candidate is None:
            continue
        answer = run_tool(
            [candidate, "-I", "-c", _PROBE], what="asking a Python for its version", next_step="repair it"
        )
        implementation, version, prefix = json.loads(answer)
        interpreter = Path(prefix) / "bin" / f"python{python}"
        if (implementation, version) == ("cpython", python) and interpreter.exists():
            return interpreter
    raise UnavailableError(
        f"there is no Python {python} to run this image in a process",
        next_step=f"install python{python}, or run it in a container (--isolation container)",
    )
