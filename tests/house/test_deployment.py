"""What the compose files and the Dockerfile name is there: options, variables, files, networks, volumes, versions."""

import json
import re
import shutil
import subprocess
import tomllib
from typing import Any

import click
import pytest

from api.cli.commands import benchlock
from tests.support.deployed import NODE, ROOT, TEAM, document, services_of

FILES = (NODE, TEAM)
READ_BY_LIBRARIES = {"PGPASSWORD", "SSL_CERT_FILE"}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def parsed(words: list[str]) -> click.Context:
    """The command as click takes it; an option that is not there is an error."""
    group = benchlock.make_context("benchlock", list(words))
    command = benchlock.get_command(group, words[0])
    assert command is not None
    return command.make_context(words[0], words[1:], parent=group)


@pytest.mark.parametrize("file", FILES)
def test_the_service_is_started_by_options_and_variables_that_there_are(file: str) -> None:
    service = services_of(file)["benchlock"]
    found = parsed(service["command"])
    networks = document(file).get("networks", {})
    behind = [one["subnet"] for one in networks.get("back", {}).get("ipam", {}).get("config", [])]
    assert found.params == {"host": "0.0.0.0", "port": 8080, "is_open": False, "proxies": tuple(behind)}
    sources = "\n".join(path.read_text() for path in (ROOT / "api").rglob("*.py"))
    for name in set(service["environment"]) - READ_BY_LIBRARIES:
        assert f'"{name}"' in sources, f"nothing reads {name}"
    assert service["image"] == f"benchlock:{VERSION}"


def test_the_image_starts_the_service_as_the_compose_files_do() -> None:
    start = json.loads(re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)[-1])
    assert start == services_of(NODE)["benchlock"]["command"] == services_of(TEAM)["benchlock"]["command"][: len(start)]
    assert re.search(r'^ENTRYPOINT \["benchlock"\]$', DOCKERFILE, re.MULTILINE)
    assert "\nUSER benchlock\n" in DOCKERFILE


def test_the_image_is_made_of_files_that_there_are_and_of_every_package() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert all((ROOT / name).exists() for name in names)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {one.removesuffix("*") for one in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages <= names
    admitted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert names == admitted


def names_of(value: Any) -> set[str]:  # noqa: ANN401 - a list or a mapping
    return set(value or ())


@pytest.mark.parametrize("file", FILES)
def test_what_a_service_uses_is_declared_and_files_of_the_project_are_there(file: str) -> None:
    whole = document(file)
    for service in whole["services"].values():
        assert names_of(service.get("networks")) <= names_of(whole.get("networks"))
        assert names_of(service.get("secrets")) <= names_of(whole.get("secrets"))
        assert names_of(service.get("depends_on")) <= names_of(whole["services"])
        assert re.fullmatch(r"[a-z]+:[0-9.]+", service["image"]), "an image without a version"
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in whole["volumes"] or source.startswith("./deploy/tls/") or (ROOT / source).is_file(), source


def test_nothing_but_the_proxy_is_reached_from_elsewhere() -> None:
    ports = {name: service.get("ports", []) for name, service in services_of(TEAM).items()}
    assert {name for name, published in ports.items() if published} == {"proxy"}
    assert all(one.startswith("127.0.0.1:") for one in services_of(NODE)["benchlock"]["ports"])
    listening = re.findall(r"listen (\d+) ssl", (ROOT / "deploy" / "nginx.conf").read_text())
    assert ports["proxy"] == [f"443:{listening[0]}"]
    assert f":{listening[1]}/" in services_of(TEAM)["benchlock"]["environment"]["BENCHLOCK_STORE"]


@pytest.mark.parametrize("file", FILES)
def test_compose_accepts_it(file: str) -> None:
    if shutil.which("docker-compose") is None:
        pytest.skip("needs docker-compose (Debian: apt-get install docker-compose)")
    variables = {"BENCHLOCK_NAME": "bench.example.org", "POSTGRES_PASSWORD": "secret", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["docker-compose", "--file", ROOT / file, "config"], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
