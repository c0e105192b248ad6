"""What is read of the objects of Kubernetes. Fields without a use here are skipped."""

import math
from collections.abc import Collection
from typing import Any, Final

import msgspec

from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.evaluator.launchers.pod_manifests import Resources, read_resources, sum_resources

_STARTUP_ERRORS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"}
)
"""Reasons of a waiting container that need somebody's help."""
_NO_SANDBOX: Final = (
    "its volumes or its network are not ready; check the Secret of the workers, and `kubectl get events`"
)
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Owner(_Struct, frozen=True):
    uid: str = ""


class _Metadata(_Struct, frozen=True):
    name: str = ""
    uid: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[_Owner, ...] = ()


class _Condition(_Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Taint(_Struct, frozen=True):
    key: str = ""
    effect: str = ""


class _NodeSpec(_Struct, frozen=True):
    unschedulable: bool = False
    taints: tuple[_Taint, ...] = ()


class _NodeStatus(_Struct, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: tuple[_Condition, ...] = ()


@prepare_decoder
class NodeObject(_Struct, frozen=True):
    """A node."""

    metadata: _Metadata
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()

    @property
    def resources(self) -> Resources:
        """What pods can have of the node."""
        return read_resources(self.status.allocatable)

    def is_usable(self, tolerations: Collection[str]) -> bool:
        """Return whether Kubernetes places pods on the node that tolerate these taints."""
        is_ready = any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)
        repelling = {taint.key for taint in self.spec.taints if taint.effect in _REPELLING}
        return is_ready and not self.spec.unschedulable and repelling.issubset(tolerations)


class _Requirements(_Struct, frozen=True):
    requests: dict[str, str] = {}


class _Container(_Struct, frozen=True):
    resources: _Requirements = _Requirements()
    restart_policy: str = ""

    @property
    def requested(self) -> Resources:
        """What the container requests."""
        return read_resources(self.resources.requests, math.ceil)


class _PodSpec(_Struct, frozen=True):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    overhead: dict[str, str] = {}

    @property
    def requested(self) -> Resources:
        """What the scheduler counts for the pod."""
        sidecars = [one for one in self.init_containers if one.restart_policy == "Always"]
        running = sum_resources(one.requested for one in (*self.containers, *sidecars))
        for one in self.init_containers:
            running |= one.requested
        return running + read_resources(self.overhead, math.ceil)


class _Termination(_Struct, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class _Wait(_Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _State(_Struct, frozen=True):
    waiting: _Wait | None = None
    terminated: _Termination | None = None


class _ContainerStatus(_Struct, frozen=True):
    state: _State = _State()


class _PodStatus(_Struct, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()


@prepare_decoder
class PodObject(_Struct, frozen=True):
    """A pod."""

    metadata: _Metadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def is_pending(self) -> bool:
        """Whether its container has not started yet."""
        return self.status.phase == "Pending"

    @property
    def trouble(self) -> str:
        """Why the pending pod cannot start without help; empty if it may start, or if nothing is known yet."""
        for one in self.status.container_statuses:
            if one.state.waiting is not None and one.state.waiting.reason in _STARTUP_ERRORS:
                return f"{one.state.waiting.reason}: {one.state.waiting.message}"
        missing = {one.type: one.message for one in self.status.conditions if one.status == "False"}
        if "PodScheduled" in missing:
            return f"unschedulable: {missing['PodScheduled']}"
        return _NO_SANDBOX if "PodReadyToStartContainers" in missing else ""


class _JobSpec(_Struct, frozen=True):
    template: dict[str, Any] = {}
    suspend: bool = False


class _JobStatus(_Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


@prepare_decoder
class JobObject(_Struct, frozen=True):
    """A Job."""

    metadata: _Metadata
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()

    @property
    def is_over(self) -> bool:
        """Whether the Job has ended, well or not."""
        return any(one.type in ("Complete", "Failed") and one.status == "True" for one in self.status.conditions)


@prepare_decoder
class WorkerAnswer(msgspec.Struct, frozen=True):
    """The termination message of a worker."""

    machine: str
    jobs: int
