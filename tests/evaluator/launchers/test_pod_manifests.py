"""The Jobs for Kubernetes are valid, confined, pinned, and free of secrets."""

import math
from fractions import Fraction
from typing import Any

import kubernetes_validate
import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.launchers.launcher import NodeSize
from benchlock.evaluator.launchers.pod_manifests import (
    Resources,
    WorkerTemplate,
    name_machine,
    name_worker,
    read_known_nodes,
    read_quantity,
    read_resources,
    render_demand,
    render_worker,
)

IMAGE = f"registry.example.org:5000/benchlock@sha256:{'a' * 64}"
TEMPLATE = WorkerTemplate("https://bench.example", IMAGE, "benchlock-worker")
FULL = WorkerTemplate(
    "https://bench.example",
    IMAGE,
    "own",
    "measurements",
    "lab-",
    (("pool", "bench"),),
    ("nvidia.com/gpu",),
    private_ca=True,
    allow_code=True,
)
FREE = Resources(3920, 7 << 30, 2)
LONG = f"ip-10-0-0-1.{'a' * 200}.internal"


def valid(job: dict[str, Any]) -> dict[str, Any]:
    """The specification of the pod of a Job, which the published schema admits."""
    kubernetes_validate.validate(job, "1.37", strict=True)
    template = job["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]}
    kubernetes_validate.validate(pod, "1.37", strict=True)
    spec: dict[str, Any] = template["spec"]
    return spec


@pytest.mark.parametrize("template", [TEMPLATE, FULL])
@pytest.mark.parametrize("node", ["n1", LONG])
def test_a_worker_is_pinned_takes_what_is_free_and_is_alone(template: WorkerTemplate, node: str) -> None:
    job = render_worker(template, node, FREE)
    spec = valid(job)
    assert len(job["metadata"]["name"]) <= 63
    assert job["spec"]["backoffLimit"] == 0
    affinity = spec["affinity"]
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    (apart,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = job["spec"]["template"]["metadata"]["labels"].items()
    assert apart["labelSelector"]["matchLabels"].items() <= labels
    assert apart["namespaceSelector"] == {}, "workers of all namespaces"
    (container,) = spec["containers"]
    amounts = {"memory": str(7 << 30), "nvidia.com/gpu": "2"}
    assert container["resources"] == {"requests": {"cpu": "3920m", **amounts}, "limits": amounts}
    assert container["args"][container["args"].index("--cpus") + 1] == "3", "whole ones that are requested"


@pytest.mark.parametrize("job", [render_worker(FULL, "n1", FREE), render_demand(FULL, NodeSize(4, 1), ["n1"])])
def test_no_pod_has_more_than_it_needs(job: dict[str, Any]) -> None:
    spec = valid(job)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["image"] == IMAGE
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(volume.keys() & {"emptyDir", "secret"} for volume in spec.get("volumes", ()))


def test_a_worker_reads_its_token_from_a_file_and_the_ca_where_there_is_one() -> None:
    for template, names in ((TEMPLATE, ["token"]), (FULL, ["token", "ca.crt"])):
        spec = valid(render_worker(template, "n1", FREE))
        (container,) = spec["containers"]
        (volume,) = [one["secret"] for one in spec["volumes"] if "secret" in one]
        assert (volume["secretName"], [item["key"] for item in volume["items"]]) == (template.token_secret, names)
        (place,) = [one["mountPath"] for one in container["volumeMounts"] if one.get("readOnly")]
        paths = {one["value"] for one in container["env"] if one["value"].startswith(place)}
        assert paths == {f"{place}/{name}" for name in names}
        assert all("valueFrom" not in one for one in container["env"])


def test_kueue_admits_what_waits_suspended_and_is_not_asked_without_a_queue() -> None:
    for job in (render_worker(FULL, "n1", FREE), render_demand(FULL, NodeSize(1, 0), [])):
        valid(job)
        assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "measurements"
        assert job["spec"]["suspend"] is True
    job = render_worker(TEMPLATE, "n1", FREE)
    assert "kueue.x-k8s.io/queue-name" not in job["metadata"]["labels"]
    assert job["spec"]["suspend"] is False


@pytest.mark.parametrize("job", [render_worker(FULL, "n1", FREE), render_demand(FULL, NodeSize(4, 1), ["n1"])])
def test_pods_run_on_the_chosen_nodes(job: dict[str, Any]) -> None:
    spec = valid(job)
    assert spec["nodeSelector"] == {"pool": "bench"}
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def test_a_demand_ends_without_its_launcher_and_a_worker_does_not() -> None:
    assert render_demand(TEMPLATE, NodeSize(4, 1), [])["spec"]["activeDeadlineSeconds"] == 3600
    assert "activeDeadlineSeconds" not in render_worker(TEMPLATE, "n1", FREE)["spec"]


def test_a_demand_fits_no_node_of_today_and_says_so() -> None:
    job = render_demand(TEMPLATE, NodeSize(4, 1), ["n1", "n2"])
    spec = valid(job)
    assert read_known_nodes(job["spec"]["template"]) == {"n1", "n2"}
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "4000m", "nvidia.com/gpu": "1"}
    assert read_known_nodes(render_demand(TEMPLATE, NodeSize(4, 1), [])["spec"]["template"]) == frozenset()


@pytest.mark.parametrize("image", ["benchlock", "benchlock:1.0", "benchlock@sha256:abc", f"a b@sha256:{'a' * 64}"])
def test_an_image_without_a_digest_is_refused(image: str) -> None:
    with pytest.raises(InvalidInputError, match="has no digest"):
        WorkerTemplate("https://bench.example", image, "benchlock-worker")


def test_names_tell_nodes_and_registries_apart() -> None:
    assert name_machine(TEMPLATE, "n1") == "n1"
    assert len({name_machine(TEMPLATE, LONG), name_machine(TEMPLATE, f"{LONG}x")}) == 2
    assert max(len(name_machine(TEMPLATE, LONG)), len(name_machine(TEMPLATE, "n" * 64))) == 64
    other = WorkerTemplate("https://other.example", IMAGE, "benchlock-worker")
    assert name_machine(FULL, "n1") == "lab-n1"
    names = {name_worker(template, node) for template in (TEMPLATE, other) for node in ("n1", "n.1", "n-1", LONG)}
    assert len(names) == 8


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("1500m", Fraction(3, 2)),
        ("0.5", Fraction(1, 2)),
        ("16Gi", 16 << 30),
        ("129e6", 129_000_000),
        ("1E", 10**18),
        ("123k", 123_000),
        ("250000000n", Fraction(1, 4)),
        ("two", 0),
        ("-1", 0),
        ("1" * 100, 0),
    ],
)
def test_quantities_are_those_of_kubernetes(text: str, value: int | Fraction) -> None:
    assert read_quantity(text) == value


def test_resources_are_read_and_never_less_than_nothing() -> None:
    found = read_resources({"cpu": "3920m", "memory": "1Ki", "nvidia.com/gpu": "1", "pods": "110"})
    assert found == Resources(3920, 1024, 1)
    fractions = {"cpu": "100500u", "memory": "107374182400m"}  # 0.1Gi
    assert read_resources(fractions) == Resources(100, 107_374_182)
    assert read_resources(fractions, math.ceil) == Resources(101, 107_374_183)
    assert found - Resources(4000, 24, 2) == Resources(0, 1000, 0)
