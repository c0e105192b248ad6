"""What a user would pick instead: DVC, MLflow's artifact server, and oras with a registry, each as its page says."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from benchmarks.resolving.measuring import ROOT
from benchmarks.transferring.contestants import Benchlock
from benchmarks.transferring.measuring import Taken, environment, succeeded, timed

PEERS = ROOT / ".venv-bench" / "bin"
"""Where `make bench` installs them, by requirements/bench.txt."""

REGISTRY = "docker-registry"
_START_SECONDS = 90
_SHOWN = 2000  # characters of the log of a server that ended
_PUSH = """
import pathlib, sys, oras.client
target, *files = sys.argv[1:]
if not files:
    files = sorted(str(found) for found in pathlib.Path().rglob("*") if found.is_file())
oras.client.OrasClient(insecure=True).push(target=target, files=files, disable_path_validation=True)
"""
_PULL = """
import sys, oras.client
oras.client.OrasClient(insecure=True).pull(target=sys.argv[1], outdir=sys.argv[2])
"""
_VERSIONS = """
from importlib.metadata import version
print(*(f"{name} {version(name)}" for name in ("dvc", "mlflow", "oras")), sep=", ")
"""


class Dvc:
    """`dvc add` and `push` to a remote in a folder; `pull` with an empty cache."""

    title = "dvc"

    def __init__(self, folder: Path) -> None:
        self._folder, self._remote, self._work = folder, folder / "remote", folder / "work"
        self._work.mkdir(parents=True)
        self._name = ""
        self.call("init", "--no-scm")
        for setting in ("core.analytics", "core.check_update"):
            self.call("config", setting, "false")
        self.call("remote", "add", "--default", "store", str(self._remote))

    def bring(self, source: Path) -> Path:
        place = self._work / source.name
        if source.is_dir():
            shutil.copytree(source, place)
        else:
            shutil.copyfile(source, place)
        return place

    def publish(self, source: Path) -> Taken:
        self._name = source.name
        return self.call("add", self._name) + self.call("push")

    def fetch(self, target: Path) -> Taken:
        place = self._work / self._name
        place.rename(self._folder / "published")
        shutil.rmtree(self._work / ".dvc" / "cache")
        taken = self._timed("pull")
        target.mkdir()
        if place.exists():
            place.rename(target / self._name)
        return taken

    def stored(self) -> Iterable[Path]:
        return [self._remote]

    def close(self) -> None:
        shutil.rmtree(self._folder)

    def call(self, *words: str) -> Taken:
        return succeeded(self._timed(*words))

    def _timed(self, *words: str) -> Taken:
        home = environment(HOME=str(self._folder), DVC_NO_ANALYTICS="1", DVC_SITE_CACHE_DIR=str(self._folder / "site"))
        return timed([PEERS / "dvc", *words], home, self._work)


class VerifyingDvc(Dvc):
    """The same with `verify`, which is off by default."""

    title = "dvc, verify on"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.call("remote", "modify", "store", "verify", "true")


class Served:
    """A peer with a server on the loopback interface, which keeps what it is sent in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._kept = folder, folder / "kept"
        self._kept.mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = int(free.getsockname()[1])
        with (folder / "log").open("wb") as log:
            self._server = subprocess.Popen(
                self.server(), stdout=log, stderr=log, env=environment(HOME=str(folder)), cwd=folder
            )
        self._await()

    def server(self) -> Sequence[str | Path]:
        """The command that starts it."""
        raise NotImplementedError

    def answers_at(self) -> str:
        """A path that answers once it is ready."""
        raise NotImplementedError

    def bring(self, source: Path) -> Path:
        return source

    def stored(self) -> Iterable[Path]:
        return [self._kept]

    def describe_end(self) -> str:
        """Return the exit code of the server, negative for a signal, and the end of its log; empty while it runs."""
        code = self._server.poll()
        return "" if code is None else f"exit code {code}: {(self._folder / 'log').read_text()[-_SHOWN:]}"

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()
        shutil.rmtree(self._folder)

    def _await(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{self._port}{self.answers_at()}", timeout=5):
                    return
            except (URLError, OSError) as error:
                if self._server.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"no server: {(self._folder / 'log').read_text()[-_SHOWN:]}") from error
                time.sleep(0.1)


class Mlflow(Served):
    """MLflow's artifact server with one worker: `mlflow artifacts log-artifact(s)` and `download`."""

    title = "mlflow"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        body = json.dumps({"experiment_id": "0"}).encode()
        url = f"http://127.0.0.1:{self._port}/api/2.0/mlflow/runs/create"
        request = Request(url, body, {"Content-Type": "application/json"})
        with urlopen(request) as answer:  # noqa: S310 - ours
            self._run = json.load(answer)["run"]["info"]["run_id"]

    def server(self) -> Sequence[str | Path]:
        database = f"sqlite:///{self._folder / 'mlflow.db'}"
        words = ["--port", str(self._port), "--workers", "1", "--backend-store-uri", database]
        return [PEERS / "mlflow", "server", "--host", "127.0.0.1", *words, "--artifacts-destination", self._kept]

    def answers_at(self) -> str:
        return "/health"

    def publish(self, source: Path) -> Taken:
        words = ("log-artifacts", "--local-dir") if source.is_dir() else ("log-artifact", "--local-file")
        return succeeded(self._call(*words, str(source), "--run-id", self._run))

    def fetch(self, target: Path) -> Taken:
        target.mkdir()
        return self._call("download", "--run-id", self._run, "--dst-path", str(target))

    def _call(self, *words: str) -> Taken:
        server = environment(HOME=str(self._folder), MLFLOW_TRACKING_URI=f"http://127.0.0.1:{self._port}")
        return timed([PEERS / "mlflow", "artifacts", *words], server, self._folder)


class Oras(Served):
    """oras-py with a registry: a layer for each file."""

    title = "oras"

    def server(self) -> Sequence[str | Path]:
        configuration = self._folder / "registry.json"
        document = {
            "version": 0.1,
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(self._kept)}},
            "http": {"addr": f"127.0.0.1:{self._port}"},
        }
        configuration.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
        return [REGISTRY, "serve", configuration]

    def answers_at(self) -> str:
        return "/v2/"

    def publish(self, source: Path) -> Taken:
        folder, names = (source, []) if source.is_dir() else (source.parent, [source.name])
        return succeeded(timed([*self._python(_PUSH), self._target(), *names], self._environment(), folder))

    def fetch(self, target: Path) -> Taken:
        return timed([*self._python(_PULL), self._target(), target], self._environment(), self._folder)

    def _target(self) -> str:
        return f"127.0.0.1:{self._port}/transferred:latest"

    def _python(self, code: str) -> list[str | Path]:
        return [PEERS / "python", "-c", code]

    def _environment(self) -> dict[str, str]:
        return environment(HOME=str(self._folder))


class OrasFolder(Oras):
    """The same, the folder as one layer: a compressed archive, as oras makes of folders."""

    title = "oras, one archive"

    def publish(self, source: Path) -> Taken:
        command = [*self._python(_PUSH), self._target(), source.name]
        return succeeded(timed(command, self._environment(), source.parent))


class BenchlockServed(Oras):
    """benchlock with its blobs in that registry; what it has at hand is forgotten before it reads."""

    title = f"{Benchlock.title}, OCI registry"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._ours = Benchlock(folder / "ours", BENCHLOCK_STORE=f"oci+http://127.0.0.1:{self._port}/transferred")

    def publish(self, source: Path) -> Taken:
        return self._ours.publish(source)

    def fetch(self, target: Path) -> Taken:
        self._ours.forget()
        return self._ours.fetch(target)


def versions() -> str:
    """Of everyone, on one line."""
    peers = succeeded(timed([PEERS / "python", "-c", _VERSIONS], environment(), ROOT)).output.strip()
    registry = succeeded(timed([REGISTRY, "--version"], environment(), ROOT)).output.split()[-1]
    return f"benchlock {version('benchlock')}, {peers}, {REGISTRY} {registry}"
