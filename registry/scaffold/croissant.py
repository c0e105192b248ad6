"""Dataset manifests from Croissant metadata: the files, fields and labels of tables.

Source: https://docs.mlcommons.org/croissant/docs/croissant-spec.html, versions 1.0 and 1.1. Read are record sets of
Parquet, JSON Lines and CSV files that are beside the metadata or at an HTTPS address with a SHA-256, and of FileSets
whose files are beside the metadata. Everything else is refused with the next step.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from benchlock.artifacts.atomic_files import open_regular
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import check_path
from benchlock.artifacts.json_codec import decode_untyped
from benchlock.artifacts.net.urls import check_url
from benchlock.registry.inspection.formats.untrusted_files import read_whole
from benchlock.registry.scaffold.sample_files import SampleFile, describe_file, file_form, split_lines, split_name
from benchlock.registry.scaffold.sample_index import Columns, find_columns, index_lines
from benchlock.registry.scaffold.source_files import RemoteFile, ScaffoldSource, heading
from benchlock.registry.text.collected_problems import ImportNotes, format_original, printable
from benchlock.registry.text.yaml import Lines, block_lines, entry_lines
from benchlock.registry.versions.semantic_version import from_pep440

Node = Mapping[str, Any]

_LARGEST: Final = 8 << 20  # bytes
_MOST: Final = 1000  # files, record sets or fields
_LONGEST_DESCRIPTION: Final = 2000  # characters
_CONFORMS: Final = re.compile(r"https?://mlcommons\.org/croissant/(\d+\.\d+)/?")
_VERSIONS: Final = ("1.0", "1.1")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_JSON_PATH: Final = re.compile(r"(?:\$\.)?(\w{1,200})", re.ASCII)
_FORMS: Final = {
    "application/x-parquet": "parquet", "application/vnd.apache.parquet": "parquet", "application/jsonlines": "jsonl",
    "application/jsonl": "jsonl", "application/x-ndjson": "jsonl", "text/csv": "csv",
}  # fmt: skip
"""The format of a dataset by media type."""
_SAMPLES: Final = ("ImageObject", "AudioObject")
"""Types of fields that are files."""
_DOWNLOAD: Final = "download the files, and use their folder or file instead of the metadata"


@dataclass(frozen=True, slots=True)
class _Table:
    """A file of samples, and the fields of its record set.

    Attributes:
        node: The FileObject.
        name: The name of the file in the dataset.
        form: ``parquet``, ``jsonl`` or ``csv``.
        fields: The key of each field; that of the label is called ``label``.
        samples: The column of files, of CSV; None if no field tells it.
    """

    node: Node
    name: str
    form: str
    fields: dict[str, str]
    samples: str | None


def is_croissant(path: Path) -> bool:
    """Return whether a JSON file is Croissant metadata of any version."""
    if path.stat().st_size > _LARGEST:
        return False
    try:
        return _find_version(_read(path)) is not None
    except InvalidInputError:
        return False


def croissant_lines(source: ScaffoldSource) -> Lines:
    """Return the manifest of the dataset that Croissant metadata describes.

    Raises:
        InvalidInputError: The metadata describes something that a manifest cannot have, or a file is missing.
    """
    document = _read(source.path)
    version = _find_version(document)
    if version not in _VERSIONS:
        raise _make_error(source, f"Croissant {version} is not supported", f"write it in version {_VERSIONS[0]}")
    lines = _heading(document, source)
    tables = _find_tables(document, source)
    forms = {table.form for table in tables}
    if len(forms) > 1 or (forms == {"csv"} and len(tables) > 1):
        what = f"the record sets read {len(tables)} files: {', '.join(printable(table.name) for table in tables)}"
        raise _make_error(source, what, "write metadata of one format, and of one file if it is CSV")
    if forms == {"csv"}:
        return lines + _index(tables[0], source)
    remote = {Path(os.path.normpath(source.path.parent / table.name)): _locate(table, source) for table in tables}
    listed = replace(source, remote=remote)
    splits, files, names = Lines(), Lines(), dict[str, str]()
    for table in tables:
        described = _describe(table, source)
        entry = split_lines(table.name, described, table.fields, source.notes)
        name = split_name(Path("-".join(Path(table.name).parts)), source.notes)
        if name in names:
            what = f"{printable(names[name])} and {printable(table.name)} are both of the split {name}"
            raise _make_error(source, what, "merge them, or put the name of its split into the name of each file")
        names[name] = table.name
        splits += block_lines(name, entry)
        files += listed.file(source.path.parent / table.name)
    return [*lines, *entry_lines("format", forms.pop()), *block_lines("splits", splits), *block_lines("files", files)]


def _read(path: Path) -> Node:
    """Return the JSON object in a file."""
    with open_regular(path) as stream:
        try:
            document = decode_untyped(read_whole(stream, _LARGEST))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInputError(f"{path.name} is not valid JSON: {error}", where=str(path)) from error
    if not isinstance(document, dict):
        raise InvalidInputError(f"{path.name} is not a JSON object", where=str(path))
    return document


def _make_error(source: ScaffoldSource, what: str, next_step: str = _DOWNLOAD) -> InvalidInputError:
    return InvalidInputError(f"{source.path.name}: {what}", where=str(source.path), next_step=next_step)


def _find_version(document: Node) -> str | None:
    """Return the version of Croissant; None if the document is something else."""
    stated = document.get("conformsTo")
    for text in stated if isinstance(stated, list) else [stated]:
        if isinstance(text, str) and (match := _CONFORMS.fullmatch(text)):
            return match[1]
    return None


def _heading(document: Node, source: ScaffoldSource) -> Lines:
    """Return the first keys: name, version, license and description."""
    notes, licenses = source.notes, document.get("license")
    if isinstance(licenses, list) and len(licenses) == 1:
        licenses = licenses[0]
    stated = licenses if isinstance(licenses, str) else format_original(licenses) if licenses else ""
    name = _text(document, "name")
    named = replace(source, repository=name) if name else source
    lines = heading(
        "dataset", named.name, source.path.name, notes, version=_version(document, notes), license_text=stated
    )
    description = " ".join(_text(document, "description").split())
    if not description:
        return lines
    if len(description) > _LONGEST_DESCRIPTION or not description.isprintable():
        notes.tell("description", "unwieldy", f"the description has {len(description)} characters", "omitted")
        return lines
    return [*lines, *entry_lines("description", description)]


def _version(document: Node, notes: ImportNotes) -> str:
    """Return the semantic version of the dataset; empty if none is stated."""
    stated = document.get("version")
    text = str(stated) if type(stated) in (str, int, float) else ""
    if not text:
        return ""
    try:
        return str(from_pep440(text))
    except InvalidInputError:
        notes.tell("version", "version", f"{format_original(text)} is not a version", "omitted")
        return ""


def _find_tables(document: Node, source: ScaffoldSource) -> list[_Table]:
    """Return the files that the record sets read, in their order, with their fields."""
    files = {_id(node): node for node in _nodes(document, "distribution", source)}
    tables: dict[str, list[_Table]] = {}
    for record_set in _nodes(document, "recordSet", source):
        found = _read_record_set(record_set, files, source)
        if found is None:
            continue
        identifier, read = found
        if identifier in tables:
            what = f"several record sets read the file {format_original(identifier)}"
            raise _make_error(source, what, "keep one of them")
        tables[identifier] = read
    if not tables:
        raise _make_error(source, "no record set reads a Parquet, JSON Lines or CSV file")
    listed = [table for group in tables.values() for table in group]
    if len({table.name for table in listed}) < len(listed):
        raise _make_error(source, "two files have the same name", "give each file its own name")
    return listed


def _read_record_set(
    record_set: Node, files: Mapping[str, Node], source: ScaffoldSource
) -> tuple[str, list[_Table]] | None:
    """Return the id of what a record set reads, and its files; None if the record set has its data in the metadata."""
    if "data" in record_set:
        return None
    fields, used, samples = dict[str, str](), dict[str, None](), None
    for field in _nodes(record_set, "field", source):
        if "Split" in _types(field, "dataType"):
            continue
        identifier, key = _read_field(field, source)
        used[identifier] = None
        is_label = "Label" in _types(field, "dataType") or _last_part(field) == "label"
        name = "label" if is_label else _last_part(field)
        if name in fields:
            raise _make_error(source, f"two fields are called {format_original(name)}", "keep one of them")
        fields[name] = key
        if any(kind in _SAMPLES for kind in _types(field, "dataType")):
            samples = key
    if not fields:
        return None
    if len(used) != 1:
        what = f"the record set {format_original(_id(record_set))} reads {len(used)} files"
        raise _make_error(source, what)
    identifier = next(iter(used))
    node = files.get(identifier)
    if node is None:
        raise _make_error(
            source, f"no file has the id {format_original(identifier)}", "correct the source of the field"
        )
    if "FileSet" in _types(node, "@type"):
        listed = _list_file_set(node, source)
        return identifier, [_make_table(one, _id(one), fields, samples, source) for one in listed]
    address = unquote(_text(node, "contentUrl").partition("?")[0].partition("#")[0])
    return identifier, [_make_table(node, address.rpartition("/")[2], fields, samples, source)]


def _list_file_set(node: Node, source: ScaffoldSource) -> list[Node]:
    """Return the files beside the metadata that a FileSet includes, each as a FileObject with its path as name."""
    folder, name, includes = source.path.parent, format_original(_id(node)), node.get("includes")
    patterns = [text for text in (includes if isinstance(includes, list) else [includes]) if isinstance(text, str)]
    if any("**" in text or ".." in text or text[:1] in ("", "/") or not text.isprintable() for text in patterns):
        raise _make_error(source, f"the FileSet {name} has a pattern with **, .. or a / at its start")
    found = {path for pattern in patterns[:_MOST] for path in islice(folder.glob(pattern), _MOST + 1)}
    paths = sorted(path.relative_to(folder).as_posix() for path in found if path.is_file())
    if not 0 < len(paths) <= _MOST:
        what = f"{len(paths)} files beside the metadata are of the FileSet {name}"
        raise _make_error(source, what, f"download its files to {folder}, at most {_MOST}")
    kind = {"@type": "cr:FileObject", "encodingFormat": node.get("encodingFormat")}
    return [{**kind, "@id": path, "name": path, "contentUrl": path} for path in paths]


def _read_field(field: Node, source: ScaffoldSource) -> tuple[str, str]:
    """Return the id of the file that a field reads, and the key of its values there."""
    name, origin = format_original(_id(field)), field.get("source")
    if not isinstance(origin, dict):
        raise _make_error(source, f"the field {name} has no source")
    identifier = _reference(origin.get("fileObject")) or _reference(origin.get("fileSet")) or _reference(origin)
    extract = origin.get("extract")
    column, path = (_text(extract, key) if isinstance(extract, dict) else "" for key in ("column", "jsonPath"))
    if "fileSet" in origin and not (column or path):
        raise _make_error(source, f"the field {name} reads a FileSet, a file for each sample")
    key = column or _simple_path(path)
    transform = origin.get("transform")
    if transform:
        part = _simple_path(_text(transform, "jsonPath")) if isinstance(transform, dict) and len(transform) == 1 else ""
        if not part:
            raise _make_error(source, f"the field {name} has a transformation that is not a key")
        key = f"{key}.{part}" if key else ""
    if not identifier or not key or not key.isprintable():
        raise _make_error(source, f"the field {name} does not read a column or key of a file")
    return identifier, key


def _simple_path(path: str) -> str:
    """Return the key in a JSON path of one key; empty for any other path."""
    match = _JSON_PATH.fullmatch(path)
    return match[1] if match else ""


def _make_table(node: Node, name: str, fields: dict[str, str], samples: str | None, source: ScaffoldSource) -> _Table:
    """Return a file of samples called ``name``, which must be a file of its own in a known format."""
    identifier = format_original(_id(node))
    if "FileObject" not in _types(node, "@type") or "containedIn" in node:
        raise _make_error(source, f"{identifier} is not a file of its own, but a part of an archive or repository")
    form = _FORMS.get(_text(node, "encodingFormat")) or ("csv" if name.lower().endswith(".csv") else file_form(name))
    if form not in _FORMS.values() or not name:
        encoding = format_original(_text(node, "encodingFormat"))
        raise _make_error(source, f"{identifier} is not Parquet, JSON Lines or CSV, but {encoding}")
    assert form is not None
    return _Table(node, check_path(name), form, fields, samples)


def _local_path(table: _Table, source: ScaffoldSource) -> Path | None:
    """Return the path of a file beside the metadata; None for an HTTPS address.

    Raises:
        InvalidInputError: The file does not exist, or the address is not HTTPS.
    """
    address = _text(table.node, "contentUrl")
    if "://" in address:
        check_url(address, loopback_http=False)
        return None
    path = source.path.parent / check_path(address.removeprefix("./"))
    if not path.is_file():
        raise _make_error(source, f"{address} not found beside the metadata", f"download it to {path}")
    return path


def _locate(table: _Table, source: ScaffoldSource) -> RemoteFile:
    """Return the source of a file with its SHA-256, which a file at an address must have."""
    path, sha256 = _local_path(table, source), _text(table.node, "sha256")
    is_valid = _SHA256.fullmatch(sha256) is not None
    if path is None and not is_valid:
        raise _make_error(source, f"{table.name} has no valid sha256, so its bytes cannot be verified")
    address = _text(table.node, "contentUrl") if path is None else source.beside(path)
    return RemoteFile(address, sha256 if is_valid else None)


def _describe(table: _Table, source: ScaffoldSource) -> SampleFile:
    """Return what a file beside the metadata contains; of a file at an address, the number of samples is unknown."""
    path = _local_path(table, source)
    return SampleFile(table.form, None, "") if path is None else describe_file(source, path, table.form)


def _index(table: _Table, source: ScaffoldSource) -> Lines:
    """Return the manifest of a CSV that lists files beside it."""
    path = _local_path(table, source)
    if path is None:
        raise _make_error(source, f"{table.name} lists files, so it must be beside them")
    samples = table.samples or find_columns(path).path
    return index_lines(source, path, Columns(samples, table.fields.get("label"), None))


def _nodes(document: Node, key: str, source: ScaffoldSource) -> list[Node]:
    """Return the objects in a list, or the only object."""
    value = document.get(key, [])
    nodes = value if isinstance(value, list) else [value]
    if len(nodes) > _MOST or not all(isinstance(node, dict) for node in nodes):
        raise _make_error(source, f"{key} is not a list of at most {_MOST} objects", "correct the metadata")
    return nodes


def _id(node: Node) -> str:
    """Return the id of an object, or its name, which was the id before Croissant 1.0."""
    return _text(node, "@id") or _text(node, "name")


def _last_part(node: Node) -> str:
    """Return the name of a field without that of its record set: ``image`` for ``default/image``."""
    return (_text(node, "name") or _id(node)).rpartition("/")[2]


def _reference(value: object) -> str:
    """Return the id that a reference has: a text, or an object with ``@id``."""
    return _text(value, "@id") if isinstance(value, dict) else value if isinstance(value, str) else ""


def _types(node: Node, key: str) -> list[str]:
    """Return types without their prefix: ``FileObject`` for ``cr:FileObject``."""
    value = node.get(key)
    texts = value if isinstance(value, list) else [value]
    return [re.split("[:/#]", text)[-1] for text in texts if isinstance(text, str)]


def _text(node: Node, key: str) -> str:
    """Return a text; empty if it is absent or no text."""
    value = node.get(key)
    return value if isinstance(value, str) else ""
