"""Validation rules of the files in a manifest: paths, roles, sources and digests."""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import UNSET, UnsetType

from benchlock.artifacts.digest import from_hex
from benchlock.artifacts.file_trees import check_collisions, check_path
from benchlock.registry.artifact_names import Kind
from benchlock.registry.manifests.manifest_types import File, holds_path
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.parsed_text import Place

ROLES: dict[Kind, tuple[str, ...]] = {
    "model": ("graph", "weights", "labels", "vocabulary", "code", "golden", "card"),
    "image": ("wheels", "layer", "config"),
    "operator": ("code", "card"),
    "recipe": ("code", "weights", "vocabulary", "labels", "card"),
}
"""The roles of files, for the kinds whose files need one."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_REMOTE = ("https", "http", "hf", "dvc")
_LOCAL = "file"


def check_files(files: Sequence[File], kind: Kind, place: Place, problems: Problems, *, published: bool) -> None:
    """Check the files of a manifest.

    Args:
        files: The files and trees.
        kind: The kind of the manifest.
        place: The place of the key ``files``.
        problems: Receives every broken rule.
        published: Whether the manifest has digests instead of sources.
    """
    for index, file in enumerate(files):
        here = place.at(index)
        with problems.noted():
            here.at("path").parsed(check_path, file.path.removesuffix("/"))
        with problems.noted():
            _check_role(file, kind, here.at("role"))
        with problems.noted():
            if file.sha256 is not UNSET:
                here.at("sha256").parsed(from_hex, file.sha256)
            if published:
                _check_published(file, here)
            else:
                _check_source(file, here)
    paths, problems_before = [file.path for file in files], len(problems.found)
    _check_apart(paths, place, problems)
    if not published and len(problems.found) == problems_before:  # a published manifest must stay readable
        with problems.noted():
            place.parsed(check_collisions, paths)


def check_file_reference(files: Iterable[File], path: str | UnsetType, place: Place) -> None:
    """Check that a path in a manifest refers to one of its files.

    A path inside a tree is looked up when the tree is read.

    Raises:
        InvalidInputError: It does not.
    """
    if path is UNSET:
        return
    place.parsed(check_path, path.removesuffix("/"))
    if not any(holds_path(file, path) for file in files):
        raise place.error(f"{path!r} is not in files, nor in a tree of files", "add it to files")


def _check_role(file: File, kind: Kind, place: Place) -> None:
    """Check that a file has a role that its kind of manifest knows."""
    roles = ROLES.get(kind)
    if roles is None:
        return
    if file.role is UNSET:
        raise place.error(
            f"the key 'role' is missing: a file of a {kind} needs one", f"write one of {', '.join(roles)}"
        )
    if file.role not in roles:
        raise place.error(f"the role {file.role} is not valid for the kind {kind}", f"write one of {', '.join(roles)}")


def _check_published(file: File, place: Place) -> None:
    """Check that a published file has a digest and a size, and no source."""
    if file.source is not UNSET:
        raise place.at("source").error("a published manifest has no sources, only digests")
    for key, value in (("sha256", file.sha256), ("size", file.size)):
        if value is UNSET:
            raise place.at(key).error(f"the key {key!r} is missing: a published file has one")


def _check_source(file: File, place: Place) -> None:
    """Check that an authored file has a source, and a remote one its digest."""
    if file.source is UNSET:
        raise place.at("source").error("the key 'source' is missing", "write where the file comes from")
    scheme = _SCHEME.match(file.source)
    if scheme is None or scheme[1] == _LOCAL:
        return
    if scheme[1] not in _REMOTE:
        what = f"unknown source scheme {scheme[1]}:"
        raise place.at("source").error(what, "write a path, or file:, https:, hf: or dvc:")
    if file.sha256 is UNSET:
        what = "the key 'sha256' is missing: a remote file needs its digest"
        raise place.at("sha256").error(what, "write the SHA-256 that its publisher states, or that you have verified")


def _check_apart(paths: Sequence[str], place: Place, problems: Problems) -> None:
    """Check that no path stands twice or below another one: all are laid out in one folder."""
    seen: dict[str, int] = {}
    for index, path in enumerate(paths):
        bare = path.removesuffix("/")
        if bare in seen:
            what = f"{path!r} is also files[{seen[bare]}]"
            problems.add(place.at(index, "path").error(what, "give each file its own path"))
        seen.setdefault(bare, index)
    for index, outer in sorted(find_nested_paths(paths)):
        what = f"{paths[index]!r} lies inside files[{outer}], {paths[outer]!r}"
        problems.add(place.at(index, "path").error(what, "list the tree, or its files, not both"))


def find_nested_paths(paths: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the index of each path inside another one, and the index of the outermost path around it.

    In the sorted order a path follows those around it, with nothing but their contents in between.
    """
    outer, outer_index = "", -1
    for path, index in sorted((path.removesuffix("/").replace("/", "\0"), index) for index, path in enumerate(paths)):
        if outer_index >= 0 and path.startswith(f"{outer}\0"):
            yield index, outer_index
        elif outer_index < 0 or path != outer:
            outer, outer_index = path, index
