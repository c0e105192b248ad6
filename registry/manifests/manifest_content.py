"""Canonical content and digest of a manifest, and the parsing of published manifests."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, to_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import decode_untyped, encode_canonical
from benchlock.registry.artifact_names import Reference, parse_name
from benchlock.registry.manifests.manifest_checks import check
from benchlock.registry.manifests.manifest_types import Framework, Manifest, files_of
from benchlock.registry.text.decoder import convert
from benchlock.registry.text.parsed_text import Document
from benchlock.registry.versions.semantic_version import parse_version

_LAST: tuple[Manifest | None, bytes] = (None, b"")
"""The last manifest with its content: publishing needs the same content several times in a row."""

MAX_VALUES = 400_000
"""Maximum number of values in a stored manifest; the service accepts fewer from publishers."""

_LONG = re.compile(rb"[0-9]{16}")
"""Matches where a number may be beyond 2**53 - 1; digests match too."""
SLICE = 1 << 16
"""Number of bytes per search: no other thread runs during a search."""


def reference_of(manifest: Manifest) -> Reference:
    """Return kind, name and version of a manifest."""
    return Reference(manifest.kind, parse_name(manifest.name), parse_version(manifest.version))


def content(manifest: Manifest) -> bytes:
    """Return the RFC 8785 JSON of a manifest whose files all have a digest and a size, and no source.

    Raises:
        InvalidInputError: A file still has a source, or no digest or size; or the text could not be parsed again.
    """
    global _LAST  # noqa: PLW0603 - one assignment, of a pair that is whole
    last, text = _LAST
    if last is not manifest:
        for index, file in enumerate(files_of(manifest)):
            if file.source is not UNSET or file.sha256 is UNSET or file.size is UNSET:
                raise InvalidInputError(f"the file {file.path} is not published yet", where=f"files[{index}]")
        text = encode_canonical(plain(manifest))
        _require_readable(text, str(reference_of(manifest)))
        _LAST = (manifest, text)
    return text


def _require_readable(text: bytes, where: str) -> None:
    """Raise unless the canonical JSON ``text`` can be parsed as a published manifest."""
    if sum(map(text.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise InvalidInputError(f"the manifest has more than {MAX_VALUES} values", where=where)
    if may_have_large_number(text):
        try:
            encode_canonical(decode_untyped(text))
        except InvalidInputError as error:  # RFC 8785 writes 1e16 as an integer, but allows none that large
            raise InvalidInputError(
                f"a number of the manifest is beyond 2**53 - 1, so JSON readers would change it: {error.what}",
                where=where,
                next_step="write it as a text, or in a larger unit",
            ) from error


def may_have_large_number(text: bytes) -> bool:
    """Return whether a number of 16 digits or more may be in the text."""
    return any(_LONG.search(text, start, start + SLICE + 15) for start in range(0, len(text), SLICE))


def manifest_digest(manifest: Manifest) -> Digest:
    """Return the SHA-256 of the content. Raises as ``content``."""
    return digest_bytes(content(manifest))


def plain(value: Any) -> Any:  # noqa: ANN401 - any part of a manifest
    """Return a manifest, or a part of one, as JSON values; absent keys stay absent."""
    return decode_untyped(msgspec.json.encode(value))


def with_files(manifest: Manifest, stored: Mapping[str, Descriptor]) -> Manifest:
    """Return the published form of a manifest, with digests and sizes instead of sources.

    Files whose path is not in ``stored`` stay as they are.

    Raises:
        InvalidInputError: The author stated another digest or size.
    """
    if isinstance(manifest, Framework) or manifest.files is UNSET:
        return manifest
    files = list(manifest.files)
    for index, file in enumerate(files):
        if file.path not in stored:
            continue
        blob = stored[file.path]
        for key, stated, actual in (("sha256", file.sha256, to_hex(blob.digest)), ("size", file.size, blob.size)):
            if stated not in (UNSET, actual):
                what = f"{file.path} has the {key} {actual}, not {stated}"
                raise InvalidInputError(what, where=f"files[{index}].{key}")
        files[index] = msgspec.structs.replace(file, source=UNSET, sha256=to_hex(blob.digest), size=blob.size)
    return msgspec.structs.replace(manifest, files=tuple(files))


def parse_published(text: bytes) -> Manifest:
    """Return the manifest whose content is ``text``.

    Raises:
        InvalidInputError: The text is not canonical JSON, or breaks a rule of manifests.
    """
    digest = digest_bytes(text)
    if sum(text.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        raise InvalidInputError(f"the manifest has more than {MAX_VALUES} values", where=digest)
    try:
        document = Document(decode_untyped(text), digest)
    except msgspec.DecodeError as error:
        raise InvalidInputError(f"the manifest is not valid JSON: {error}", where=digest) from error
    if encode_canonical(document.value) != text:
        raise InvalidInputError("the manifest is not canonical JSON", where=digest, next_step="publish it again")
    return _checked(document)


def parse_content(value: Mapping[str, Any]) -> Manifest:
    """Return the manifest whose content is the RFC 8785 form of ``value``.

    Raises:
        InvalidInputError: The value is not JSON, breaks a rule of manifests, or has a number too large to be parsed
            again.
    """
    text = encode_canonical(value)
    manifest = _checked(Document(decode_untyped(text), digest_bytes(text)))
    _require_readable(text, str(reference_of(manifest)))
    return manifest


def _checked(document: Document) -> Manifest:
    """Convert and check a published manifest."""
    manifest: Manifest = convert(document, Manifest)
    check(manifest, document, published=True)
    return manifest
