"""A registry with the images, an engine, and the ways to call one model: bare, in LoadGen, in a run of benchlock."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from benchlock.artifacts.digest import from_hex
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.images.virtual_environment import Environments
from benchlock.registry.lock.lockfile import LockedPlatform, load
from benchmarks.timing.subjects import FRAMEWORKS, Subject
from tests.support.api.commands import Commands

BARE = Path(__file__).with_name("bare.py")
ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "tests" / "support" / "system" / "engine.sh"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def engine(folder: Path) -> Iterator[str]:
    """The URL of the engine that DOCKER_HOST names, or of one that ends with the measurement; empty without either."""
    named = os.environ.get("DOCKER_HOST")
    if named:
        yield named
        return
    if subprocess.run(["sh", ENGINE, "start", folder], stdout=subprocess.DEVNULL, check=False).returncode:
        print("no engine: what needs a container is not measured", file=sys.stderr)
        yield ""
        return
    try:
        yield f"unix://{folder}/docker.sock"
    finally:
        subprocess.run(["sh", ENGINE, "stop", folder], check=True)


@dataclass(slots=True)
class Laboratory:
    """``folder`` is for what is thrown away."""

    commands: Commands
    folder: Path
    locks: dict[tuple[str, str], Path] = field(default_factory=dict)
    pythons: dict[str, Path] = field(default_factory=dict)

    @property
    def cpus(self) -> list[int]:
        """The processors that a run of one CPU is bound to."""
        return sorted(os.sched_getaffinity(0))[:1]

    def build(self) -> None:
        """An image of each framework; nothing is built where there is one."""
        self.commands.done("db", "create")
        there = {entry["name"] for entry in self.commands.done("list", "image")["artifacts"]}
        for name, version in FRAMEWORKS.items():
            if f"{name}-cpu" not in there:
                self.commands.done("image", "build", f"{name}=={version}")

    def lock(self, subject: Subject, scenario: Mapping[str, Any], *, split: str = "one", cpus: int = 1) -> None:
        path = self.folder / f"{subject.name}-{scenario['name']}.lock"
        request = subject.request(self.folder, scenario, split=split, cpus=cpus)
        self.commands.done("lock", request, "-o", path)
        self.locks[subject.name, scenario["name"]] = path

    def platform(self, subject: Subject) -> LockedPlatform:
        path = next(path for (name, _), path in self.locks.items() if name == subject.name)
        return load(path.read_text(), str(path)).image.platforms[0]

    def run(self, subject: Subject, scenario: str, isolation: str) -> dict[str, Any]:
        """A run of benchlock, its metrics by their names under ``values``."""
        document: dict[str, Any] = self.commands.done(
            "run", self.locks[subject.name, scenario], "--isolation", isolation
        )
        return document | {"values": {metric["name"]: metric["value"] for metric in document["end"]["metrics"]}}

    def fastest_tenth(self, run: str) -> float:
        """The time below which a tenth of the run's calls stayed, seconds."""
        folder = self.folder / "samples"
        self.commands.done("get", run, "-o", folder)
        try:
            latencies = load_file(next(folder.rglob("samples.safetensors")))["latency_ns"]
        finally:
            shutil.rmtree(folder)
        return float(np.quantile(latencies, 0.1)) / 1e9

    def overhead(self, run: str) -> dict[str, Any]:
        """What the run itself measured of its overhead."""
        details = self.commands.done("show", run)["end"]["details"]
        found: dict[str, Any] = details.get("performance", {}).get("overhead", {})
        return found

    def bare(self, subject: Subject, way: str, **more: object) -> dict[str, Any]:
        """The answer of ``bare.py`` in the environment of the same wheels, as a process on the same processor."""
        return self._answer(subject, [str(BARE)], {"way": way, **more})

    def turns(self, subject: Subject, **more: object) -> dict[str, list[dict[str, float]]]:
        """The answer of ``turns.py``, likewise."""
        found: dict[str, list[dict[str, float]]] = self._answer(
            subject, ["-m", "benchmarks.timing.turns"], {"format": subject.format, "outputs": subject.outputs, **more}
        )
        return found

    def _answer(self, subject: Subject, program: list[str], more: dict[str, object]) -> dict[str, Any]:
        asked = self._asked(subject, str(subject.file)) | {"cpus": self.cpus, "threads": 1} | more
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        environment |= dict.fromkeys(_THREADS, str(asked["threads"]))
        command = [str(self._python(subject)), "-B", *program, json.dumps(asked)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def docker_run(self, subject: Subject) -> float:
        """Seconds of a plain `docker run` that imports the same, loads the same model and calls it once."""
        platform = self.platform(subject)
        asked = self._asked(subject, "/model") | {"way": "first", "threads": 1}
        mounts = [f"-v={BARE}:/bare.py:ro", f"-v={subject.file}:/model:ro"]
        confined = ["--network=none", f"--cpuset-cpus={self.cpus[0]}", "-e", "PYTHONDONTWRITEBYTECODE=1"]
        confined += [f"-e={name}=1" for name in _THREADS]
        inside = [f"python{platform.python}", "/bare.py", json.dumps(asked)]
        command = ["docker", "run", "--rm", *confined, *mounts, str(platform.image_id), *inside]
        start = time.perf_counter()
        subprocess.run(command, env=os.environ | {"DOCKER_HOST": self.commands.engine}, capture_output=True, check=True)
        return time.perf_counter() - start

    def _asked(self, subject: Subject, file: str) -> dict[str, Any]:
        return {
            "framework": subject.framework,
            "file": file,
            "input": subject.input,
            "shape": list(subject.shape),
        }

    def _python(self, subject: Subject) -> Path:
        if subject.framework not in self.pythons:
            platform, home = self.platform(subject), self.commands.registry
            environments = Environments(home / "environments", LocalStore(home / "blobs"), SILENT)
            wheels = [(wheel.path, from_hex(wheel.sha256)) for wheel in platform.wheels]
            self.pythons[subject.framework] = environments.materialise(wheels, platform.python)
        return self.pythons[subject.framework]
