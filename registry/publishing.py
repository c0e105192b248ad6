"""Publishing: the files of a draft become blobs, then one transaction makes the version visible.

Until that transaction nothing can be seen. A process that is killed before it leaves blobs that nothing names, which
garbage collection removes; the store keeps the collection away while a draft is written.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from msgspec import UNSET

from artifacts.digest import Descriptor, Digest, describe, from_hex
from artifacts.errors import InvalidInputError
from artifacts.files import open_regular
from artifacts.memory import MemoryStore
from artifacts.progress import SILENT, Advance, Progress, unnoticed
from artifacts.sources import (
    Access,
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
from artifacts.store import BlobStore, refuse_other
from artifacts.trees import TreeEntry, put_tree
from registry.catalogue.catalogue import Catalogue
from registry.catalogue.entries import Provenance, Published
from registry.inspection.content import Content
from registry.inspection.datasets import check_dataset
from registry.inspection.images import Ask, check_finished, check_image
from registry.inspection.weights import check_model
from registry.manifests import Dataset, File, Image, Manifest, Model, files_of
from registry.manifests.identity import content as manifest_content
from registry.manifests.identity import parse_published, with_files
from registry.packaging import name_version


@dataclass(frozen=True, slots=True)
class Draft:
    """A manifest as authored, with the author's ``text``.

    ``path`` is the manifest's: relative sources start in its folder, trees leave it out, errors name it. There need not
    be a file. ``access`` is how remote sources are reached; ``ask`` looks finished images up.
    """

    manifest: Manifest
    text: str
    path: Path
    access: Access = field(default_factory=Access)
    ask: Ask | None = None


def publish(draft: Draft, store: BlobStore, catalogue: Catalogue, *, progress: Progress = SILENT) -> Published:
    """Publish a draft; the same content again changes nothing, but replaces damaged blobs.

    Raises:
        VersionTakenError: the version is published with other content; nothing changed.
        IntegrityError: a file is not what the author's ``sha256`` says.
        InvalidInputError: a file is missing, or its bytes contradict the manifest.
        UnavailableError: a source or the store failed.
    """
    with store.writing():
        manifest, sources = _prepare(draft, store, progress)
        store.put(io.BytesIO(manifest_content(manifest)), name=str(draft.path))
        published = catalogue.publish(manifest, Provenance(draft.text, sources))
        name_version(store, manifest)
    return published


def rehearse(draft: Draft, catalogue: Catalogue, *, progress: Progress = SILENT) -> Published:
    """What ``publish`` would do, with all its checks and errors; nothing is kept.

    Local files are read where they lie; remote ones are held in memory.
    """
    manifest, _ = _prepare(draft, _Rehearsal(), progress)
    return catalogue.would_change(manifest)


class _Rehearsal(MemoryStore):
    """Refers to local files where they lie; holds what comes from a stream."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[Digest, Path] = {}

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = unnoticed,
    ) -> Descriptor:
        with open_regular(path) as source:
            found = describe(source, advance)
        refuse_other(name or str(path), expected, found)
        self._places[found.digest] = path
        return found

    def open(self, digest: Digest) -> BinaryIO:
        return open_regular(self._places[digest]) if digest in self._places else super().open(digest)


def _prepare(draft: Draft, store: BlobStore, progress: Progress) -> tuple[Manifest, Mapping[str, str]]:
    """The manifest as it is published, its files in the store and checked; and where each file came from."""
    files, sources = _take_in(draft, store, progress)
    named = {file.path: files[file.path] for file in files_of(draft.manifest)}
    manifest = parse_published(manifest_content(with_files(draft.manifest, named)))
    _inspect(manifest, Content(str(draft.path), store, files), draft.ask)
    return manifest, sources


def _inspect(manifest: Manifest, content: Content, ask: Ask | None) -> None:
    if isinstance(manifest, Dataset):
        check_dataset(manifest, content)
    elif isinstance(manifest, Model):
        check_model(manifest, content)
    elif isinstance(manifest, Image):
        check_image(manifest, content)
        if ask is not None:
            check_finished(manifest, ask, content)


def _take_in(draft: Draft, store: BlobStore, progress: Progress) -> tuple[Mapping[str, Descriptor], Mapping[str, str]]:
    """Every file of the draft by its path; a tree, and also each file in it, by ``tree/path``. And their sources.

    A source is recorded as it is written, but for its revision: that becomes the commit it was resolved to.
    """
    taken: dict[str, Descriptor] = {}
    origins: dict[str, str] = {}
    sources = []
    for index, file in enumerate(files_of(draft.manifest)):  # all of them before one is read, which may take long
        with _placed(draft, index):
            sources.append((index, file, _source(file, draft)))
    for index, file, source in sources:
        with _placed(draft, index):
            if isinstance(source, FileSource | FolderSource):
                taken |= _take_local(file, source, draft, store, progress)
                origins[file.path] = str(file.source)
            else:
                found = settled(source, from_hex(str(file.sha256)), store)
                taken |= _take_remote(file, found, store, progress)
                origins[file.path] = str(found)
    return taken, origins


def _source(file: File, draft: Draft) -> Source:
    if file.source is UNSET:
        raise InvalidInputError(f"{file.path} has no source", next_step="write where the file comes from")
    source = open_source(file.source, draft.path.parent, draft.access)
    _check_kind(file, source)
    if not isinstance(source, FileSource | FolderSource) and file.sha256 is UNSET:
        raise InvalidInputError(
            f"{file.path} is remote and has no sha256", next_step="write the digest that it must have"
        )
    return source


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


@contextmanager
def _placed(draft: Draft, index: int) -> Iterator[None]:
    """Errors name the place in the manifest that led to them."""
    try:
        yield
    except InvalidInputError as error:
        error.where = f"files[{index}].source ({draft.path})"
        raise
