"""Looking at artifacts that somebody else published, as publishing looks at those of an author."""

from collections.abc import Mapping
from typing import Final

from artifacts.digest import Descriptor, from_hex
from artifacts.errors import InvalidInputError
from artifacts.store import BlobStore
from artifacts.trees import read_tree
from registry.inspection.code import reasons
from registry.inspection.content import Content
from registry.inspection.kinds import inspect
from registry.manifests import Manifest, Model, files_of
from registry.manifests.identity import reference_of
from registry.problems import Problems

LARGEST_LISTING: Final = 256 << 20
"""Bytes that the listing of a tree may have, which is read into memory."""
_NOT_LOADED = ("code", "card", "labels", "vocabulary")
"""Roles of files that no framework reads: text, and code that says so."""


def refuse_hidden_code(model: Model, store: BlobStore) -> None:
    """Nothing, where no file of the model runs code when it is read, or the manifest says that some do.

    Raises:
        InvalidInputError: one does; names it and says why.
    """
    if model.unsafe is True:
        return
    content = content_of(model, store)
    for path in (path for file in model.files if file.role not in _NOT_LOADED for path in content.inside(file.path)):
        with content.open(path, path) as stream:
            found = reasons(stream, torchscript=model.format == "torchscript")
        if found:
            what = f"{path} of {content.name} executes code when it is read: it {'; it '.join(found)}"
            raise InvalidInputError(
                what, where=path, next_step="ask its author for the weights alone, or for unsafe: true in the manifest"
            )


def objection(manifest: Manifest, store: BlobStore) -> str | None:
    """What publishing would refuse in the manifest or in its files, which are all in ``store``; None if nothing."""
    problems = Problems()
    with problems.noted():
        inspect(manifest, content_of(manifest, store), problems, ask=None, warn=lambda _: None)
    return problems.found[0].what if problems.found else None


def content_of(manifest: Manifest, store: BlobStore) -> Content:
    """The files of a published manifest, those inside its trees too; all of them are in ``store``."""
    files: dict[str, Descriptor] = {}
    for path, blob in described(manifest).items():
        files[path] = blob
        if path.endswith("/"):
            if (size := store.stat(blob.digest).size) > LARGEST_LISTING:
                raise InvalidInputError(f"{path} has {size} bytes, too many for the listing of a tree", where=path)
            entries = read_tree(store, blob, name=path)
            files |= {f"{path}{entry.path}": Descriptor(entry.digest, entry.size) for entry in entries}
    return Content(str(reference_of(manifest)), store, files)


def described(manifest: Manifest) -> Mapping[str, Descriptor]:
    """Digest and size of each file of a published manifest, by path."""
    """Digest and size of each file of a published manifest, by path."""
    found = {}
    for file in files_of(manifest):
        assert isinstance(file.sha256, str)
        assert isinstance(file.size, int)
        found[file.path] = Descriptor(from_hex(file.sha256), file.size)
    return found
