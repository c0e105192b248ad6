"""Reader of file contents that a lock depends on, in a child process unless the files are small."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import msgspec

from benchlock.artifacts.blob_store import BlobNotFoundError, BlobReader, verify
from benchlock.artifacts.digest import Descriptor, Digest, from_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import iterate_tree
from benchlock.artifacts.isolation.isolated_calls import run_isolated
from benchlock.artifacts.isolation.resource_limits import IsolatedFaultError, LimitExceededError, Limits
from benchlock.artifacts.size_limits import shorten
from benchlock.registry.artifact_names import Kind
from benchlock.registry.inspection.draft_content import DraftContent
from benchlock.registry.inspection.file_facts import (
    ComparedLabels,
    Disagreement,
    FileFacts,
    FileQuestions,
    LabelComparison,
    ResampledField,
)
from benchlock.registry.inspection.formats.image_documents import ListedWheel, read_wheels
from benchlock.registry.inspection.formats.parquet import read_footer
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.tensor_files import read_arrays
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, read_whole
from benchlock.registry.inspection.label_files import find_disagreements, parse_labels, read_categories
from benchlock.registry.lock.split_checks import find_label_columns
from benchlock.registry.manifests import Manifest, files_of, holds_path

LIMITS: Final = Limits(memory=3 << 29, cpu_seconds=60, seconds=300.0, files=64, result=4 << 20)
"""Resource limits of the child process that reads the files of one lock."""
SMALL: Final = 64 << 10
"""Total size in bytes up to which files are read in this process: so little input needs few resources."""
_MAX_SHOWN: Final = 1000
_LONGEST_NAME: Final = 200
_GZIP: Final = b"\x1f\x8b"
_WHAT: Final = "reading the files of the lock"


@dataclass(frozen=True, slots=True)
class FileLocation:
    """The location of a file's bytes.

    Attributes:
        artifact: The name of the artifact in messages, such as ``model/acme/resnet8 1.0.0``.
        kind: The kind of the artifact.
        path: The path of the file in its manifest; the file may be inside a tree.
        digest: The digest of the file, or of the tree that contains it.
        size: The size in bytes of the file, or of the tree.
        tree: The path of the tree in the manifest; empty for a file.
    """

    artifact: str
    kind: Kind
    path: str
    digest: Digest
    size: int
    tree: str = ""


def read_file_facts(questions: FileQuestions, manifests: Mapping[Kind, Manifest], store: BlobReader) -> FileFacts:
    """Answer questions about files of artifacts.

    Args:
        questions: The questions.
        manifests: The manifests of the artifacts, by kind.
        store: The store of the files.

    Raises:
        InvalidInputError: A manifest has no such file, or a file does not have the form that its manifest declares.
        LimitExceededError: A file is too large.
        IntegrityError: A file is missing or damaged.
        UnavailableError: The child process cannot be started, or the store failed.
    """
    locations = tuple(_locate(manifests[kind], path) for kind, path in questions.files())
    if _are_small(locations, store):
        return _answer(questions, locations, store)
    arguments = msgspec.to_builtins([questions, locations])
    try:
        facts = run_isolated(f"{__name__}:answer_isolated", arguments, limits=LIMITS, subject=_WHAT, blobs=store)
    except (LimitExceededError, IsolatedFaultError) as error:
        location = next((candidate for candidate in locations if candidate.digest == error.blob), None)
        if location is not None:
            error.where = f"{location.path} ({location.artifact})"
        raise
    return msgspec.convert(facts, FileFacts)


def answer_isolated(arguments: Sequence[Any], blobs: BlobReader) -> Any:  # noqa: ANN401 - plain values
    """Answer questions in a child process; arguments and result are plain values."""
    questions, locations = msgspec.convert(arguments, tuple[FileQuestions, tuple[FileLocation, ...]])
    return msgspec.to_builtins(_answer(questions, locations, blobs))


def _locate(manifest: Manifest, path: str) -> FileLocation:
    for file in files_of(manifest):
        if holds_path(file, path):
            assert isinstance(file.sha256, str)
            assert isinstance(file.size, int)
            artifact = f"{manifest.kind}/{manifest.name} {manifest.version}"
            tree = "" if file.path == path else file.path
            return FileLocation(artifact, manifest.kind, path, from_hex(file.sha256), file.size, tree)
    raise _missing_error(f"{manifest.kind}/{manifest.name}", path)


def _missing_error(artifact: str, path: str) -> InvalidInputError:
    return InvalidInputError(
        f"{artifact} has no file {path}", where=path, next_step="publish a version that has it, or name another file"
    )


def _are_small(locations: Sequence[FileLocation], store: BlobReader) -> bool:
    """Return whether this process can read the files cheaply: few bytes, and none compressed."""
    try:
        if (
            any(location.tree for location in locations)
            or sum(store.stat(location.digest).size for location in locations) > SMALL
        ):
            return False
        return not any(_is_compressed(location.digest, store) for location in locations)
    except BlobNotFoundError:
        return True  # reading raises the error


def _is_compressed(digest: Digest, store: BlobReader) -> bool:
    with store.open(digest) as stream:
        return stream.read(len(_GZIP)) == _GZIP


def _answer(questions: FileQuestions, locations: Sequence[FileLocation], blobs: BlobReader) -> FileFacts:
    files = _Files({(location.kind, location.path): location for location in locations}, blobs)
    columns = () if questions.index is None else files.label_columns(questions.index)
    compared = tuple(map(files.compare_labels, questions.compared))
    wheels = {path: files.wheels(path) for path in questions.wheels}
    without_rate = tuple(field.index for field in questions.resampled if files.are_without_rate(field))
    return FileFacts(columns, compared, wheels, without_rate)


@dataclass(frozen=True, slots=True)
class _Files:
    """Reader of the files at some locations."""

    locations: Mapping[tuple[Kind, str], FileLocation]
    blobs: BlobReader

    def label_columns(self, path: str) -> tuple[str, ...]:
        with self._open("dataset", path) as stream:
            return find_label_columns(stream, path)

    def compare_labels(self, compared: ComparedLabels) -> LabelComparison:
        of_model = self._labels("model", compared.model)
        of_dataset: Sequence[str] | Mapping[int, str]
        if compared.categories:
            with self._open("dataset", compared.dataset, unpack=True) as stream:
                of_dataset = read_categories(stream, compared.dataset)
        else:
            of_dataset = self._labels("dataset", compared.dataset)
        disagreements = find_disagreements(of_model, of_dataset, compared.offset)
        shifts = {item.found - item.expected for item in disagreements}
        examples = (
            Disagreement(shorten(item.name, _LONGEST_NAME), item.expected, item.found)
            for item in disagreements[:_MAX_SHOWN]
        )
        return LabelComparison(len(disagreements), shifts.pop() if len(shifts) == 1 else None, tuple(examples))

    def wheels(self, path: str) -> tuple[ListedWheel, ...]:
        with self._open("image", path) as stream:
            return read_wheels(read_whole(stream, BUDGET.document), path)

    def are_without_rate(self, field: ResampledField) -> bool:
        """Return whether the samples of a field are sounds as numbers. Only the headers of the file are read."""
        with self._open("dataset", field.path, is_whole=False) as stream:
            try:
                if field.format == "parquet":
                    column = read_footer(stream).column(field.key)
                    return column is not None and column.holds_sounds
                return any(array.name == field.key and array.holds_sounds for array in read_arrays(stream))
            except MalformedError:
                return False  # the run reports the error

    def _labels(self, kind: Kind, path: str) -> tuple[str, ...]:
        with self._open(kind, path) as stream:
            return parse_labels(read_whole(stream, BUDGET.document), path)

    @contextmanager
    def _open(self, kind: Kind, path: str, *, unpack: bool = False, is_whole: bool = True) -> Iterator[BinaryIO]:
        """Open the bytes of a file, verified if the whole file is read."""
        location = self.locations[kind, path]
        blob = self._find(location)
        if is_whole:
            verify(self.blobs, blob.digest, name=path)
        content = DraftContent(location.artifact, self.blobs, {path: blob})
        with (content.unpacked if unpack else content.open)(path, path) as stream:
            yield stream

    def _find(self, location: FileLocation) -> Descriptor:
        blob = Descriptor(location.digest, location.size)
        if not location.tree:
            return blob
        inside = location.path.removeprefix(location.tree)
        file = None
        for entry in iterate_tree(self.blobs, blob, name=location.tree):
            if entry.path == inside:
                file = Descriptor(entry.digest, entry.size)
        if file is None:
            raise _missing_error(location.artifact, location.path)
        return file
