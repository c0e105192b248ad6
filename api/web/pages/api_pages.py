"""The page of the API: its OpenAPI document for readers."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from benchlock.api.web.page import Page
from benchlock.evaluator.analysis.tables import Column, Table

_METHODS: Final = ("get", "post", "put", "patch", "delete")
_PARAMETERS: Final = (
    Column("name", None, "The name."),
    Column("in", None, "Where it is sent."),
    Column("required", None, "Whether it must be sent."),
    Column("description", None, "What it means."),
)


def make_api(document: Mapping[str, Any]) -> Page:
    """Make the page of an OpenAPI document: its operations by tag, each with its parameters, body and answers."""
    operations = list(_list_operations(document))
    tags = sorted({operation["tag"] for operation in operations})
    groups = [(tag, [one for one in operations if one["tag"] == tag]) for tag in tags]
    tables = {one["id"]: one["parameters"] for one in operations}
    context = {"groups": groups, "description": document["info"]["description"]}
    return Page("api", "The API", context, tables, "/v1/openapi.json")


def _list_operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method not in item:
                continue
            operation = item[method]
            rows = tuple(
                (one["name"], one["in"], "yes" if one.get("required") else "no", one.get("description", ""))
                for one in operation.get("parameters", ())
            )
            body = operation.get("requestBody", {}).get("content", {})
            yield {
                "id": operation["operationId"],
                "tag": (operation.get("tags") or ["other"])[0],
                "name": f"{method.upper()} {path}",
                "summary": operation.get("summary", ""),
                "description": operation.get("description", ""),
                "parameters": Table(operation["operationId"], "Parameters", _PARAMETERS, rows),
                "bodies": [(media, _name_schema(content.get("schema", {}))) for media, content in body.items()],
                "answers": [(status, one.get("description", "")) for status, one in operation["responses"].items()],
            }


def _name_schema(schema: Mapping[str, Any]) -> str:
    """Return the name of a schema of the document; of one without a name its type."""
    return str(schema.get("$ref", schema.get("type", "any value"))).rpartition("/")[2]
