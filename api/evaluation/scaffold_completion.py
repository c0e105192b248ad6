"""Generated manifests and requests, completed by answers of the user before they are written."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import UNSET

from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.registry.manifests.authored_manifests import examine
from benchlock.registry.requests.evaluation_request import read_request
from benchlock.registry.scaffold.manifest_scaffold import ManifestScaffold
from benchlock.registry.scaffold.sample_index import read_names
from benchlock.registry.scaffold.scaffold_answers import (
    CONFIRMED,
    add_file,
    contains_path,
    find_value,
    is_confirmation,
    list_open,
    locate_todos,
    write_answers,
)
from benchlock.registry.text.collected_problems import Finding
from benchlock.registry.text.yaml import read_yaml

Subject = Literal["model", "dataset", "request"]

UNKNOWN_LICENSE: Final = "LicenseRef-unknown"
_WITH_OFFSET: Final = ("class-scores", "class-index", "mask")
_CLASSIFIER: Final = {
    "task": "image-classification", "inputs[0].type": "image", "outputs[0].type": "class-scores",
}  # fmt: skip
"""The values of a model that classifies pictures. How a picture becomes its input is in none of them."""
_PICTURE_AXES: Final = 4
_PART: Final = re.compile(r"^([^.\[]*(?:\[[0-9]+\])?).*$", re.DOTALL)
"""A path that begins with a key, and perhaps an index."""


@dataclass(frozen=True, slots=True)
class OpenValue:
    """A value that no file states.

    Attributes:
        subject: What it is a value of.
        finding: What is missing, and how to answer.
        is_confirmation: Whether a generated value is to be checked.
        default: The value that is taken if the user accepts all defaults; UNSET if there is none.
        check: Returns what is wrong with an answer, as far as the value alone shows it.
    """

    subject: Subject
    finding: Finding
    is_confirmation: bool
    default: Any
    check: Callable[[Any], Sequence[BenchlockError]]

    @property
    def path(self) -> str:
        """The path of the value, below its subject: ``model.inputs[0].steps``."""
        return f"{self.subject}.{self.finding.path}"


@dataclass(frozen=True, slots=True)
class GeneratedFile:
    """A completed text that is to be written."""

    path: Path
    text: str

    def require_same_text(self) -> None:
        """Raise if the file exists with another text."""
        if self.path.exists() and self.path.read_bytes() != self.text.encode():
            raise InvalidInputError(
                f"{self.path} exists with another content",
                where=str(self.path),
                next_step="choose another folder with --directory, or delete the file to generate it again",
            )


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """Where the answers to open values come from.

    Attributes:
        ask: Returns answers by path, to one of the given values or more; raises if it has none.
        show: Gets what was inferred: a heading, and the findings.
        values: Given answers by path, such as ``model.task``.
        files: Further files of the model: its labels and its code, each with ``path``, ``role`` and ``source``.
        revise: Returns new answers to the given values, whose defaults are answers that the given problems are about;
            None if answers are final.
    """

    ask: Callable[[Sequence[OpenValue]], Mapping[str, Any]]
    show: Callable[[str, Sequence[Finding]], None]
    values: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[Mapping[str, str], ...] = ()
    revise: Callable[[Sequence[BenchlockError], Sequence[OpenValue]], Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class PendingScaffold:
    """A generated manifest or request whose open values need answers.

    Attributes:
        subject: What it describes.
        path: The path that it will be written to.
        scaffold: Its text and its findings.
        picture_classes: The number of classes of the pictures that a model is evaluated on; None if it is unknown.
    """

    subject: Subject
    path: Path
    scaffold: ManifestScaffold
    picture_classes: int | None = None

    def __post_init__(self) -> None:
        """Give the findings the paths of their keys, by which they are answered."""
        findings = locate_todos(self.scaffold.text, self.scaffold.findings)
        object.__setattr__(self, "scaffold", replace(self.scaffold, findings=findings))

    def list_open(self, answers: Mapping[str, Any]) -> list[OpenValue]:
        """List the values without an answer; a type of output may need another one."""
        own = answers_of(self.subject, answers)
        text = self.scaffold.text
        findings = list(list_open(self.scaffold.findings, own))
        paths = {finding.path for finding in findings}
        findings += [finding for finding in self._list_missing_offsets(own) if finding.path not in paths]
        values = [
            self._make_value(own, finding, _default_of(finding, is_confirmation(text, finding))) for finding in findings
        ]
        return list(map(self._offer_classifier, values)) if self._is_like_a_classifier(own) else values

    def _make_value(self, own: Mapping[str, Any], finding: Finding, default: Any) -> OpenValue:  # noqa: ANN401
        confirms = default is CONFIRMED
        return OpenValue(self.subject, finding, confirms, default, partial(self._check, own, finding))

    def list_concerned(self, problems: Sequence[BenchlockError], answers: Mapping[str, Any]) -> list[OpenValue]:
        """List the answers that problems of the completed text are about, each with its answer as default.

        A problem that names an answer is about that answer. Any other is about the answers of the same input or output,
        because shape, layout and steps depend on each other; if there are none, about all answers.
        """
        own = {path: value for path, value in answers_of(self.subject, answers).items() if value is not CONFIRMED}
        places = [str(problem.where).partition(" (") for problem in problems]
        parts = {_PART.sub(r"\1", place) for place, _, name in places if name.startswith(f"{self.unwritten},")}
        parts.discard("files")
        if parts & {"outputs", "predictions"}:
            parts.add("task")
        named = [path for path in own if path in {place for place, _, _ in places}]
        related = [path for path in own if any(contains_path(part, path) for part in parts)]
        if len(named) == len(problems):
            related = named
        offsets = self._list_missing_offsets({path: own[path] for path in own if not path.endswith("label_offset")})
        findings = {finding.path: finding for finding in (*self.scaffold.findings, *offsets)}
        return [
            self._make_value(own, findings.get(path) or Finding(path, "inferred", "your value", "write it"), own[path])
            for path in related or (own if parts else ())
        ]

    @property
    def unwritten(self) -> str:
        """The name of the completed text in errors."""
        return f"{self.path}, not written"

    def _check(self, own: Mapping[str, Any], finding: Finding, value: object) -> Sequence[BenchlockError]:
        """Return the problems of an answer; what other values lack is no problem of it."""
        try:
            problems = _examine(self.subject, self._write({**own, finding.path: value}))
        except InvalidInputError as error:
            problems = error.problems or (error,)
        return [problem for problem in problems if _concerns(problem, finding.path)]

    def _write(self, own: Mapping[str, Any]) -> str:
        """Return the text with the answers so far."""
        return write_answers(self.scaffold.text, self.scaffold.findings, own, f"{self.subject}.")

    def _read(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document with the answers so far."""
        document = read_yaml(self._write(own), self.path.name).value
        return document if isinstance(document, dict) else {}

    def _is_like_a_classifier(self, own: Mapping[str, Any]) -> bool:
        """Return whether a model has one input of pictures, and one output with a value for each class of them.

        An answer that says otherwise decides.
        """
        if self.picture_classes is None:
            return False
        document = self._read(own)
        inputs, outputs = (document.get(key) for key in ("inputs", "outputs"))
        if not (isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs) == 1):
            return False
        input_shape, output_shape = (find_value(port[0], "shape") for port in (inputs, outputs))
        return (
            isinstance(input_shape, list)
            and len(input_shape) == _PICTURE_AXES
            and isinstance(output_shape, list)
            and output_shape[1:] == [self.picture_classes]
            and str(find_value(outputs[0], "dtype")).startswith("float")
            and all(find_value(document, path) in (None, value) for path, value in _CLASSIFIER.items())
        )

    def _offer_classifier(self, value: OpenValue) -> OpenValue:
        """Return a value with the default of a model that classifies pictures, if it has one, and the reason."""
        default = _CLASSIFIER.get(value.finding.path)
        if default is None or value.is_confirmation:
            return value
        count = self.picture_classes
        what = f"the dataset has pictures of {count} classes, and the only output has {count} values for each sample"
        return replace(value, default=default, finding=replace(value.finding, what=f"{value.finding.what}; but {what}"))

    def _list_missing_offsets(self, own: Mapping[str, Any]) -> list[Finding]:
        """List the label offsets that the types of the outputs need."""
        if self.subject != "model":
            return []
        outputs = self._read(own).get("outputs")
        return [
            Finding(
                f"outputs[{index}].label_offset",
                "label-offset",
                f"an output of type {output['type']} needs it",
                "write class index minus dataset label, 0 where they are equal",
                todo=True,
            )
            for index, output in enumerate(outputs if isinstance(outputs, list) else ())
            if isinstance(output, dict) and output.get("type") in _WITH_OFFSET and "label_offset" not in output
        ]

    def complete(
        self, answers: Mapping[str, Any], files: Iterable[Mapping[str, str]] = ()
    ) -> tuple[GeneratedFile, ...]:
        """Return the text with all answers, first; then the texts of the files that it refers to."""
        text = self._write(answers_of(self.subject, answers))
        folder = self.path.parent
        for file in files:
            text = add_file(text, {**file, "source": os.path.relpath(file["source"], folder)})
        more = (GeneratedFile(folder / name, content) for name, content in self.scaffold.files.items())
        return GeneratedFile(self.path, text), *more


def count_picture_classes(
    document: Mapping[str, Any], folder: Path, generated: Mapping[str, str] | None = None
) -> int | None:
    """Return the number of classes of an index of pictures; None if no local file names them.

    Args:
        document: The manifest of the dataset.
        folder: The folder of the manifest.
        generated: The texts of the files that will be written there, by name.

    Raises:
        InvalidInputError: The labels file is too large, or is not UTF-8.
    """
    labels, files = document.get("labels"), document.get("files", ())
    source = next((file.get("source") for file in files if file["path"] == labels), None)
    if document.get("format") != "image-index" or not isinstance(source, str):
        return None
    text = (generated or {}).get(source.removeprefix("./"))
    if text is not None:
        return len(text.splitlines())
    path = folder / source.removeprefix("file:")
    return len(read_names(path)) if path.is_file() else None


def _examine(subject: Subject, text: str) -> Sequence[BenchlockError]:
    """Return the problems of a text, or raise them."""
    if subject == "request":
        read_request(text, subject)
        return ()
    return examine(text, subject).problems.found


def _concerns(problem: BenchlockError, path: str) -> bool:
    """Return whether a problem is about the value at a path, or about a part of it."""
    place, bracket, _ = (problem.where or "").partition(" (")
    is_missing = problem.what.startswith("the key ") and "is missing" in problem.what
    return bool(bracket) and not is_missing and contains_path(path, place)


def answers_of(subject: Subject, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers of one subject, by paths below it."""
    start = f"{subject}."
    return {path.removeprefix(start): value for path, value in answers.items() if path.startswith(start)}


def _default_of(finding: Finding, confirms: bool) -> Any:  # noqa: ANN401 - any YAML value
    """Return the value that accepting all defaults means; UNSET where it would change a result."""
    if confirms:
        return CONFIRMED
    return UNKNOWN_LICENSE if finding.path == "license" else UNSET
