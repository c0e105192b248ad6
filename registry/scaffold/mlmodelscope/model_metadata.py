"""Name, version, license, framework, files and attributes of an MLModelScope model."""

import json
import re
from dataclasses import dataclass
from posixpath import basename
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import check_path
from benchlock.registry.artifact_names import LONGEST, parse_name
from benchlock.registry.scaffold.mlmodelscope.original_manifest import OriginalMapping
from benchlock.registry.text.collected_problems import Code, ImportNotes, format_original, printable
from benchlock.registry.text.yaml import Lines, block_lines, element_lines, entry_lines
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import Constraint

_FRAMEWORKS = {
    "tensorflow": "tensorflow",
    "pytorch": "pytorch",
    "onnxruntime": "onnxruntime",
    "onnx runtime": "onnxruntime",
    "onnx-runtime": "onnxruntime",
    "litert": "litert",
}
"""The frameworks with a predictor here, by the names in originals, in lower case."""

_NO_NAME = re.compile(r"[^a-z0-9._-]+")
_SEPARATORS = re.compile(r"[._-]{2,}")
_PARTIAL = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))?")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_KEPT_ZERO = re.compile(r"[0-9]+\.[0-9]+0")
_NO_LICENCE = ("", "todo", "unknown", "none", "n/a")


def native_name(text: str) -> str | None:
    """Return the nearest valid name: lower case, with one ``-`` for other characters; None if there is none."""
    plain = _SEPARATORS.sub(lambda run: run[0][0], _NO_NAME.sub("-", text.strip().lower())).strip("._-")
    try:
        return parse_name(plain)
    except InvalidInputError:
        return None


def name_lines(top: OriginalMapping, seen: dict[tuple[str, str], str], source: str) -> tuple[str | None, Lines]:
    """Return the name of the model, and its line or a TODO line.

    Args:
        top: The original.
        seen: The original of each name and version that was imported before; the new one is added.
        source: The name of this original.
    """
    original = top.text("name")
    path, notes = top.path("name"), top.notes
    if not original:
        return None, [notes.todo(path, "no-name", "name", "the original has none", "write one")]
    native = native_name(original)
    if native is None:
        what = f"{format_original(original)} does not contain a valid name"
        return None, [notes.todo(path, "name", "name", what, f"write lower-case letters and digits, at most {LONGEST}")]
    if native != original:
        notes.tell(path, "name", f"{format_original(original)} is not a valid name", f"written as {native}")
    # Only the version distinguishes two models of one name; two without a version count as the same.
    key = (native, format_original(top.value.get("version")))
    if key in seen:
        what = f"{native} is also the model of {format_original(seen[key])}, in the same version"
        return native, [
            notes.todo(
                path, "same-name", "name", what, f"write another one; family: {native} marks it as the same network"
            )
        ]
    seen[key] = source
    return native, [entry_lines("name", native)[0] + ("" if native == original else f"  # {printable(original)}")]


def version_lines(top: OriginalMapping) -> Lines:
    """Return the line of the version, or a TODO line."""
    original = top.text("version")
    path, notes = top.path("version"), top.notes
    if not original:
        return [notes.todo(path, "no-version", "version", "the original has none", "write one, such as 1.0.0")]
    try:
        return entry_lines("version", str(parse_version(original)))
    except InvalidInputError:
        what = f"{format_original(original)} is not a SemVer version{_as_number(top, 'version')}"
        ask = "write MAJOR.MINOR.PATCH"
        if _NUMBER.fullmatch(original):
            ask = f"write {original}{'.0' * (2 - original.count('.'))} if that is meant"
        return [notes.todo(path, "version", "version", what, ask)]


def license_lines(top: OriginalMapping) -> Lines:
    """Return the line of the licence, or a TODO line."""
    original = top.text("license")
    path, notes = top.path("license"), top.notes
    if original is None or original.strip().lower() in _NO_LICENCE:
        what = "the original has none" if original is None else f"the original states {format_original(original)}"
        return [notes.todo(path, "no-license", "license", what, "write the license of the weights")]
    try:
        canonicalize_license_expression(original)
    except InvalidLicenseExpression:
        notes.tell(path, "license", f"{format_original(original)} is not an SPDX expression", "copied unchanged")
    return entry_lines("license", original.strip())


def description_lines(top: OriginalMapping) -> Lines:
    """Return the line of the description, if there is one."""
    original = top.text("description")
    return entry_lines("description", original.strip()) if original and original.strip() else []


def framework_lines(top: OriginalMapping) -> tuple[str | None, Lines]:
    """Return the native framework, if there is one, and its lines."""
    framework = top.mapping("framework")
    notes, path = top.notes, top.path("framework")
    if framework is None:
        return None, [
            notes.todo(path, "no-framework", "framework", "the original states none", "write name and version")
        ]
    original = framework.text("name")
    native = _FRAMEWORKS.get((original or "").strip().lower())
    if native is None:
        what = f"no predictor for {format_original(original)}" if original else "the original states none"
        ask = f"write one of {', '.join(dict.fromkeys(_FRAMEWORKS.values()))} if the files fit it"
        lines = [notes.todo(framework.path("name"), "no-predictor", "framework.name", what, ask)]
    else:
        lines = entry_lines("name", native)
        if native != original:
            notes.tell(
                framework.path("name"),
                "framework",
                f"{format_original(original)} has the name {native} in benchlock",
                "renamed",
            )
    return native, block_lines("framework", [*lines, *_constraint_lines(framework)])


def _constraint_lines(framework: OriginalMapping) -> Lines:
    """Return the line of the framework's versions, or a TODO line."""
    original = framework.text("version")
    path, notes, subject = framework.path("version"), framework.notes, "framework.version"
    if not original:
        return [
            notes.todo(path, "no-framework-version", subject, "the original has none", "write a version constraint")
        ]
    if _PARTIAL.fullmatch(original):
        what = f"{original} alone is a partial version{_as_number(framework, 'version')}"
        return [notes.todo(path, "partial-version", subject, what, f'write "~{original}" or "^{original}"')]
    try:
        Constraint.parse(original)
    except InvalidInputError as error:
        what = f"{format_original(original)} is not a version constraint"
        return [notes.todo(path, "constraint", subject, what, printable(error.next_step or "write one"))]
    return [f"version: {json.dumps(original)}"]


def list_images(top: OriginalMapping) -> None:
    """List the images of the original, which are artifacts of their own here.

    An original names images by tag, and may have swapped those for CPU and GPU.
    """
    if not top.has_value("container"):
        return
    container = top.use("container")
    if not isinstance(container, dict):
        top.notes.tell(
            top.path("container"), "image", f"{format_original(container)} is not a list of images", "omitted"
        )
        return
    for arch, devices in container.items():
        tags = devices if isinstance(devices, dict) else {"": devices}
        for device, tag in tags.items():
            path = top.place.at("container", arch, *([device] if device else [])).path
            _list_image(top.notes, path, device, tag)


def _list_image(notes: ImportNotes, path: str, device: str, tag: object) -> None:
    """List one image."""
    done = "omitted: an image is a separate artifact"
    other = {"cpu": "gpu", "gpu": "cpu"}.get(device.lower())
    label = tag.rpartition(":")[2].lower() if isinstance(tag, str) else ""
    if other and other in label and device.lower() not in label:
        notes.tell(
            path, "crossed-image", f"the {device} image is {format_original(tag)}, whose tag states {other}", done
        )
    elif isinstance(tag, str) and "@sha256:" in tag:
        notes.tell(path, "image", f"{format_original(tag)} is an image by digest", done)
    else:
        notes.tell(path, "image-tag", f"{format_original(tag)} is a tag, not a digest", done)


def _as_number(place: OriginalMapping, key: str) -> str:
    """Return what YAML made of a version without quotes."""
    value, spelling = place.value[key], place.spelling(key)
    if isinstance(value, float) and _KEPT_ZERO.fullmatch(spelling) and str(value) != spelling:
        return f" (a number, which YAML reads as {value})"
    return " (a number)" if isinstance(value, int | float) else ""


_MD5 = re.compile(r"[0-9a-fA-F]{32}")
_SHA256 = re.compile(r"(?:sha256:)?[0-9a-fA-F]{64}")
_QUERY = re.compile(r"[?#].*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


@dataclass(slots=True)
class Files:
    """The native list of files; ``paths`` are in use."""

    notes: ImportNotes
    lines: Lines
    paths: set[str]

    def add(self, role: str, keys: tuple[str, str], url: str, checksum: str | None, *, archive: str = "") -> str | None:
        """Add a file at ``url``, or inside ``archive``, and return its path in the artifact; None if that is left open.

        Args:
            role: The role of the file.
            keys: The paths of the URL and of the checksum in the original.
            url: The URL, or the path inside the archive.
            checksum: The checksum in the original.
            archive: The URL of the archive; empty if there is none.
        """
        path = self._path(url, inside=bool(archive))
        lines = (
            entry_lines("path", path)
            if path
            else [self._todo(keys[0], "path", "path", url, "gives no path", "write one")]
        )
        source = self._source(keys[0], url, archive)
        remote = not source[0].startswith("#")
        lines += [*entry_lines("role", role), *source, *self._digest(keys[1], checksum, remote=remote)]
        self.lines += element_lines(lines)
        return path

    def _path(self, url: str, *, inside: bool) -> str | None:
        """Return an unused path for a URL; None if there is none."""
        try:
            path = url.strip().removeprefix("./") if inside else basename(_QUERY.sub("", url))
            check_path(path)
        except InvalidInputError:
            return None
        if any(path == used or path.startswith(f"{used}/") or used.startswith(f"{path}/") for used in self.paths):
            return None
        self.paths.add(path)
        return path

    def _source(self, key: str, url: str, archive: str) -> Lines:
        """Return the line of the source, or a TODO line."""
        if archive:
            what = (
                f"{format_original(url)} is in the archive {format_original(archive)}, and sources cannot read archives"
            )
            return [self.notes.todo(key, "archive", "source", what, "unpack it, and write the path of the file")]
        if not _URL.fullmatch(url):
            return [self._todo(key, "no-url", "source", url, "is not a URL", "write where the file comes from")]
        if url.startswith("https://"):
            return entry_lines("source", url)
        if url.startswith("http://"):
            ask = "write the https: form if its server has one, or download the file and write its path"
            return [self._todo(key, "http", "source", url, "is not encrypted", ask)]
        return [
            self._todo(key, "scheme", "source", url, "is not an https: URL", "download the file and write its path")
        ]

    def _todo(self, key: str, code: Code, subject: str, url: str, what: str, ask: str) -> str:
        """Return a TODO line about a URL."""
        return self.notes.todo(key, code, subject, f"{format_original(url)} {what}", ask)

    def _digest(self, key: str, checksum: str | None, *, remote: bool) -> Lines:
        """Return the line about the digest.

        A remote source needs a SHA-256. That of a local file is computed, so the checksum in the original is only a
        hint.
        """
        md5 = checksum and _MD5.fullmatch(checksum)
        code: Code = "no-digest"
        what = "the original has no digest"
        if checksum:
            code = "md5" if md5 else "digest"
            other = "the SHA-256" if _SHA256.fullmatch(checksum) else "what is neither an MD5 nor a SHA-256:"
            form = f"the MD5 {checksum}" if md5 else f"{other} {format_original(checksum)}"
            what = f"the original has {form}: a hint, not an identity"
        if remote:
            return [self.notes.todo(key, code, "sha256", what, "write the SHA-256 of the bytes that you verified")]
        self.notes.tell(key, code, what, "copied as a comment")
        return [f"# {what}"]


def model_files(top: OriginalMapping, files: Files) -> str:
    """Add graph and weights to ``files``, and return the name of the graph's file; empty if there is none."""
    model = top.mapping("model")
    if model is None:
        what = "the original lists no files"
        files.lines.append(top.notes.todo(top.path("model"), "no-model", "files", what, "list the graph and the rest"))
        return ""
    base, archived = model.text("base_url") or "", model.boolean("is_archive") or False
    graph = model.text("graph_path") or ""
    for role in ("graph", "weights"):
        _model_file(model, files, role, base, archived=archived)
    if not model.has_value("graph_path"):
        ask = "give one file the role graph"
        what = "the original does not name a graph"
        files.lines.append(model.notes.todo(model.path("graph_path"), "no-graph", "files", what, ask))
    return graph


def _model_file(model: OriginalMapping, files: Files, role: str, base: str, *, archived: bool) -> None:
    """Add the graph or the weights to ``files``."""
    path = model.text(f"{role}_path")
    key = f"{role}_checksum"
    if role == "graph" and not model.has_value(key) and model.has_value("checksum"):
        key = "checksum"
    if not path:
        if role == "graph" and base:
            what = f"{format_original(base)} is a base without a file: graph_path is empty"
            model.notes.tell(model.path("base_url"), "base-url", what, "omitted")
        if model.has_value(key):
            what = f"{format_original(model.use(key))} is the checksum of an unnamed file"
            model.notes.tell(model.path(key), "checksum", what, "omitted")
        return
    url = path
    if _URL.fullmatch(path):
        if base:
            unused = f"the purpose of the base {format_original(base)} is unknown"
            what = f"{format_original(path)} is a complete URL, so {unused}"
            model.notes.tell(model.path("base_url"), "base-url", what, "the base is omitted")
    elif base and not archived:
        url = f"{base.rstrip('/')}/{path.lstrip('/')}"
    keys = (model.path(f"{role}_path"), model.path(key))
    files.add(role, keys, url, model.text(key), archive=(base or "that is not named") if archived else "")


def files_lines(files: Files) -> Lines:
    """Return the key ``files``."""
    return block_lines("files", files.lines)


_KEPT = ("author", "references", "hidden", "hide")
_METRICS = ("top1", "top5", "map", "map_50", "miou", "accuracy")
_LONGEST_KEY = 200
_DEEPEST = 32


def attribute_lines(top: OriginalMapping) -> Lines:
    """Return the attributes, and a TODO line if they state values of metrics."""
    attributes = _own_attributes(top) if top.has_value("attributes") else {}
    stated = [
        f"{key} {format_original(inner)}"
        for key, inner in attributes.items()
        if key.lower() in _METRICS and inner is not None
    ]
    for key in _KEPT:
        if top.has_value(key) and key in attributes:
            what = f"{format_original(top.use(key))}, but attributes have {key}, too"
            top.notes.tell(top.path(key), "attribute", what, "omitted")
        elif top.has_value(key) and _is_kept(top, key, key, top.use(key)):
            attributes[key] = top.use(key)
    lines = entry_lines("attributes", attributes) if attributes else []
    return [*lines, *([_claims(top, stated)] if stated else [])]


def _own_attributes(top: OriginalMapping) -> dict[str, Any]:
    """Return the attributes of the original that a manifest can hold."""
    value = top.use("attributes")
    if isinstance(value, dict):
        return {key: inner for key, inner in value.items() if _is_kept(top, "attributes", key, inner)}
    what = f"expected a mapping, found {format_original(value)}"
    top.notes.tell(top.path("attributes"), "wrong-type", what, "copied to attributes.attributes")
    return {"attributes": value} if _is_kept(top, "attributes", "attributes", value) else {}


def _claims(top: OriginalMapping, stated: list[str]) -> str:
    """Return the TODO line about values of metrics."""
    what = f"the original states {', '.join(stated)}, without a version of a dataset"
    ask = "write claims with metric, value (a fraction), tolerance and dataset, or delete this line"
    return top.notes.todo(top.path("attributes"), "claim", "claims", what, ask)


def _is_kept(top: OriginalMapping, section: str, key: str, value: object) -> bool:
    """Return whether a manifest can hold a key and its value: keys and nesting are limited."""
    if _fits({key: value}, _DEEPEST):
        return True
    fault = "has a key that is too long, or is nested too deep"
    what = f"the key {format_original(key)}, of {format_original(value)}, {fault}"
    top.notes.tell(top.path(section), "unwieldy", what, "omitted")
    return False


def _fits(value: object, depth: int) -> bool:
    """Return whether keys and nesting of a value are within the limits."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    short = not isinstance(value, dict) or all(len(key) <= _LONGEST_KEY for key in value)
    return short and depth > 0 and all(_fits(part, depth - 1) for part in inner)
