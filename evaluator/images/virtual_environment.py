"""Virtual environments for process isolation, built from an image's wheels."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Digest, describe, digest_bytes, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.images.external_tools import disk_errors, run_tool, workspace
from benchlock.evaluator.images.image_layers import list_files
from benchlock.evaluator.images.wheel_install import Layout, Sources, compile_all, install_wheel, run_parallel
from benchlock.evaluator.images.wheels import Target, check_file, copy, host_target, running_python

_PROBE = """
import json, sys
print(json.dumps([sys.implementation.name, "%d.%d" % sys.version_info[:2], sys.base_exec_prefix]))
"""


def find_interpreter(python: str) -> Path:
    """Find the CPython of minor version ``python``, such as ``3.11``: the running one, else the one on the path.

    The interpreter of a virtual environment is replaced by the one that made the environment. An interpreter that does
    not start is skipped, such as a shim of pyenv for a version that is not selected.

    Raises:
        UnavailableError: There is no such interpreter.
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
        f"this image needs Python {python} to run in a process, but this host has none",
        where=on_path and f"{on_path} is not a working CPython {python}",
        next_step=f"install python{python}, run in a container, or build an image for Python {running_python()}",
    )


_LAYOUT = 1
"""The version of the layout of environments; a new version prevents the use of earlier environments."""
_VENV = "venv"
_PYTHON = "bin/python"
_STAMP = "files.json"
_REMOVE = "delete the folder of the environment; the next run creates it again"


@dataclass(frozen=True, slots=True)
class Environments:
    """The environments of this machine: a folder each below ``root``, named by a digest of its inputs."""

    root: Path
    store: BlobStore
    progress: Progress

    def materialise(self, wheels: Sequence[tuple[str, Digest]], python: str) -> Path:
        """Return the interpreter of an environment with exactly ``wheels``, which is built, or verified file by file.

        Start the interpreter with ``-B``: all byte code is compiled already, and an additional file is refused the next
        time.

        Args:
            wheels: The path and digest of each wheel.
            python: The minor version, such as ``3.11``.

        Raises:
            IntegrityError: A wheel, or a file of an existing environment, does not match its digest.
            InvalidInputError: A wheel is invalid.
            UnavailableError: There is no such Python, or this machine cannot run a wheel.
        """
        with disk_errors("creating an environment"):
            return self._materialise(wheels, python)

    def _materialise(self, wheels: Sequence[tuple[str, Digest]], python: str) -> Path:
        interpreter = find_interpreter(python)
        parts = sorted((PurePosixPath(path).name, digest) for path, digest in wheels)
        _check_platform([name for name, _ in parts], python)
        made_of = [_LAYOUT, python, str(interpreter), [list(part) for part in parts]]
        folder = self.root.absolute() / to_hex(digest_bytes(encode_canonical(made_of)))[:24]
        if not folder.exists():
            self._make(folder, parts, python, interpreter)
        else:
            self._verify(folder, interpreter)
        return folder / _VENV / _PYTHON

    def _make(self, folder: Path, parts: Sequence[tuple[str, Digest]], python: str, interpreter: Path) -> None:
        final = folder / _VENV
        packages = f"{final}/lib/python{python}/site-packages"
        with workspace(self.root) as temporary:
            tree = temporary / "tree"
            staging = Path(f"{tree}{folder}")
            _start_venv(staging / _VENV, interpreter)
            self._install(parts, temporary, tree, Layout(str(final), packages, str(final / _PYTHON)))
            modules = f"{tree}{packages}"
            sources = [Sources(Path(modules), modules, packages)]
            # Without the variables that point the interpreter to other modules.
            environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
            compile_all([str(interpreter)], sources, environment, self.progress)
            stamp = [(path, *_measure(file)) for path, file in _files(staging / _VENV)]
            (staging / _STAMP).write_bytes(msgspec.json.encode(stamp))
            try:
                staging.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
                self._verify(folder, interpreter)  # another process was faster

    def _install(self, parts: Sequence[tuple[str, Digest]], temporary: Path, tree: Path, layout: Layout) -> None:
        # Install sequentially: wheels share folders, and the largest takes most of the time anyway.
        with self.progress.task("installing wheels", len(parts)) as advance:
            for name, digest in parts:
                wheel = temporary / name
                with self.store.open(digest) as stream:
                    copy(stream, wheel)
                check_file(wheel, digest)
                install_wheel(wheel, tree, layout)
                wheel.unlink()
                advance(1)

    def _verify(self, folder: Path, interpreter: Path) -> None:
        """Compare every file with the stamp that was written when the environment was built."""
        venv = folder / _VENV
        try:
            stamp = msgspec.json.decode((folder / _STAMP).read_bytes(), type=list[tuple[str, Digest, int]])
            files = dict(_files(venv))
        except (OSError, msgspec.MsgspecError) as error:
            raise _damage_error(folder, f"cannot read it: {error}") from error
        if not (venv / _PYTHON).is_symlink() or (venv / _PYTHON).readlink() != interpreter:
            raise _damage_error(folder, f"{_PYTHON} does not point to {interpreter}")
        stamped = {path: (digest, size) for path, digest, size in stamp}
        for path in sorted(stamped.keys() ^ files.keys()):
            raise _damage_error(folder, f"{path} is {'missing' if path in stamped else 'not part of it'}")
        total = sum(size for _, size in stamped.values())
        with self.progress.task("verifying the environment", total) as advance:
            for path, digest, size in run_parallel(lambda path: (path, *_measure(files[path])), files):
                if (digest, size) != stamped[path]:
                    difference = f"expected {stamped[path][0]}, found {digest}"
                    raise _damage_error(folder, f"{path} was modified after installation: {difference}")
                advance(size)


def _start_venv(venv: Path, interpreter: Path) -> None:
    """Create a virtual environment (PEP 405) without pip and without activation scripts."""
    (venv / "bin").mkdir(parents=True)
    (venv / _PYTHON).symlink_to(interpreter)
    settings = f"home = {interpreter.parent}\ninclude-system-site-packages = false\n"
    (venv / "pyvenv.cfg").write_text(settings, encoding="utf-8")


def _check_platform(filenames: Sequence[str], python: str) -> None:
    host = host_target()
    runs = Target(python, host.machine, host.glibc).tags()
    for filename in filenames:
        try:
            tags = parse_wheel_filename(filename)[3]
        except InvalidWheelFilename as error:
            raise InvalidInputError(f"invalid file name of a wheel: {filename}", where=filename) from error
        if tags.isdisjoint(runs):
            raise UnavailableError(
                f"{filename} does not run on this machine (Python {python}, {host.machine}, glibc 2.{host.glibc})",
                next_step="run it in a container or on another machine",
            )


def _files(venv: Path) -> list[tuple[str, Path]]:
    return [(path, file) for path, file in list_files(venv) if path != _PYTHON]


def _measure(file: Path) -> tuple[Digest, int]:
    try:
        # Neither follow a link nor wait for a pipe: no wheel installs either.
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            descriptor = describe(stream)
    except OSError as error:
        raise IntegrityError(f"cannot read {file}: {error.strerror}", where=str(file), next_step=_REMOVE) from error
    return descriptor.digest, descriptor.size


def _damage_error(folder: Path, reason: str) -> IntegrityError:
    return IntegrityError(
        f"the environment of this image is damaged: {reason}",
        where=str(folder),
        next_step=_REMOVE,
    )
