"""Looking at artifacts that somebody else published, as publishing looks at those of an author."""

from collections.abc import Mapping

from benchlock.artifacts.digest import Descriptor, from_hex
from benchlock.artifacts.store import BlobStore
from benchlock.registry.inspection.calls import InspectionTarget, find_code, inspect_version
from benchlock.registry.manifests import Manifest, Model, files_of
from benchlock.registry.manifests.identity import reference_of
from benchlock.registry.problems import Problems

_NOT_LOADED = ("code", "card", "labels", "vocabulary")
"""Roles of files that no framework reads: text, and code that says so."""


def refuse_hidden_code(model: Model, store: BlobStore) -> None:
    """Nothing, where no file of the model runs code when it is read, or the manifest says that some do.

    Raises:
        InvalidInputError: one does; names it and says why.
        LimitExceededError: one cannot be looked into.
    """
    if model.unsafe is True:
        return
    loaded = [file.path for file in model.files if file.role not in _NOT_LOADED]
    error = find_code(sent_version(model, store), loaded)
    if error is not None:
        raise error


def objection(manifest: Manifest, store: BlobStore) -> str | None:
    """What publishing would refuse in the manifest or in its files, which are all in ``store``; None if nothing."""
    problems = Problems()
    with problems.noted():
        inspect_version(sent_version(manifest, store), problems, ask=None, warn=lambda _: None)
    return problems.found[0].what if problems.found else None


def sent_version(manifest: Manifest, store: BlobStore) -> InspectionTarget:
    """A published manifest and its files, for inspection."""
    return InspectionTarget(manifest, str(reference_of(manifest)), store, described(manifest))


def described(manifest: Manifest) -> Mapping[str, Descriptor]:
    """Digest and size of each file of a published manifest, by path."""
    """Digest and size of each file of a published manifest, by path."""
    found = {}
    for file in files_of(manifest):
        assert isinstance(file.sha256, str)
        assert isinstance(file.size, int)
        found[file.path] = Descriptor(from_hex(file.sha256), file.size)
    return found
