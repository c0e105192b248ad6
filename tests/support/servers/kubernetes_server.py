"""A double of Kubernetes: the few endpoints of its API server that the launcher uses, and what happens behind them.

Objects must be valid by the published schemas and by ``kubernetes_rules``. A scheduler places pods by name, resources
and anti-affinity; kubelets run them as processes of this checkout; a Job controller tells their ends. What users may
do is in roles.
"""

import base64
import json
import math
import re
import signal
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import kubernetes_validate
from ruamel.yaml import YAML

from benchlock.evaluator.launchers.pod_manifests import Resources, read_resources, sum_resources
from tests.support.servers.kubelet import Container
from tests.support.servers.kubernetes_rules import NAMED, check_selector, find_malformation, find_problems
from tests.support.system.deployed import ROOT

Document = dict[str, Any]
_VERSION: Final = "1.37"
_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    422: "Invalid",
}
_VERBS: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_NAMED_VERBS: Final = {"GET": "get", "DELETE": "delete", "PATCH": "patch", "PUT": "update"}
_FIELDS: Final = {"nodes": {"metadata.name"}, "pods": {"metadata.name", "spec.nodeName"}, "jobs": {"metadata.name"}}
"""The fields that the double can select by."""
_POLICIES: Final = ("Background", "Foreground", "Orphan")
_ROLES: Final = ROOT / "deploy" / "kubernetes" / "controller" / "controller.yaml"
CLOSE: Final = 0
"""A fault: the connection is closed in place of an answer."""


class RefusedRequest(Exception):  # noqa: N818 - of the double, as an answer
    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.reason = status, reason or _REASONS.get(status, "")


@dataclass(frozen=True)
class Right:
    """A verb on a resource; ``namespace`` is empty for all of them, and for what has none."""

    verb: str
    resource: str
    namespace: str = ""


def read_rights(objects: Iterable[Mapping[str, Any]], namespace: str) -> frozenset[Right]:
    """What roles grant in a namespace, and cluster roles everywhere."""
    return frozenset(
        Right(verb, resource, namespace if one["kind"] == "Role" else "")
        for one in objects
        if one["kind"] in ("Role", "ClusterRole")
        for rule in one["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    )


def granted(namespace: str) -> frozenset[Right]:
    """What the manifests grant to the controller."""
    return read_rights(YAML(typ="safe").load_all(_ROLES), namespace)


@dataclass
class KubernetesServer:
    """The cluster. ``variables`` are those that processes of a node find there."""

    folder: Path
    variables: Callable[[str], Mapping[str, str]] = lambda _: {}
    rights: dict[str, frozenset[Right]] = field(default_factory=dict)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    faults: deque[int] = field(default_factory=deque)
    requests: list[str] = field(default_factory=list)
    nodes: dict[str, Document] = field(default_factory=dict)
    jobs: dict[str, Document] = field(default_factory=dict)
    pods: dict[str, Document] = field(default_factory=dict)
    running: dict[str, Container] = field(default_factory=dict)
    created: list[Document] = field(default_factory=list)
    placed: list[tuple[str, str]] = field(default_factory=list)
    runs_pods: bool = True
    most_jobs: int = 10_000
    """A quota."""
    expired_tokens: bool = False
    """Whether what a list is continued with is older than what the server keeps."""
    is_namespace_missing: bool = False
    has_sandbox_conditions: bool = True
    """Whether kubelets tell that volumes are missing (since 1.29)."""

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.over = threading.Event()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(self))
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def kubeconfig(self, token: str, namespace: str = "bench") -> Path:
        """The file for a user of a token."""
        path = self.folder / f"kubeconfig-{token}"
        cluster = {"name": "double", "cluster": {"server": self.url}}
        context = {"name": "double", "context": {"cluster": "double", "user": "user", "namespace": namespace}}
        user = {"name": "user", "user": {"token": token}}
        parts = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "double"}
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **parts}))
        return path

    # What a test does to the cluster

    def add_node(
        self,
        name: str,
        cpus: str = "2",
        gpus: str = "",
        *,
        taint: str = "",
        pool: str = "",
        is_ready: bool = True,
    ) -> None:
        amounts = {"cpu": cpus, "memory": "4Gi", **({"nvidia.com/gpu": gpus} if gpus else {})}
        labels = {"kubernetes.io/hostname": name, **({"pool": pool} if pool else {})}
        node: Document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": str(uuid4()), "labels": labels},
            "spec": {"taints": [{"key": "own", "effect": taint}]} if taint else {},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
            },
        }
        kubernetes_validate.validate(node, _VERSION, strict=True)
        with self.lock:
            self.nodes[name] = node

    def lose_node(self, name: str) -> None:
        """The host is gone at once with all its processes, and Kubernetes deletes its pods."""
        with self.lock:
            del self.nodes[name]
            for pod in [key for key, one in self.pods.items() if one["spec"].get("nodeName") == name]:
                if pod in self.running:
                    self.running.pop(pod).end()
                del self.pods[pod]

    def kill_pod(self, name: str) -> None:
        """The kernel ends the container of a pod, for example because its memory is used up."""
        with self.lock:
            self.running[name].end()

    def evict_pod(self, name: str) -> None:
        with self.lock:
            self.running[name].end(signal.SIGTERM)
            self.pods[name]["status"] |= {"reason": "Evicted", "message": "The node was low on resource: memory."}

    def delete_pod(self, name: str) -> None:
        with self.lock:
            self.pods[name]["metadata"]["deletionTimestamp"] = _now()
            if name in self.running:
                self.running[name].end(signal.SIGTERM)

    def finish_pod(self, name: str, code: int = 0, message: str = "") -> None:
        """End a pod that is not run (``runs_pods``)."""
        with self.lock:
            self._end(
                self.pods[name], {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
            )

    def add_pod(self, name: str, node: str, cpus: str, namespace: str = "kube-system") -> None:
        """A pod of somebody else that runs on a node."""
        container = {"name": "own", "image": "own", "resources": {"requests": {"cpu": cpus}}}
        pod: Document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "uid": str(uuid4())},
            "spec": {"nodeName": node, "containers": [container]},
            "status": {"phase": "Running"},
        }
        kubernetes_validate.validate(pod, _VERSION, strict=True)
        with self.lock:
            self.pods[name] = pod

    def live_pods(self, role: str = "benchlock-worker") -> list[str]:
        """The names of pods that have not ended."""
        with self.lock:
            return [name for name, one in self.pods.items() if _role(one) == role and not _is_over(one)]

    # What Kubernetes does by itself

    def step(self) -> None:
        """Let the controller, the scheduler and the kubelets act once."""
        with self.lock:
            for job in list(self.jobs.values()):
                self._control(job)
            for pod in list(self.pods.values()):
                if "nodeName" not in pod["spec"]:
                    self._schedule(pod)
            for name in list(self.pods):
                self._run(name, self.pods[name])

    def _control(self, job: Document) -> None:
        status = job["status"]
        if job["spec"].get("suspend") or status.get("conditions"):
            return
        if not status.get("created"):
            status["created"] = self._create_pod(job)
            return
        pod = self.pods.get(status["created"])
        phase = "Failed" if pod is None or "deletionTimestamp" in pod["metadata"] else pod["status"]["phase"]
        if phase in ("Succeeded", "Failed"):
            kind = "Complete" if phase == "Succeeded" else "Failed"
            status["conditions"] = [{"type": kind, "status": "True"}]

    def _create_pod(self, job: Document) -> str:
        metadata, template = job["metadata"], job["spec"]["template"]
        name = f"{metadata['name']}-{uuid4().hex[:5]}"
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
        pod: Document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "uid": str(uuid4()),
                "labels": {**template["metadata"]["labels"], "batch.kubernetes.io/job-name": metadata["name"]},
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": json.loads(json.dumps(template["spec"])),
            "status": {"phase": "Pending"},
        }
        kubernetes_validate.validate(pod, _VERSION, strict=True)
        self.pods[name] = pod
        return name

    def _schedule(self, pod: Document) -> None:
        problems = {}
        for name, node in self.nodes.items():
            problems[name] = self._obstacle(pod, node)
            if not problems[name]:
                pod["spec"]["nodeName"] = name
                pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
                self.placed.append((pod["metadata"]["name"], name))
                return
        told = ", ".join(sorted(f"{count} {problem}" for problem, count in Counter(problems.values()).items()))
        message = f"0/{len(problems)} nodes are available: {told}." if told else "no nodes available to schedule pods"
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        pod["status"]["conditions"] = [condition]

    def _obstacle(self, pod: Document, node: Document) -> str:
        name = node["metadata"]["name"]
        affinity = pod["spec"].get("affinity", {})
        terms = affinity.get("nodeAffinity", {}).get(NAMED, {}).get("nodeSelectorTerms", [])
        if terms and not any(all(_matches(field, name) for field in term["matchFields"]) for term in terms):
            return "node(s) didn't match Pod's node affinity/selector"
        if not pod["spec"].get("nodeSelector", {}).items() <= node["metadata"]["labels"].items():
            return "node(s) didn't match Pod's node affinity/selector"
        repelled = _repel(pod, node)
        if repelled:
            return repelled
        beside = [one for one in self.pods.values() if one["spec"].get("nodeName") == name and not _is_over(one)]
        if not _covers(read_resources(node["status"]["allocatable"]), sum_resources(map(_requests, [pod, *beside]))):
            return "Insufficient cpu"  # or memory, or GPUs
        for term in affinity.get("podAntiAffinity", {}).get(NAMED, []):
            labels = term["labelSelector"]["matchLabels"].items()
            if any(labels <= one["metadata"].get("labels", {}).items() for one in beside):
                return "node(s) didn't match pod anti-affinity rules"
        return ""

    def _run(self, name: str, pod: Document) -> None:
        container = self.running.get(name)
        if container is not None:
            end = container.terminated()
            if end is not None:
                del self.running[name]
                self._end(pod, end)
        elif self.runs_pods and _is_new(pod) and self._has_secrets(pod):
            node = pod["spec"]["nodeName"]
            self.running[name] = Container(pod, self.folder / "pods" / name, self.secrets, self.variables(node))
            pod["status"]["phase"] = "Running"
        if _is_deleted(pod) and name not in self.running:
            del self.pods[name]

    def _has_secrets(self, pod: Document) -> bool:
        volumes = [one["secret"] for one in pod["spec"].get("volumes", ()) if "secret" in one]
        wanted = [(volume["secretName"], item["key"]) for volume in volumes for item in volume["items"]]
        if all(key in self.secrets.get(name, {}) for name, key in wanted):
            return True
        pod["status"]["containerStatuses"] = [_container_status({"waiting": {"reason": "ContainerCreating"}})]
        if self.has_sandbox_conditions and len(pod["status"]["conditions"]) == 1:
            pod["status"]["conditions"].append({"type": "PodReadyToStartContainers", "status": "False"})
        return False

    def _end(self, pod: Document, end: Document) -> None:
        is_well = end["exitCode"] == 0 and pod["status"].get("reason") != "Evicted"
        pod["status"]["phase"] = "Succeeded" if is_well else "Failed"
        pod["status"]["containerStatuses"] = [_container_status({"terminated": end})]

    # The API server

    def answer(self, method: str, target: str, token: str, body: bytes, fault: int | None = None) -> Document:
        if fault is not None:
            raise RefusedRequest(fault, "the double was told so")
        split = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        namespace, resource, name = _parse(split.path)
        if resource == "nodes" and namespace:
            raise RefusedRequest(404, "the server could not find the requested resource")
        verb = (_NAMED_VERBS if name else _VERBS)[method]
        self._authorize(token, verb, resource, namespace)
        with self.lock:
            if verb == "list":
                return self._list(resource, namespace, query)
            if resource != "jobs":
                raise RefusedRequest(405, "the double does not do this")
            if verb == "create":
                return self._create_job(json.loads(body), namespace)
            return self._delete_job(name, json.loads(body))

    def _authorize(self, token: str, verb: str, resource: str, namespace: str) -> None:
        rights = self.rights.get(token) if token else frozenset()
        if rights is None:
            raise RefusedRequest(401, "Unauthorized")
        if not rights & {Right(verb, resource), Right(verb, resource, namespace)}:
            user = "tester" if token else "system:anonymous"
            group = "batch" if resource == "jobs" else ""
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            told = f'User "{user}" cannot {verb} resource "{resource}" in API group "{group}" {where}'
            raise RefusedRequest(403, f"{resource}{'.' * bool(group)}{group} is forbidden: {told}")

    def _list(self, resource: str, namespace: str, query: Mapping[str, str]) -> Document:
        """A page of the objects, by name; each without its kind."""
        _check_query(resource, query)
        found = {"nodes": self.nodes, "pods": self.pods, "jobs": self.jobs}[resource].values()
        last = _read_token(query.get("continue", ""))
        if last and self.expired_tokens:
            raise RefusedRequest(410, "The provided continue parameter is too old", "Expired")
        items = sorted((one for one in found if _is_selected(one, namespace, query)), key=_key)
        items = [one for one in items if not last or _key(one) > last]
        limit = int(query.get("limit", 0)) or len(items)
        more = {"continue": _make_token(items[limit - 1])} if limit < len(items) else {}
        return {
            "kind": {"nodes": "NodeList", "pods": "PodList", "jobs": "JobList"}[resource],
            "apiVersion": "batch/v1" if resource == "jobs" else "v1",
            "metadata": {"resourceVersion": "1", **more},
            "items": [{name: one[name] for name in one if name not in ("kind", "apiVersion")} for one in items[:limit]],
        }

    def _create_job(self, job: Document, namespace: str) -> Document:
        if self.is_namespace_missing:
            raise RefusedRequest(404, f'namespaces "{namespace}" not found')
        _check_job(job, namespace)
        name = job["metadata"]["name"]
        if name in self.jobs:
            raise RefusedRequest(409, f'jobs.batch "{name}" already exists', "AlreadyExists")
        if len(self.jobs) >= self.most_jobs:
            used = f"requested: count/jobs.batch=1, used: count/jobs.batch={len(self.jobs)}"
            told = f"exceeded quota: jobs, {used}, limited: count/jobs.batch={self.most_jobs}"
            raise RefusedRequest(403, f'jobs.batch "{name}" is forbidden: {told}')
        job["metadata"] |= {"namespace": namespace, "uid": str(uuid4()), "creationTimestamp": _now()}
        for container in job["spec"]["template"]["spec"]["containers"]:
            for amounts in container["resources"].values():
                amounts |= {one: _normalize(text) for one, text in amounts.items()}
        job["status"] = {}
        self.jobs[name] = job
        self.created.append(job)
        return job

    def _delete_job(self, name: str, options: Mapping[str, Any]) -> Document:
        if options.get("propagationPolicy", "Orphan") not in _POLICIES:
            raise RefusedRequest(422, "propagationPolicy: Unsupported value")
        job = self.jobs.get(name)
        if job is None:
            raise RefusedRequest(404, f'jobs.batch "{name}" not found')
        if options.get("preconditions", {}).get("uid", job["metadata"]["uid"]) != job["metadata"]["uid"]:
            raise RefusedRequest(409, "the UID in the precondition does not match")
        del self.jobs[name]
        assert options["propagationPolicy"] == "Background", "pods are left behind"
        for pod, one in self.pods.items():
            if any(owner["uid"] == job["metadata"]["uid"] for owner in one["metadata"].get("ownerReferences", ())):
                self.delete_pod(pod)
        return {"kind": "Status", "status": "Success"}


def _make_handler(server: KubernetesServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body at once

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server.requests.append(f"{self.command} {self.path}")
            fault = server.faults.popleft() if server.faults else None
            if fault == CLOSE:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            status, document = 201 if self.command == "POST" else 200, {}
            try:
                document = server.answer(self.command, self.path, token, body, fault)
            except RefusedRequest as refusal:
                status = refusal.status
                document = {
                    "kind": "Status",
                    "status": "Failure",
                    "message": str(refusal),
                    "reason": refusal.reason,
                    "code": status,
                }
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            if status == 429:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = _handle  # noqa: N815 - of the base

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base
            pass

    return Handler


def _parse(path: str) -> tuple[str, str, str]:
    """The namespace, the resource and the name of a path."""
    parts = path.strip("/").split("/")
    parts = parts[3:] if parts[:2] == ["apis", "batch"] else parts[2:]
    namespace = parts[1] if parts[0] == "namespaces" else ""
    rest = parts[2:] if namespace else parts
    return namespace, rest[0], rest[1] if len(rest) > 1 else ""


def _is_selected(one: Document, namespace: str, query: Mapping[str, str]) -> bool:
    metadata = one["metadata"]
    labels = dict(part.split("=") for part in query.get("labelSelector", "").split(",") if part)
    field, _, value = query.get("fieldSelector", "").partition("=")
    fields = {"": "", "metadata.name": metadata["name"], "spec.nodeName": one["spec"].get("nodeName", "")}
    return (
        (not namespace or metadata.get("namespace") == namespace)
        and labels.items() <= metadata.get("labels", {}).items()
        and bool(fields[field] == value)
    )


def _check_job(job: Document, namespace: str) -> None:
    problem = find_malformation(job, namespace)
    if problem:
        raise RefusedRequest(400, problem)
    try:
        kubernetes_validate.validate(job, _VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        raise RefusedRequest(422 if error.validator == "required" else 400, str(error)[:500]) from error
    problems = list(find_problems(job))
    if problems:
        raise RefusedRequest(422, f"Job.batch {job['metadata'].get('name', '')!r} is invalid: {problems}"[:500])


def _check_query(resource: str, query: Mapping[str, str]) -> None:
    field = query.get("fieldSelector", "").partition("=")[0]
    if field and field not in _FIELDS[resource]:
        raise RefusedRequest(400, f"field label not supported: {field}")
    problem = check_selector(query.get("labelSelector", ""))
    if problem or not query.get("limit", "0").isdecimal():
        raise RefusedRequest(400, problem or f'strconv.ParseInt: parsing "{query["limit"]}": invalid syntax')


def _key(one: Document) -> str:
    """The order of a list."""
    return f"{one['metadata'].get('namespace', '')}/{one['metadata']['name']}"


def _make_token(last: Document) -> str:
    """Where the next page begins: nothing that a client could compute."""
    return base64.urlsafe_b64encode(json.dumps({"start": _key(last)}).encode()).decode()


def _read_token(token: str) -> str:
    try:
        return str(json.loads(base64.urlsafe_b64decode(token))["start"]) if token else ""
    except ValueError as error:
        raise RefusedRequest(400, f"invalid continue token: {error}") from error


def _normalize(quantity: str) -> str:
    """Whole CPUs and not their thousandths, as in what the API server keeps."""
    return quantity[:-4] if re.fullmatch("[0-9]+000m", quantity) else quantity


def _repel(pod: Document, node: Document) -> str:
    """Why a node takes no more pods, or not this one; empty if it does."""
    if node["spec"].get("unschedulable"):
        return "node(s) were unschedulable"
    tolerated = {one["key"] for one in pod["spec"].get("tolerations", ())}
    taints = {one["key"] for one in node["spec"].get("taints", ()) if one["effect"] != "PreferNoSchedule"}
    if node["status"]["conditions"][0]["status"] != "True":
        taints.add("node.kubernetes.io/not-ready")
    return f"node(s) had untolerated taint {{{min(taints - tolerated)}: }}" if taints - tolerated else ""


def _matches(field: Mapping[str, Any], name: str) -> bool:
    assert field["key"] == "metadata.name"
    return bool((name in field["values"]) == (field["operator"] == "In"))


def _requests(pod: Document) -> Resources:
    return sum_resources(read_resources(one["resources"]["requests"], math.ceil) for one in pod["spec"]["containers"])


def _covers(whole: Resources, part: Resources) -> bool:
    return part - whole == Resources()


def _role(pod: Document) -> str:
    return str(pod["metadata"].get("labels", {}).get("app.kubernetes.io/name", ""))


def _is_over(pod: Document) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _is_new(pod: Document) -> bool:
    return pod["status"]["phase"] == "Pending" and "nodeName" in pod["spec"] and not _is_deleted(pod)


def _is_deleted(pod: Document) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _container_status(state: Document) -> Document:
    return {"name": "worker", "image": "own", "imageID": "own", "ready": False, "restartCount": 0, "state": state}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@contextmanager
def kubernetes_server(server: KubernetesServer, *, steps: bool = True) -> Iterator[KubernetesServer]:
    """Serve for as long as the context is held; with ``steps``, Kubernetes acts by itself meanwhile."""

    def act() -> None:
        while not server.over.wait(0.05):
            server.step()

    threads = [threading.Thread(target=server.http.serve_forever, args=(0.05,), daemon=True)]
    threads += [threading.Thread(target=act, daemon=True)] if steps else []
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.http.shutdown()
        for thread in threads:
            thread.join()
        server.http.server_close()
        for container in server.running.values():
            container.end()
