"""A hook of MkDocs: pages of the reference that are generated from the code when the site is built.

The command line comes from the commands, manifests and requests from their JSON Schemas, the HTTP API from its OpenAPI
document, errors from their classes, and the Python API from its docstrings.
``python -m tests.house.reference_pages FOLDER`` writes the pages to a folder.
"""

import json
import logging
import re
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import benchlock
from benchlock.api.cli.command_group import COMMAND_GROUPS
from benchlock.api.cli.command_group import benchlock as program
from benchlock.api.error_codes import FAULTS, fault_of
from benchlock.api.http.openapi import build_document
from benchlock.api.http.routes.app import create_app
from benchlock.api.local.local_registry import open_registry
from benchlock.artifacts.errors import BenchlockError
from tests.house import json_schemas
from tests.house.python_page import describe_python

ADVICE = {
    "blob-not-found": "Publish the version again, or restore the blob from a backup.",
    "busy": "Wait for the other command to end, then repeat this one.",
    "client-left": "Nothing: the client closed the connection before its request was complete.",
    "conflict": "Read the explanation, and relax a constraint in it or publish a version that fits.",
    "damaged-database": "Stop all writers, then restore a backup with `benchlock restore`.",
    "error": "Follow the `next` line of the message.",
    "fenced": "Nothing: another worker has taken over the job, and its run counts.",
    "forbidden": "Ask an administrator for a token with the scope in the message.",
    "head-too-large": "Send fewer or shorter headers.",
    "incomplete-record": "Send every field that a record of this version has.",
    "integrity": "Do not use the bytes. Get them again from their source; for a registry, run `benchlock verify`.",
    "internal": "Repeat the command with `BENCHLOCK_DEBUG=1`, and report its output.",
    "interrupted": "Repeat the command; finished downloads and uploads are kept.",
    "invalid-bundle": "Create the bundle again, or download it again.",
    "invalid-input": "Correct the key or argument that `where` names.",
    "isolated-fault": "Check the file that `where` names: reading it ended a child process.",
    "limit-exceeded": "Publish a smaller or simpler file.",
    "low-space": "Free space on the disk of the registry, for example with `benchlock gc`.",
    "machine-refused": "Use a token with the scope for this machine, or another machine name.",
    "malformed": "Correct the request; its operation is described in the [HTTP reference](http.md).",
    "method-not-allowed": "Use a method in the `Allow` header of the response.",
    "missing-blobs": "Upload the blobs that the message lists, then publish again.",
    "range-not-satisfiable": "Ask for the size first, and for a range within it.",
    "refused": "Read the message: the operation is valid, but not now or not for this object.",
    "run-ended": "Nothing: the end of the run is already recorded.",
    "schema-revision": "Run `benchlock db upgrade`, or use the version of benchlock that created the database.",
    "token-refused": "Create a new token, or rotate the token before it expires.",
    "too-large": "Send a smaller body, or upload it in chunks.",
    "too-long": "Shorten the text that `where` names.",
    "too-many-requests": "Wait as long as the `Retry-After` header says, then repeat the request.",
    "too-many-uploads": "Finish or cancel uploads, then start this one again.",
    "too-slow": "Repeat the request over a faster connection; an upload resumes where it stopped.",
    "unauthorized": "Set `BENCHLOCK_TOKEN` to a valid token of this server.",
    "unavailable": "Check the network, the engine or the service that `where` names, then repeat the command.",
    "unknown-name": "Check the spelling; `benchlock list` and `benchlock runs` list what exists.",
    "unnamed-bytes": "Publish what you have uploaded, or run `benchlock gc`.",
    "unsupported-media": "Send the content type that the operation accepts.",
    "untaken": "Correct the other problem of this file; until then it cannot be inspected.",
    "unverified": "Verify it with the version of benchlock that made it, with all its libraries installed.",
    "upload-busy": "Wait for the other request of this upload to end.",
    "upload-not-found": "Start the upload again: it ended, was cancelled or expired.",
    "version-taken": "Publish the changed content as a new version; published versions never change.",
}
"""What to do about an error of each code."""
_CODE = re.compile(r"`[^`]+`")
EXITS = {
    0: "success",
    1: "the check failed (not reproduced, not comparable, stale lock, failed run), or the operation was refused",
    2: "invalid input: arguments, files, names, tokens",
    3: "version conflict",
    4: "integrity violation: bytes, records or a database differ from their digests",
    5: "an external resource is missing or failed",
    6: "a worker's token was rejected; a restart with the same token is of no use",
    7: "`gate` is undecided: more rounds are needed",
    130: "interrupted by Ctrl-C",
}
COMMON_NOTES = """\
`--registry` and `--version` stand before the command; it accepts the others after its name, too (`export` has a
`--format` of its own). Standard output has
the result alone; progress, notices and errors go to standard error. [Exit codes](errors.md#exit-codes) tell outcomes
apart. On a terminal, verdicts and errors are in color (`NO_COLOR`, `FORCE_COLOR` and `TERM=dumb` are honored), and long
texts in tables are shortened to its width. Piped output is plain and complete.

LOCK is a file or the id of a lock in the registry. As in git, the first characters of the id of a run, job, lock or
token are enough if no other id begins with them: at least 4, with or without `run/`, `job/`, `token/` or `sha256:`.
`run` and `rerun` use the lock exactly as it is: they never resolve versions again.

`benchlock completion bash --install` (or `zsh`, `fish`) installs completion of commands, options, artifacts, runs and
files, and prints what else the shell needs.
"""
TAGS = {
    "artifacts": "Artifacts", "locks": "Requests and locks", "blobs": "Blobs", "runs": "Runs", "jobs": "Jobs",
    "workers": "Workers", "access": "Access", "upkeep": "Maintenance", "health": "Health", "pages": "Pages as JSON",
}  # fmt: skip
SCHEMA_TITLES = {
    "model": "Model",
    "dataset": "Dataset",
    "framework": "Framework",
    "image": "Image",
    "operator": "Operator",
    "recipe": "Recipe",
    "request": "Request",
    "operator-request": "Request of an operator",
    "distributed-request": "Request of a distributed training",
    "matrix": "Matrix",
    "training-request": "Request of a training",
}


def generate() -> dict[str, str]:
    """Return the text of each generated page by its path in the site."""
    return {
        "reference/cli.md": describe_command_line(),
        "reference/manifests.md": describe_schemas(),
        "reference/http.md": describe_http(build_openapi()),
        "reference/errors.md": describe_errors(),
        "reference/python.md": describe_python(),
    }


def on_startup(**_: object) -> None:
    """Let MkDocs print warnings only, which fail a strict build; with its option ``--quiet``, they would not."""
    logging.getLogger("mkdocs").setLevel(logging.WARNING)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of the folder ``docs``; MkDocs calls this function."""
    for path, text in generate().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Show ``|`` in the code of a table without the backslash that other readers of Markdown need; MkDocs calls it."""
    rows = (_CODE.sub(_without_backslash, one) if one.startswith("|") else one for one in markdown.split("\n"))
    return "\n".join(rows)


def _without_backslash(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")


def find_commands() -> Iterator[tuple[str, str, click.Command]]:
    """Yield each command with its heading and its full name; for a group, its subcommands."""
    context = click.Context(program, info_name="benchlock")
    for heading, names in COMMAND_GROUPS.items():
        for name in names:
            command = program.get_command(context, name)
            assert command is not None
            inner: dict[str, click.Command] = getattr(command, "commands", {})
            yield from ((heading, f"{name} {word}", one) for word, one in inner.items())
            if not inner:
                yield heading, name, command


def split_help(command: click.Command) -> tuple[str, str]:
    """Return the help of a command without its example, and the example."""
    text, _, example = cleandoc(command.help or "").partition("Example: ")
    return text.replace("\b", "").strip(), " ".join(example.split())


def describe_command_line() -> str:
    """Return the page of all commands."""
    shared = [option for option in program.params if isinstance(option, click.Option)]
    texts = {option.help for option in shared}
    lines = [
        "# Commands", "",
        "Reference, generated from the code. `benchlock COMMAND --help` prints the same.", "",
        "## Options of every command", "", *_parameter_table(shared, program), "",
        COMMON_NOTES,
    ]  # fmt: skip
    last = ""
    for heading, name, command in find_commands():
        if heading != last:
            lines += ["", f"## {heading}"]
            last = heading
        text, example = split_help(command)
        context = click.Context(command, info_name=f"benchlock {name}")
        usage = " ".join(["benchlock", name, *command.collect_usage_pieces(context)])
        own = [one for one in command.params if getattr(one, "help", None) not in texts]
        lines += ["", f"### benchlock {name}", "", "```text", usage, "```", "", _as_text(text), ""]
        lines += [*_parameter_table(own, command), "", "Example:", "", "```console", f"$ {example}", "```"]
    return "\n".join(lines) + "\n"


def _parameter_table(parameters: list[click.Parameter] | list[click.Option], command: click.Command) -> list[str]:
    """Return the rows of a table of arguments and options; nothing if there are none."""
    context = click.Context(command)
    records = [record for one in parameters if (record := one.get_help_record(context))]
    rows = [f"| `{_cell(name)}` | {_cell(_as_text(text))} |" for name, text in records]
    return ["| | meaning |", "|---|---|", *rows] if rows else []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _as_text(text: str) -> str:
    """Return plain text as Markdown: names in capitals, options and brackets stay as they are."""
    return re.sub(r"([<>*_\[\]])", r"\\\1", text)


def describe_schemas() -> str:
    """Return the page of the keys of manifests and requests."""
    lines = [
        "# Keys of manifests and requests", "",
        "Reference, generated from the JSON Schemas, which editors read: "
        + ", ".join(f"[{name}](schemas/{name}.json)" for name in SCHEMA_TITLES)
        + ". [File formats](formats.md) has examples and the rules between keys.",
    ]  # fmt: skip
    for file, text in json_schemas.generate().items():
        schema = json.loads(text)
        title = SCHEMA_TITLES[file.removesuffix(".json")]
        lines += ["", f"## {title}"]
        for name, definition in schema["$defs"].items():
            if "properties" in definition:
                lines += ["", f"### {title}: {name}", "", definition.get("description", "").replace("``", "`"), ""]
                lines += ["| key | value | meaning |", "|---|---|---|"]
                lines += _key_rows(definition)
    return "\n".join(lines) + "\n"


def _key_rows(definition: dict[str, Any]) -> Iterator[str]:
    required = definition.get("required", ())
    for key, value in definition["properties"].items():
        mark = " (required)" if key in required else ""
        meaning = value.get("description", "").replace("``", "`")
        yield f"| `{key}`{mark} | {_cell(_value_type(value))} | {_cell(meaning)} |"


def _value_type(schema: dict[str, Any]) -> str:
    """Return the type of a value in words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value).strip(chr(34))}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_value_type, schema["anyOf"])))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_value_type(schema['items'])}" if isinstance(schema.get("items"), dict) else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"mapping to {_value_type(schema['additionalProperties'])}"
    return {"object": "mapping", "null": "`null`"}.get(kind, str(kind))


def build_openapi() -> dict[str, Any]:
    """Return the OpenAPI document of the service."""
    with tempfile.TemporaryDirectory(prefix="benchlock-reference-") as folder:
        return build_document(create_app(open_registry(folder, lambda _: None)))


def describe_http(document: dict[str, Any]) -> str:
    """Return the page of all operations of the HTTP API."""
    lines = [
        "# HTTP operations", "",
        "Reference, generated from the OpenAPI document that a server has at `/v1/openapi.json`, which also has the",
        "schemas of all bodies with examples. [The HTTP service](service.md) describes what they have in common.",
    ]  # fmt: skip
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    for tag, title in TAGS.items():
        lines += ["", f"## {title}"]
        for method, path, operation in operations:
            if operation["tags"] == [tag]:
                lines += _describe_operation(method, path, operation)
    return "\n".join(lines) + "\n"


def _describe_operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"### {method} {path}", "")
    yield f"{operation.get('description') or operation['summary'] + '.'} Operation id: `{operation['operationId']}`."
    parameters = operation.get("parameters", ())
    if parameters:
        yield from ("", "| parameter | in | value | meaning |", "|---|---|---|---|")
    for one in parameters:
        mark = " (required)" if one["required"] else ""
        value, meaning = _cell(_value_type(one["schema"])), _cell(one.get("description", ""))
        yield f"| `{one['name']}`{mark} | {one['in']} | {value} | {meaning} |"
    body = [_media(content) for content in operation.get("requestBody", {}).get("content", {}).items()]
    if body:
        yield from ("", f"Body: {', '.join(body)}.")
    yield from ("", "| status | meaning |", "|---|---|")
    for status, response in sorted(operation["responses"].items()):
        yield f"| {status} | {_cell(response['description'])} |"


def _media(content: tuple[str, dict[str, Any]]) -> str:
    kind, description = content
    reference = description.get("schema", {}).get("$ref", "")
    return f"`{kind}`" + (f" ({reference.rpartition('/')[2]})" if reference else "")


def find_error_classes() -> dict[str, type[BenchlockError]]:
    """Return the first class of each error code; all modules are imported for it.

    A class that was made at run time, for a code of a newer service, is none of its module, and is left out.
    """
    for module in walk_packages(benchlock.__path__, "benchlock."):
        if not re.search(r"\.(harness|migrations)(\.|$)|__main__", module.name):
            import_module(module.name)
    classes: dict[str, type[BenchlockError]] = {}
    pending: list[type[BenchlockError]] = [BenchlockError]
    for one in pending:
        pending += one.__subclasses__()
        if one.__module__.startswith("benchlock.") and hasattr(sys.modules[one.__module__], one.__name__):
            classes.setdefault(one.code, one)
    return classes


def describe_errors() -> str:
    """Return the page of exit codes and error codes."""
    classes = find_error_classes()
    lines = [
        "# Exit codes and error codes", "",
        "Reference, generated from the code. An error has a message, a place (`where`), a next step (`next`) and a",
        "code that never changes. With `--json`, it is the document `error` on standard output.", "",
        "## Exit codes", "", "| exit code | meaning |", "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in EXITS.items()), "",
        "## Error codes", "",
        "A server answers with the status and with the type `urn:benchlock:problem:TYPE` (RFC 9457).", "",
        "| code | exit code | status | type | title | what to do |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for code in sorted({*classes, *FAULTS}):
        fault = FAULTS.get(code) or fault_of(classes[code]("?"))
        status, kind = ("none", "none") if code == "interrupted" else (str(fault.status), f"`{fault.reason}`")
        exit_code = 130 if code == "interrupted" else fault.exit_code
        lines.append(f"| `{code}` | {exit_code} | {status} | {kind} | {fault.title} | {ADVICE[code]} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path, text in generate().items():
        target = Path(sys.argv[1]) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
