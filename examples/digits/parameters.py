"""What params.yaml says, by section."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML


def parameters(section: str) -> dict[str, Any]:
    """The settings of one stage."""
    read: dict[str, dict[str, Any]] = YAML(typ="safe", pure=True).load(Path(__file__).parent / "params.yaml")
    return read[section]
