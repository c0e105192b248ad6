"""Drafts: authored manifests with their problems, and the transfer of their files into a store."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobStore, check_digest
from benchlock.artifacts.digest import Descriptor, from_hex
from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.file_trees import TreeEntry, put_tree
from benchlock.artifacts.sources import (
    DvcSource,
    FileSource,
    FolderSource,
    RemoteSource,
    Source,
    SourceAccess,
    fetch_file,
    fetch_tree,
    open_source,
    pin_revision,
)
from benchlock.artifacts.user_output import Progress
from benchlock.registry.inspection.image_inspection import Ask
from benchlock.registry.manifests import File, Manifest, files_of
from benchlock.registry.manifests.authored_manifests import examine, files_in
from benchlock.registry.text.collected_problems import Problems, UnknownValueError


@dataclass(frozen=True, slots=True)
class Draft:
    """An authored manifest with its text, before publishing.

    Args:
        manifest: The manifest, which follows every rule but for ``problems``: publishing does not check it again.
        text: The author's text.
        path: The path of the manifest, for relative sources and errors. Trees exclude it. The file need not exist.
        access: How remote sources are accessed.
        ask: Looks up finished images in their registries; ``None`` for no lookups.
        problems: Problems of the manifest. Such a draft is inspected like any other, and then refused.
    """

    manifest: Manifest
    text: str
    path: Path
    access: SourceAccess = field(default_factory=SourceAccess)
    ask: Ask | None = None
    problems: tuple[BenchlockError, ...] = ()


def read_draft(text: str, name: str, path: Path, access: SourceAccess | None = None) -> Draft:
    """Read a draft from the text of its manifest.

    A manifest with valid keys that violates rules gives a draft with problems, so that its files can be inspected too.

    Args:
        text: The text of the manifest.
        name: The name of the manifest in errors.
        path: The path of the manifest.
        access: How remote sources are accessed.

    Raises:
        InvalidInputError: The manifest cannot be read. The error contains all problems, missing files included.
    """
    reading, access = examine(text, name), access or SourceAccess()
    if reading.manifest is not None:
        return Draft(reading.manifest, text, path, access, problems=tuple(reading.problems.found))
    for index, file in enumerate(files_in(reading.document)):
        if file.source is not UNSET:
            with reading.problems.noted(f"files[{index}].source ({name})"):
                open_source(file.source, path.parent, access)
    reading.problems.refuse()
    raise InvalidInputError(f"{name} is not a manifest", where=name)


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """The stored files of a draft and their sources, by path.

    A tree is in ``files`` under its path, and each file in it under ``tree/path``. A source is recorded as written,
    except that its revision becomes the commit that it was resolved to.
    """

    files: dict[str, Descriptor] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


def store_draft_files(draft: Draft, store: BlobStore, progress: Progress, problems: Problems) -> StoredFiles:
    """Store the files of a draft; add the problems of files that cannot be stored to ``problems``."""
    stored = StoredFiles()
    sources = []
    for index, file in enumerate(files_of(draft.manifest)):  # check all sources before reading files, which is slow
        place = f"files[{index}].source ({draft.path})"
        with problems.noted(place):
            sources.append((place, file, _open_source(file, draft)))
    for place, file, source in sources:
        with problems.noted(place):
            if isinstance(source, FileSource | FolderSource):
                stored.files.update(_store_local(file, source, draft, store, progress))
                stored.sources[file.path] = str(file.source)
            else:
                pinned_source = pin_revision(source, from_hex(str(file.sha256)), store)
                stored.files.update(_store_remote(file, pinned_source, store, progress))
                stored.sources[file.path] = str(pinned_source)
    return stored


def _open_source(file: File, draft: Draft) -> Source:
    """Open the source of a file, which must be a folder for a tree and a file otherwise.

    Raises:
        UnknownValueError: The source is missing, or the digest of a remote file: a problem of the draft.
        InvalidInputError: The source is invalid, missing or of the wrong kind.
    """
    if file.source is UNSET:
        raise UnknownValueError
    source = open_source(file.source, draft.path.parent, draft.access)
    if file.sha256 is UNSET and not isinstance(source, FileSource | FolderSource):
        raise UnknownValueError
    is_tree = file.path.endswith("/")
    is_folder = isinstance(source, FolderSource) or (isinstance(source, DvcSource) and source.is_folder)
    if is_tree and not is_folder:
        raise InvalidInputError(
            f"{file.path} is a tree, but {file.source} is not a folder", next_step="choose a folder"
        )
    if is_folder and not is_tree:
        raise InvalidInputError(
            f"{file.path} is a file, but {file.source} is a folder", next_step=f"write path: {file.path}/ for a tree"
        )
    return source


def _store_local(
    file: File, source: FileSource | FolderSource, draft: Draft, store: BlobStore, progress: Progress
) -> Mapping[str, Descriptor]:
    expected = None if file.sha256 is UNSET else from_hex(file.sha256)
    if isinstance(source, FileSource):
        with progress.task(f"storing {file.path}", source.path.stat().st_size) as advance:
            return {file.path: store.put_file(source.path, expected, name=file.path, advance=advance)}
    tree, entries = put_tree(store, source.path, exclude=draft.path, progress=progress)
    check_digest(file.path, expected, tree)
    return _with_entries(file.path, tree, entries)


def _store_remote(file: File, source: RemoteSource, store: BlobStore, progress: Progress) -> Mapping[str, Descriptor]:
    expected, size = from_hex(str(file.sha256)), None if file.size is UNSET else file.size
    if isinstance(source, DvcSource) and source.is_folder:
        return _with_entries(file.path, *fetch_tree(source, expected, store, name=file.path, progress=progress))
    return {file.path: fetch_file(source, expected, store, name=file.path, size=size, progress=progress)}


def _with_entries(path: str, tree: Descriptor, entries: Iterable[TreeEntry]) -> Mapping[str, Descriptor]:
    return {path: tree} | {path + entry.path: Descriptor(entry.digest, entry.size) for entry in entries}
