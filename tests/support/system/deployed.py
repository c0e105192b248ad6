"""What the compose files say, for tests that hold it against what is there."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
NODE, TEAM = "compose.yaml", "compose.team.yaml"


def services_of(name: str) -> dict[str, dict[str, Any]]:
    """The services of one file, by name."""
    return dict(document(name)["services"])


def document(name: str) -> dict[str, Any]:
    return dict(YAML(typ="safe").load(ROOT / name))


def environment_of(name: str, service: str) -> dict[str, str]:
    """The variables of a service as they are written, before anything is put into them."""
    return dict(services_of(name)[service]["environment"])
