"""What the compose files and the Dockerfile name is there: options, variables, files, networks, volumes, versions."""

import json
import re
import shutil
import subprocess
import tomllib
from typing import Any

import click
import pytest

from benchlock.api.cli.command_group import benchlock
from tests.support.system.deployed import NODE, ROOT, TEAM, document, services_of

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
    expected = {"host": "0.0.0.0", "port": 8080, "is_open": False, "is_direct": False, "proxies": tuple(behind)}
    assert found.params == expected
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
    linked = {path.name for path in (ROOT / "benchlock").iterdir() if path.is_symlink()}
    assert packages | linked <= names
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
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in whole["volumes"] or source.startswith("./deploy/tls/") or (ROOT / source).is_file(), source


PINNED = re.compile(r"[a-z0-9./-]+@sha256:[0-9a-f]{64}")
REQUIRED = re.compile(
    r"\$\{[A-Z]+_IMAGE:\?[a-z]+:[a-z0-9.-]+ by its digest, ([a-z]+)@sha256:….*docs/how-to/deployment\.md.*\}"
)
"""A variable without which compose does nothing, and says what to write."""


def is_pinned(image: str) -> bool:
    return bool(PINNED.fullmatch(image) or REQUIRED.fullmatch(image))


@pytest.mark.parametrize("file", FILES)
def test_every_image_is_named_by_its_digest_or_built_on_one_that_is(file: str) -> None:
    for service in services_of(file).values():
        if "build" in service:
            assert is_pinned(service["build"]["args"]["BASE"])
        else:
            assert is_pinned(service["image"]), service["image"]
    assert not any(
        map(is_pinned, ("nginx:1.28", "nginx", "nginx@sha256:12", "${NGINX_IMAGE}", "${NGINX_IMAGE:-nginx}"))
    )


PROXY_CAPABILITIES = {"CHOWN", "DAC_OVERRIDE", "SETGID", "SETUID"}


@pytest.mark.parametrize("file", FILES)
def test_every_service_has_no_more_than_it_needs(file: str) -> None:
    for name, service in services_of(file).items():
        assert service["cap_drop"] == ["ALL"], name
        assert set(service.get("cap_add", ())) <= (PROXY_CAPABILITIES if name == "proxy" else set()), name
        assert service["read_only"] is True, name
        assert "/tmp" in service["tmpfs"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"]), name
        assert service["pids_limit"] > 0, name


def test_database_and_store_are_in_a_network_without_a_way_out() -> None:
    services, networks = services_of(TEAM), document(TEAM)["networks"]
    assert networks["back"]["internal"] is True
    for name in ("database", "store"):
        assert services[name]["networks"] == ["back"]
        assert "ports" not in services[name]
    both = names_of(services["proxy"]["networks"]) & names_of(services["benchlock"]["networks"])
    assert both == {"back"}, "the service knows the proxy by its address in this one"


def test_the_commands_of_a_team_name_its_file() -> None:
    text = (ROOT / "docs" / "how-to" / "deployment.md").read_text()
    commands = re.findall(r"docker compose [^`\n]*", text)
    of_team = [one for one in commands if "--file compose.team.yaml" in one]
    for command in set(commands) - set(of_team):
        assert not re.search(r"\b(proxy|database|store)\b", command), f"{command} is a team's"
    steps = (
        "up --build",
        "build",
        "stop benchlock",
        "exec database pg_dump",
        "run --rm benchlock db upgrade",
        "up --detach",
    )
    for step in steps:
        assert any(one.startswith(f"docker compose --file compose.team.yaml {step}") for one in of_team), step


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
    command = ["docker-compose", "--file", str(ROOT / file), "config"]
    without = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert without.returncode != 0
    assert "by its digest" in without.stderr
    names = ("PYTHON", "NGINX", "POSTGRES", "REGISTRY")
    variables |= {f"{name}_IMAGE": f"{name.lower()}@sha256:{'0' * 64}" for name in names}
    done = subprocess.run(
        ["docker-compose", "--file", ROOT / file, "config"], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
