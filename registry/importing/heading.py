"""Who the model is: name, version, licence, description, framework; and the images that are left out."""

import json
import re

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.constraints import Constraint
from benchlock.registry.importing.findings import Notes, printable, shown
from benchlock.registry.importing.original import Original
from benchlock.registry.importing.outline import Lines, block, entry
from benchlock.registry.names import LONGEST, parse_name
from benchlock.registry.versions import parse_version

_FRAMEWORKS = {
    "tensorflow": "tensorflow",
    "pytorch": "pytorch",
    "onnxruntime": "onnxruntime",
    "onnx runtime": "onnxruntime",
    "onnx-runtime": "onnxruntime",
    "litert": "litert",
}
"""The frameworks that have a predictor here, by the names that others write, in lower case."""

_NO_NAME = re.compile(r"[^a-z0-9._-]+")
_SEPARATORS = re.compile(r"[._-]{2,}")
_PARTIAL = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))?")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_KEPT_ZERO = re.compile(r"[0-9]+\.[0-9]+0")
_NO_LICENCE = ("", "todo", "unknown", "none", "n/a")


def native_name(text: str) -> str | None:
    """The nearest name by the native rule: lower case, runs of other characters become one ``-``; None if none is."""
    plain = _SEPARATORS.sub(lambda run: run[0][0], _NO_NAME.sub("-", text.strip().lower())).strip("._-")
    try:
        return parse_name(plain)
    except InvalidInputError:
        return None


def name_lines(top: Original, taken: dict[tuple[str, str], str], source: str) -> tuple[str | None, Lines]:
    """``taken`` holds the names and versions of the originals before this one, and where those stand."""
    written = top.text("name")
    path, notes = top.path("name"), top.notes
    if not written:
        return None, [notes.todo(path, "no-name", "name", "the original has none", "write one")]
    native = native_name(written)
    if native is None:
        what = f"{shown(written)} holds no name by the rule here"
        return None, [notes.todo(path, "name", "name", what, f"write lower-case letters and digits, at most {LONGEST}")]
    if native != written:
        notes.tell(path, "name", f"{shown(written)} is no name by the rule here", f"written as {native}")
    # Only what a version says can tell two models of one name apart; one that says nothing is equal to none.
    key = (native, shown(top.value.get("version")))
    if key in taken:
        what = f"{native} is also the model of {shown(taken[key])}, in the same version"
        return native, [
            notes.todo(
                path, "same-name", "name", what, f"write another one; family: {native} says that it is the same network"
            )
        ]
    taken[key] = source
    return native, [entry("name", native)[0] + ("" if native == written else f"  # {printable(written)}")]


def version_lines(top: Original) -> Lines:
    written = top.text("version")
    path, notes = top.path("version"), top.notes
    if not written:
        return [notes.todo(path, "no-version", "version", "the original has none", "write one, such as 1.0.0")]
    try:
        return entry("version", str(parse_version(written)))
    except InvalidInputError:
        what = f"{shown(written)} is no SemVer version{_as_number(top, 'version')}"
        ask = "write MAJOR.MINOR.PATCH"
        if _NUMBER.fullmatch(written):
            ask = f"write {written}{'.0' * (2 - written.count('.'))} if that is meant"
        return [notes.todo(path, "version", "version", what, ask)]


def license_lines(top: Original) -> Lines:
    written = top.text("license")
    path, notes = top.path("license"), top.notes
    if written is None or written.strip().lower() in _NO_LICENCE:
        what = "the original has none" if written is None else f"the original says {shown(written)}"
        return [notes.todo(path, "no-license", "license", what, "write the licence of the weights")]
    try:
        canonicalize_license_expression(written)
    except InvalidLicenseExpression:
        notes.tell(path, "license", f"{shown(written)} is no SPDX expression", "kept as it is written")
    return entry("license", written.strip())


def description_lines(top: Original) -> Lines:
    written = top.text("description")
    return entry("description", written.strip()) if written and written.strip() else []


def framework_lines(top: Original) -> tuple[str | None, Lines]:
    """The native framework, if there is one, and what is written of it."""
    framework = top.mapping("framework")
    notes, path = top.notes, top.path("framework")
    if framework is None:
        return None, [
            notes.todo(path, "no-framework", "framework", "the original names none", "write name and version")
        ]
    written = framework.text("name")
    native = _FRAMEWORKS.get((written or "").strip().lower())
    if native is None:
        what = f"no predictor here drives {shown(written)}" if written else "the original names none"
        ask = f"write one of {', '.join(dict.fromkeys(_FRAMEWORKS.values()))} if the files fit it"
        lines = [notes.todo(framework.path("name"), "no-predictor", "framework.name", what, ask)]
    else:
        lines = entry("name", native)
        if native != written:
            notes.tell(framework.path("name"), "framework", f"{shown(written)} is called {native} here", "renamed")
    return native, block("framework", [*lines, *_constraint_lines(framework)])


def _constraint_lines(framework: Original) -> Lines:
    written = framework.text("version")
    path, notes, subject = framework.path("version"), framework.notes, "framework.version"
    if not written:
        return [notes.todo(path, "no-framework-version", subject, "the original has none", "write a set of versions")]
    if _PARTIAL.fullmatch(written):
        what = f"{written} alone is a partial version{_as_number(framework, 'version')}"
        return [notes.todo(path, "partial-version", subject, what, f'write "~{written}" or "^{written}"')]
    try:
        Constraint.parse(written)
    except InvalidInputError as error:
        what = f"{shown(written)} is no set of versions"
        return [notes.todo(path, "constraint", subject, what, printable(error.next_step or "write one"))]
    return [f"version: {json.dumps(written)}"]


def list_images(top: Original) -> None:
    """Images are artifacts of their own here; an original names them by tag, and may have crossed them."""
    if not top.says("container"):
        return
    container = top.use("container")
    if not isinstance(container, dict):
        top.notes.tell(top.path("container"), "image", f"{shown(container)} is no list of images", "left out")
        return
    for arch, devices in container.items():
        named = devices if isinstance(devices, dict) else {"": devices}
        for device, tag in named.items():
            path = top.place.at("container", arch, *([device] if device else [])).path
            _list_image(top.notes, path, device, tag)


def _list_image(notes: Notes, path: str, device: str, tag: object) -> None:
    done = "left out: an image is an artifact of its own"
    other = {"cpu": "gpu", "gpu": "cpu"}.get(device.lower())
    label = tag.rpartition(":")[2].lower() if isinstance(tag, str) else ""
    if other and other in label and device.lower() not in label:
        notes.tell(path, "crossed-image", f"the {device} image is {shown(tag)}, whose tag says {other}", done)
    elif isinstance(tag, str) and "@sha256:" in tag:
        notes.tell(path, "image", f"{shown(tag)} is an image by digest", done)
    else:
        notes.tell(path, "image-tag", f"{shown(tag)} is a tag and no digest", done)


def _as_number(place: Original, key: str) -> str:
    """What became of a version that was written without quotes, as YAML reads it."""
    value, written = place.value[key], place.spelling(key)
    if isinstance(value, float) and _KEPT_ZERO.fullmatch(written) and str(value) != written:
        return f", and a number, of which YAML reads {value}"
    return ", and a number" if isinstance(value, int | float) else ""
