"""The OpenAPI document: valid, with schemas that admit values, examples that fit them, and names that can be read."""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.api.http.conftest import Client

JSON: Final = Draft202012Validator
READABLE: Final = re.compile(r"[a-z]+(_[a-z]+)+|resolve|verify")
PATH_VALUES: Final = {
    "kind": "model",
    "name": "a-name",
    "digest": "sha256:" + "0" * 64,
    "lock_id": "sha256:" + "0" * 64,
    "matrix_id": "sha256:" + "0" * 64,
    "run_id": "01kam1v3mz4w0q3d5g7h9j2k4m",
    "job_id": "01kam1v3mz4w0q3d5g7h9j2k4m",
    "comparison": "5f0c3a9d1b22e47a",
    "token": "01kam1v3mz4w0q3d5g7h9j2k4m",
    "fence": "7",
    "upload": "0" * 32,
}
FREE: Final = {"type": "object", "additionalProperties": {}}
"""What a schema that says nothing of its values is taken for."""


@pytest.fixture
def document(client: Client) -> dict[str, Any]:
    return dict(client.get("/v1/openapi.json").json())


def parts(node: Any, place: str = "#") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - a JSON value
    """Every object of a document with its place."""
    if isinstance(node, dict):
        yield place, node
        for key, value in node.items():
            yield from parts(value, f"{place}/{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from parts(value, f"{place}/{index}")


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        yield from ((method.upper(), path, operation) for method, operation in methods.items())


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Draft202012Validator:
    """A validator whose references lead into the components of the document."""
    return JSON(schema | {"components": document["components"]}, format_checker=JSON.FORMAT_CHECKER)


def examples(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """The place, the schema and the value of each example, in whatever form the document has it."""
    for place, node in parts(document):
        if isinstance(node.get("schema"), dict):
            named = node.get("examples", {})
            assert isinstance(named, dict), f"{place}: examples of a body or a parameter have names"
            yield from ((f"{place}/{name}", node["schema"], one["value"]) for name, one in named.items())
        if isinstance(node.get("examples"), list):
            yield from ((place, node, value) for value in node["examples"])


def test_document_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


def test_every_example_fits_its_schema(document: dict[str, Any]) -> None:
    found = list(examples(document))
    wrong = [
        f"{place}: {error.json_path} {error.message}"
        for place, schema, value in found
        for error in validator(document, schema).iter_errors(value)
    ]
    assert wrong == []
    assert len(found) > 300


def test_every_schema_admits_values(document: dict[str, Any]) -> None:
    """Each alternative of each schema, and each optional field, has values that the whole schema admits."""
    for name, schema in document["components"]["schemas"].items():
        assert_admits_values(name, document, schema)


def assert_admits_values(name: str, document: dict[str, Any], schema: dict[str, Any]) -> None:
    check = validator(document, schema)

    @settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(values(document, schema))
    def admits(value: Any) -> None:  # noqa: ANN401 - a JSON value
        assert [f"{name}: {error.json_path} {error.message}" for error in check.iter_errors(value)] == []

    admits()


def values(document: dict[str, Any], schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """JSON values as a schema describes them: every field is there, and each array has an item where it may."""
    if "$ref" in schema:
        return values(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            rest = {key: value for key, value in schema.items() if key != word}
            return st.one_of([values(document, one | rest) for one in schema[word]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    found: st.SearchStrategy[Any] = _MAKERS[schema.get("type", "object")](document, FREE | schema)
    return found


def _strings(_: dict[str, Any], schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if schema.get("format") == "date-time":
        return st.just("2026-11-21T12:00:00Z")
    if "pattern" in schema:
        return st.from_regex(schema["pattern"], fullmatch=True).filter(lambda text: not text.endswith("\n"))
    least = schema.get("minLength", 0)
    return st.text("aé0", min_size=least, max_size=min(schema.get("maxLength", 8), least + 8))


def _arrays(document: dict[str, Any], schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "prefixItems" in schema:
        return st.tuples(*(values(document, one) for one in schema["prefixItems"])).map(list)
    least = max(1, schema.get("minItems", 0))
    return st.lists(values(document, schema.get("items", FREE)), min_size=least, max_size=least + 1)


def _objects(document: dict[str, Any], schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    fields = {key: values(document, one) for key, one in schema.get("properties", {}).items()}
    assert set(schema.get("required", ())) <= set(fields)
    return st.fixed_dictionaries(fields)


_MAKERS: Final[dict[str, Any]] = {
    "string": _strings,
    "array": _arrays,
    "object": _objects,
    "boolean": lambda *_: st.booleans(),
    "null": lambda *_: st.none(),
    "integer": lambda _, schema: st.integers(schema.get("minimum", 0), schema.get("maximum", 1000)),
    "number": lambda _, schema: st.floats(schema.get("minimum", 0), schema.get("maximum", 1000)),
}


def test_operations_have_readable_ids(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    assert [one for one in ids if not READABLE.fullmatch(one)] == []
    assert {"list_versions", "publish_version", "explain_job", "read_run", "begin_upload"} <= set(ids)


def test_bodies_of_bytes_are_binary(document: dict[str, Any]) -> None:
    bodies = [
        node["application/octet-stream"]["schema"]
        for _, node in parts(document["paths"])
        if "application/octet-stream" in node
    ]
    assert len(bodies) >= 5
    assert {(schema["type"], schema["format"]) for schema in bodies} == {("string", "binary")}


def test_uploads_document_the_headers_that_they_answer_with(client: Client, document: dict[str, Any]) -> None:
    begun = client.post("/v1/blobs/uploads")
    path = begun.headers["location"]
    assert "range" not in client.get(path).headers  # of an empty upload; 0-0 is one byte
    sent = client.patch(path, content=b"abc")
    seen = client.get(path)
    made = client.put(
        path, params={"digest": "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
    )
    of_upload = document["paths"]["/v1/blobs/uploads/{upload}"]
    for answer, operation in (
        (begun, document["paths"]["/v1/blobs/uploads"]["post"]),
        (sent, of_upload["patch"]),
        (seen, of_upload["get"]),
        (made, of_upload["put"]),
    ):
        described = operation["responses"][str(answer.status_code)]["headers"]
        assert "Location" in described
        assert all(name in answer.headers for name in described if answer is not begun or name != "Range")


def test_parameters_admit_no_null(document: dict[str, Any]) -> None:
    parameters = [one for _, _, operation in operations(document) for one in operation.get("parameters", ())]
    assert parameters
    assert [one["name"] for one in parameters if validator(document, one["schema"]).is_valid(None)] == []


def test_every_path_lists_all_of_its_methods(client: Client, document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        asked = re.sub(r"{(.*?)}", lambda name: PATH_VALUES[name[1]], path)
        expected = {method.upper() for method in methods} | {"OPTIONS"} | ({"HEAD"} if "get" in methods else set())
        for answer, status in ((client.options(asked), 204), (client.request("TRACE", asked), 405)):
            assert answer.status_code == status, path
            assert {one.strip() for one in answer.headers["allow"].split(",")} == expected, path


@pytest.mark.parametrize("slash", ["/", "%2F"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs/job{slash}{id}"),
        ("DELETE", "/v1/jobs/job{slash}{id}"),
        ("GET", "/v1/jobs/job{slash}{id}/explanation"),
        ("GET", "/v1/jobs/job{slash}{id}/events"),
        ("GET", "/v1/runs/run{slash}{id}"),
        ("PUT", "/v1/runs/run{slash}{id}/hold"),
        ("DELETE", "/v1/tokens/token{slash}{id}"),
    ],
)
def test_a_returned_identifier_is_accepted_in_a_path(client: Client, method: str, path: str, slash: str) -> None:
    """What answers knows the identifier, and says that there is no such thing; another path is not there at all."""
    answer = client.request(method, path.format(slash=slash, id="01kam1v3mz4w0q3d5g7h9j2k4m"))
    assert answer.status_code == 404
    assert "01kam1v3mz4w0q3d5g7h9j2k4m" in answer.json()["detail"]


def test_an_identifier_of_another_kind_is_not_accepted_in_a_path(client: Client) -> None:
    answer = client.get("/v1/jobs/run/01kam1v3mz4w0q3d5g7h9j2k4m")
    assert (answer.status_code, answer.json()["detail"]) == (404, "nothing is served under this path")
