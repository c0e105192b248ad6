"""Work in processes that may be killed: a warm server forks one for each, so that a start costs a few milliseconds.

A job is killed by a clock, at any moment, or by itself just before its Nth step: a call of a function that changes
files or the database. The server runs as ``python -m tests.support.system.forking`` and speaks lines of JSON.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from sqlalchemy import Engine

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.oci.oci_client import RegistryClient
from benchlock.artifacts.oci.oci_reference import parse_repository
from benchlock.artifacts.stores.cached_store import CachedRepository
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.stores.oci_store import OciStore
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.engine import open_engine
from benchlock.registry.publishing.garbage_collection import collect_garbage
from benchlock.registry.publishing.publication import Draft, publish
from tests.support.registry.authored import read_authored

ROOT = Path(__file__).resolve().parents[3]
DONE, REFUSED, KILLED = 0, 2, -signal.SIGKILL
LONGEST_SECONDS = 60
_STEPS = {
    "module": {"open", "copy_file_range", "fsync", "fchmod", "chmod", "mkdir", "replace", "unlink", "flock", "close"},
    "FileIO": {"write", "close"},
    "Connection": {"execute", "commit", "close"},
    "Cursor": {"execute", "executemany"},
    "socket": {"send", "sendall"},
}
"""By the type of what they are called on, or for functions of modules."""


@dataclass(frozen=True, slots=True)
class Place:
    """A registry that several processes open: its database, the folder of its blobs, and a repository behind that."""

    database: Path
    blobs: Path
    repository: str = ""


def open_place(place: Place, database: Engine | None = None) -> tuple[BlobStore, Catalogue]:
    """What reads and writes it, through ``database`` where it is open already."""
    local = LocalStore(place.blobs)
    store: BlobStore = CachedRepository(local, open_remote(place)) if place.repository else local
    return store, Catalogue(database or open_engine(place.database), lambda: datetime.now(UTC))


def open_remote(place: Place) -> OciStore:
    """The repository alone, without the folder in front of it."""
    return OciStore(RegistryClient(parse_repository(place.repository)), place.database.with_suffix(".lock"))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended: its exit code, minus the signal that killed it; seconds; what it said."""

    code: int
    seconds: float
    said: str


class Server:
    """Runs jobs one after another, each in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def publish(self, place: Place, manifest: Path, **cut: float) -> Ended:
        """Publish a manifest; killed ``after`` seconds, or before its step number ``step``, where one is given."""
        return self._do("publish", place, {"manifest": str(manifest)} | cut)

    def collect(self, place: Place, **cut: float) -> Ended:
        """Collect garbage once; killed as with ``publish``."""
        return self._do("collect", place, cut)

    def _do(self, job: str, place: Place, arguments: Mapping[str, Any]) -> Ended:
        assert self._process.stdin
        assert self._process.stdout
        where = {"database": str(place.database), "blobs": str(place.blobs), "repository": place.repository}
        self._process.stdin.write(json.dumps({"job": job, **where, **arguments}) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


@contextmanager
def forking() -> Iterator[Server]:
    """A server, ended with the context."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "tests.support.system.forking"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


def serve() -> None:
    """Run the jobs that standard input says, until it ends."""
    import_module("httpx")  # which a job would import by itself, each anew
    for line in sys.stdin:
        job = json.loads(line)
        told, tell = os.pipe()
        start = time.monotonic()
        child = os.fork()
        if not child:
            os.close(told)
            _work(job, tell)
        os.close(tell)
        if "after" in job:
            time.sleep(job["after"])
            os.kill(child, signal.SIGKILL)
        with os.fdopen(told) as words:
            said = words.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        ended = {"code": code, "seconds": time.monotonic() - start, "said": said}
        sys.stdout.write(json.dumps(ended) + "\n")
        sys.stdout.flush()


def _work(job: Mapping[str, Any], tell: int) -> None:
    """Do a job and end this process, which was forked for it; if a clock is to kill it, wait for that."""
    code, said = 1, ""
    try:
        place = Place(Path(job["database"]), Path(job["blobs"]), job["repository"])
        # Counting slows everything down.
        with Steps(int(job["step"])).counting() if "step" in job else nullcontext():
            said = _publish(place, Path(job["manifest"])) if job["job"] == "publish" else _collect(place)
        code = 0
    except BenchlockError as error:
        code, said = REFUSED, f"{type(error).__name__}: {error}"
    except BaseException as error:  # noqa: BLE001 - the test shows it
        said = repr(error)
    if "after" in job:
        time.sleep(LONGEST_SECONDS)
    os.write(tell, said.encode())
    os._exit(code)


def _publish(place: Place, manifest: Path) -> str:
    store, catalogue = open_place(place)
    text = manifest.read_text()
    published = publish(Draft(read_authored(text, str(manifest)), text, manifest), store, catalogue)
    return "published" if published.changed else "already there"


def _collect(place: Place) -> str:
    store, catalogue = open_place(place)
    return str(len(collect_garbage(store, catalogue, tuple).digests))


class Steps:
    """Counts the calls that change files or the database, in every thread; kills this process before one of them."""

    def __init__(self, last: int) -> None:
        self.taken = 0
        self._last = last
        self._turn = threading.Lock()

    @contextmanager
    def counting(self) -> Iterator[None]:
        threading.setprofile(self._watch)
        sys.setprofile(self._watch)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _watch(self, _frame: FrameType, event: str, function: Any) -> None:  # noqa: ANN401 - what an event is about
        if event != "c_call" or function.__name__ not in _STEPS.get(type(_owner(function)).__name__, ()):
            return
        with self._turn:
            self.taken += 1
            if self.taken == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


def _owner(function: Any) -> object:  # noqa: ANN401 - a function written in C
    return getattr(function, "__self__", None)


if __name__ == "__main__":
    serve()
