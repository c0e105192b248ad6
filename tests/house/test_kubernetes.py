"""The manifests for Kubernetes: valid by the published schemas, and true to the service and its image."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from benchlock.api.cli.command_group import benchlock
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import open_registry
from benchlock.evaluator.launchers.launcher import NodeSize
from benchlock.evaluator.launchers.pod_manifests import Resources, WorkerTemplate, render_demand, render_worker
from tests.conftest import KUBECTL_REASON
from tests.support.servers.web import CERTIFICATE, TLS
from tests.support.system.deployed import ROOT

BASE = ROOT / "deploy" / "kubernetes"
PAGE = ROOT / "docs" / "how-to" / "kubernetes.md"
DIGEST = f"sha256:{'a' * 64}"
OBJECTS = {
    "ConfigMap/benchlock",
    "CronJob/upgrade",
    "Deployment/benchlock",
    "NetworkPolicy/benchlock",
    "NetworkPolicy/database",
    "NetworkPolicy/deny",
    "PersistentVolumeClaim/registry",
    "Service/benchlock",
    "Service/database",
    "StatefulSet/database",
}
ADDED = {
    "ClusterRole/benchlock-controller",
    "ClusterRoleBinding/benchlock-controller",
    "ConfigMap/controller",
    "ConfigMap/tls",
    "Deployment/controller",
    "NetworkPolicy/demands",
    "NetworkPolicy/workers",
    "Role/controller",
    "RoleBinding/controller",
    "ServiceAccount/controller",
}
ADDED_PODS = {"Deployment/controller"}
READ_BY_LIBRARIES = {"PGPASSWORD", "SSL_CERT_FILE"}
READ_BY_MANIFESTS = {"WORKER_IMAGE"}
FIRST_WITH_OVERLAYS = 21
"""The first minor version of kubectl whose kustomize reads the overlays of the page."""


def render(folder: Path) -> dict[str, dict[str, Any]]:
    """The objects of a kustomization, by kind and name."""
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl (Debian: apt-get install kubernetes-client)")
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    documents = YAML(typ="safe").load_all(done.stdout)
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in documents}


def require_overlays() -> None:
    """Skip the test if kubectl cannot read the overlays of the page."""
    if shutil.which("kubectl") is not None:
        told = subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True, check=True).stdout
        version = re.search(r"v1\.(\d+)\.", told)
        assert version is not None, told
        if int(version[1]) < FIRST_WITH_OVERLAYS:
            pytest.skip(KUBECTL_REASON)


def overlay(folder: Path, purpose: str = "", *more: str) -> dict[str, dict[str, Any]]:
    """The objects of an overlay of the page, beside a checkout; names of generated objects lose their digest.

    ``more`` are the purposes of blocks whose patches are added.
    """
    page = PAGE.read_text()
    found = re.search(rf"```yaml\n    # overlay/kustomization.yaml{purpose}\n(.*?)```", page, re.DOTALL)
    assert found is not None
    require_overlays()
    (folder / "overlay").mkdir()
    shutil.copytree(BASE, folder / "benchlock" / "deploy" / "kubernetes")
    text = re.sub("^    ", "", found[1].replace("sha256:…", DIGEST), flags=re.MULTILINE).rstrip() + "\n"
    for one in more:
        block = re.search(rf"```yaml\n# in overlay/kustomization.yaml, {one}\npatches:\n(.*?)```", page, re.DOTALL)
        assert block is not None
        text += block[1]
    (folder / "overlay" / "kustomization.yaml").write_text(text)
    return {
        key.replace("ConfigMap/tls-", "ConfigMap/tls ").split()[0]: one
        for key, one in render(folder / "overlay").items()
    }


@pytest.fixture(scope="module")
def objects() -> dict[str, dict[str, Any]]:
    return render(BASE)


@pytest.fixture(scope="module")
def with_workers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return overlay(tmp_path_factory.mktemp("workers"), ", with workers")


def pods_of(objects: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The pod templates."""
    cron = objects["CronJob/upgrade"]["spec"]["jobTemplate"]["spec"]
    return {
        "benchlock": objects["Deployment/benchlock"]["spec"]["template"],
        "database": objects["StatefulSet/database"]["spec"]["template"],
        "upgrade": cron["template"],
        **{name.partition("/")[2]: one["spec"]["template"] for name, one in objects.items() if name in ADDED_PODS},
    }


def parse(words: list[str]) -> click.Context:
    """The command as click takes it; an option that is not there is an error."""
    context = benchlock.make_context("benchlock", list(words))
    while isinstance(context.command, click.Group):
        command = context.command.get_command(context, words[0])
        assert command is not None
        context = command.make_context(words[0], words[1:], parent=context)
        words = words[1:]
    return context


def test_every_object_is_valid(objects: dict[str, dict[str, Any]]) -> None:
    assert objects.keys() == OBJECTS
    for one in objects.values():
        kubernetes_validate.validate(one, "1.37", strict=True)
    faulty = {**objects["Service/database"], "spec": {"ports": [{"name": "postgresql"}]}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(faulty, "1.37", strict=True)


def test_the_page_dumps_and_upgrades_the_database_while_the_service_has_no_pod(tmp_path: Path) -> None:
    require_overlays()
    section = PAGE.read_text().partition("\n## Upgrade\n")[2].partition("\n## ")[0]
    stopped = re.search(r"^replicas: .*$", section, re.MULTILINE)
    assert stopped is not None
    (tmp_path / "overlay").mkdir()
    shutil.copytree(BASE, tmp_path / "base")
    (tmp_path / "overlay" / "kustomization.yaml").write_text(f"resources: [../base]\n{stopped[0]}\n")
    objects = render(tmp_path / "overlay")
    replicas = [objects[name]["spec"]["replicas"] for name in ("Deployment/benchlock", "StatefulSet/database")]
    assert replicas == [0, 1]
    steps = ["kubectl apply", "wait --for=delete", "pg_dump", "--from=cronjob/upgrade", "remove the line `replicas`"]
    places = [section.find(step) for step in steps]
    assert places == sorted(places)
    assert places[0] > 0


def test_the_overlay_of_the_page_names_every_image_by_its_digest(tmp_path: Path) -> None:
    objects = overlay(tmp_path)
    images = {container["image"] for pod in pods_of(objects).values() for container in pod["spec"]["containers"]}
    assert images == {f"registry.example.org/benchlock@{DIGEST}", f"postgres@{DIGEST}"}
    assert {one["metadata"]["namespace"] for one in objects.values()} == {"benchlock"}


def test_commands_variables_and_probes_are_those_of_the_service(
    objects: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    pods = pods_of(objects)
    (service,), (upgrade,) = (pods[name]["spec"]["containers"] for name in ("benchlock", "upgrade"))
    for container in (service, upgrade):
        parse(container["args"])
    sources = "\n".join(path.read_text() for path in (ROOT / "api").rglob("*.py"))
    variables = {*objects["ConfigMap/benchlock"]["data"], *(one["name"] for one in service["env"])}
    for name in variables - READ_BY_LIBRARIES:
        assert f'"{name}"' in sources, f"nothing reads {name}"
    (port,) = service["ports"]
    assert str(port["containerPort"]) == service["args"][service["args"].index("--port") + 1]
    registry = open_registry(str(tmp_path / "registry"), print)
    routes = {route.path for route in create_app(registry, Settings()).routes}
    registry.database.dispose()
    for probe in ("livenessProbe", "readinessProbe"):
        assert service[probe]["httpGet"]["port"] == port["name"]
        assert service[probe]["httpGet"]["path"] in routes


@pytest.mark.parametrize("rendered", ["objects", "with_workers"])
def test_no_container_has_more_than_it_needs(rendered: str, request: pytest.FixtureRequest) -> None:
    objects = request.getfixturevalue(rendered)
    user = re.search(r"useradd --uid (\d+)", (ROOT / "Dockerfile").read_text())
    assert user is not None
    for name, pod in pods_of(objects).items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is (name == "controller"), name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        if name != "database":
            assert spec["securityContext"]["runAsUser"] == int(user[1])
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["limits"]["memory"], name


def test_the_database_is_reached_by_the_service_alone(objects: dict[str, dict[str, Any]]) -> None:
    labels = {name: pod["metadata"]["labels"]["app.kubernetes.io/name"] for name, pod in pods_of(objects).items()}
    policy = objects["NetworkPolicy/database"]["spec"]
    assert policy["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": labels["database"]}
    (rule,) = policy["ingress"]
    (allowed,) = rule["from"][0]["podSelector"]["matchExpressions"]
    assert set(allowed["values"]) == {labels["benchlock"], labels["upgrade"]}
    assert policy["egress"] == []
    assert objects["NetworkPolicy/deny"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    for name in ("benchlock", "database"):
        assert objects[f"Service/{name}"]["spec"]["selector"] == {"app.kubernetes.io/name": labels[name]}


def test_the_component_adds_the_controller_and_tls(with_workers: dict[str, dict[str, Any]]) -> None:
    assert with_workers.keys() == OBJECTS | ADDED
    for one in with_workers.values():
        kubernetes_validate.validate(one, "1.37", strict=True)
    images = {container["image"] for pod in pods_of(with_workers).values() for container in pod["spec"]["containers"]}
    assert images == {f"registry.example.org/benchlock-worker@{DIGEST}", f"postgres@{DIGEST}", f"nginx@{DIGEST}"}
    for name in ("RoleBinding/controller", "ClusterRoleBinding/benchlock-controller"):
        binding = with_workers[name]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "controller", "namespace": "benchlock"}]
        assert f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}" in ADDED


def test_the_controller_is_started_by_options_and_variables_that_there_are(
    with_workers: dict[str, dict[str, Any]],
) -> None:
    (controller,) = pods_of(with_workers)["controller"]["spec"]["containers"]
    variables = with_workers["ConfigMap/controller"]["data"]
    words = [re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], word) for word in controller["args"]]
    parameters = parse(words).params
    template = WorkerTemplate(variables["BENCHLOCK_REGISTRY"], parameters["image"], parameters["token_secret"])
    sources = "\n".join(path.read_text() for path in (ROOT / "api").rglob("*.py"))
    names = {*variables, *(one["name"] for one in controller["env"])} - READ_BY_LIBRARIES - READ_BY_MANIFESTS
    for name in names:
        assert f'"{name}"' in sources, f"nothing reads {name}"
    volumes = {one["name"]: one for one in pods_of(with_workers)["controller"]["spec"]["volumes"]}
    assert volumes["secret"]["secret"]["secretName"] == template.token_secret


def test_the_patches_of_the_page_choose_nodes_and_another_namespace(tmp_path: Path) -> None:
    objects = overlay(tmp_path, ", with workers", "for nodes of their own", "for a second namespace")
    (controller,) = pods_of(objects)["controller"]["spec"]["containers"]
    parameters = parse(controller["args"]).params
    assert (parameters["labels"], parameters["tolerations"]) == ((("pool", "bench"),), ("bench",))
    assert parameters["private_ca"] is True
    binding = objects["ClusterRoleBinding/benchlock-controller-lab"]
    assert binding["roleRef"]["name"] == "benchlock-controller"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "controller", "namespace": "benchlock"}]


def test_workers_reach_the_service_and_dns_alone(with_workers: dict[str, dict[str, Any]]) -> None:
    template = WorkerTemplate("https://benchlock", f"benchlock@{DIGEST}", "benchlock-worker")
    jobs = {
        "workers": render_worker(template, "n1", Resources(1000)),
        "demands": render_demand(template, NodeSize(1, 0), []),
    }
    for name, job in jobs.items():
        policy = with_workers[f"NetworkPolicy/{name}"]["spec"]
        assert policy["podSelector"]["matchLabels"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
        assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
        assert "ingress" not in policy
    assert "egress" not in with_workers["NetworkPolicy/demands"]["spec"]
    service, names = with_workers["NetworkPolicy/workers"]["spec"]["egress"]
    labels = pods_of(with_workers)["benchlock"]["metadata"]["labels"]
    assert service == {"to": [{"podSelector": {"matchLabels": labels}}], "ports": [{"port": "https"}]}
    assert [one.get("ipBlock") for one in names["to"]] == [None, {"cidr": "169.254.20.10/32"}]
    assert {(one["port"], one["protocol"]) for one in names["ports"]} == {(53, "UDP"), (53, "TCP")}
    ports = {one["name"] for one in pods_of(with_workers)["benchlock"]["spec"]["containers"][-1]["ports"]}
    ports |= {one["name"] for one in pods_of(with_workers)["benchlock"]["spec"]["containers"][0]["ports"]}
    assert {"http", "https"} == ports
    assert {one["targetPort"] for one in with_workers["Service/benchlock"]["spec"]["ports"]} == ports
    (allowed,) = with_workers["NetworkPolicy/benchlock"]["spec"]["ingress"]
    assert {one["port"] for one in allowed["ports"]} == ports


def test_the_configuration_of_tls_is_one_of_nginx(with_workers: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("needs nginx (Debian: apt-get install nginx-light)")
    text = with_workers["ConfigMap/tls"]["data"]["nginx.conf"].replace("/tmp/", f"{tmp_path}/")
    for name, content in (("tls.crt", CERTIFICATE), ("tls.key", TLS / "localhost.key")):
        text = text.replace(f"/run/secrets/tls/{name}", str(content))
    (tmp_path / "nginx.conf").write_text(text)
    done = subprocess.run(
        [program, "-t", "-e", "stderr", "-c", tmp_path / "nginx.conf"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
