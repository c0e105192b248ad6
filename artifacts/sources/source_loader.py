"""Parsing of source texts by scheme, and fetching of remote sources into a store."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from benchlock.artifacts.blob_store import BlobStore, check_digest, read
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.file_trees import (
    LARGEST_LISTING,
    TreeEntry,
    check_collisions,
    encode_listing,
    parse_listing,
    verify_tree,
)
from benchlock.artifacts.net.network_policy import LARGEST_DOWNLOAD, NetworkPolicy
from benchlock.artifacts.net.urls import check_url, redact_url
from benchlock.artifacts.resumable_fetch import fetch
from benchlock.artifacts.sources.dvc_source import CommitCache, DvcSource, NoRepositoryError, parse_dvc_source
from benchlock.artifacts.sources.file_source import FileSource, FolderSource, parse_file_url, parse_local_source
from benchlock.artifacts.sources.https_source import HttpsSource
from benchlock.artifacts.sources.hub_source import Hub, HubSource, parse_hub_source
from benchlock.artifacts.user_output import SILENT, Progress

RemoteSource = HttpsSource | HubSource | DvcSource
"""A source on another machine; the manifest states the digest that its bytes must have."""

Source = FileSource | FolderSource | RemoteSource

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class SourceAccess:
    """Access to remote sources: the network policy, the Hub, and the commits of DVC repositories."""

    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    hub: Hub = field(default_factory=Hub)
    commits: CommitCache = field(default_factory=dict, compare=False)


def open_source(source: str, base: Path, access: SourceAccess | None = None) -> Source:
    """Parse a source: a path (a relative one starts at ``base``), or a URL with a supported scheme.

    Raises:
        InvalidInputError: The source does not exist or is malformed.
        UnavailableError: The source cannot be examined.
    """
    access = access or SourceAccess()
    scheme = _SCHEME.match(source)
    if not scheme:
        return parse_local_source(base / source, source)
    name = scheme.group(1).lower()
    if name == "file":
        return parse_local_source(parse_file_url(source), source)
    if name in {"https", "http"}:
        check_url(source, loopback_http=access.network.loopback_http)
        return HttpsSource(source, access.network)
    if name == "hf":
        return parse_hub_source(source, access.hub, access.network)
    if name == "dvc":
        return parse_dvc_source(source, base, access.commits)
    shown = redact_url(source)
    raise InvalidInputError(
        f"{shown}: unknown source scheme {name}:",
        where=shown,
        next_step=f"write a path (./{shown} if it is one), or file:, https:, hf: or dvc:",
    )


def pin_revision(source: RemoteSource, expected: Digest, store: BlobStore) -> RemoteSource:
    """Return the source at the current commit of its revision.

    If the server does not answer but the blob ``expected`` is stored, return the source unchanged.

    Raises:
        InvalidInputError: The revision does not exist.
        UnavailableError: The server does not answer, and the blob is not stored.
    """
    try:
        return source.resolve()
    except (UnavailableError, NoRepositoryError):
        if store.exists(expected):
            return source
        raise


def fetch_file(
    source: RemoteSource,
    expected: Digest,
    store: BlobStore,
    *,
    name: str,
    size: int | None = None,
    progress: Progress = SILENT,
) -> Descriptor:
    """Fetch a file into the store; a blob that is stored intact needs no network.

    Args:
        source: The source of the file.
        expected: The digest of the file.
        store: The store.
        name: The name of the file in error messages.
        size: The largest size in bytes; ``None`` for the general limit.
        progress: Shows the bytes received.

    Raises:
        IntegrityError: The source has other bytes, or states another digest.
        InvalidInputError: The file does not exist, or is larger than ``size``.
        UnavailableError: The source or the store failed.
    """

    @contextmanager
    def open_at(offset: int) -> Iterator[BinaryIO]:
        _check_stated(source, expected, name)
        with source.open(offset, limit=LARGEST_DOWNLOAD if size is None else size) as stream:
            yield stream

    with progress.task(f"fetching {name}", size) as advance:
        return fetch(store, expected, open_at, name=name, advance=advance)


def _check_stated(source: RemoteSource, expected: Digest, name: str) -> None:
    digest = source.find_digest()
    if digest is not None and digest != expected:
        raise IntegrityError(
            f"digest mismatch of {name}: expected {expected}, but {source} states {digest}",
            where=str(source),
            next_step="verify the file, and correct its sha256 or its source",
        )


def fetch_tree(
    source: DvcSource, expected: Digest, store: BlobStore, *, name: str, progress: Progress = SILENT
) -> tuple[Descriptor, tuple[TreeEntry, ...]]:
    """Fetch a folder into the store as a tree; a tree that is stored intact needs no network.

    Returns:
        The digest and size of the tree, and its entries.

    Raises:
        IntegrityError: The folder has another digest. The message has both.
        InvalidInputError: The folder does not exist, or its paths collide on some file systems.
        UnavailableError: The source or the store failed.
    """
    existing = _find_tree(store, expected, name, progress)
    if existing is not None:
        return existing
    entries, remaining = list[TreeEntry](), LARGEST_DOWNLOAD
    with source.open_folder() as files, store.together(), progress.task(f"fetching {name}") as advance:
        check_collisions(path for path, _ in files)
        for path, open_file in files:
            with open_file(remaining) as stream:
                blob = store.put(stream, name=name + path, advance=advance)
            remaining -= blob.size
            entries.append(TreeEntry(path, to_hex(blob.digest), blob.size))
        listing = encode_listing(entries)
        tree = Descriptor(digest_bytes(listing), LARGEST_DOWNLOAD - remaining)
        check_digest(name, expected, tree)
        store.put(io.BytesIO(listing), expected, name=name)
    return tree, parse_listing(listing, name)


def _find_tree(
    store: BlobStore, digest: Digest, name: str, progress: Progress
) -> tuple[Descriptor, tuple[TreeEntry, ...]] | None:
    if not store.exists(digest):
        return None
    try:
        entries = parse_listing(read(store, digest, name=name, most=LARGEST_LISTING), name)
        tree = Descriptor(digest, sum(entry.size for entry in entries))
        return tree, verify_tree(store, tree, name=name, progress=progress)
    except (IntegrityError, InvalidInputError):
        return None
