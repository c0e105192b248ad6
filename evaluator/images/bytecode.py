"""Byte code: unchecked-hash ``.pyc`` with the path that the source will have, and the same bytes every time.

What a code object's bytes are depends on what the process interned before, and on the seed of string hashing. So each
process starts fresh, with a fixed seed, on a fixed part of one wheel's sorted files.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchlock.artifacts.progress import Progress
from benchlock.evaluator.images.commands import run_tool
from benchlock.evaluator.images.files import files_below
from benchlock.evaluator.images.parallel import parallel

_FILES_A_PROCESS = 256
"""Part of what makes the bytes: another number gives other byte code, and so other image ids."""
_SCRIPT = """
import json, py_compile, sys
task = json.load(sys.stdin)
for path in task["files"]:
    try:
        py_compile.compile(
            task["folder"] + path, dfile=task["final"] + path, doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    except py_compile.PyCompileError:
        pass
"""


@dataclass(frozen=True, slots=True)
class Sources:
    """A folder of modules under its three names: the host's, the compiling interpreter's, and the final one."""

    host: Path
    seen: str
    final: str


@dataclass(frozen=True, slots=True)
class _Part:
    sources: Sources
    files: Sequence[str]

    def task(self) -> bytes:
        places = {"folder": f"{self.sources.seen}/", "final": f"{self.sources.final}/"}
        return json.dumps({**places, "files": self.files}).encode()


def compile_all(
    interpreter: Sequence[str], sources: Iterable[Sources], environment: Mapping[str, str], progress: Progress
) -> None:
    """Compile every ``.py`` file below ``sources``, each into the ``__pycache__`` beside it.

    A file that is no valid Python (templates, tests of other versions) is left without byte code.

    Raises:
        UnavailableError: the interpreter does not run.
    """
    parts = [_Part(folder, part) for folder in sources for part in _parts(folder.host)]
    command = [*interpreter, "-s", "-S", "-B", "-P", "-W", "ignore", "-c", _SCRIPT]

    def compile_part(part: _Part) -> int:
        run_tool(
            command,
            what="compiling byte code",
            next_step="check that the interpreter runs and that the disk has room",
            given=part.task(),
            environment={**environment, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        return len(part.files)

    with progress.task("compiling byte code", sum(len(part.files) for part in parts)) as advance:
        for compiled in parallel(compile_part, parts):
            advance(compiled)


def _parts(folder: Path) -> list[list[str]]:
    files = [path for path, _ in files_below(folder) if path.endswith(".py")]
    return [files[start : start + _FILES_A_PROCESS] for start in range(0, len(files), _FILES_A_PROCESS)]
