"""Taking an artifact out again: its files, verified, and a manifest that publishes them."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchlock.artifacts.digest import Descriptor, Digest, from_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.progress import Progress
from benchlock.artifacts.store import BlobStore, bring, copy_out
from benchlock.artifacts.trees import read_tree
from benchlock.registry.manifests import Manifest, plain

MANIFEST = "manifest.yaml"


def export(manifest: Manifest, store: BlobStore, folder: Path, progress: Progress) -> int:
    """Write the files of a published manifest below ``folder``, and a manifest that has them as sources; how many.

    Raises:
        IntegrityError: a blob is not what its digest says; no file is left of it, and no empty folder.
        InvalidInputError: the folder holds something already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInputError(f"{folder} is not empty", next_step="name another folder with -o")
    document = plain(manifest)
    files = [entry for file in document.get("files", ()) for entry in _expanded(file, store)]
    bring(store, (descriptor for _, descriptor in files))
    with (
        _no_empty_folders(folder),
        progress.task(f"writing {folder}", sum(descriptor.size for _, descriptor in files)) as advance,
    ):
        for path, descriptor in files:
            copy_out(store, descriptor, folder / path, name=path, advance=advance)
    folder.mkdir(parents=True, exist_ok=True)
    document["files"] = [_authored(file) for file in document.get("files", ())]
    if not document["files"]:
        del document["files"]
    # JSON is YAML, and says what was published without a choice of style.
    (folder / MANIFEST).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return len(files)


@contextmanager
def _no_empty_folders(folder: Path) -> Iterator[None]:
    """Where it fails inside, no folder stays empty of those that were made, ``folder`` among them."""
    before = folder.exists()
    try:
        yield
    except BaseException:
        for path, _, _ in os.walk(folder, topdown=False):
            if not before or Path(path) != folder:
                with suppress(OSError):  # it has files
                    Path(path).rmdir()
        raise


def _expanded(file: Mapping[str, Any], store: BlobStore) -> list[tuple[str, Descriptor]]:
    path, descriptor = file["path"], Descriptor(Digest(from_hex(file["sha256"])), file["size"])
    if not path.endswith("/"):
        return [(path, descriptor)]
    entries = read_tree(store, descriptor, name=path)
    return [(path + entry.path, Descriptor(entry.digest, entry.size)) for entry in entries]


def _authored(file: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in file.items() if key != "size"}
    return kept | {"source": f"./{file['path']}"}
