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
from benchlock.evaluator.harness_archive import add_bytecode
from benchlock.evaluator.runner.lock_verification import VerifiedFiles
from benchlock.registry.lock.lockfile import Lock, LockedFile
from benchlock.registry.manifests import Dataset, Framework, Manifest, Model, plain
from benchlock.registry.names import Kind

SCHEMA = 1
"""The major version of ``job.json`` and ``result.json``, which the harness checks too."""
HARNESS = "harness.pyz"
INTERPRETER = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
}
"""What the harness's interpreter is told, wherever it runs: an order that depends on hashes is the same every time."""

_FOLDER_MODE = 0o755
_FILE_MODE = 0o444
_PRIVATE_MODE = 0o700
_ANYBODY_MODE = 0o777
# Where a link cannot be had: another file system, too many links to one file, a store of another owner.
_NO_LINK = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP)


@dataclass(frozen=True, slots=True)
class Place:
    """The folders of one run, below a root that is its owner's alone.

    ``job`` is read by the harness, ``output`` written, ``scratch`` the home of a process. Whoever runs in a container
    may write to ``output``, and nobody else reaches it. A run in stages has these folders for each ``stage``.
    """

    root: Path
    stage: str = ""

    @property
    def folder(self) -> Path:
        return self.root / self.stage

    @property
    def job(self) -> Path:
        return self.folder / "job"

    @property
    def output(self) -> Path:
        return self.folder / "out"

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    def make_output(self) -> None:
        """Make the empty output folder."""
        self.output.mkdir()
        self.output.chmod(_ANYBODY_MODE)


def write_job(
    place: Place,
    document: Mapping[str, Any],
    lock: Lock,
    verified: VerifiedFiles,
    store: FileStore,
    say: Callable[[str], None],
    *,
    parts: Collection[str] = ("model", "dataset"),
) -> None:
    """Make the folders of a run: ``job.json``, the harness, and of ``parts`` each with trees laid out.

    ``document`` is that of ``job.json``, see ``job_document``.

    Files are hard links to blobs; where the store is on another file system they are copies, and ``say`` is told. The
    harness is written with byte code.

    Raises:
        UnavailableError: the disk is full or cannot be written.
    """
    try:
        place.root.chmod(_PRIVATE_MODE)
        place.folder.mkdir(exist_ok=True)
        for folder, mode in ((place.job, _FOLDER_MODE), (place.scratch, _PRIVATE_MODE)):
            folder.mkdir()
            folder.chmod(mode)
        place.make_output()
        links = _Links(store, place.job, say)
        harness = place.job / HARNESS
        harness.write_bytes(add_bytecode(store.path(lock.harness.digest).read_bytes()))
        harness.chmod(_FILE_MODE)
        for path, digest in _files(lock, verified):
            if path.partition("/")[0] in parts:
                links.lay(path, digest)
        write_document(place, document)
    except OSError as error:
        raise make_unwritable_error(place, error) from error


def write_document(place: Place, document: Mapping[str, Any]) -> None:
    """Write ``job.json``, in the place of one that is there."""
    written = place.job / "job.json"
    written.unlink(missing_ok=True)
    written.write_text(json.dumps(document, indent=1, sort_keys=True), encoding="utf-8")
    written.chmod(_FILE_MODE)


def make_unwritable_error(place: Place, error: OSError) -> UnavailableError:
    """Return the error of a job folder that cannot be written."""
    return UnavailableError(
        f"the job folder cannot be written: {error.strerror or error}",
        where=str(place.root),
        next_step="look at the disk that holds the registry",
    )


def lay_samples(
    place: Place,
    samples: Mapping[str, str],
    lock: Lock,
    verified: VerifiedFiles,
    store: FileStore,
    say: Callable[[str], None],
) -> None:
    """Lay files of the dataset into the job folder of a model under other names.

    Args:
        place: The place, whose job folder is there.
        samples: By the path below ``dataset``, the path of the file in the dataset.
        lock: The lock of the run.
        verified: What the lock names.
        store: The store of the files.
        say: Is told where files cannot be linked.

    Raises:
        InvalidInputError: the dataset has no such file.
    """
    digests = {path: digest for path, digest in _files(lock, verified) if path.startswith("dataset/")}
    links = _Links(store, place.job, say, made=(place.job / "dataset",))
    for target, source in samples.items():
        if f"dataset/{source}" not in digests:
            raise InvalidInputError(f"the harness names the sample {source!r}, and the dataset has no such file")
        links.lay(f"dataset/{target}", digests[f"dataset/{source}"])


def fingerprint_lock(lock: Lock) -> str:
    """Return what the files of a run's results name the lock by: a SHA-256 of its id, in hexadecimal.

    It is not the id itself: the id decides the order in which samples are shown, which a model must not learn.
    """
    return sha256(f"benchlock lock fingerprint\n{lock.id}".encode()).hexdigest()


def job_document(lock: Lock, device: str, manifests: Mapping[Kind, Manifest]) -> dict[str, Any]:
    """The content of ``job.json``; the harness documents what each key means."""
    model, dataset, framework = (manifests[kind] for kind in ("model", "dataset", "framework"))
    assert isinstance(model, Model)
    assert isinstance(dataset, Dataset)
    assert isinstance(framework, Framework)
    told: dict[str, Any] = {
        "format": model.format,
        "predictor": framework.predictor,
        "inputs": plain(model.inputs),
        "outputs": plain(model.outputs),
        "files": [{"path": file.path, "role": file.role} for file in model.files],
    }
    for key in ("signature", "code", "unsafe", "predictions"):
        if getattr(model, key) is not UNSET:
            told[key] = plain(getattr(model, key))
    data: dict[str, Any] = {"format": dataset.format, "split": plain(dataset.splits[lock.dataset.split])}
    for key in ("labels", "ignore_label"):
        if getattr(dataset, key) is not UNSET:
            data[key] = getattr(dataset, key)
    scenario = {name: value for name, value in lock.scenario.items() if name != "seeds"}
    return {
        "schema": SCHEMA,
        "task": model.task,
        "model": told,
        "dataset": data,
        "scenario": scenario,
        "metrics": list(lock.metrics),
        "threads": lock.limits.cpus,
        "device": device,
        "seeds": lock.scenario["seeds"],
        "lock_fingerprint": fingerprint_lock(lock),
        "trace": lock.request.get("trace", "none"),
    }


def _files(lock: Lock, verified: VerifiedFiles) -> Iterator[tuple[str, Digest]]:
    """Path below the job folder, and digest, of every file of the model and the dataset."""
    for folder, files in (("model", lock.model.files), ("dataset", lock.dataset.files)):
        for file in files:
            yield from _laid_out(folder, file, verified)


def _laid_out(folder: str, file: LockedFile, verified: VerifiedFiles) -> Iterator[tuple[str, Digest]]:
    digest = from_hex(file.sha256)
    if not file.path.endswith("/"):
        yield f"{folder}/{file.path}", digest
        return
    for entry in verified.trees[digest]:
        yield f"{folder}/{file.path}{entry.path}", entry.digest


class _Links:
    def __init__(self, store: FileStore, root: Path, say: Callable[[str], None], made: Collection[Path] = ()) -> None:
        self._store = store
        self._root = root
        self._say = say
        self._made = {root, *made}
        self._said = False

    def lay(self, path: str, digest: Digest) -> None:
        target = self._root / path
        self._folder(target.parent)
        blob = self._store.path(digest)
        try:
            os.link(blob, target)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            self._say_once(error)
            shutil.copyfile(blob, target)
            target.chmod(_FILE_MODE)

    def _folder(self, folder: Path) -> None:
        if folder not in self._made:
            self._folder(folder.parent)
            folder.mkdir()
            folder.chmod(_FOLDER_MODE)
            self._made.add(folder)

    def _say_once(self, error: OSError) -> None:
        if not self._said:
            self._say(f"files are copied into the job folder, since they cannot be linked there ({error.strerror})")
            self._said = True
