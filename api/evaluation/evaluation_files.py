"""The manifests and the request of an evaluation: found, or generated from files and completed by answers.

A generated file is completed before anything is written. An existing file is used as it is, and never overwritten.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from msgspec import UNSET

from benchlock.api.client.draft_publication import MANIFEST
from benchlock.api.client.draft_publication import read_draft as read_manifest
from benchlock.api.client.user_files import read_text
from benchlock.api.evaluation.scaffold_completion import (
    AnswerSource,
    GeneratedFile,
    PendingScaffold,
    Subject,
    answers_of,
    count_picture_classes,
)
from benchlock.api.local.local_registry import source_access
from benchlock.api.schemas.registry_protocol import Registry
from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.artifacts.sources import parse_hub_repository
from benchlock.artifacts.user_output import SILENT, Progress
from benchlock.evaluator.runner.host_platform import this_platform
from benchlock.registry.artifact_names import Kind, parse_name
from benchlock.registry.catalogue.catalogue_protocol import CatalogueProtocol
from benchlock.registry.manifests import Dataset, File, Model, files_of, plain
from benchlock.registry.publishing.drafts import Draft, read_draft
from benchlock.registry.requests.evaluation_request import Request, read_request
from benchlock.registry.scaffold.hub_model import scaffold_hub_model
from benchlock.registry.scaffold.label_range import find_excess_label, read_local
from benchlock.registry.scaffold.manifest_scaffold import ManifestScaffold, scaffold_manifest, suggest_file
from benchlock.registry.scaffold.model_scaffold import detect_format
from benchlock.registry.scaffold.request_scaffold import RequestedDataset, RequestedModel, scaffold_request
from benchlock.registry.scaffold.sample_index import find_unlisted
from benchlock.registry.scaffold.scaffold_answers import CONFIRMED, find_value
from benchlock.registry.text.collected_problems import Problems, printable
from benchlock.registry.text.yaml import read_yaml
from benchlock.registry.versions.version_ranges import ANY, Constraint

T = TypeVar("T")

HUB: Final = "hf:"
"""The beginning of a source on the Hugging Face Hub."""
_ENDINGS: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class EvaluatedArtifact:
    """A model or a dataset of an evaluation.

    Attributes:
        manifest: The manifest.
        constraint: The constraint on its version, for the request.
        is_constrained: Whether the user gave the constraint.
        draft: The draft to publish; None if the artifact is published.
        generated: The manifest to write and the files that it refers to; none if the manifest exists.
    """

    manifest: Model | Dataset
    constraint: str
    draft: Draft | None = None
    generated: tuple[GeneratedFile, ...] = ()
    is_constrained: bool = False


@dataclass(frozen=True, slots=True)
class EvaluationFiles:
    """What an evaluation consists of: its model, its dataset and its request."""

    model: EvaluatedArtifact
    dataset: EvaluatedArtifact
    request: Request
    request_path: Path
    generated: tuple[GeneratedFile, ...]

    @property
    def drafts(self) -> tuple[Draft, ...]:
        """The drafts to publish."""
        return tuple(part.draft for part in (self.model, self.dataset) if part.draft is not None)


def scaffold_hub(
    kind: Kind, text: str, folder: Path, open_store: Callable[[], BlobStore | None], progress: Progress
) -> ManifestScaffold:
    """Generate the manifest of a model on the Hub.

    Args:
        kind: The kind of the manifest, which must be a model.
        text: ``hf:ORG/NAME@REVISION``, perhaps with a path.
        folder: The folder that the manifest will be written to.
        open_store: Opens the store that receives the model file, so that publishing need not download it again; returns
            None if there is none.
        progress: Shows the download.

    Raises:
        BenchlockError: As ``parse_hub_repository`` and ``scaffold_hub_model``.
    """
    if kind != "model":
        raise InvalidInputError(
            f"{text} is a model on the Hub, not a {kind}",
            where=text,
            next_step="download the files, and use their path",
        )
    access = source_access()
    source = parse_hub_repository(text, access.hub, access.network)

    def keep(path: Path, digest: Digest) -> None:
        if (store := open_store()) is not None:
            store.put_file(path, digest)

    return scaffold_hub_model(source, folder, keep=keep, progress=progress)


@dataclass(frozen=True, slots=True)
class FileCollector:
    """Finds or generates the files of evaluations.

    Attributes:
        open_registry: Opens the registry, for files that are downloaded.
        answers: Where answers come from.
        directory: The folder for generated files; None for that of the model, or of the dataset if the model is
            published.
        progress: Shows downloads.
        find_registry: Opens the registry for published names, or returns None if there is none; absent, it is
            ``open_registry``.
    """

    open_registry: Callable[[], Registry]
    answers: AnswerSource
    directory: Path | None = None
    progress: Progress = SILENT
    find_registry: Callable[[], Registry | None] | None = None

    def collect(self, model: str, dataset: str) -> EvaluationFiles:
        """Find or generate the files of an evaluation; write nothing.

        Args:
            model: A published name with or without a constraint, a manifest, or a model's file or folder.
            dataset: The same of a dataset.

        Raises:
            InvalidInputError: A text is none of these, an answer is missing or contradicts an existing file, or a
                manifest has problems.
        """
        folder = self._choose_folder(model, dataset)
        found, data = self._find("model", model, folder), self._find("dataset", dataset, folder)
        if isinstance(found, PendingScaffold):
            found = replace(found, picture_classes=_count_classes(data))
        sources = (found, data)
        generated = [source for source in sources if isinstance(source, PendingScaffold)]
        for source in generated:
            self.answers.show(f"{source.subject}: {source.path} (new)", source.scaffold.findings)
        artifacts = self._settle(generated, partial(self._complete_all, sources))
        return self._add_request(artifacts[0], artifacts[1], folder)

    def _choose_folder(self, model: str, dataset: str) -> Path:
        """Choose the folder for generated files, which must not become a part of the dataset."""
        if not (model and dataset):
            step = "give a published name, a manifest, or a file or folder"
            raise InvalidInputError(f"the {'dataset' if model else 'model'} is an empty text", next_step=step)
        paths = [Path(text).absolute() for text in (model, dataset) if Path(text).exists()]
        manifests = [path for path in paths if (path / MANIFEST).is_file()]
        folder = self.directory or next((path if path in manifests else path.parent for path in paths), Path())
        data = Path(dataset).resolve()
        if data.is_dir() and data not in manifests and (folder.resolve() == data or data in folder.resolve().parents):
            raise InvalidInputError(
                f"files that are written to {folder} would become a part of the dataset",
                where=str(folder),
                next_step="choose another folder with --directory",
            )
        return folder.absolute()

    def scaffold_request(self, model: str | None, dataset: str | None) -> ManifestScaffold:
        """Generate the request of a model and a dataset, published or with a manifest.

        Args:
            model: A published name or a manifest; None for TODO lines.
            dataset: The same of a dataset.

        Raises:
            InvalidInputError: A text is neither.
        """
        return _scaffold_request(
            None if model is None else self._find_described("model", model),
            None if dataset is None else self._find_described("dataset", dataset),
        )

    def _find_described(self, kind: Literal["model", "dataset"], text: str) -> EvaluatedArtifact:
        """Find a published version or an existing manifest."""
        source = self._find(kind, text, Path(text).absolute().parent)
        if isinstance(source, EvaluatedArtifact):
            return source
        step = f"create its manifest: benchlock init {kind} {text}"
        raise InvalidInputError(f"{text} has no manifest", where=text, next_step=step)

    def _settle(self, generated: Sequence[PendingScaffold], build: Callable[[Mapping[str, Any]], T]) -> T:
        """Return what ``build`` makes of all answers.

        An answer may raise another question, and answers that do not fit together are asked for again.
        """
        answers = dict(self.answers.values)
        while True:
            while values := [value for source in generated for value in source.list_open(answers)]:
                answers |= self.answers.ask(values)
            try:
                return build(answers)
            except InvalidInputError as error:
                problems = error.problems or (error,)
                values = [value for source in generated for value in source.list_concerned(problems, answers)]
                if self.answers.revise is None or not values:
                    raise
            answers |= self.answers.revise(problems, values)

    def _complete_all(
        self, sources: Sequence[EvaluatedArtifact | PendingScaffold], answers: Mapping[str, Any]
    ) -> list[EvaluatedArtifact]:
        """Return the artifacts with all answers; raise all their problems at once."""
        problems, artifacts = Problems(), list[EvaluatedArtifact]()
        for source in sources:
            with problems.noted():
                artifact = self._complete(source, answers) if isinstance(source, PendingScaffold) else source
                artifacts.append(artifact)
                for problem in () if artifact.draft is None else artifact.draft.problems:
                    problems.add(problem)
        problems.refuse()
        split, (model, dataset) = answers.get("request.dataset.split"), artifacts
        if isinstance(sources[0], PendingScaffold) and (excess := _find_excess_label(model, dataset, split)):
            path, what, step = excess
            where = read_yaml(model.generated[0].text, sources[0].unwritten).where(path)
            raise InvalidInputError(what, where=where, next_step=step)
        return artifacts

    def _complete(self, source: PendingScaffold, answers: Mapping[str, Any]) -> EvaluatedArtifact:
        """Return the artifact of a generated manifest."""
        generated = source.complete(answers, self.answers.files if source.subject == "model" else ())
        for file in generated[1:]:
            file.require_same_text()
        manifest = generated[0]
        draft = read_draft(manifest.text, source.unwritten, manifest.path, source_access())
        return _evaluate_draft(draft, source.subject, generated)

    def _find(self, kind: Literal["model", "dataset"], text: str, folder: Path) -> EvaluatedArtifact | PendingScaffold:
        """Find a published version, an existing manifest, or a file to describe."""
        path = Path(text)
        if text.startswith(HUB):
            return self._find_on_hub(kind, text, folder)
        if not path.exists():
            return self._find_published(kind, text)
        if (path / MANIFEST).is_file() or (path.is_file() and path.suffix.lower() in _ENDINGS and _has_kind(path)):
            return self._read_existing(kind, path)
        source = path.absolute()
        target = folder / f"{source.name}.{kind}.yaml"
        if target.exists():
            artifact = self._read_existing(kind, target)
            _require_source(artifact, source, target)
            if warning := _describe_unlisted(artifact.manifest, target):
                self.answers.show(warning, ())
            return artifact
        if kind == "model" and "model.format" not in self.answers.values and detect_format(source) is None:
            step = "give the model first, then the dataset; give model.format for a file with another ending"
            raise InvalidInputError(f"{text} is not a model in a known format", where=text, next_step=step)
        return PendingScaffold(kind, target, scaffold_manifest(kind, source, target.parent))

    def _find_on_hub(
        self, kind: Literal["model", "dataset"], text: str, folder: Path
    ) -> EvaluatedArtifact | PendingScaffold:
        """Describe a model on the Hugging Face Hub, unless a manifest of an earlier evaluation is there."""
        access = source_access()
        repository = parse_hub_repository(text, access.hub, access.network).name
        target = folder / f"{repository.rpartition('/')[2]}.{kind}.yaml"
        if not target.exists():
            scaffold = scaffold_hub(kind, text, folder, lambda: self.open_registry().trial_store, self.progress)
            return PendingScaffold(kind, target, scaffold)
        artifact = self._read_existing(kind, target)
        if not any(str(file.source).startswith(f"hf://{repository}@") for file in _sources(artifact)):
            raise _other_source_error(text, target)
        return artifact

    def _find_published(self, kind: Kind, text: str) -> EvaluatedArtifact:
        """Find the newest published version of ``NAME[@CONSTRAINT]``; without a constraint, the request gets one."""
        name, at, constraint = text.removeprefix(f"{kind}/").partition("@")
        try:
            parsed = parse_name(name)
        except InvalidInputError as error:
            step = suggest_file(text) or f"give a published name, a manifest, or a file or folder of a {kind}"
            raise InvalidInputError(f"{text} not found", where=text, next_step=step) from error
        self._refuse_answers(kind, f"{kind}/{name} is published, and a published version never changes")
        registry = (self.find_registry or self.open_registry)()
        try:
            catalogue = _open_catalogue(registry, kind, name)
            entry = catalogue.newest(kind, parsed, Constraint.parse(constraint) if at else ANY)
        except UnknownNameError as error:
            if step := suggest_file(text):
                raise InvalidInputError(f"{text} not found", where=text, next_step=step) from error
            what = f"{error.what}, and no file or folder has this name"
            raise UnknownNameError(what, where=error.where, next_step=error.next_step) from error
        manifest = catalogue.manifest(entry.reference)
        assert isinstance(manifest, Model | Dataset)
        stated = constraint if at else f"^{entry.reference.version}"
        return EvaluatedArtifact(manifest, stated, is_constrained=bool(at))

    def _refuse_answers(self, subject: Subject | Kind, what: str) -> None:
        given = [path for path in self.answers.values if path.startswith(f"{subject}.")]
        if given:
            raise InvalidInputError(what, where=f"--set {given[0]}", next_step="omit the option, or give a file")

    def _read_existing(self, kind: Literal["model", "dataset"], path: Path) -> EvaluatedArtifact:
        """Read an existing manifest, which is used as it is."""
        draft = read_manifest(path)
        artifact = _evaluate_draft(draft, kind, ())
        self.answers.show(f"{kind}: {path} (exists, used as it is)", ())
        self._require_agreement(kind, path, draft.text)
        return artifact

    def _require_agreement(self, subject: Subject, path: Path, text: str) -> None:
        """Raise unless the given answers are those of an existing file, which is never overwritten."""
        document, problems = read_yaml(text, str(path)), Problems()
        for key, value in answers_of(subject, self.answers.values).items():
            present = find_value(document.value, key)
            if value is not CONFIRMED and value != present:
                what = f"{path.name} has another value of {key}, and existing files are not overwritten"
                step = f"edit {path.name}, or delete it to generate it again"
                problems.add(InvalidInputError(what, where=document.where(key), next_step=step))
        problems.refuse()

    def _add_request(self, model: EvaluatedArtifact, dataset: EvaluatedArtifact, folder: Path) -> EvaluationFiles:
        """Find or generate the request of a model and a dataset."""
        assert isinstance(model.manifest, Model)
        assert isinstance(dataset.manifest, Dataset)
        scaffold = _scaffold_request(model, dataset)
        given = self.answers.values.get("request.name")
        name = given if isinstance(given, str) else str(read_yaml(scaffold.text, "request").value["name"])
        path = folder / f"{name.replace('/', '-')}.yaml"
        files = [*model.generated, *dataset.generated]
        if path in [file.path for file in files]:
            step = "choose another name with --set request.name=NAME"
            raise InvalidInputError(f"{path.name} would be both a manifest and the request", next_step=step)
        if path.exists():
            text = read_text(path, next_step="give a request file")
            request = read_request(text, str(path))
            self.answers.show(f"request: {path} (exists, used as it is)", ())
            self._require_agreement("request", path, text)
            _require_names(request, model, dataset, path)
        else:
            pending = PendingScaffold("request", path, scaffold)
            self.answers.show(f"request: {path} (new)", scaffold.findings)
            request, generated = self._settle([pending], partial(_complete_request, pending))
            files.append(generated)
        return EvaluationFiles(model, dataset, request, path, tuple(files))


def _open_catalogue(registry: Registry | None, kind: Kind, name: str) -> CatalogueProtocol:
    """Return the catalogue of the registry; without a registry, no name is published."""
    if registry is None:
        step = f"give a file or folder of a {kind}, or the registry in which {name} is published"
        raise UnknownNameError(f"unknown {kind} {name!r}", where=f"{kind}/{name}", next_step=step)
    return registry.catalogue


def _complete_request(pending: PendingScaffold, answers: Mapping[str, Any]) -> tuple[Request, GeneratedFile]:
    """Return a generated request with all answers, and its file."""
    (generated,) = pending.complete(answers)
    return read_request(generated.text, pending.unwritten), generated


def _scaffold_request(model: EvaluatedArtifact | None, dataset: EvaluatedArtifact | None) -> ManifestScaffold:
    """Generate a request for this machine."""
    requested_model = requested_dataset = None
    if model is not None and isinstance(model.manifest, Model):
        requested_model = RequestedModel(model.manifest, model.constraint)
    if dataset is not None and isinstance(dataset.manifest, Dataset):
        requested_dataset = RequestedDataset(dataset.manifest, dataset.constraint)
    return scaffold_request(requested_model, requested_dataset, this_platform())


def _has_kind(path: Path) -> bool:
    """Return whether a text file has the key ``kind`` of a manifest; other YAML and JSON files hold data."""
    with path.open("rb") as stream:
        head = stream.read(4096)
    return b"kind:" in head or b'"kind"' in head


def _evaluate_draft(draft: Draft, kind: Subject, generated: tuple[GeneratedFile, ...]) -> EvaluatedArtifact:
    """Return the artifact of a draft, which must be of the kind.

    The request admits compatible versions, so that the next version of the draft needs no other request.
    """
    manifest = draft.manifest
    if not isinstance(manifest, Model if kind == "model" else Dataset):
        raise InvalidInputError(
            f"{draft.path} is the manifest of a {manifest.kind}, not of a {kind}",
            where=str(draft.path),
            next_step="give the model first, then the dataset",
        )
    return EvaluatedArtifact(manifest, f"^{manifest.version}", draft, generated)


def _count_classes(dataset: EvaluatedArtifact | PendingScaffold) -> int | None:
    """Return the number of classes of a dataset of pictures; None if no local file names them."""
    if isinstance(dataset, PendingScaffold):
        document = read_yaml(dataset.scaffold.text, dataset.path.name).value
        return count_picture_classes(document, dataset.path.parent, dataset.scaffold.files)
    return None if dataset.draft is None else count_picture_classes(plain(dataset.manifest), dataset.draft.path.parent)


def _sources(artifact: EvaluatedArtifact) -> tuple[File, ...]:
    return tuple(file for file in files_of(artifact.manifest) if file.source is not UNSET)


def _require_source(artifact: EvaluatedArtifact, source: Path, target: Path) -> None:
    """Raise unless an existing manifest describes a file or folder."""
    places = [
        (target.parent / file.source.removeprefix("file:")).resolve()
        for file in _sources(artifact)
        if isinstance(file.source, str)
    ]
    wanted = source.resolve()
    if not any(place == wanted or place in wanted.parents or wanted in place.parents for place in places):
        raise _other_source_error(str(source), target)


def _find_excess_label(
    model: EvaluatedArtifact, dataset: EvaluatedArtifact, split: object
) -> tuple[str, str, str] | None:
    """Return the label offset that moves labels of a local split beyond the scores; None if nothing is known of it."""
    assert isinstance(model.manifest, Model)
    assert isinstance(dataset.manifest, Dataset)
    splits = dataset.manifest.splits
    name = next(iter(splits)) if len(splits) == 1 else str(split)
    if dataset.draft is None or name not in splits:
        return None
    texts = {file.path: file.text for file in dataset.generated}
    read = read_local(dataset.manifest, dataset.draft.path.parent, texts)
    return find_excess_label(model.manifest, dataset.manifest, splits[name], read)


def _describe_unlisted(manifest: Model | Dataset, path: Path) -> str:
    """Return a warning that files in class folders are not in their index; empty if all are."""
    unlisted = find_unlisted(manifest, path.parent) if isinstance(manifest, Dataset) else []
    if not unlisted:
        return ""
    count = f"{len(unlisted)} files are" if len(unlisted) > 1 else "1 file is"
    generated = [file.source for file in files_of(manifest) if file.path.endswith((".csv", ".txt"))]
    names = ", ".join([path.name, *(Path(str(source)).name for source in generated)])
    step = f"to include them, delete {names}, and add --set dataset.version=NEXT"
    return f"warning: {count} not in the index and not evaluated, first {printable(unlisted[0])}; {step}"


def _other_source_error(source: str, target: Path) -> InvalidInputError:
    return InvalidInputError(
        f"{target.name} describes another file than {source}",
        where=str(target),
        next_step="choose another folder with --directory, or delete the manifest to generate it again",
    )


def _require_names(request: Request, model: EvaluatedArtifact, dataset: EvaluatedArtifact, path: Path) -> None:
    """Raise unless an existing request names the model and the dataset, with the constraints that the user gave."""
    content = request.of_model
    named, wanted = (content.model.name, content.dataset.name), (model.manifest.name, dataset.manifest.name)
    step = "choose another name with --set request.name=NAME, or delete the file to generate it again"
    if named != wanted:
        what = f"{path.name} requests {named[0]} on {named[1]}, not {wanted[0]} on {wanted[1]}"
        raise InvalidInputError(what, where=str(path), next_step=step)
    for artifact, present in ((model, content.model.version), (dataset, content.dataset.version)):
        if artifact.is_constrained and present != artifact.constraint:
            what = f"{path.name} requests {artifact.manifest.name}@{present}, not @{artifact.constraint}"
            raise InvalidInputError(what, where=str(path), next_step=step)
