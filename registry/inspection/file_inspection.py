"""Comparison of a manifest of any kind with its files, and the functions that run in the child process."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from benchlock.artifacts.blob_store import verify
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.isolation.child_process import CallerBlobs, pack_error
from benchlock.registry.inspection.dataset_files import check_dataset
from benchlock.registry.inspection.draft_content import DraftContent, UnavailableFileError, with_trees
from benchlock.registry.inspection.executable_code import GRAPH_FORMS, list_model_code_reasons
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.untrusted_files import describe_mismatch
from benchlock.registry.inspection.image_inspection import Ask, check_finished, check_image
from benchlock.registry.inspection.model_files import check_initial_weights, check_model, is_graph
from benchlock.registry.manifests import Dataset, Image, Manifest, Model, Recipe
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.decoder import convert
from benchlock.registry.text.parsed_text import Document

OTHERS = ("various", "proprietary")
"""Licence identifiers beside SPDX: of several parts with a licence each, and of terms without an SPDX identifier."""

_ABSENT = ("", "todo", "unknown", "none", "n/a", "na", "tbd", "unlicensed", "-", "?")


@lru_cache(256)
def check_license(text: str) -> str | None:
    """Return what is unusual about a licence; None for a canonical SPDX expression or an identifier in ``OTHERS``.

    Raises:
        InvalidInputError: The text says that there is no licence.
    """
    if text.strip().lower() in _ABSENT:
        raise InvalidInputError(
            f"invalid license {text!r}",
            next_step=f"write the SPDX expression of the files' licence, or one of {', '.join(OTHERS)}",
        )
    if text in OTHERS:
        return None
    try:
        proper = canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return f"the license {text!r} is not an SPDX expression"
    return None if proper == text else f"the SPDX spelling of the license {text!r} is {proper!r}"


def inspect_manifest(
    manifest: Manifest, content: DraftContent, problems: Problems, *, ask: Ask | None, warn: Callable[[str], None]
) -> None:
    """Compare a manifest with its files.

    Args:
        manifest: The manifest.
        content: The files of the draft.
        problems: Receives what is wrong.
        ask: Looks up the configuration of finished images; None if that is not allowed.
        warn: Receives what is unusual.
    """
    inspection_problems = Problems()
    with inspection_problems.noted():
        _check_license(manifest, content, warn)
    with inspection_problems.noted():
        if isinstance(manifest, Dataset):
            check_dataset(manifest, content, inspection_problems)
        elif isinstance(manifest, Model):
            check_model(manifest, content, inspection_problems)
        elif isinstance(manifest, Recipe):
            check_initial_weights(manifest, content, inspection_problems)
        elif isinstance(manifest, Image):
            check_image(manifest, content, inspection_problems, warn=warn)
            if ask is not None:
                check_finished(manifest, content, inspection_problems, ask)
    for error in inspection_problems.found:
        if not isinstance(error, UnavailableFileError):  # another problem reports that file
            problems.add(error)


def _check_license(manifest: Manifest, content: DraftContent, warn: Callable[[str], None]) -> None:
    """Check the licence, and warn about an unusual one."""
    try:
        remark = check_license(manifest.license)
    except InvalidInputError as error:
        raise content.error(error.what, "license", error.next_step) from error
    if remark:
        warn(f"{remark} ({content.name})")


_MAX_REPORTED: Final = 1000
"""Maximum number of problems, and of warnings, that are reported; each has at most ``_MAX_TEXT`` characters."""
_MAX_TEXT: Final = 4096
_SHOWN: Final = 3


def inspect_files(arguments: dict[str, Any], blobs: CallerBlobs) -> dict[str, Any]:
    """Compare a manifest with its files, and return problems, warnings and missing files as plain values."""
    manifest, content = _read(arguments, blobs)
    problems, warnings = Problems(), list[str]()
    missing: dict[str, Any] = {"paths": [], "digests": [], "count": 0}
    if not arguments["present"]:
        missing = _check_sent(content, blobs)
    if not missing["count"]:
        inspect_manifest(manifest, content, problems, ask=None, warn=warnings.append)
    return {
        "problems": [pack_error(_shorten(error)) for error in problems.found[:_MAX_REPORTED]],
        "warnings": [warning[:_MAX_TEXT] for warning in warnings[:_MAX_REPORTED]],
        "missing": missing,
    }


def find_code(arguments: dict[str, Any], blobs: CallerBlobs) -> dict[str, Any] | None:
    """Return the error about the first file that executes code when it is read, as plain values; None if none does."""
    model, content = _read(arguments, blobs)
    assert isinstance(model, Model)
    for path in (path for listed in arguments["paths"] for path in content.inside(listed)):
        step = "ask its author for a file with weights only, or for unsafe: true in the manifest"
        with content.open(path, path) as stream:
            try:
                reasons = list_model_code_reasons(
                    stream, path, content.size(path), model.format, is_graph=is_graph(model, path)
                )
            except MalformedError as error:
                what = f"{path} of {content.name} {describe_mismatch(stream, GRAPH_FORMS[model.format], error)}"
                return pack_error(
                    _shorten(InvalidInputError(what, where=path, next_step="ask its author for a valid file"))
                )
        if reasons:
            what = f"{path} of {content.name} executes code when it is read: it {'; it '.join(reasons)}"
            return pack_error(_shorten(InvalidInputError(what, where=path, next_step=step)))
    return None


def _read(arguments: dict[str, Any], blobs: CallerBlobs) -> tuple[Manifest, DraftContent]:
    """Decode the manifest and the files of a draft."""
    name = arguments["name"]
    manifest: Manifest = convert(Document(arguments["manifest"], name), Manifest)
    listed = {path: Descriptor(Digest(digest), size) for path, digest, size in arguments["files"]}
    return manifest, DraftContent(name, blobs, with_trees(listed, blobs), frozenset(arguments["untaken"]))


def _check_sent(content: DraftContent, blobs: CallerBlobs) -> dict[str, Any]:
    """Find absent files, and check the sizes of the others.

    The sum of the sizes in a tree was checked when the tree was read.

    Raises:
        InvalidInputError: A file has another size.
        IntegrityError: A file is damaged.
    """
    files = [(path, blob) for path, blob in content.files.items() if not path.endswith("/")]
    sizes = blobs.sizes([blob.digest for _, blob in files])
    missing = {blob.digest: path for (path, blob), size in zip(files, sizes, strict=True) if size is None}
    for (path, blob), size in zip(files, sizes, strict=True):
        if size not in (None, blob.size):
            verify(blobs, blob.digest, name=path)  # the wrong size of a damaged blob is not a fault of the manifest
            raise InvalidInputError(
                f"{path} has {size} bytes, but the manifest states {blob.size}",
                where=path,
                next_step="write size: {size}",
            )
    return {"paths": list(missing.values())[:_SHOWN], "digests": list(missing), "count": len(missing)}


def _shorten(error: BenchlockError) -> BenchlockError:
    """Truncate the texts of an error, which may quote foreign texts of any length."""
    error.what = error.what[:_MAX_TEXT]
    error.where = error.where and error.where[:_MAX_TEXT]
    error.next_step = error.next_step and error.next_step[:_MAX_TEXT]
    return error
