"""What moves the same bytes in and out again: benchlock, and two limits that nothing can go below."""

import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from benchmarks.resolving.measuring import ROOT
from benchmarks.transferring.measuring import Taken, environment, succeeded, timed

BENCHLOCK = Path(sys.executable).parent / "benchlock"
INDEX = "index.csv"
_DIGEST = """
import hashlib, pathlib, sys
path = pathlib.Path(sys.argv[1])
for file in [path] if path.is_file() else (found for found in path.rglob("*") if found.is_file()):
    with file.open("rb") as stream:
        hashlib.file_digest(stream, "sha256")
"""
_COPY = """set -eu
cp -R "$1" "$2"
find "$2" -type f -exec sync {} +
"""


class Contestant(Protocol):
    """A way to keep the bytes of a file or folder. Each store is made for one use, and is empty before it."""

    title: str

    def bring(self, source: Path) -> Path:
        """Where the source must lie to be taken in: there, or at a place where it is put now."""
        ...

    def publish(self, source: Path) -> Taken:
        """Take in what was brought; what a user calls, start of processes and all."""
        ...

    def fetch(self, target: Path) -> Taken:
        """Write what was taken in to the folder ``target``, which does not exist; it may fail."""
        ...

    def stored(self) -> Iterable[Path]:
        """The files and folders that ``fetch`` reads."""
        ...

    def close(self) -> None:
        """Forget everything, and end what was started."""
        ...


class Benchlock:
    """`benchlock publish` and `get`, in a registry in a folder."""

    title = "benchlock"

    def __init__(self, folder: Path, **variables: str) -> None:
        self._folder = folder
        self._registry = folder / "registry"
        self._variables = variables
        self._folder.mkdir()
        succeeded(self._call("db", "create"))

    def bring(self, source: Path) -> Path:
        return source

    def publish(self, source: Path) -> Taken:
        manifest = self._folder / "manifest.yaml"
        manifest.write_text(json.dumps(_manifest(source)), encoding="utf-8")
        return succeeded(self._call("publish", manifest))

    def fetch(self, target: Path) -> Taken:
        return self._call("get", "dataset/transferred", "-o", target)

    def forget(self) -> None:
        """Have no blob in the folder any more."""
        shutil.rmtree(self._registry / "blobs")

    def stored(self) -> Iterable[Path]:
        return [self._registry / "blobs"]

    def close(self) -> None:
        shutil.rmtree(self._folder)

    def _call(self, *words: str | Path) -> Taken:
        code = environment(PYTHONPATH=str(ROOT), **self._variables)
        return timed([BENCHLOCK, "--registry", self._registry, *words], code, self._folder)


def _manifest(source: Path) -> dict[str, object]:
    """A dataset of the source: of its files if it is a folder, with an index; of itself and a small folder if not."""
    folder = source if source.is_dir() else source.parent / "small"
    named = [{"path": f"{folder.name}/", "source": str(folder)}]
    if source.is_file():
        named.append({"path": source.name, "source": str(source)})
    samples = (folder / INDEX).read_text(encoding="utf-8").count("\n") - 1
    return {
        "schema": 1,
        "kind": "dataset",
        "name": "transferred",
        "version": "1.0.0",
        "license": "CC0-1.0",
        "format": "image-index",
        "splits": {"all": {"index": f"{folder.name}/{INDEX}", "samples": samples}},
        "files": named,
    }


class Limit:
    """What any store does at least, as a process of its own that keeps nothing more."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def close(self) -> None:
        shutil.rmtree(self._folder)


class Digesting(Limit):
    """SHA-256 of every file, by Python's hashlib."""

    title = "SHA-256 alone"

    def take(self, source: Path) -> Taken:
        command: list[str | Path] = [sys.executable, "-I", "-c", _DIGEST, source]
        return succeeded(timed(command, environment(), self._folder))


class Copying(Limit):
    """`cp`, and every file of the copy made durable by `sync` (fsync)."""

    title = "cp with fsync"

    def take(self, source: Path) -> Taken:
        command: list[str | Path] = ["sh", "-c", _COPY, "sh", source, self._folder / "copy"]
        return succeeded(timed(command, environment(), self._folder))
