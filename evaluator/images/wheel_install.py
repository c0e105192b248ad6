"""Installation of wheels into a folder tree, with reproducible byte code.

The bytes of a code object depend on the strings that the process interned before, and on the seed of string hashing.
Each compiling process is therefore fresh, has a fixed seed, and compiles a fixed part of one wheel's sorted files.
"""

import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.exceptions import InstallerError
from installer.sources import WheelContentElement, WheelFile

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.images.external_tools import run_tool
from benchlock.evaluator.images.image_layers import list_files

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


def run_parallel(action: Callable[[_Argument], _Result], arguments: Iterable[_Argument]) -> Iterator[_Result]:
    """Yield the results of ``action`` on each argument, in the order of completion.

    The first failure or interruption is raised after the running actions end; no other action is started.
    """
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        for future in as_completed([pool.submit(action, argument) for argument in arguments]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


_FILES_A_PROCESS = 256
"""A part of the recipe of byte code: another number gives other byte code, and so other image ids."""
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
    """A folder of modules under three paths: the host's, the compiling interpreter's, and the final one."""

    host: Path
    seen: str
    final: str


@dataclass(frozen=True, slots=True)
class _Part:
    sources: Sources
    files: Sequence[str]

    def task(self) -> bytes:
        paths = {"folder": f"{self.sources.seen}/", "final": f"{self.sources.final}/"}
        return json.dumps({**paths, "files": self.files}).encode()


def compile_all(
    interpreter: Sequence[str], sources: Iterable[Sources], environment: Mapping[str, str], progress: Progress
) -> None:
    """Compile every ``.py`` file below ``sources`` into the ``__pycache__`` beside it.

    A file that is not valid Python (templates, tests of other versions) is skipped.

    Args:
        interpreter: The command line of the interpreter.
        sources: The folders of modules.
        environment: The environment of the interpreter.
        progress: Receives the progress.

    Raises:
        UnavailableError: The interpreter does not run.
    """
    parts = [_Part(folder, part) for folder in sources for part in _parts(folder.host)]
    command = [*interpreter, "-s", "-S", "-B", "-P", "-W", "ignore", "-c", _SCRIPT]

    def compile_part(part: _Part) -> int:
        run_tool(
            command,
            what="compiling byte code",
            next_step="check that the interpreter runs and that the disk has free space",
            stdin=part.task(),
            environment={**environment, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        return len(part.files)

    with progress.task("compiling byte code", sum(len(part.files) for part in parts)) as advance:
        for compiled in run_parallel(compile_part, parts):
            advance(compiled)


def _parts(folder: Path) -> list[list[str]]:
    files = [path for path, _ in list_files(folder) if path.endswith(".py")]
    return [files[start : start + _FILES_A_PROCESS] for start in range(0, len(files), _FILES_A_PROCESS)]


_INSTALLER = {"INSTALLER": b"benchlock\n"}


@dataclass(frozen=True, slots=True)
class Layout:
    """Absolute paths of the parts of an installed wheel.

    ``bin``, ``include`` and data files are below ``prefix``, modules in ``packages``; scripts start ``interpreter``.
    """

    prefix: str
    packages: str
    interpreter: str


class _Source(WheelFile):
    """A wheel without its own byte code, which is compiled from the sources instead."""

    def get_contents(self) -> Iterator[WheelContentElement]:
        """Yield the entries of the wheel, except byte code."""
        for record, stream, executable in super().get_contents():
            if "__pycache__" not in record[0].split("/")[:-1]:
                yield record, stream, executable


def install_wheel(wheel: Path, tree: Path, layout: Layout) -> None:
    """Install one wheel below ``tree``, in which everything has its final absolute path.

    Raises:
        InvalidInputError: The file is not a valid wheel.
    """
    folders = {
        "purelib": layout.packages,
        "platlib": layout.packages,
        "scripts": f"{layout.prefix}/bin",
        "headers": f"{layout.prefix}/include",
        "data": layout.prefix,
    }
    destination = SchemeDictionaryDestination(
        folders, interpreter=layout.interpreter, script_kind="posix", destdir=str(tree), overwrite_existing=True
    )
    try:
        with _Source.open(wheel) as source:
            install(source, destination, _INSTALLER)
    except (InstallerError, zipfile.BadZipFile, ValueError, KeyError, AssertionError) as error:
        raise InvalidInputError(
            f"cannot install {wheel.name}: {error}", where=wheel.name, next_step="choose another version of it"
        ) from error
