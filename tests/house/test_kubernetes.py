"""The manifests for Kubernetes: valid by the published schemas, and true to the service and its image."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from benchlock.api.cli.command_group import benchlock
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import open_registry
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
READ_BY_LIBRARIES = {"PGPASSWORD"}


def render(folder: Path) -> dict[str, dict[str, Any]]:
    """The objects of a kustomization, by kind and name."""
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl (Debian: apt-get install kubernetes-client)")
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    documents = YAML(typ="safe").load_all(done.stdout)
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in documents}


@pytest.fixture(scope="module")
def objects() -> dict[str, dict[str, Any]]:
    return render(BASE)


def pods_of(objects: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The pod templates."""
    cron = objects["CronJob/upgrade"]["spec"]["jobTemplate"]["spec"]
    return {
        "benchlock": objects["Deployment/benchlock"]["spec"]["template"],
        "database": objects["StatefulSet/database"]["spec"]["template"],
        "upgrade": cron["template"],
    }


def test_every_object_is_valid(objects: dict[str, dict[str, Any]]) -> None:
    assert objects.keys() == OBJECTS
    for one in objects.values():
        kubernetes_validate.validate(one, "1.37", strict=True)
    faulty = {**objects["Service/database"], "spec": {"ports": [{"name": "postgresql"}]}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(faulty, "1.37", strict=True)


def test_the_overlay_of_the_page_names_every_image_by_its_digest(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n    # overlay/kustomization.yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "overlay").mkdir()
    shutil.copytree(BASE, tmp_path / "benchlock" / "deploy" / "kubernetes")
    text = re.sub("^    ", "", found[1].replace("sha256:…", DIGEST), flags=re.MULTILINE)
    (tmp_path / "overlay" / "kustomization.yaml").write_text(text)
    objects = render(tmp_path / "overlay")
    images = {container["image"] for pod in pods_of(objects).values() for container in pod["spec"]["containers"]}
    assert images == {f"registry.example.org/benchlock@{DIGEST}", f"postgres@{DIGEST}"}
    assert {one["metadata"]["namespace"] for one in objects.values()} == {"benchlock"}


def test_commands_variables_and_probes_are_those_of_the_service(
    objects: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    pods = pods_of(objects)
    (service,), (upgrade,) = (pods[name]["spec"]["containers"] for name in ("benchlock", "upgrade"))
    for container in (service, upgrade):
        group = benchlock.make_context("benchlock", list(container["args"]))
        command = benchlock.get_command(group, container["args"][0])
        assert command is not None
        command.make_context(container["args"][0], container["args"][1:], parent=group)
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


def test_no_container_has_more_than_it_needs(objects: dict[str, dict[str, Any]]) -> None:
    user = re.search(r"useradd --uid (\d+)", (ROOT / "Dockerfile").read_text())
    assert user is not None
    for name, pod in pods_of(objects).items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
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
