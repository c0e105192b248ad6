"""Taking in the files of a draft: from where each comes, into a store, verified against what the author states."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import UNSET

from benchlock.artifacts.digest import Descriptor, from_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.progress import Progress
from benchlock.artifacts.sources import (
    DvcSource,
    FileSource,
    FolderSource,
    RemoteSource,
    Source,
    fetch_file,
    fetch_tree,
    open_source,
    settled,
)
from benchlock.artifacts.store import BlobStore, refuse_other
from benchlock.artifacts.trees import TreeEntry, put_tree
from benchlock.registry.drafts import Draft, placed
from benchlock.registry.manifests import File, files_of
from benchlock.registry.problems import EchoError, Problems


@dataclass(frozen=True, slots=True)
class Taken:
    """Every file of a draft by its path; a tree, and also each file in it, by ``tree/path``. And their sources.

    A source is recorded as it is written, but for its revision: that becomes the commit it was resolved to.
    """

    files: dict[str, Descriptor] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


def take_in(draft: Draft, store: BlobStore, progress: Progress, problems: Problems) -> Taken:
    """The files that could be had; what is wrong with the others goes to ``problems``."""
    taken = Taken()
    sources = []
    for index, file in enumerate(files_of(draft.manifest)):  # all of them before one is read, which may take long
        place = f"files[{index}].source ({draft.path})"
        with problems.noted():
            with placed(place):
                source = _source(file, draft)
            with placed(f"files[{index}].sha256 ({draft.path})"):
                _check_digest(file, source)
            sources.append((place, file, source))
    for place, file, source in sources:
        with problems.noted(), placed(place):
            if isinstance(source, FileSource | FolderSource):
                taken.files.update(_take_local(file, source, draft, store, progress))
                taken.sources[file.path] = str(file.source)
            else:
                found = settled(source, from_hex(str(file.sha256)), store)
                taken.files.update(_take_remote(file, found, store, progress))
                taken.sources[file.path] = str(found)
    return taken


def _source(file: File, draft: Draft) -> Source:
    if file.source is UNSET:
        raise InvalidInputError(f"{file.path} has no source", next_step="write where the file comes from")
    source = open_source(file.source, draft.path.parent, draft.access)
    _check_kind(file, source)
    return source


def _check_digest(file: File, source: Source) -> None:
    if not isinstance(source, FileSource | FolderSource) and file.sha256 is UNSET:
        raise EchoError(f"{file.path} is remote and has no sha256", next_step="write the digest that it must have")


def _check_kind(file: File, source: Source) -> None:
    is_tree = file.path.endswith("/")
    is_folder = isinstance(source, FolderSource) or (isinstance(source, DvcSource) and source.is_folder)
    if is_tree and not is_folder:
        raise InvalidInputError(f"{file.path} is a tree, and {file.source} is no folder", next_step="name a folder")
    if is_folder and not is_tree:
        raise InvalidInputError(
            f"{file.path} is a file, and {file.source} is a folder", next_step=f"write path: {file.path}/ for a tree"
        )


def _take_local(
    file: File, source: FileSource | FolderSource, draft: Draft, store: BlobStore, progress: Progress
) -> Mapping[str, Descriptor]:
    expected = None if file.sha256 is UNSET else from_hex(file.sha256)
    if isinstance(source, FileSource):
        with progress.task(f"storing {file.path}", source.path.stat().st_size) as advance:
            return {file.path: store.put_file(source.path, expected, name=file.path, advance=advance)}
    tree, entries = put_tree(store, source.path, exclude=draft.path, progress=progress)
    refuse_other(file.path, expected, tree)
    return _with_entries(file.path, tree, entries)


def _take_remote(file: File, source: RemoteSource, store: BlobStore, progress: Progress) -> Mapping[str, Descriptor]:
    expected, size = from_hex(str(file.sha256)), None if file.size is UNSET else file.size
    if isinstance(source, DvcSource) and source.is_folder:
        return _with_entries(file.path, *fetch_tree(source, expected, store, name=file.path, progress=progress))
    return {file.path: fetch_file(source, expected, store, name=file.path, size=size, progress=progress)}


def _with_entries(path: str, tree: Descriptor, entries: Iterable[TreeEntry]) -> Mapping[str, Descriptor]:
    return {path: tree} | {path + entry.path: Descriptor(entry.digest, entry.size) for entry in entries}
