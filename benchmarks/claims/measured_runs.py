"""Locks made from the examples' requests, run as processes, and read back from the registry's records."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchlock.artifacts.digest import from_hex
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.images.virtual_environment import Environments
from benchlock.registry.lock.lockfile import load
from benchlock.registry.text.yaml import read_yaml
from tests.support.api.commands import Commands, copied

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
FRAMEWORKS = {"onnxruntime": "1.31.1", "pytorch": "2.13.0", "tensorflow": "2.21.0"}
PROCESS = ("--isolation", "process", "--allow-code")


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A recorded run: its lock's id, the lockfile, and the document of ``benchlock show``."""

    lock: str
    file: Path
    document: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Return the id of the run."""
        return str(self.document["run"])

    @property
    def details(self) -> Mapping[str, Any]:
        """Return what the record says beside the metrics."""
        details: Mapping[str, Any] = self.document["end"]["details"]
        return details

    def metrics(self, name: str) -> dict[str, Mapping[str, Any]]:
        """Return a metric by case; a metric without cases has the case ''."""
        return {
            metric.get("case") or "": metric for metric in self.document["end"]["metrics"] if metric["name"] == name
        }

    def metric(self, name: str) -> Mapping[str, Any]:
        """Return a metric that has no cases."""
        return self.metrics(name)[""]


def read_document(file: Path) -> dict[str, Any]:
    """Return the document of a manifest or a request."""
    document: dict[str, Any] = read_yaml(file.read_text(encoding="utf-8"), str(file)).value
    return document


def abbreviate(*runs: MeasuredRun) -> str:
    """Return the beginnings of the ids of the runs' locks."""
    return ", ".join(f"`{run.lock.removeprefix('sha256:')[:12]}`" for run in runs)


@dataclass(slots=True)
class Laboratory:
    """A registry with the images of all frameworks, and a folder for requests and lockfiles."""

    commands: Commands
    folder: Path
    published: set[Path] = field(default_factory=set)

    def publish(self, *manifests: Path) -> None:
        """Publish the manifests that are not published yet."""
        if new := [manifest for manifest in manifests if manifest not in self.published]:
            self.commands.done("publish", *new)
            self.published |= set(new)

    def run(self, request: Path, **replaced: str) -> MeasuredRun:
        """Lock a request with texts in it replaced, run it, and read its record back."""
        return self.run_again(self.lock(request, **replaced))

    def lock(self, request: Path, **replaced: str) -> Path:
        """Return the lockfile of a request with texts in it replaced."""
        text = request.read_text(encoding="utf-8")
        for old, new in replaced.items():
            if old not in text:
                raise ValueError(f"{request}: no {old!r} to replace")
            text = text.replace(old, new)
        name = f"{request.stem}-{len(list(self.folder.glob('*.lock')))}"
        changed, lock = self.folder / f"{name}.yaml", self.folder / f"{name}.lock"
        changed.write_text(text, encoding="utf-8")
        self.commands.done("lock", changed, "-o", lock)
        return lock

    def run_again(self, lock: Path) -> MeasuredRun:
        """Run a lockfile, and read the record back."""
        id_ = self.commands.done("run", lock, *PROCESS)["run"]
        document = self.commands.done("show", id_)
        return MeasuredRun(load(lock.read_text(), str(lock)).id, lock, document)

    def execute(self, run: MeasuredRun, program: Path, *words: str | Path) -> Any:  # noqa: ANN401 - a JSON document
        """Run a program in the environment of a run's locked wheels, on one CPU; return what it prints."""
        home = self.commands.registry
        platform = load(run.file.read_text(), str(run.file)).image.platforms[0]
        wheels = [(wheel.path, from_hex(wheel.sha256)) for wheel in platform.wheels]
        environments = Environments(home / "environments", LocalStore(home / "blobs"), SILENT)
        python = environments.materialise(wheels, platform.python)
        command = [
            "taskset",
            "-c",
            str(min(os.sched_getaffinity(0))),
            str(python),
            "-B",
            str(program),
            *map(str, words),
        ]
        done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)


def open_laboratory(kept: Path) -> Laboratory:
    """Return a new registry beside the kept one, which has the images and is made once."""
    images = Commands(kept)
    images.done("db", "create")
    present = {entry["name"] for entry in images.done("list", "image")["artifacts"]}
    for name, version in FRAMEWORKS.items():
        if f"{name}-cpu" not in present:
            images.done("image", "build", f"{name}=={version}", "--no-layers")
    home, folder = kept.with_name("registry"), kept.with_name("locks")
    for old in (home, folder):
        shutil.rmtree(old, ignore_errors=True)
    folder.mkdir()
    return Laboratory(copied(images, home, ""), folder)
