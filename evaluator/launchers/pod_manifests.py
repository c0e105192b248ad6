"""The Jobs that the launcher creates in Kubernetes, as documents made from values; nothing is asked of a cluster."""

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.launchers.launcher import NodeSize

GPU: Final = "nvidia.com/gpu"
NAME: Final = "app.kubernetes.io/name"
WORKER: Final = "benchlock-worker"
DEMAND: Final = "benchlock-demand"
REGISTRY: Final = "benchlock.org/registry"
"""The label with a digest of the registry's URL: a launcher deals with the Jobs of its own registry alone."""
NODE: Final = "benchlock.org/node"
CPUS: Final = "benchlock.org/cpus"
GPUS: Final = "benchlock.org/gpus"
MESSAGE_PATH: Final = "/dev/termination-log"
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_IMAGE: Final = re.compile(r"[^\s@]{1,300}@sha256:[0-9a-f]{64}")
_SECRETS: Final = "/run/secrets/benchlock"
_USER: Final = 10001
"""The user of the image (``Dockerfile``)."""
_KEPT_SECONDS: Final = 600
"""How long Kubernetes keeps a Job that ended while no launcher was there to delete it."""
_GRACE_SECONDS: Final = 60
"""How long a worker may take to return its job after SIGTERM."""
_DEMAND_SECONDS: Final = 3600
"""How long a demand is pending: one that its launcher has left behind ends. Kubernetes does not count suspension."""
_LONGEST_MACHINE: Final = 64
_DIGITS: Final = 12
_UNITS: Final[Mapping[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", 1)},
}
_QUANTITY: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{0,20})?)(?:[eE]\+?([0-9]{1,2})|([numkMGTPE]|[KMGTPE]i)?)")


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of a node or a pod.

    Attributes:
        millicpus: CPUs, in thousandths.
        memory: Memory in bytes.
        gpus: Accelerators, as ``nvidia.com/gpu``.
    """

    millicpus: int = 0
    memory: int = 0
    gpus: int = 0

    def __add__(self, other: "Resources") -> "Resources":
        """Return the sum."""
        return Resources(self.millicpus + other.millicpus, self.memory + other.memory, self.gpus + other.gpus)

    def __sub__(self, other: "Resources") -> "Resources":
        """Return the difference, at least 0 each."""
        return Resources(
            max(self.millicpus - other.millicpus, 0), max(self.memory - other.memory, 0), max(self.gpus - other.gpus, 0)
        )

    def __or__(self, other: "Resources") -> "Resources":
        """Return the larger of each."""
        return Resources(
            max(self.millicpus, other.millicpus), max(self.memory, other.memory), max(self.gpus, other.gpus)
        )


@dataclass(frozen=True, slots=True)
class WorkerTemplate:
    """What all workers of a launcher have in common. It contains no secret.

    Attributes:
        registry: The URL of the registry's server.
        image: The image of benchlock with its digest.
        token_secret: The name of the Secret whose key ``token`` is the token of the workers.
        queue: The name of a LocalQueue of Kueue; empty for none.
        machine_prefix: The prefix of machine names, which tells equal names of nodes in several clusters apart.
        node_selector: The labels of the nodes that get workers, as keys and values; empty for all nodes.
        tolerations: The keys of the taints that workers tolerate.
        private_ca: Whether the Secret's key ``ca.crt`` is the CA of the registry's server.
        allow_code: Whether workers may run code of models.
    """

    registry: str
    image: str
    token_secret: str
    queue: str = ""
    machine_prefix: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[str, ...] = ()
    private_ca: bool = False
    allow_code: bool = False

    def __post_init__(self) -> None:
        """Check the image.

        Raises:
            InvalidInputError: The image has no digest.
        """
        if _IMAGE.fullmatch(self.image) is None:
            raise InvalidInputError(
                "the image has no digest, so it may be another one tomorrow",
                where=f"image {self.image[:300]!r}",
                next_step="write REPOSITORY@sha256:…, as `docker push` prints it",
            )

    @property
    def registry_label(self) -> str:
        """The value of the label ``REGISTRY``."""
        return _digest(self.registry)


def read_quantity(text: str) -> Fraction:
    """Return the number that a quantity of Kubernetes states, such as ``1500m`` or ``16Gi``; 0 if it is malformed."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return Fraction(0)
    number = Fraction(match[1])
    return number * 10 ** int(match[2]) if match[2] else number * _UNITS[match[3] or ""]


def read_resources(quantities: Mapping[str, str], to_int: Callable[[Fraction], int] = math.floor) -> Resources:
    """Read resources from a document of Kubernetes.

    Args:
        quantities: For example a node's ``allocatable``, or the requests of a container.
        to_int: Rounds; the scheduler rounds requests up (``math.ceil``).
    """
    values = {name: read_quantity(quantities.get(name, "0")) for name in ("cpu", "memory", GPU)}
    return Resources(to_int(values["cpu"] * 1000), to_int(values["memory"]), to_int(values[GPU]))


def sum_resources(resources: Iterable[Resources]) -> Resources:
    """Return the sum of resources."""
    return sum(resources, Resources())


def name_machine(template: WorkerTemplate, node: str) -> str:
    """Return the name of the machine for a node: prefix and node, shortened if that is too long for a machine."""
    name = template.machine_prefix + node
    if len(name) <= _LONGEST_MACHINE:
        return name
    return f"{name[: _LONGEST_MACHINE - _DIGITS - 1]}-{_digest(name)}"


def name_worker(template: WorkerTemplate, node: str) -> str:
    """Return the name of the worker's Job on a node: as names are unique, no node gets two."""
    stem = re.sub(r"[^a-z0-9]+", "-", node)[:30].strip("-")
    return f"{WORKER}-{stem}-{_digest(f'{template.registry} {node}')}"


def name_demand(template: WorkerTemplate, size: NodeSize) -> str:
    """Return the name of the Job that is pending for a node of a size."""
    return f"{DEMAND}-{size.cpus}-{size.gpus}-{template.registry_label}"


def render_worker(template: WorkerTemplate, node: str, free: Resources) -> dict[str, Any]:
    """Return the Job of a worker that runs one job on a node and takes all that is free there."""
    words = ["--registry", template.registry, "worker", "--once", "--until-idle", "--processes"]
    words += ["--cpus", str(free.millicpus // 1000)]
    words += [
        "--machine",
        name_machine(template, node),
        "--report",
        MESSAGE_PATH,
        *(["--allow-code"] * template.allow_code),
    ]
    container = _container(template, words, free)
    container["env"] = [
        {"name": "BENCHLOCK_TOKEN_FILE", "value": f"{_SECRETS}/token"},
        {"name": "XDG_CACHE_HOME", "value": "/cache"},
        *([{"name": "SSL_CERT_FILE", "value": f"{_SECRETS}/ca.crt"}] if template.private_ca else []),
    ]
    container["volumeMounts"] = [
        {"name": "cache", "mountPath": "/cache"},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the pod alone
        {"name": "secret", "mountPath": _SECRETS, "readOnly": True},
    ]
    names = ["token", *(["ca.crt"] if template.private_ca else [])]
    items = [{"key": name, "path": name} for name in names]
    affinity = {
        **_pin([{"key": "metadata.name", "operator": "In", "values": [node]}]),
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {NAME: WORKER}},
                    "namespaceSelector": {},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        },
    }
    volumes: list[dict[str, Any]] = [
        {"name": "cache", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "secret", "secret": {"secretName": template.token_secret, "items": items, "defaultMode": 0o440}},
    ]
    job = _job(template, WORKER, name_worker(template, node), container, {"affinity": affinity, "volumes": volumes})
    job["metadata"]["annotations"] = {NODE: node}
    return job


def render_demand(template: WorkerTemplate, size: NodeSize, nodes: Sequence[str]) -> dict[str, Any]:
    """Return a Job that is pending until there is a node of a size besides ``nodes``, and ends there at once."""
    affinity = _pin([{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes])
    container = _container(template, ["--version"], Resources(size.cpus * 1000, 0, size.gpus))
    job = _job(template, DEMAND, name_demand(template, size), container, {"affinity": affinity} if nodes else {})
    job["metadata"]["annotations"] = {CPUS: str(size.cpus), GPUS: str(size.gpus)}
    job["spec"]["activeDeadlineSeconds"] = _DEMAND_SECONDS
    return job


def _job(
    template: WorkerTemplate, role: str, name: str, container: Mapping[str, Any], more: Mapping[str, Any]
) -> dict[str, Any]:
    labels = {NAME: role, REGISTRY: template.registry_label}
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "nodeSelector": dict(template.node_selector),
        "tolerations": [{"key": key, "operator": "Exists"} for key in template.tolerations],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        **more,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels | ({_QUEUE: template.queue} if template.queue else {})},
        "spec": {
            "backoffLimit": 0,
            "suspend": bool(template.queue),  # Kueue resumes what it admits
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _container(template: WorkerTemplate, words: Sequence[str], resources: Resources) -> dict[str, Any]:
    """Return a container without a limit of CPUs, because throttling would be measured."""
    memory = {"memory": str(resources.memory)} if resources.memory else {}
    gpus = {GPU: str(resources.gpus)} if resources.gpus else {}
    limits = memory | gpus
    return {
        "name": "worker",
        "image": template.image,
        "args": list(words),
        "terminationMessagePath": MESSAGE_PATH,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {
            "requests": {"cpu": f"{resources.millicpus}m"} | limits,
            **({"limits": limits} if limits else {}),
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _pin(fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchFields": list(fields)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def read_known_nodes(template: Mapping[str, Any]) -> frozenset[str]:
    """Return the nodes that a Job of ``render_demand`` excludes.

    Args:
        template: The template of its pods.
    """
    affinity = template.get("spec", {}).get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return frozenset(name for term in terms for field in term.get("matchFields", ()) for name in field["values"])
