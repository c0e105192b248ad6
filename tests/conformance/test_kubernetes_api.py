"""What the double of Kubernetes answers to the launcher, and a real API server too (``BENCHLOCK_KUBERNETES``)."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from kubernetes import client, config

from benchlock.evaluator.launchers.pod_manifests import Resources, WorkerTemplate, render_worker
from tests.support.servers.kubernetes_rules import NAMED
from tests.support.servers.kubernetes_server import KubernetesServer, granted, kubernetes_server
from tests.support.servers.live_kubernetes import LIVE, LiveKubernetes

Document = dict[str, Any]
TEMPLATE = WorkerTemplate("https://bench.example", f"benchlock@sha256:{'a' * 64}", "benchlock-worker")
JOBS = "/apis/batch/v1/namespaces/bench/jobs"
NODES = "/api/v1/nodes"
NODE_TERMS = ("affinity", "nodeAffinity", NAMED, "nodeSelectorTerms", 0, "matchFields", 0)
GONE = object()
BACKGROUND = {"propagationPolicy": "Background"}

OF_JOBS: dict[str, tuple[tuple[object, ...], object, int]] = {
    "kind": (("kind",), "Pod", 400),
    "version": (("apiVersion",), "batch/v7", 400),
    "namespace": (("metadata", "namespace"), "other", 400),
    "type": (("spec", "backoffLimit"), "x", 400),
    "no name": (("metadata", "name"), GONE, 422),
    "uppercase name": (("metadata", "name"), "Own", 422),
    "long name": (("metadata", "name"), "a" * 64, 422),
    "label": (("metadata", "labels", "x"), "a b", 422),
    "long label": (("metadata", "labels", "x"), "a" * 64, 422),
    "label key": (("metadata", "labels", "a b/c"), "x", 422),
    "label of pods": (("spec", "template", "metadata", "labels", "x"), "a b", 422),
    "annotation key": (("metadata", "annotations"), {"a b": "c"}, 422),
    "long annotation": (("metadata", "annotations"), {"a": "c" * 300_000}, 422),
    "selector": (("spec", "selector"), {"matchLabels": {"a": "b"}}, 422),
    "backoff": (("spec", "backoffLimit"), -1, 422),
    "time to live": (("spec", "ttlSecondsAfterFinished"), -1, 422),
    "no template": (("spec",), {}, 422),
}
"""Paths in a Job, what stands there, and the status of the answer."""
OF_PODS: dict[str, tuple[tuple[object, ...], object]] = {
    "restart policy": (("restartPolicy",), "Always"),
    "no restart policy": (("restartPolicy",), GONE),
    "no containers": (("containers",), []),
    "node selector": (("nodeSelector",), {"pool": "a b"}),
    "key of a node selector": (("nodeSelector",), {"a b": "a"}),
    "value of a toleration": (("tolerations",), [{"key": "a", "operator": "Exists", "value": "b"}]),
    "key of a toleration": (("tolerations",), [{"key": "a b", "operator": "Exists"}]),
    "two nodes": ((*NODE_TERMS, "values"), ["a", "b"]),
    "field of nodes": ((*NODE_TERMS, "key"), "metadata.uid"),
    "operator": ((*NODE_TERMS, "operator"), "Exists"),
    "topology": (("affinity", "podAntiAffinity", NAMED, 0, "topologyKey"), GONE),
    "user": (("securityContext", "runAsUser"), -1),
    "seccomp": (("securityContext", "seccompProfile"), {"type": "Own"}),
    "volume": (("volumes", 0, "name"), "A"),
    "two volumes of a name": (("volumes", 0, "name"), "tmp"),
    "secret": (("volumes", 2, "secret", "secretName"), ""),
    "mode": (("volumes", 2, "secret", "defaultMode"), 0o1777),
}
OF_CONTAINERS: dict[str, tuple[tuple[object, ...], object]] = {
    "name": (("name",), "A_b"),
    "no image": (("image",), GONE),
    "policy": (("terminationMessagePolicy",), "Own"),
    "variable": (("env", 0, "name"), "a=b"),
    "unknown volume": (("volumeMounts", 0, "name"), "none"),
    "two mounts at a path": (("volumeMounts", 0, "mountPath"), "/tmp"),
    "more than the limit": (("resources", "requests", "memory"), "2Gi"),
    "GPU without limit": (("resources",), {"requests": {"nvidia.com/gpu": "1"}}),
    "half a GPU": (("resources", "limits", "nvidia.com/gpu"), "500m"),
    "negative": (("resources", "requests", "cpu"), "-1"),
}
POD = ("spec", "template", "spec")


class Api:
    """Requests of the launcher's account."""

    def __init__(self, server: KubernetesServer | LiveKubernetes) -> None:
        self.server = server
        connection = config.new_client_from_config(str(server.kubeconfig("controller")), persist_config=False)
        connection.configuration.retries = False
        self.connection = client.ApiClient(connection.configuration)

    def ask(self, method: str, path: str, document: object = None, token: str | None = None) -> tuple[int, Document]:
        headers = {"Content-Type": "application/json"}
        own = [] if token is not None else ["BearerToken"]
        if token:
            headers["Authorization"] = f"Bearer {token}"
        serialized = self.connection.param_serialize(
            method, path, body=document, header_params=headers, auth_settings=own
        )
        answer = self.connection.call_api(*serialized, _request_timeout=20)
        return answer.status, json.loads(answer.response.read(decode_content=True))

    def refusal(self, method: str, path: str, document: object = None, token: str | None = None) -> tuple[int, str]:
        """The status and the reason of a refusal."""
        status, answer = self.ask(method, path, document, token)
        assert answer["kind"] == "Status", answer
        return status, answer.get("reason", "")


@pytest.fixture(params=["double", *(["live"] if LIVE else [])])
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    with ExitStack() as stack:
        if request.param == "live":
            yield Api(LiveKubernetes(tmp_path, runs_pods=False))
            return
        double = KubernetesServer(tmp_path, rights={"controller": granted("bench")}, runs_pods=False)
        yield Api(stack.enter_context(kubernetes_server(double, steps=False)))


def worker() -> Document:
    return render_worker(TEMPLATE, "n1", Resources(2000, 1 << 30))


def changed(path: tuple[Any, ...], value: object) -> Document:
    """The Job of a worker with another value at a path."""
    job = worker()
    place: Any = job
    for part in path[:-1]:
        place = place[part]
    if value is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return job


REASONS: Mapping[int, str] = {400: "BadRequest", 422: "Invalid"}
INVALID = {
    **OF_JOBS,
    **{f"pod: {name}": ((*POD, *path), value, 422) for name, (path, value) in OF_PODS.items()},
    **{
        f"container: {name}": ((*POD, "containers", 0, *path), value, 422)
        for name, (path, value) in OF_CONTAINERS.items()
    },
    "container: no quantity": ((*POD, "containers", 0, "resources", "requests", "cpu"), "two", 400),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_job_is_refused(api: Api, name: str) -> None:
    path, value, status = INVALID[name]
    assert api.refusal("POST", JOBS, changed(path, value)) == (status, REASONS[status])
    assert api.ask("GET", JOBS)[1]["items"] == []


def test_a_name_is_taken_until_its_job_of_this_uid_is_deleted(api: Api) -> None:
    status, job = api.ask("POST", JOBS, worker())
    assert status == 201
    assert api.refusal("POST", JOBS, worker()) == (409, "AlreadyExists")
    path, uid = f"{JOBS}/{job['metadata']['name']}", job["metadata"]["uid"]
    assert api.refusal("DELETE", path, {**BACKGROUND, "preconditions": {"uid": "other"}}) == (409, "Conflict")
    assert api.refusal("DELETE", path, {"propagationPolicy": "Own"}) == (422, "Invalid")
    assert api.ask("DELETE", path, {**BACKGROUND, "preconditions": {"uid": uid}})[0] == 200
    assert api.refusal("DELETE", path, BACKGROUND) == (404, "NotFound")
    assert api.ask("POST", JOBS, worker())[0] == 201


def test_a_created_job_is_listed_with_what_was_sent_and_quantities_in_canonical_form(api: Api) -> None:
    api.ask("POST", JOBS, worker())
    (job,) = api.ask("GET", f"{JOBS}?labelSelector=app.kubernetes.io/name%3Dbenchlock-worker")[1]["items"]
    sent = worker()
    assert "kind" not in job
    assert job["metadata"]["labels"].items() >= sent["metadata"]["labels"].items()
    assert job["metadata"]["annotations"] == sent["metadata"]["annotations"]
    spec = job["spec"]["template"]["spec"]
    assert spec["affinity"]["nodeAffinity"] == sent["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    requests = {"cpu": "2", "memory": str(1 << 30)}
    assert spec["containers"][0]["resources"] == {"requests": requests, "limits": {"memory": str(1 << 30)}}
    assert api.ask("GET", f"{JOBS}?labelSelector=app.kubernetes.io/name%3Dother")[1]["items"] == []


def test_lists_come_by_name_and_page_by_page(api: Api) -> None:
    for name in ("b", "c", "a"):
        api.server.add_node(name)
    status, page = api.ask("GET", f"{NODES}?limit=2")
    assert (status, page["kind"], [one["metadata"]["name"] for one in page["items"]]) == (200, "NodeList", ["a", "b"])
    api.server.add_node("aa")  # of a page that was read
    following = quote(page["metadata"]["continue"])
    page = api.ask("GET", f"{NODES}?limit=2&continue={following}")[1]
    assert [one["metadata"]["name"] for one in page["items"]] == ["c"]
    assert "continue" not in page["metadata"]
    assert api.refusal("GET", f"{NODES}?limit=2&continue=abc") == (400, "BadRequest")
    assert api.refusal("GET", f"{NODES}?limit=x") == (400, "BadRequest")


@pytest.mark.parametrize(
    "query", ["fieldSelector=spec.nodeName%3Dn1", "labelSelector=a%20b%3Dc", "labelSelector=a%3Dc%2Fd"]
)
def test_a_selector_that_nodes_lack_or_that_is_malformed_is_refused(api: Api, query: str) -> None:
    assert api.refusal("GET", f"{NODES}?{query}") == (400, "BadRequest")


def test_the_launcher_may_do_nothing_but_what_is_granted(api: Api) -> None:
    name = worker()["metadata"]["name"]
    for method, path in (
        ("GET", f"{JOBS}/{name}"),
        ("PATCH", f"{JOBS}/{name}"),
        ("DELETE", JOBS),
        ("GET", "/apis/batch/v1/jobs"),
        ("POST", JOBS.replace("bench", "other")),
        ("GET", f"{NODES}/n1"),
        ("GET", "/api/v1/namespaces/bench/secrets"),
        ("POST", "/api/v1/namespaces/bench/pods"),
    ):
        assert api.refusal(method, path, {}) == (403, "Forbidden"), (method, path)
    _, answer = api.ask("GET", "/apis/batch/v1/jobs")
    assert answer["message"].startswith("jobs.batch is forbidden: User ")
    assert answer["message"].endswith(' cannot list resource "jobs" in API group "batch" at the cluster scope')
    assert api.refusal("GET", JOBS, token="wrong") == (401, "Unauthorized")
    assert api.refusal("GET", JOBS, token="") == (403, "Forbidden"), "everybody is somebody"
