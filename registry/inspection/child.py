"""The part of inspection that runs in a child process: every read of a foreign file. See ``calls.py``."""

from typing import Any, Final

from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.isolation.frames import pack_error
from benchlock.artifacts.isolation.server import CallerBlobs
from benchlock.artifacts.store import verify
from benchlock.registry.conversion import convert
from benchlock.registry.inspection.code import GRAPH_FORMS, model_reasons
from benchlock.registry.inspection.content import Content, with_trees
from benchlock.registry.inspection.kinds import inspect
from benchlock.registry.inspection.models import is_graph
from benchlock.registry.inspection.protobuf import MalformedError
from benchlock.registry.inspection.recognition import describe_mismatch
from benchlock.registry.manifests import Manifest, Model
from benchlock.registry.problems import Problems
from benchlock.registry.yaml import Document

_MAX_REPORTED: Final = 1000
"""Number of problems, and of warnings, that are reported; each has at most ``_MAX_TEXT`` characters."""
_MAX_TEXT: Final = 4096
_SHOWN: Final = 3


def inspect_files(arguments: dict[str, Any], blobs: CallerBlobs) -> dict[str, Any]:
    """Compare a manifest with its files; its problems, warnings and missing files as plain values."""
    manifest, content = _read(arguments, blobs)
    problems, warnings = Problems(), list[str]()
    missing: dict[str, Any] = {"paths": [], "digests": [], "count": 0}
    if not arguments["present"]:
        missing = _check_sent(content, blobs)
    if not missing["count"]:
        inspect(manifest, content, problems, ask=None, warn=warnings.append)
    return {
        "problems": [pack_error(_shorten(error)) for error in problems.found[:_MAX_REPORTED]],
        "warnings": [warning[:_MAX_TEXT] for warning in warnings[:_MAX_REPORTED]],
        "missing": missing,
    }


def find_code(arguments: dict[str, Any], blobs: CallerBlobs) -> dict[str, Any] | None:
    """Find the first file that runs code when it is read; the error about it as plain values."""
    model, content = _read(arguments, blobs)
    assert isinstance(model, Model)
    for path in (path for named in arguments["paths"] for path in content.inside(named)):
        step = "ask its author for the weights alone, or for unsafe: true in the manifest"
        with content.open(path, path) as stream:
            try:
                found = model_reasons(stream, path, content.size(path), model.format, is_graph=is_graph(model, path))
            except MalformedError as error:
                what = f"{path} of {content.name} {describe_mismatch(stream, GRAPH_FORMS[model.format], error)}"
                return pack_error(_shorten(InvalidInputError(what, where=path, next_step="ask its author for it")))
        if found:
            what = f"{path} of {content.name} executes code when it is read: it {'; it '.join(found)}"
            return pack_error(_shorten(InvalidInputError(what, where=path, next_step=step)))
    return None


def _read(arguments: dict[str, Any], blobs: CallerBlobs) -> tuple[Manifest, Content]:
    name = arguments["name"]
    manifest: Manifest = convert(Document(arguments["manifest"], name), Manifest)
    listed = {path: Descriptor(Digest(digest), size) for path, digest, size in arguments["files"]}
    return manifest, Content(name, blobs, with_trees(listed, blobs), frozenset(arguments["untaken"]))


def _check_sent(content: Content, blobs: CallerBlobs) -> dict[str, Any]:
    """Find files that are absent; all that are there have the sizes that are written down for them.

    Of a tree the sum was compared when it was read.

    Raises:
        InvalidInputError: a file has another size.
        IntegrityError: because it is damaged.
    """
    files = [(path, blob) for path, blob in content.files.items() if not path.endswith("/")]
    sizes = blobs.sizes([blob.digest for _, blob in files])
    missing = {blob.digest: path for (path, blob), size in zip(files, sizes, strict=True) if size is None}
    for (path, blob), size in zip(files, sizes, strict=True):
        if size not in (None, blob.size):
            verify(blobs, blob.digest, name=path)  # of a damaged blob the size is no fault of the manifest
            raise InvalidInputError(
                f"{path} has {size} bytes, and {blob.size} are written down for it",
                where=path,
                next_step="write down the size that the file has",
            )
    return {"paths": list(missing.values())[:_SHOWN], "digests": list(missing), "count": len(missing)}


def _shorten(error: BenchlockError) -> BenchlockError:
    """Truncate the texts of an error, which may quote foreign texts of any length."""
    error.what = error.what[:_MAX_TEXT]
    error.where = error.where and error.where[:_MAX_TEXT]
    error.next_step = error.next_step and error.next_step[:_MAX_TEXT]
    return error
