"""The parts of a Ray cluster as victims: a node comes back when its raylet is gone, and so does the head."""

import random
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.support.servers.ray_nodes import HEAD, RayNodes, send


@dataclass
class RayPart:
    """Processes of a node, which ``find`` finds: killed, or stopped for a while."""

    name: str
    node: str
    find: Callable[[], list[int]]
    wakes: float | None = None
    stopped: list[int] = field(default_factory=list)

    def strike(self, numbers: random.Random, now: float, longest: float) -> str:
        pids = self.find()
        if not pids:
            return "missed"
        if numbers.random() < 0.5:
            for pid in pids:
                send(pid, signal.SIGKILL)
            return "killed"
        for pid in pids:
            send(pid, signal.SIGSTOP)
        self.stopped += pids
        self.wakes = now + numbers.uniform(0.2, longest)
        return "stopped"

    def mend(self, now: float) -> None:
        if self.wakes is not None and self.wakes <= now:
            for pid in self.stopped:
                send(pid, signal.SIGCONT)
            self.stopped, self.wakes = [], None

    def end(self) -> None:
        self.mend(float("inf"))


@dataclass
class RayMember:
    """A node, or with all of its nodes the head: it is started again when its raylet is gone."""

    name: str
    cluster: RayNodes
    starting: "subprocess.Popen[bytes] | None" = None

    def strike(self, _numbers: random.Random, _now: float, _longest: float) -> str:
        self.cluster.kill(self.name)
        return "killed"

    def mend(self, _now: float) -> None:
        if self.starting is not None and self.starting.poll() is None:
            return
        self.starting = None
        is_headless = self.name != HEAD and self.cluster.raylet(HEAD) is None
        if self.cluster.raylet(self.name) is None and not is_headless:
            for name in self.cluster.nodes if self.name == HEAD else ():  # they belong to the cluster of before
                self.cluster.kill(name)
            self.cluster.kill(self.name)
            self.starting = self.cluster.starting(self.name)

    def end(self) -> None:
        if self.starting is not None:
            self.starting.kill()
            self.starting.wait()


@dataclass
class MeasuringContainer:
    """The container of an engine that measures."""

    name: str
    engine: str

    def strike(self, _numbers: random.Random, _now: float, _longest: float) -> str:
        words = ["docker", f"--host={self.engine}", "kill", "benchlock-measure-0"]
        done = subprocess.run(words, capture_output=True, check=False)
        return "missed" if done.returncode else "killed"

    def mend(self, now: float) -> None:
        """Do nothing: a worker removes it."""

    def end(self) -> None:
        """Do nothing."""


def parts_of(cluster: RayNodes, node: str) -> list[RayPart]:
    """What can be struck on a node beside the node itself."""

    def raylet() -> list[int]:
        found = cluster.raylet(node)
        return [] if found is None else [found]

    return [
        RayPart("raylet", node, raylet),
        RayPart("worker of Ray", node, lambda: cluster.workers(node)),
        RayPart("agent", node, lambda: cluster.agents(node)),
        RayPart("machine", node, lambda: _all(cluster, node)),
    ]


def _all(cluster: RayNodes, node: str) -> list[int]:
    with suppress(OSError):
        return [*{*cluster.processes(node), *cluster.workers(node)}]
    return []
