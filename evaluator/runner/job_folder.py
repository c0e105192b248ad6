"""The job folder: job.json for the harness, and links to the verified files."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import UNSET

from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.digest import Digest, from_hex
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.evaluator.harness.core.training_job import WEIGHTS
from benchlock.evaluator.harness_archive import add_bytecode
from benchlock.evaluator.runner.lock_verification import VerifiedFiles
from benchlock.registry.artifact_names import Kind
from benchlock.registry.lock.lockfile import Lock, LockedFile, dataset_of
from benchlock.registry.manifests import Dataset, Framework, Manifest, Model, Operator, Recipe, plain
from benchlock.registry.manifests.recipe_checks import is_initial

SCHEMA = 1
"""The major version of ``job.json`` and ``result.json``; the harness checks it, too."""
HARNESS = "harness.pyz"
INTERPRETER = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
}
"""Environment variables of the harness's interpreter; a fixed hash seed makes orders of sets reproducible."""

_LAID = ("model", "operator", "recipe", "dataset")
"""The kinds whose files a job folder may have, in folders of the same names."""
_FOLDER_MODE = 0o755
_FILE_MODE = 0o444
_PRIVATE_MODE = 0o700
_ANYBODY_MODE = 0o777
# Errors of a link that cannot be made: another file system, too many links to one file, a store of another owner.
_NO_LINK = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP)


@dataclass(frozen=True, slots=True)
class RunFolders:
    """The folders of one run, below a private root folder.

    A container may write to ``output``, and nobody else can reach it. A run in stages has these folders for each
    ``stage``.
    """

    root: Path
    stage: str = ""

    @property
    def folder(self) -> Path:
        """The folder of the stage."""
        return self.root / self.stage

    @property
    def job(self) -> Path:
        """The folder that the harness reads."""
        return self.folder / "job"

    @property
    def output(self) -> Path:
        """The folder that the harness writes."""
        return self.folder / "out"

    @property
    def scratch(self) -> Path:
        """The home folder of a process."""
        return self.folder / "scratch"

    def make_output(self) -> None:
        """Create the empty output folder."""
        self.output.mkdir()
        self.output.chmod(_ANYBODY_MODE)


def write_job(
    folders: RunFolders,
    document: Mapping[str, Any],
    lock: Lock,
    verified: VerifiedFiles,
    store: FileStore,
    say: Callable[[str], None],
    *,
    parts: Collection[str] = _LAID,
) -> None:
    """Create the folders of a run: ``job.json``, the harness with byte code, and the files with trees laid out.

    Files are hard links to blobs. They are copies if links cannot be made, for example across file systems.

    Args:
        folders: The folders to create.
        document: The content of ``job.json``, see ``job_document``.
        lock: The lock of the run.
        verified: Its verified files.
        store: The store of the files.
        say: Gets a message if files are copied.
        parts: The artifacts whose files are laid out.

    Raises:
        UnavailableError: The disk is full or cannot be written.
    """
    try:
        folders.root.chmod(_PRIVATE_MODE)
        folders.folder.mkdir(exist_ok=True)
        for folder, mode in ((folders.job, _FOLDER_MODE), (folders.scratch, _PRIVATE_MODE)):
            folder.mkdir()
            folder.chmod(mode)
        folders.make_output()
        links = _Links(store, folders.job, say)
        harness = folders.job / HARNESS
        harness.write_bytes(add_bytecode(store.path(lock.harness.digest).read_bytes()))
        harness.chmod(_FILE_MODE)
        for path, digest in _files(lock, verified):
            if path.partition("/")[0] in parts:
                links.lay(path, digest)
        write_document(folders, document)
    except OSError as error:
        raise make_unwritable_error(folders, error) from error


def write_document(folders: RunFolders, document: Mapping[str, Any]) -> None:
    """Write ``job.json``, and replace an existing one."""
    path = folders.job / "job.json"
    path.unlink(missing_ok=True)
    path.write_text(json.dumps(document, indent=1, sort_keys=True), encoding="utf-8")
    path.chmod(_FILE_MODE)


def make_unwritable_error(folders: RunFolders, error: OSError) -> UnavailableError:
    """Return the error for a job folder that cannot be written."""
    return UnavailableError(
        f"cannot write the job folder: {error.strerror or error}",
        where=str(folders.root),
        next_step="check free space and permissions on the registry's disk",
    )


def lay_samples(
    folders: RunFolders,
    samples: Mapping[str, str],
    lock: Lock,
    verified: VerifiedFiles,
    store: FileStore,
    say: Callable[[str], None],
) -> None:
    """Lay files of the dataset into the job folder of a model under other names.

    Args:
        folders: The folders, of which the job folder exists.
        samples: For each path below ``dataset`` the path of the file in the dataset.
        lock: The lock of the run.
        verified: Its verified files.
        store: The store of the files.
        say: Gets a message if files are copied.

    Raises:
        InvalidInputError: The dataset has no such file.
    """
    digests = {path: digest for path, digest in _files(lock, verified) if path.startswith("dataset/")}
    links = _Links(store, folders.job, say, existing=(folders.job / "dataset",))
    for target, source in samples.items():
        if f"dataset/{source}" not in digests:
            raise InvalidInputError(f"the harness references sample {source!r}, but the dataset has no such file")
        links.lay(f"dataset/{target}", digests[f"dataset/{source}"])


def fingerprint_lock(lock: Lock) -> str:
    """Return the fingerprint of a lock in the files of a result: a SHA-256 of its id, in hexadecimal.

    It is not the id itself, because the id decides the order of the samples, which a model must not learn.
    """
    return sha256(f"benchlock lock fingerprint\n{lock.id}".encode()).hexdigest()


def job_document(lock: Lock, device: str, manifests: Mapping[Kind, Manifest]) -> dict[str, Any]:
    """Return the content of ``job.json``; the harness documents the meaning of each key."""
    operator = manifests.get("operator")
    if isinstance(operator, Operator):
        return _operator_document(lock, device, operator, manifests["framework"])
    recipe = manifests.get("recipe")
    if isinstance(recipe, Recipe):
        return _training_document(lock, device, recipe, manifests)
    model, dataset, framework = (manifests[kind] for kind in ("model", "dataset", "framework"))
    assert isinstance(model, Model)
    assert isinstance(dataset, Dataset)
    assert isinstance(framework, Framework)
    model_part: dict[str, Any] = {
        "format": model.format,
        "predictor": framework.predictor,
        "inputs": plain(model.inputs),
        "outputs": plain(model.outputs),
        "files": [{"path": file.path, "role": file.role} for file in model.files],
    }
    for key in ("signature", "code", "unsafe", "predictions"):
        if getattr(model, key) is not UNSET:
            model_part[key] = plain(getattr(model, key))
    scenario = {name: value for name, value in lock.scenario.items() if name != "seeds"}
    return {
        "schema": SCHEMA,
        "task": model.task,
        "model": model_part,
        "dataset": _describe_split(dataset, dataset_of(lock).split),
        "scenario": scenario,
        "metrics": list(lock.metrics),
        "threads": lock.limits.cpus,
        "device": device,
        "seeds": lock.scenario["seeds"],
        "lock_fingerprint": fingerprint_lock(lock),
        "trace": lock.request.get("trace", "none"),
    }


def _describe_split(dataset: Dataset, split: str) -> dict[str, Any]:
    part: dict[str, Any] = {"format": dataset.format, "split": plain(dataset.splits[split])}
    for key in ("labels", "ignore_label"):
        if getattr(dataset, key) is not UNSET:
            part[key] = getattr(dataset, key)
    return part


def _training_document(lock: Lock, device: str, recipe: Recipe, manifests: Mapping[Kind, Manifest]) -> dict[str, Any]:
    """Return the content of ``job.json`` for a recipe; its key ``evaluation`` is the job of the trained model.

    A distributed training has no target; the model of its ``evaluation`` is the network to train.
    """
    dataset, framework = manifests["dataset"], manifests["framework"]
    assert isinstance(dataset, Dataset)
    assert isinstance(framework, Framework)
    assert lock.settings is not UNSET
    assert lock.environment is not UNSET
    files = [{"path": file.path, "role": file.role} for file in recipe.files if not is_initial(file)]
    is_distributed = lock.target is UNSET
    learned = dataset_of(lock).split
    threads = lock.limits.cpus if lock.distribution is UNSET else lock.distribution.threads
    evaluation: dict[str, Any] = {
        "schema": SCHEMA,
        "task": recipe.task,
        "model": {
            "format": "safetensors",
            "predictor": framework.predictor,
            "inputs": plain(recipe.inputs),
            "outputs": plain(recipe.outputs),
            "files": [*files, {"path": WEIGHTS, "role": "weights"}],
            "code": plain(recipe.network),
        },
        "dataset": _describe_split(dataset, learned if lock.target is UNSET else lock.target.split),
        "scenario": {"name": "accuracy", "batch": lock.settings["evaluate"]["batch"], "warmup": 0},
        "metrics": [],
        "threads": threads,
        "device": device,
        "seeds": {"qsl": 0, "sample_index": 0, "schedule": 0},
        "lock_fingerprint": fingerprint_lock(lock),
    }
    return {
        "schema": SCHEMA,
        "network": plain(recipe.network),
        "initial": [file.path for file in recipe.files if is_initial(file)],
        "settings": lock.settings,
        "dataset": _describe_split(dataset, learned),
        "evaluation": evaluation,
        **({"distribution": plain(lock.distribution)} if is_distributed else {"target": plain(lock.target)}),
        "scenario": {name: value for name, value in lock.scenario.items() if name != "seeds"},
        "seeds": lock.scenario["seeds"],
        "environment": {name: value or None for name, value in lock.environment.items()},
        "metrics": list(lock.metrics),
    }


def _operator_document(lock: Lock, device: str, operator: Operator, framework: Manifest) -> dict[str, Any]:
    """Return the content of ``job.json`` for an operator."""
    assert isinstance(framework, Framework)
    parts = ("op", "dtype", "inputs", "reference", "fill", "tolerance", "cases")
    return {
        "schema": SCHEMA,
        "operator": {name: plain(getattr(operator, name)) for name in parts},
        "predictor": framework.predictor,
        "scenario": {name: value for name, value in lock.scenario.items() if name != "seeds"},
        "metrics": list(lock.metrics),
        "threads": lock.limits.cpus,
        "device": device,
        "seeds": lock.scenario["seeds"],
        "lock_fingerprint": fingerprint_lock(lock),
    }


def _files(lock: Lock, verified: VerifiedFiles) -> Iterator[tuple[str, Digest]]:
    """Yield the path below the job folder, and the digest, of every file of what is evaluated and of the dataset."""
    for kind, artifact in lock.artifacts().items():
        for file in artifact.files if kind in _LAID else ():
            yield from _list_files(kind, file, verified)


def _list_files(folder: str, file: LockedFile, verified: VerifiedFiles) -> Iterator[tuple[str, Digest]]:
    digest = from_hex(file.sha256)
    if not file.path.endswith("/"):
        yield f"{folder}/{file.path}", digest
        return
    for entry in verified.trees[digest]:
        yield f"{folder}/{file.path}{entry.path}", entry.digest


class _Links:
    def __init__(
        self, store: FileStore, root: Path, say: Callable[[str], None], existing: Collection[Path] = ()
    ) -> None:
        self._store = store
        self._root = root
        self._say = say
        self._made = {root, *existing}
        self._is_reported = False

    def lay(self, path: str, digest: Digest) -> None:
        target = self._root / path
        self._folder(target.parent)
        blob = self._store.path(digest)
        try:
            os.link(blob, target)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            if not self._is_reported:
                self._say(f"copying files into the job folder because they cannot be linked ({error.strerror})")
                self._is_reported = True
            shutil.copyfile(blob, target)
            target.chmod(_FILE_MODE)

    def _folder(self, folder: Path) -> None:
        if folder not in self._made:
            self._folder(folder.parent)
            folder.mkdir()
            folder.chmod(_FOLDER_MODE)
            self._made.add(folder)
