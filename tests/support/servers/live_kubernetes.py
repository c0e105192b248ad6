"""A real control plane of Kubernetes (``kubernetes.sh``) where the double is used otherwise.

API server, controllers and scheduler are real. Nodes are objects without a host; this module does what their kubelets
do, with processes of this checkout for containers.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubernetes import config
from ruamel.yaml import YAML

from tests.support.servers.kubelet import Container
from tests.support.system.deployed import ROOT

Document = dict[str, Any]
LIVE: Final = os.environ.get("BENCHLOCK_KUBERNETES", "")
"""The kubeconfig of an administrator of a control plane for tests, which delete all its nodes; empty for none."""
_ROLES: Final = ROOT / "deploy" / "kubernetes" / "controller" / "controller.yaml"
_PATHS: Final = {
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/bench/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/bench/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ServiceAccount": "/api/v1/namespaces/bench/serviceaccounts",
}
_NODES, _PODS, _JOBS = "/api/v1/nodes", "/api/v1/namespaces/bench/pods", "/apis/batch/v1/namespaces/bench/jobs"
_PATCH: Final = "application/merge-patch+json"
_NOW: Final = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
_SECONDS: Final = 60.0
ACCOUNT: Final = "controller"


@dataclass
class LiveKubernetes:
    """The namespace ``bench`` of a cluster. ``variables`` are those that processes of a node find there."""

    folder: Path
    variables: Callable[[str], Mapping[str, str]] = lambda _: {}
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    running: dict[str, Container] = field(default_factory=dict)
    placed: list[tuple[str, str]] = field(default_factory=list)
    runs_pods: bool = True

    def __post_init__(self) -> None:
        self.connection = config.new_client_from_config(LIVE, persist_config=False)
        self.lock = threading.RLock()
        self.over = threading.Event()
        self.created: list[Document] = []
        self._prepare()

    def ask(self, method: str, path: str, document: object = None, kind: str = "application/json") -> tuple[int, Any]:
        """The status and the document of an answer to the administrator."""
        serialized = self.connection.param_serialize(
            method, path, body=document, header_params={"Content-Type": kind}, auth_settings=["BearerToken"]
        )
        answer = self.connection.call_api(*serialized, _request_timeout=20)
        return answer.status, json.loads(answer.response.read(decode_content=True))

    def read(self, path: str) -> list[Document]:
        status, answer = self.ask("GET", path)
        assert status == 200, answer
        items: list[Document] = answer["items"]
        return items

    def kubeconfig(self, account: str = ACCOUNT) -> Path:
        """The file of a service account, with a token as its pods get one."""
        status, answer = self.ask("POST", f"{_PATHS['ServiceAccount']}/{account}/token", {"spec": {}})
        assert status == 201, answer
        own = json.loads(Path(LIVE).read_text())
        own["contexts"][0]["context"]["namespace"] = "bench"
        own["users"][0]["user"] = {"token": answer["status"]["token"]}
        path = self.folder / f"kubeconfig-{account}"
        path.write_text(json.dumps(own))
        return path

    @property
    def pods(self) -> dict[str, Document]:
        return {one["metadata"]["name"]: one for one in self.read(_PODS)}

    # What a test does to the cluster

    def add_node(self, name: str, cpus: str = "2", gpus: str = "", *, taint: str = "", pool: str = "") -> None:
        amounts = {"cpu": cpus, "memory": "4Gi", "pods": "110", **({"nvidia.com/gpu": gpus} if gpus else {})}
        labels = {"kubernetes.io/hostname": name, **({"pool": pool} if pool else {})}
        taints = {"taints": [{"key": "own", "effect": taint}]} if taint else {}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": taints}
        status, answer = self.ask("POST", _NODES, node)
        assert status == 201, answer
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
        condition = {**ready, "reason": "KubeletReady", "message": ""}
        self._patch(f"{_NODES}/{name}/status", {"capacity": amounts, "allocatable": amounts, "conditions": [condition]})
        known = {one["key"] for one in taints.get("taints", ())}
        self._wait(lambda: {one["key"] for one in self._node(name)["spec"].get("taints", ())} == known)

    def lose_node(self, name: str) -> None:
        """The host is gone at once with all its processes, and Kubernetes deletes its pods."""
        self.ask("DELETE", f"{_NODES}/{name}")
        with self.lock:
            for pod in [one for one, place in self.placed if place == name]:
                if pod in self.running:
                    self.running.pop(pod).end()
                self.delete_pod(pod)

    def kill_pod(self, name: str) -> None:
        with self.lock:
            self.running[name].end()

    def delete_pod(self, name: str) -> None:
        """Delete a pod that has failed: since Kubernetes 1.25 the deletion is a failure, before the Job replaces it."""
        self._patch(f"{_PODS}/{name}/status", {"phase": "Failed"})
        self._wait(self._is_settled)
        self.ask("DELETE", f"{_PODS}/{name}", _NOW)

    def finish_pod(self, name: str, code: int = 0, message: str = "") -> None:
        """End a pod that is not run (``runs_pods``)."""
        self._end(name, {"exitCode": code, "reason": "Error" if code else "Completed", "message": message})

    def live_pods(self, role: str = "benchlock-worker") -> list[str]:
        label = f"?labelSelector=app.kubernetes.io/name={role}"
        return [one["metadata"]["name"] for one in self.read(f"{_PODS}{label}") if not _is_over(one)]

    def step(self) -> None:
        """Wait until the controllers, the scheduler and the kubelets have nothing to do."""
        self._wait(self._is_settled)

    # What kubelets do

    def act(self) -> None:
        """Start and end the containers of pods."""
        with self.lock:
            pods = self.pods
            for name, pod in pods.items():
                node = pod["spec"].get("nodeName", "")
                if node and (name, node) not in self.placed:
                    self.placed.append((name, node))
                    self.created.append(pod)
                if node and "deletionTimestamp" in pod["metadata"]:
                    self._remove(name, pod)
                elif self.runs_pods and node and pod["status"]["phase"] == "Pending":
                    folder = self.folder / "pods" / name
                    self.running[name] = Container(pod, folder, self.secrets, self.variables(node))
                    self._patch(f"{_PODS}/{name}/status", {"phase": "Running"})
            for name, container in [*self.running.items()]:
                end = container.terminated()
                if end is not None or name not in pods:
                    container.end()
                    del self.running[name]
                    self._end(name, end or {"exitCode": 137})

    def _remove(self, name: str, pod: Document) -> None:
        """End a pod that is being deleted, and let it go once its Job has seen the end."""
        if name in self.running:
            self.running[name].end(signal.SIGTERM)
        elif not _is_over(pod):
            self._end(name, {"exitCode": 143, "reason": "Error"})
        else:
            self.ask("DELETE", f"{_PODS}/{name}", _NOW)

    def _end(self, name: str, end: Document) -> None:
        status = {"name": "worker", "image": "own", "imageID": "own", "ready": False, "restartCount": 0}
        phase = "Failed" if end["exitCode"] else "Succeeded"
        ended = {"phase": phase, "containerStatuses": [{**status, "state": {"terminated": end}}]}
        self._patch(f"{_PODS}/{name}/status", ended)

    def _node(self, name: str) -> Document:
        node: Document = self.ask("GET", f"{_NODES}/{name}")[1]
        return node

    def _is_settled(self) -> bool:
        self.act()
        jobs, pods = self.read(_JOBS), self.read(_PODS)
        owners = [one["metadata"]["ownerReferences"][0]["uid"] for one in pods if not _is_over(one)]
        places = [one for one in pods if "nodeName" in one["spec"]]
        waiting = [one for one in pods if one not in places and not one["status"].get("conditions")]
        open_ = [one["metadata"]["uid"] for one in jobs if not _is_finished(one) and not one["spec"].get("suspend")]
        gone = [one for one in pods if "deletionTimestamp" in one["metadata"]]
        return sorted(owners) == sorted(open_) and not waiting and not gone

    def _patch(self, path: str, status: Document) -> None:
        code, answer = self.ask("PATCH", path, {"status": status}, _PATCH)
        assert code in (200, 404), answer

    def _wait(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + _SECONDS
        while not holds():
            assert time.monotonic() < end, f"the cluster does not settle: {self.read(_JOBS)} {self.read(_PODS)}"
            time.sleep(0.05)

    def _prepare(self) -> None:
        """Empty the cluster, and grant what the manifests grant."""
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
        for path in ("/api/v1/namespaces/bench/resourcequotas", _JOBS, _PODS, _NODES):
            self.ask("DELETE", path, _NOW)
        for one in YAML(typ="safe").load_all(_ROLES):
            if one["kind"] in _PATHS:
                for subject in one.get("subjects", ()):
                    subject["namespace"] = "bench"
                status, answer = self.ask("POST", _PATHS[one["kind"]], one)
                if status == 409:  # of an earlier test, or bound to another namespace
                    status, answer = self.ask("PUT", f"{_PATHS[one['kind']]}/{one['metadata']['name']}", one)
                assert status in (200, 201), answer
        self._wait(lambda: self.ask("GET", f"{_PATHS['ServiceAccount']}/default")[0] == 200)
        self._wait(lambda: not self.read(_PODS) and not self.read(_JOBS) and not self.read(_NODES))


@contextmanager
def live_kubernetes(server: LiveKubernetes) -> Iterator[LiveKubernetes]:
    """Let kubelets act by themselves for as long as the context is held."""

    def act() -> None:
        while not server.over.wait(0.1):
            server.act()

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        thread.join()
        for container in server.running.values():
            container.end()


def _is_over(pod: Document) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _is_finished(job: Document) -> bool:
    conditions = job["status"].get("conditions", ())
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)
