"""The host's Python interpreters, for environments that run as processes."""

import json
import shutil
import sys
from pathlib import Path

from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.images.commands import run_tool
from benchlock.evaluator.images.target import running_python

_PROBE = """
import json, sys
print(json.dumps([sys.implementation.name, "%d.%d" % sys.version_info[:2], sys.base_exec_prefix]))
"""


def find_interpreter(python: str) -> Path:
    """The CPython of minor version ``python``, such as ``3.11``: the running one, else the one on the path.

    It is never that of a virtual environment: where the found one is, the one that it was made with. One that does not
    start is passed over, such as the shim of pyenv for a version that is not selected.

    Raises:
        UnavailableError: there is none.
    """
    on_path = shutil.which(f"python{python}")
    for candidate in (sys.executable, on_path):
        if candidate is None:
            continue
        try:
            answer = run_tool([candidate, "-I", "-c", _PROBE], what=candidate, next_step="repair it")
        except UnavailableError:
            continue
        implementation, version, prefix = json.loads(answer)
        interpreter = Path(prefix) / "bin" / f"python{python}"
        if (implementation, version) == ("cpython", python) and interpreter.exists():
            return interpreter
    raise UnavailableError(
        f"Python {python}, which runs this image in a process, is missing on this host",
        where=on_path and f"{on_path} is no CPython {python} that starts",
        next_step=f"install python{python}, run in a container (--isolation container), or build an image for "
        f"Python {running_python()} (benchlock image build)",
    )
