"""JSON Schemas of manifests and requests: ``python -m tests.house.json_schemas FOLDER``."""

import json
import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from benchlock.registry.manifests.manifest_types import (
    SETTING,
    Code,
    Dataset,
    Framework,
    Image,
    Model,
    Operator,
    Optimizer,
    Recipe,
)
from benchlock.registry.requests.matrix_request import MatrixDocument
from benchlock.registry.requests.request_types import (
    AcceleratorRequirement,
    DistributedRequestDocument,
    OperatorRequestDocument,
    RequestDocument,
    TrainingRequestDocument,
)

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES: dict[str, type[msgspec.Struct]] = {
    "model": Model,
    "dataset": Dataset,
    "framework": Framework,
    "image": Image,
    "operator": Operator,
    "recipe": Recipe,
    "request": RequestDocument,
    "operator-request": OperatorRequestDocument,
    "training-request": TrainingRequestDocument,
    "distributed-request": DistributedRequestDocument,
    "matrix": MatrixDocument,
}


def generate() -> dict[str, str]:
    """Return the text of each schema by file name."""
    return {f"{name}.json": _text(type_) for name, type_ in _TYPES.items()}


def write(folder: Path) -> None:
    """Write each schema to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in generate().items():
        (folder / name).write_text(text, encoding="utf-8")


def _text(type_: type[msgspec.Struct]) -> str:
    schema: dict[str, Any] = {"$schema": _DIALECT} | _adapt(msgspec.json.schema(type_))
    if type_ is Recipe:
        _describe_optimizers(schema["$defs"])
    for name, definition in schema["$defs"].items():
        if "description" in definition:
            definition["description"] = cleandoc(definition["description"])
        if name.endswith("Step"):
            definition |= {"minProperties": 1, "maxProperties": 1}
        elif name == AcceleratorRequirement.__name__:
            definition |= {"minProperties": 1}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _describe_optimizers(definitions: dict[str, Any]) -> None:
    """State both forms of the optimizer of a recipe, which is a mapping for msgspec: named, and custom."""
    named, code = (msgspec.json.schema(kind)["$defs"][kind.__name__] for kind in (Optimizer, Code))
    definitions["Optimizer"] = _adapt(named)
    optimizer = definitions["Recipe"]["properties"]["optimizer"]
    definitions["Recipe"]["properties"]["optimizer"] = {
        "description": optimizer["description"],
        "anyOf": [
            {"$ref": "#/$defs/Optimizer"},
            {
                "type": "object",
                "properties": code["properties"],
                "required": code["required"],
                "propertyNames": {"type": "string", "pattern": f"^{SETTING}$"},
                "additionalProperties": {"type": "number"},
                "maxProperties": optimizer["maxProperties"],
            },
        ],
    }


def _adapt(node: Any) -> Any:  # noqa: ANN401 - a JSON value
    """Return a schema without ``discriminator``, a keyword of OpenAPI, and with the type of the names of properties."""
    if isinstance(node, dict):
        is_union = "anyOf" in node
        adapted = {key: _adapt(value) for key, value in node.items() if not (is_union and key == "discriminator")}
        if "propertyNames" in adapted:
            adapted["propertyNames"] = {"type": "string"} | adapted["propertyNames"]
        return adapted
    return [_adapt(item) for item in node] if isinstance(node, list) else node


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference/schemas"))
