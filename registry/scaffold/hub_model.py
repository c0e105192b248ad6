"""Model manifests from a repository on the Hugging Face Hub, pinned to its commit."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

from benchlock.artifacts.blob_store import check_digest
from benchlock.artifacts.digest import Descriptor, Digest, from_hex, relay, to_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import check_path
from benchlock.artifacts.sources import LARGEST_DOWNLOAD, HubFile, HubSource
from benchlock.artifacts.user_output import SILENT, Progress
from benchlock.registry.scaffold.hub_metadata import LARGEST, METADATA_FILES
from benchlock.registry.scaffold.manifest_scaffold import ManifestScaffold, scaffold_source
from benchlock.registry.scaffold.source_files import RemoteFile, ScaffoldSource
from benchlock.registry.text.collected_problems import ImportNotes, printable

_ENDINGS: Final = (
    ".onnx", ".tflite", ".lite", ".safetensors", ".keras", ".h5", ".hdf5", ".pb", ".pt2", ".pt", ".pth", ".th", ".bin",
    ".ckpt",
)  # fmt: skip
_TRAINING: Final = ("training_args.bin", "optimizer.pt", "optimizer.bin", "scheduler.pt", "rng_state.pth")
"""Files that training leaves beside the weights."""
_SHOWN: Final = 20

Keep = Callable[[Path, Digest], None]
"""Receives the downloaded model file and its digest, before the file is deleted."""


def scaffold_hub_model(
    source: HubSource, folder: Path, *, keep: Keep | None = None, progress: Progress = SILENT
) -> ManifestScaffold:
    """Generate the manifest of a model on the Hub; its files have their URL, pinned to the commit, and SHA-256.

    Args:
        source: The repository, with the path of the model file if there are several.
        folder: The absolute path of the folder that the manifest will be written to.
        keep: Receives the model file.
        progress: Shows the bytes received.

    Raises:
        InvalidInputError: The repository, revision or file does not exist, or there is no single model file.
        IntegrityError: The bytes do not have the digest that the Hub states.
        UnavailableError: The Hub does not answer.
    """
    commit, files = source.list_files()
    pinned = replace(source, revision=commit)
    by_path = {file.path: file for file in files}
    path = source.path or _choose_file(source, list(by_path))
    if path not in by_path:
        next_step = f"choose one of {_listed(_model_files(list(by_path)))}"
        raise InvalidInputError(f"{source.name} has no file {path}", where=str(source), next_step=next_step)
    with TemporaryDirectory(prefix="benchlock-init-") as temporary:
        base = Path(temporary)
        blob = _download(pinned, by_path[path], base, LARGEST_DOWNLOAD, progress)
        for name in _metadata_paths(path, by_path):
            _download(pinned, by_path[name], base, LARGEST, progress)
        remote = {
            base / file.path: RemoteFile(str(replace(pinned, path=file.path)), file.sha256, file.size)
            for file in files
            if file.sha256 is not None
        }
        remote[base / path] = RemoteFile(str(replace(pinned, path=path)), to_hex(blob.digest), blob.size)
        notes = ImportNotes()
        notes.tell("files", "inferred", f"{source.revision} of {source.name} is the commit {commit}", f"using {path}")
        found = ScaffoldSource(base / path, folder, notes, source.name, remote)
        scaffold = scaffold_source("model", found, printable(str(replace(pinned, path=path))))
        if keep is not None:
            keep(base / path, blob.digest)
    return scaffold


def _choose_file(source: HubSource, paths: list[str]) -> str:
    """Return the only model file of a repository."""
    candidates = _model_files(paths)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        what = f"{source.name} has no model file in a supported format"
        raise InvalidInputError(what, where=str(source), next_step="choose a repository with an exported model")
    what = f"{source.name} has {len(candidates)} model files: {_listed(candidates)}"
    name = f"hf:{source.name}@{source.revision}"
    raise InvalidInputError(what, where=str(source), next_step=f"choose one, such as {name}/{candidates[0]}")


def _model_files(paths: list[str]) -> list[str]:
    """Return the paths that look like those of models."""
    return sorted(
        path for path in paths if path.lower().endswith(_ENDINGS) and PurePosixPath(path).name not in _TRAINING
    )


def _listed(paths: list[str]) -> str:
    """Return the first paths for a message."""
    more = f" and {len(paths) - _SHOWN} others" if len(paths) > _SHOWN else ""
    return ", ".join(map(printable, paths[:_SHOWN])) + more


def _metadata_paths(model: str, files: dict[str, HubFile]) -> list[str]:
    """Return the paths of metadata in the folder of the model and in that above."""
    folder = PurePosixPath(model).parent
    candidates = [(place / name).as_posix() for place in (folder, folder.parent) for name in METADATA_FILES]
    return [path for path in dict.fromkeys(candidates) if path in files]


def _download(source: HubSource, file: HubFile, base: Path, limit: int, progress: Progress) -> Descriptor:
    """Download a file to its path in a folder; the bytes must be those that the Hub states."""
    target = base / check_path(file.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        progress.task(f"fetching {file.path}", file.size) as advance,
        replace(source, path=file.path).open(limit=limit) as stream,
        target.open("xb") as out,
    ):
        blob = relay(stream, out.write, advance)
    if file.sha256 is not None:
        check_digest(file.path, from_hex(file.sha256), blob)
    return blob
