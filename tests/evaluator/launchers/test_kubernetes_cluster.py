"""Workers as Jobs of Kubernetes: adoption, what keeps a pod from its start, and an API server that refuses or fails."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubernetes.config import incluster_config

from benchlock.artifacts.errors import InvalidInputError, RefusedError, UnavailableError
from benchlock.evaluator.launchers import kubernetes_api
from benchlock.evaluator.launchers.kubernetes_api import KubernetesApi, connect
from benchlock.evaluator.launchers.kubernetes_cluster import KubernetesCluster
from benchlock.evaluator.launchers.kubernetes_objects import NodeObject
from benchlock.evaluator.launchers.launcher import Node, NodeSize
from benchlock.evaluator.launchers.node_worker import WorkerReport
from benchlock.evaluator.launchers.pod_manifests import Resources, WorkerTemplate, render_worker
from tests.support.evaluator.engines import KubernetesBench
from tests.support.servers.kubernetes_server import CLOSE, KubernetesServer, Right, granted, kubernetes_server

IMAGE = f"benchlock@sha256:{'a' * 64}"
TEMPLATE = WorkerTemplate("https://bench.example", IMAGE, "benchlock-worker")
SIZE = NodeSize(4, 0)


@dataclass
class Clock:
    """Time passes only where somebody waits."""

    time: float = 0.0

    def __call__(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass
class Bench(KubernetesBench[KubernetesServer]):
    api: KubernetesApi
    clock: Clock

    def restarted(self, template: WorkerTemplate = TEMPLATE) -> KubernetesCluster:
        """The same seen by a launcher that has just begun."""
        return KubernetesCluster(self.api, template, self.clock, self.clock.sleep)

    def started(self, name: str = "n1") -> Node:
        self.add_node(name)
        node = next(one for one in self.cluster.nodes() if one.name == name)
        self.cluster.start(node)
        return node


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    server = KubernetesServer(tmp_path, rights={"user": granted("bench")}, runs_pods=False)
    with kubernetes_server(server, steps=False):
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig("user")))
        clock = Clock()
        api = KubernetesApi(connect("", "").connection, "bench", clock.sleep, clock)
        yield Bench(server, KubernetesCluster(api, TEMPLATE, clock, clock.sleep), api, clock)


# Restarts


def test_a_launcher_that_begins_again_adopts_the_worker_of_a_node(bench: Bench) -> None:
    node = bench.started()
    again = bench.restarted()
    again.start(node)
    assert bench.workers() == ["n1"]
    assert len(bench.server.created) == 1
    bench.end_worker("n1", WorkerReport(0, "n1", 1))
    assert again.wait(1) == {node: WorkerReport(0, "n1", 1)}
    assert bench.server.jobs == {}


def test_a_worker_that_ended_meanwhile_is_reported_before_the_next_starts(bench: Bench) -> None:
    node = bench.started()
    bench.act()
    bench.end_worker("n1", WorkerReport(0, "n1", 1))
    again = bench.restarted()
    again.start(node)
    assert again.wait(1) == {node: WorkerReport(0, "n1", 1)}
    again.start(node)
    assert bench.workers() == ["n1"]


def test_a_demand_is_kept_and_removed_by_a_launcher_that_begins_again(bench: Bench) -> None:
    bench.add_node("n1")
    bench.cluster.request(frozenset({SIZE}))
    assert bench.restarted().request(frozenset({SIZE})) == {}
    assert len(bench.server.created) == 1
    bench.add_node("n2", 4)
    assert bench.restarted().request(frozenset({SIZE})) == {SIZE: "n2"}
    bench.cluster.request(frozenset({SIZE}))
    bench.restarted().request(frozenset())
    assert bench.server.jobs == {}


def test_jobs_of_other_registries_are_left_alone(bench: Bench) -> None:
    bench.started()
    bench.cluster.request(frozenset({SIZE}))
    other = bench.restarted(WorkerTemplate("https://other.example", IMAGE, "benchlock-worker"))
    other.request(frozenset())
    assert other.wait(1) == {}
    assert len(bench.server.jobs) == 2


# Nodes


def test_a_node_that_is_not_ready_or_closed_gets_no_worker(bench: Bench) -> None:
    bench.server.add_node("n1", is_ready=False)
    bench.server.add_node("n2", taint="NoSchedule")
    bench.server.add_node("n3", taint="NoExecute")
    bench.server.add_node("n4", taint="PreferNoSchedule")
    bench.server.add_node("n5")
    bench.server.nodes["n5"]["spec"]["unschedulable"] = True
    assert [one.name for one in bench.cluster.nodes()] == ["n4"]


def test_the_nodes_with_a_label_and_a_tolerated_taint_get_workers_and_demands(bench: Bench) -> None:
    for name, pool, taint in (("n1", "bench", "NoSchedule"), ("n2", "bench", ""), ("n3", "", "")):
        bench.server.add_node(name, pool=pool, taint=taint)
    chosen = WorkerTemplate(
        "https://bench.example", IMAGE, "benchlock-worker", node_selector=(("pool", "bench"),), tolerations=("own",)
    )
    cluster = bench.restarted(chosen)
    assert [one.name for one in cluster.nodes()] == ["n1", "n2"]
    for node in cluster.nodes():
        cluster.start(node)
    assert bench.workers() == ["n1", "n2"]
    cluster.request(frozenset({SIZE}))
    bench.server.add_node("n4", "4")
    assert cluster.request(frozenset({SIZE})) == {}
    assert bench.demands() == {SIZE}
    bench.server.add_node("n5", "4", pool="bench", taint="NoSchedule")
    assert cluster.request(frozenset({SIZE})) == {SIZE: "n5"}


def test_a_demand_that_ran_on_a_node_that_may_run_no_worker_is_over(bench: Bench) -> None:
    bench.cluster.request(frozenset({SIZE}))
    bench.server.add_node("n1", "4")
    bench.act()
    bench.server.nodes["n1"]["spec"]["unschedulable"] = True
    (pod,) = bench.server.live_pods("benchlock-demand")
    bench.server.finish_pod(pod)
    bench.act()
    assert bench.cluster.request(frozenset({SIZE})) == {SIZE: ""}
    assert bench.server.jobs == {}
    assert len(bench.server.created) == 1


def test_fractions_of_a_byte_are_requested_as_the_scheduler_counts_them(bench: Bench) -> None:
    bench.add_node("n1")
    bench.server.add_pod("agent", "n1", "100500u")
    bench.server.pods["agent"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "107374182400m"
    (node,) = bench.cluster.nodes()
    bench.cluster.start(node)
    assert bench.workers() == ["n1"]


def test_a_worker_takes_what_other_pods_leave(bench: Bench) -> None:
    bench.server.add_node("n1", "4")
    bench.server.add_pod("agent", "n1", "250m")
    bench.server.add_pod("elsewhere", "n2", "2")
    (node,) = bench.cluster.nodes()
    bench.server.requests.clear()
    bench.cluster.start(node)
    assert sum("fieldSelector=metadata.name" in one for one in bench.server.requests) == 1, "one node is read"
    (job,) = bench.server.created
    requests = job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert requests["cpu"] == "3750m"
    assert bench.workers() == ["n1"]


def test_a_node_that_is_full_is_reported_and_gets_no_pod(bench: Bench) -> None:
    bench.add_node("n1")
    bench.server.add_pod("busy", "n1", "1500m")
    (node,) = bench.cluster.nodes()
    bench.cluster.start(node)
    report = bench.cluster.wait(1)[node]
    assert report.message == "insufficient CPU: 0.5 of 2 free; a worker needs 1"
    assert bench.server.created == []


def test_long_lists_are_read_page_by_page(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "PAGE", 2)
    for number in range(5):
        bench.add_node(f"n{number}")
    bench.server.requests.clear()
    assert len(bench.cluster.nodes()) == 5
    assert len(bench.server.requests) == 3
    monkeypatch.setattr(kubernetes_api, "MAX_PAGES", 2)
    with pytest.raises(UnavailableError, match="more than 4 objects"):
        bench.cluster.nodes()


def test_a_list_that_changed_while_it_was_read_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "PAGE", 2)
    for number in range(5):
        bench.add_node(f"n{number}")
    bench.server.expired_tokens = True
    with pytest.raises(UnavailableError, match="changed while it was read"):
        bench.cluster.nodes()
    bench.server.expired_tokens = False
    assert len(bench.cluster.nodes()) == 5


# Pods


@pytest.mark.parametrize("name", ["evict", "kill"])
def test_a_pod_that_kubernetes_ends_is_a_failure_whatever_it_wrote(bench: Bench, name: str) -> None:
    node = bench.started()
    bench.act()
    pod = bench.pod("n1")
    if name == "evict":
        bench.server.pods[pod]["status"] |= {"reason": "Evicted", "message": "The node was low on memory."}
        bench.server.finish_pod(pod, 0, json.dumps({"machine": "n1", "jobs": 1}))
    else:
        bench.server.finish_pod(pod, 137, "")
    bench.act()
    report = bench.cluster.wait(1)[node]
    assert (report.code, report.jobs) == ((None, 0) if name == "evict" else (137, 0))
    assert report.message == ("Evicted: The node was low on memory." if name == "evict" else "its pod failed")


def test_a_job_that_somebody_deletes_is_a_failure(bench: Bench) -> None:
    node = bench.started()
    bench.server.jobs.clear()
    assert bench.cluster.wait(1) == {node: WorkerReport(None, message="its Job was deleted")}


def test_a_container_of_another_program_is_no_worker(bench: Bench) -> None:
    node = bench.started()
    bench.act()
    bench.server.finish_pod(bench.pod("n1"), 0, "hello")
    bench.act()
    assert "not a worker of benchlock" in bench.cluster.wait(1)[node].message


def test_the_end_of_a_long_message_is_reported(bench: Bench) -> None:
    node = bench.started()
    bench.act()
    lines = [*("noise" for _ in range(100)), "the token is refused", "  next: another token"]
    bench.end_worker("n1", WorkerReport(6, message="\n".join(lines)))
    assert bench.cluster.wait(1)[node].message == "noise; noise; the token is refused; next: another token"


@pytest.mark.parametrize("secret", [{}, {"ca.crt": "a CA"}])
@pytest.mark.parametrize("has_conditions", [True, False])
def test_a_pod_that_has_no_place_or_no_secret_is_given_up(
    bench: Bench, secret: dict[str, str], *, has_conditions: bool
) -> None:
    unplaced, without = bench.started("n1"), bench.started("n2")
    bench.server.nodes["n1"]["spec"]["taints"] = [{"key": "own", "effect": "NoSchedule"}]
    bench.server.secrets["benchlock-worker"] = secret  # without the token
    bench.server.has_sandbox_conditions = has_conditions
    bench.server.runs_pods = True
    bench.act()
    assert bench.cluster.wait(50) == {}
    reports = {**bench.cluster.wait(50)}
    taint, affinity = "had untolerated taint {own: }", "didn't match Pod's node affinity/selector"
    told = f"unschedulable: 0/2 nodes are available: 1 node(s) {affinity}, 1 node(s) {taint}."
    assert reports[unplaced].message == told
    assert has_conditions == (without in reports)
    if not has_conditions:
        assert bench.cluster.wait(1000) == {}
        reports |= bench.cluster.wait(150)
    assert "check the Secret" in reports[without].message
    assert bench.server.jobs == {}


def test_a_pod_whose_image_is_pulled_for_minutes_is_waited_for(bench: Bench) -> None:
    node = bench.started()
    bench.act()
    assert bench.cluster.wait(1000) == {}
    bench.end_worker("n1", WorkerReport(0, "n1", 1))
    assert bench.cluster.wait(1) == {node: WorkerReport(0, "n1", 1)}


def test_a_job_without_a_pod_is_given_up_unless_kueue_holds_it(bench: Bench) -> None:
    bench.add_node("n1")
    (node,) = bench.cluster.nodes()
    queued = bench.restarted(WorkerTemplate("https://other.example", IMAGE, "benchlock-worker", "measurements"))
    queued.start(node)
    bench.cluster.start(node)
    assert "no pod" in bench.cluster.wait(100)[node].message
    assert queued.wait(100) == {}


# The API server


@pytest.mark.parametrize("right", sorted(granted("bench"), key=str))
def test_each_permission_is_needed_and_the_missing_one_is_named(bench: Bench, right: Right) -> None:
    bench.add_node("n1")
    (node,) = bench.cluster.nodes()
    bench.server.rights["user"] -= {right}
    cluster = KubernetesCluster(connect("", ""), TEMPLATE)

    def use() -> None:
        cluster.nodes()
        cluster.start(node)
        cluster.request(frozenset({SIZE}))
        cluster.request(frozenset())

    with pytest.raises(RefusedError, match=f'cannot {right.verb} resource "{right.resource}"'):
        use()


def test_the_controller_may_do_nothing_else() -> None:
    everywhere = {Right("list", "nodes"), Right("list", "pods")}
    assert granted("bench") == everywhere | {Right(verb, "jobs", "bench") for verb in ("create", "delete", "list")}


def test_wrong_credentials_are_refused_at_once(bench: Bench) -> None:
    bench.server.rights.clear()
    with pytest.raises(RefusedError, match="does not accept the credentials"):
        bench.cluster.nodes()
    assert len(bench.server.requests) == 1


@pytest.mark.parametrize("fault", [429, 500, 503, CLOSE])
def test_a_server_that_is_busy_is_asked_again_a_few_times(bench: Bench, fault: int) -> None:
    bench.add_node("n1")
    bench.server.faults.extend([fault] * 3)
    assert len(bench.cluster.nodes()) == 1
    bench.server.faults.extend([fault] * 20)
    bench.server.requests.clear()
    with pytest.raises(
        UnavailableError, match="does not answer" if fault == CLOSE else f"is busy or fails: status {fault}"
    ):
        bench.cluster.nodes()
    assert len(bench.server.requests) == 4


@pytest.mark.parametrize("fault", [401, 403])
def test_a_permission_that_was_there_is_asked_for_again(bench: Bench, fault: int) -> None:
    """An API server that has just started refuses everybody until it has read roles and accounts."""
    node = bench.started()
    bench.server.faults.extend([fault] * 3)
    assert list(bench.cluster.nodes()) == [node]
    bench.server.faults.extend([fault] * 4)
    with pytest.raises(UnavailableError, match=f"status {fault}: the double was told so"):
        bench.cluster.nodes()
    bench.act()
    bench.end_worker("n1", WorkerReport(0, "n1", 1))
    assert bench.cluster.wait(1) == {node: WorkerReport(0, "n1", 1)}


def test_a_permission_that_is_withdrawn_ends_the_launcher_after_minutes(bench: Bench) -> None:
    node = bench.started()
    bench.server.faults.extend([403] * 5)
    with pytest.raises(UnavailableError, match="still refuses the request"):
        bench.cluster.nodes()
    bench.clock.sleep(301)
    with pytest.raises(RefusedError):
        bench.cluster.nodes()
    assert list(bench.cluster.nodes()) == [node], "a permission that is back counts as before"
    bench.server.faults.append(403)
    assert list(bench.cluster.nodes()) == [node]


@pytest.mark.parametrize("fault", [503, CLOSE])
def test_a_launcher_that_begins_while_the_server_starts_is_not_ended(bench: Bench, fault: int) -> None:
    bench.server.faults.extend([fault, 403, 401, 403])
    with pytest.raises(UnavailableError, match="status 403: the double was told so"):
        bench.cluster.nodes()
    bench.server.faults.append(403)
    assert list(bench.cluster.nodes()) == []


def test_a_quota_that_is_used_up_is_said_at_once(bench: Bench) -> None:
    bench.started()
    bench.add_node("n2")
    two = next(one for one in bench.cluster.nodes() if one.name == "n2")
    bench.server.most_jobs = 1
    bench.server.requests.clear()
    with pytest.raises(UnavailableError, match=r"a quota of Kubernetes is used up: .* exceeded quota: jobs"):
        bench.cluster.start(two)
    assert sum(one.startswith("POST") for one in bench.server.requests) == 1
    bench.server.most_jobs = 2
    bench.cluster.start(two)
    assert bench.workers() == ["n1", "n2"]


def test_a_creation_whose_answer_was_lost_is_not_done_twice(bench: Bench) -> None:
    node = bench.started()
    bench.server.faults.extend([CLOSE])
    bench.cluster.start(node)
    assert len(bench.server.created) == 1


def test_a_conflict_that_is_no_equal_name_is_not_an_adoption(bench: Bench) -> None:
    bench.add_node("n1")
    (node,) = bench.cluster.nodes()
    document = render_worker(TEMPLATE, node.name, Resources(1000))
    bench.server.faults.append(409)
    with pytest.raises(UnavailableError, match="cannot create it now"):
        bench.api.create("jobs", document)
    assert bench.api.create("jobs", document)
    assert not bench.api.create("jobs", document)


def test_a_job_that_is_being_deleted_is_reported_once(bench: Bench) -> None:
    node = bench.started()
    bench.act()
    bench.end_worker("n1", WorkerReport(0, "n1", 1))
    (job,) = bench.server.jobs.values()
    job["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z"
    assert bench.cluster.wait(1) == {node: WorkerReport(0, "n1", 1)}
    assert bench.cluster.wait(1) == {}


def test_a_job_that_is_being_deleted_is_not_adopted(bench: Bench) -> None:
    node = bench.started()
    (job,) = bench.server.jobs.values()
    job["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z"
    bench.cluster.start(node)
    message = "Kubernetes is still deleting the Job of its last worker"
    assert bench.cluster.wait(1) == {node: WorkerReport(None, message=message)}


def test_a_server_that_is_away_ends_no_worker(bench: Bench) -> None:
    node = bench.started()
    bench.act()
    bench.server.faults.extend([503] * 40)
    assert bench.cluster.wait(5) == {}
    bench.server.faults.clear()
    bench.end_worker("n1", WorkerReport(0, "n1", 1))
    assert bench.cluster.wait(5) == {node: WorkerReport(0, "n1", 1)}


def test_an_answer_that_is_too_large_is_not_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add_node("n1")
    monkeypatch.setattr(kubernetes_api, "MAX_BYTES", 100)
    for _ in range(2):  # the second meets no rest of the first
        with pytest.raises(UnavailableError, match="more than 100 bytes"):
            bench.api.list_all("nodes", NodeObject)
    monkeypatch.undo()
    assert len(bench.api.list_all("nodes", NodeObject)) == 1
    assert bench.clock.time == 0, "a request was repeated"


def test_an_invalid_document_of_the_server_is_no_traceback(bench: Bench) -> None:
    bench.add_node("n1")
    bench.server.nodes["n1"]["status"]["allocatable"] = 3
    with pytest.raises(UnavailableError, match="invalid document"):
        bench.cluster.nodes()


def test_a_namespace_that_is_missing_is_said(bench: Bench) -> None:
    bench.server.is_namespace_missing = True
    with pytest.raises(RefusedError, match='namespaces "bench" not found') as caught:
        bench.started()
    assert caught.value.next_step == "create the namespace"


def test_a_rejected_document_is_said(bench: Bench) -> None:
    with pytest.raises(InvalidInputError, match="Kubernetes rejects the request"):
        bench.api.create("jobs", {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "n"}, "spec": {}})


def test_a_cluster_that_is_not_found_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InvalidInputError, match="cannot find a Kubernetes cluster"):
        connect("", "")
    (tmp_path / "none").write_text("not: [closed")
    with pytest.raises(InvalidInputError, match="cannot find a Kubernetes cluster"):
        connect("other", "")


@pytest.mark.usefixtures("bench")
def test_the_namespace_is_that_of_the_context_unless_one_is_given() -> None:
    assert connect("double", "").namespace == "bench"
    assert connect("", "own").namespace == "own"


def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("token", "own-token"), ("ca.crt", "a CA"), ("namespace", "lab")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    api = connect("", "")
    assert api.namespace == "lab"
    configuration = api.connection.configuration
    assert (configuration.host, configuration.ssl_ca_cert) == ("https://10.0.0.1:443", str(tmp_path / "ca.crt"))
    _, _, headers, *_ = api.connection.param_serialize("GET", "/api", header_params={}, auth_settings=["BearerToken"])
    assert "own-token" in str(headers)
