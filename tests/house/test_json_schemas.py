"""The JSON Schemas in the documentation are those of the types."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.house.json_schemas import generate, write

DOCUMENTED = Path(__file__).resolve().parents[2] / "docs" / "reference" / "schemas"


def test_the_documented_schemas_have_not_drifted() -> None:
    """``python -m tests.house.json_schemas docs/reference/schemas`` writes them anew."""
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


NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
OBJECTS: Final = ("properties", "required", "additionalProperties", "propertyNames", "patternProperties")
APPLIES_TO: Final = {
    **{key: frozenset({"number", "integer"}) for key in NUMBERS},
    **{key: frozenset({"string"}) for key in ("minLength", "maxLength", "pattern")},
    **{
        key: frozenset({"array"}) for key in ("minItems", "maxItems", "items", "prefixItems", "uniqueItems", "contains")
    },
    **{key: frozenset({"object"}) for key in (*OBJECTS, "minProperties", "maxProperties")},
}
KEYWORDS: Final = {
    *APPLIES_TO,
    *("$schema", "$id", "$ref", "$defs", "$comment", "type", "enum", "const", "anyOf", "oneOf", "allOf", "not"),
    *("title", "description", "default", "examples", "format", "deprecated"),
}


def strictness(schema: Any, place: str, inherited: frozenset[str] = frozenset()) -> Iterator[str]:  # noqa: ANN401
    """What ajv refuses of a schema in its strict mode: unknown keywords, ones that need a type, tuples without end."""
    if not isinstance(schema, dict):
        return
    stated = schema.get("type", ())
    types = frozenset({stated} if isinstance(stated, str) else stated)
    if len(types) > 1:
        yield f"{place}: several types"
    types = types or inherited
    yield from (f"{place}: unknown keyword {key}" for key in schema if key not in KEYWORDS)
    yield from (
        f"{place}: {key} without its type" for key in schema if key in APPLIES_TO and not APPLIES_TO[key] & types
    )
    if "prefixItems" in schema and not {"minItems", "maxItems"} <= set(schema):
        yield f"{place}: a tuple without its length"
    for key in ("properties", "$defs", "patternProperties"):
        for name, one in schema.get(key, {}).items():
            yield from strictness(one, f"{place}/{key}/{name}")
    for key in ("items", "additionalProperties", "propertyNames", "contains"):
        yield from strictness(schema.get(key), f"{place}/{key}")
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for index, one in enumerate(schema.get(key, ())):
            yield from strictness(one, f"{place}/{key}/{index}", types if key != "prefixItems" else frozenset())


@pytest.mark.parametrize("name", sorted(generate()))
def test_schemas_keep_the_rules_of_strict_validators(name: str) -> None:
    assert list(strictness(json.loads(generate()[name]), "#")) == []


def test_a_step_is_exactly_one_key() -> None:
    definitions = json.loads(generate()["model.json"])["$defs"]
    steps = [one for title, one in definitions.items() if title.endswith("Step")]
    assert len(steps) == 5
    assert all((one["minProperties"], one["maxProperties"]) == (1, 1) for one in steps)


def test_steps_are_documented_with_units() -> None:
    definitions = json.loads(generate()["model.json"])["$defs"]
    assert definitions["Resize"]["properties"]["size"]["description"] == "[height, width] in pixels"
    assert definitions["Resample"]["properties"]["rate"]["description"] == "samples a second"
