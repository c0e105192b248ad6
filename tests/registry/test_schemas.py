"""The JSON Schemas in the documentation are those of the types."""

import json
from pathlib import Path
from typing import Any

import pytest

from registry.manifests.schemas import generate, write

DOCUMENTED = Path(__file__).resolve().parent.parent.parent / "docs" / "schemas"


def test_the_documented_schemas_have_not_drifted() -> None:
    """``python -m registry.manifests.schemas docs/schemas`` writes them anew."""
    documented = {path.name: path.read_text(encoding="utf-8") for path in DOCUMENTED.glob("*.json")}
    assert documented == generate()


def test_they_are_written_where_they_are_wanted(tmp_path: Path) -> None:
    write(tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(generate())


@pytest.mark.parametrize("name", sorted(generate()))
def test_every_mapping_is_closed_and_every_reference_leads_somewhere(name: str) -> None:
    schema: dict[str, Any] = json.loads(generate()[name])
    assert all(one["additionalProperties"] is False for one in schema["$defs"].values())
    wanted = {part.split('"')[0] for part in generate()[name].split("#/$defs/")[1:]}
    assert wanted == set(schema["$defs"])


def test_a_step_is_exactly_one_key() -> None:
    definitions = json.loads(generate()["model.json"])["$defs"]
    steps = [one for title, one in definitions.items() if title.endswith("Step")]
    assert len(steps) == 5
    assert all((one["minProperties"], one["maxProperties"]) == (1, 1) for one in steps)


def test_steps_are_documented_with_units() -> None:
    definitions = json.loads(generate()["model.json"])["$defs"]
    assert definitions["Resize"]["properties"]["size"]["description"] == "[height, width] in pixels"
    assert definitions["Resample"]["properties"]["rate"]["description"] == "samples a second"
