"""A run in a container: image, confinement, and collection of its output folder.

A process of the container, ``container_init.py``, prints the output folder. Nothing that it prints is trusted.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, BinaryIO, Final, Self

import msgspec
from msgspec import UNSET, Meta, Struct

from benchlock.artifacts.blob_store import BlobStore, read
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import IntegrityError, UnavailableError
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.images.image_layers import docker_archive
from benchlock.evaluator.runner import container_init
from benchlock.evaluator.runner.container_engine import Confinement, Container, Engine, LoadedImage, Mount
from benchlock.evaluator.runner.job_folder import HARNESS, INTERPRETER, RunFolders, make_unwritable_error
from benchlock.evaluator.runner.output_limits import ConsoleOutput, OutputWatch, Quota, choose_quota
from benchlock.evaluator.runner.run_outcome import FILES, Ending
from benchlock.evaluator.runner.run_stages import GOLDEN
from benchlock.registry.lock.lockfile import LockedLimits, LockedPlatform
from benchlock.registry.text.quantities import spell_bytes

COLLECTED_FILES: Final = (*FILES.values(), GOLDEN)
"""The files that are collected from the output folder."""

_LONGEST_HEADER: Final = 1 << 16
_log = logging.getLogger("benchlock")
_Count = Annotated[int, Meta(ge=0)]


class _Header(Struct, frozen=True):
    entries: _Count = 0
    bytes: _Count = 0
    files: dict[str, _Count] = {}
    error: str | None = None


def init_arguments(folder: str) -> tuple[str, ...]:
    """Return the arguments of an interpreter that runs ``container_init.py``; those of the harness follow."""
    source = files("benchlock.evaluator.runner").joinpath("container_init.py").read_text(encoding="utf-8")
    return ("-I", "-S", "-B", "-c", source, folder, msgspec.json.encode(COLLECTED_FILES).decode())


class OutputCollector:
    """The console output of a container, separated from the files that its first process appends.

    The files are written to a folder. The last header counts, because the first process prints it after it has killed
    all other processes.

    Attributes:
        excess: How the output exceeds the quota; then nothing of it is kept.
        fault: Why the host's folder could not be written.
        settled: Set when the collection ends, by success or by excess.
    """

    def __init__(
        self, folder: Path, quota: Quota, log: ConsoleOutput, names: Collection[str] = COLLECTED_FILES
    ) -> None:
        """Prepare the collection.

        Args:
            folder: The folder for the files.
            quota: The quota of the folder.
            log: Gets the console output.
            names: The files that are expected.
        """
        self.excess: str | None = None
        self.fault: OSError | None = None
        self.settled = threading.Event()
        self._folder = folder
        self._quota = quota
        self._log = log
        self._names = frozenset(names)
        self._take: Callable[[bytes], bytes] = self._take_text
        self._rest = b""
        self._made: list[Path] = []
        self._missing: list[tuple[Path, int]] = []
        self._left = 0
        self._stream: BinaryIO | None = None

    def feed(self, output: bytes, error: bytes) -> None:
        """Take a chunk of standard output and of standard error."""
        if error:
            self._log.feed(b"", error)
        while output:
            output = self._take(output)

    def close(self) -> None:
        """Give the rest to the log; remove the files if one of them is incomplete."""
        if self._take == self._take_text:
            self._log.feed(self._rest, b"")
        else:
            self._discard()
        self._rest = b""

    def _take_text(self, piece: bytes) -> bytes:
        text, mark, rest = (self._rest + piece).partition(container_init.MARK)
        self._rest = b""
        if mark:
            self._take = self._take_header
        else:
            # The end may be a part of the mark. Nothing else is held back, so that progress lines appear at once.
            start = text.rfind(container_init.MARK[:1])
            if start >= 0 and container_init.MARK.startswith(text[start:]):
                text, self._rest = text[:start], text[start:]
        self._log.feed(text, b"")
        return rest

    def _take_header(self, piece: bytes) -> bytes:
        line, newline, rest = (self._rest + piece).partition(b"\n")
        self._rest = b""
        if newline:
            self._begin(line)
        elif len(line) > _LONGEST_HEADER:
            self._take = self._take_text
        else:
            self._rest = line
        return rest

    def _begin(self, line: bytes) -> None:
        """Begin with the files that a header names; a malformed header names none."""
        self._discard()
        self.excess = None
        self._take = self._take_text
        try:
            header = msgspec.json.decode(line, type=_Header)
        except msgspec.MsgspecError:
            return
        if header.error is not None:
            self.excess = f"an unreadable folder ({header.error})"
        elif header.entries > self._quota.entries:
            self.excess = f"more than {self._quota.entries} files"
        elif max(header.bytes, sum(header.files.values())) > self._quota.size:
            self.excess = f"more than {spell_bytes(self._quota.size)}"
        elif self._names.issuperset(header.files):
            self._missing = [(self._folder / name, size) for name, size in reversed(header.files.items())]
            self._take = self._take_content
            self._begin_file()
        if self.excess is not None:
            self._take = _drop
            self.settled.set()

    def _take_content(self, piece: bytes) -> bytes:
        content, rest = piece[: self._left], piece[self._left :]
        self._left -= len(content)
        if self._stream is not None and self.fault is None:
            try:
                self._stream.write(content)
            except OSError as error:
                self.fault = error
        if not self._left:
            self._end_file()
            self._begin_file()
        return rest

    def _begin_file(self) -> None:
        """Create the next file with content and the empty ones before it; settle after the last one."""
        while self._missing:
            path, self._left = self._missing.pop()
            try:
                path.parent.mkdir(exist_ok=True)
                self._made.append(path)
                self._stream = path.open("xb")
            except OSError as error:
                self.fault = self.fault or error
            if self._left:
                return
            self._end_file()
        self._take = self._take_text
        self.settled.set()

    def _end_file(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            try:
                stream.close()
            except OSError as error:  # closing writes the buffer, and the disk may be full
                self.fault = self.fault or error

    def _discard(self) -> None:
        self._end_file()
        for path in self._made:
            path.unlink(missing_ok=True)
        self._made, self._missing = [], []


def _drop(_piece: bytes) -> bytes:
    return b""


class Settlement:
    """The end of a container that runs a model: collect its output, read its CPU time, and let it end.

    Attributes:
        cpu: CPU seconds of the container up to then, by the engine; None if the engine does not report them.
    """

    @property
    def excess(self) -> str | None:
        """How the output exceeds the quota; None if it does not."""
        return self._collector.excess

    def __init__(self, container: Container, collector: OutputCollector) -> None:
        """Prepare the settlement of a container; the context starts it."""
        self.cpu: float | None = None
        self._container = container
        self._collector = collector
        self._ended = False
        self._thread = threading.Thread(target=self._settle, daemon=True, name="container-settle")

    def __enter__(self) -> Self:
        """Start to wait for the output."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop waiting."""
        self._ended = True
        self._collector.settled.set()
        self._thread.join()

    def _settle(self) -> None:
        while True:
            self._collector.settled.wait()
            self._collector.settled.clear()
            if self._ended:
                return
            try:
                if self._collector.excess is not None:
                    self._container.kill()
                    return
                try:
                    self.cpu = self._container.cpu_seconds()
                finally:
                    self._container.terminate()
            except UnavailableError:  # it ended meanwhile, or will end by itself within a minute
                _log.debug("cannot determine the state of a container", exc_info=True)


MARK = "container"
"""The file in a run's folder that exists as long as the run may have a container."""

_NOBODY = 65534
_JOB = "/job"
_OUTPUT = "/out"
_SETTINGS = ("Env", "Entrypoint", "Cmd", "WorkingDir", "User")


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """The parameters of a container.

    Attributes:
        run: The id of the run.
        image: The engine's id of the image.
        python: The version of its interpreter.
        limits: The limits of the lock.
        cpus: The numbers of the CPUs that it may use.
        accelerators: The numbers of the accelerators that it gets.
        name: The name of the container.
        labels: Further labels.
        quota: The quota of its output; None for the default.
        keeps_output: Whether the container writes to the output folder itself, as only a stage without a model may.
            Otherwise its output folder is in memory, and the runner copies from it what the quota allows.
    """

    run: str
    image: str
    python: str
    limits: LockedLimits
    cpus: tuple[int, ...]
    accelerators: tuple[int, ...] = ()
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    quota: Quota | None = None
    keeps_output: bool = False


def provide_image(platform: LockedPlatform, engine: Engine, store: BlobStore, progress: Progress) -> LoadedImage:
    """Return the platform's image in the engine, compared with the lock.

    A missing image is loaded from the store, or pulled from its registry if it is a finished one.

    Raises:
        IntegrityError: The engine's image is not the locked one.
        UnavailableError: The engine failed, or cannot pull.
    """
    assert platform.image_id is not UNSET
    config = read(store, platform.image_id, name="the image's configuration")
    if platform.finished:
        return _provide_finished(platform, config, engine, progress)
    assert platform.layers is not UNSET
    image = engine.image(platform.image_id)
    if image is None:
        layers = [Descriptor(layer.digest, layer.size) for layer in platform.layers]
        size = sum(layer.size for layer in layers)
        with progress.task("loading the image into the engine", size) as advance:

            def read_archive() -> Any:  # noqa: ANN401 - an iterator of bytes that reports
                for piece in docker_archive(config, layers, store):
                    yield piece
                    advance(len(piece))

            image = engine.load(read_archive())
    check_image(image, platform.image_id, config, [layer.digest for layer in platform.layers])
    return image


def _provide_finished(platform: LockedPlatform, config: bytes, engine: Engine, progress: Progress) -> LoadedImage:
    assert platform.image_id is not UNSET
    assert platform.reference is not UNSET
    assert platform.diff_ids is not UNSET
    image = engine.image(platform.image_id) or engine.image(platform.reference)
    if image is None:
        with progress.task(f"pulling {platform.reference}"):
            image = engine.pull(platform.reference, f"{platform.os}/{platform.arch}")
    check_image(image, platform.image_id, config, list(platform.diff_ids))
    return image


def check_image(image: LoadedImage, image_id: Digest, config: bytes, layers: list[Digest]) -> None:
    """Raise unless the engine's image is the one that ``config`` describes.

    Its layers are always compared. Engines differ in their ids: if the id is not the digest of the configuration, the
    settings that a run depends on are compared, too.

    Raises:
        IntegrityError: The image differs; the message names the difference.
    """
    if image.layers != tuple(layers):
        raise _other(image_id, "layers", list(layers), list(image.layers))
    if image.id != image_id:
        expected: Mapping[str, Any] = json.loads(config).get("config") or {}
        for name in _SETTINGS:
            if (expected.get(name) or None) != (image.config.get(name) or None):
                raise _other(image_id, name, expected.get(name), image.config.get(name))


def run_container(engine: Engine, container_run: ContainerRun, folders: RunFolders, progress: Progress) -> Ending:
    """Run the harness until it ends or its time is over, and remove the container in any case.

    Raises:
        UnavailableError: The engine failed.
    """
    output = ConsoleOutput(progress)
    quota = container_run.quota or choose_quota(folders.root, container_run.limits.bytes)
    collector = (
        None
        if container_run.keeps_output
        else OutputCollector(folders.output, _within_memory(quota, container_run.limits), output)
    )
    mark = folders.root / MARK
    mark.touch()
    start = time.perf_counter()
    try:
        sink = output.feed if collector is None else collector.feed
        container = engine.start(confinement(container_run, folders), sink)
        started, used = time.perf_counter(), time.process_time()
        watch: OutputWatch | Settlement
        if collector is None:
            watch = OutputWatch(folders.output, quota, container.kill)
        else:
            watch = Settlement(container, collector)
        with watch:
            exit_ = container.wait(container_run.limits.seconds)
        ran, watched = time.perf_counter() - started, time.process_time() - used
        if exit_ is None:
            container.kill()
    finally:
        if collector is not None:
            collector.close()
        output.close()
        engine.remove(container_run.run)
        mark.unlink()
    if collector is not None and collector.fault is not None:
        raise make_unwritable_error(folders, collector.fault)
    code, out_of_memory = (None, False) if exit_ is None else (exit_.code, exit_.out_of_memory)
    return Ending(code, out_of_memory, output.log, started - start, ran, watched, watch.excess, cpu=watch.cpu)


def _within_memory(quota: Quota, limits: LockedLimits) -> Quota:
    """Return the quota of an output folder in memory; the kernel enforces the memory limit in addition."""
    return replace(quota, size=min(quota.size, limits.bytes // 2))


def confinement(container_run: ContainerRun, folders: RunFolders) -> Confinement:
    """Return the confinement of a run: exactly what the lock allows, and a user without rights on the host.

    The user is the caller, or nobody if the caller is root. A container that runs a model can write only to its own
    memory: no watch of a folder on the host would see a file that is removed while it is open, or allocated at once.
    """
    user = os.getuid() or _NOBODY
    group = os.getgid() if os.getuid() else _NOBODY
    harness = ("-B", f"{_JOB}/{HARNESS}", _JOB, _OUTPUT)
    job = Mount(folders.job, _JOB)
    return Confinement(
        run=container_run.run,
        image=container_run.image,
        command=(
            f"python{container_run.python}",
            *(() if container_run.keeps_output else init_arguments(_OUTPUT)),
            *harness,
        ),
        mounts=(job, Mount(folders.output, _OUTPUT, writable=True)) if container_run.keeps_output else (job,),
        in_memory=None if container_run.keeps_output else _OUTPUT,
        environment={"LANG": "C.UTF-8", "TZ": "UTC", **INTERPRETER},
        user=f"{user}:{group}",
        memory=container_run.limits.bytes,
        scratch=container_run.limits.bytes // 2,
        processes=container_run.limits.processes,
        cpus=container_run.cpus,
        accelerators=container_run.accelerators,
        name=container_run.name,
        labels=container_run.labels,
    )


def _other(image_id: Digest, part: str, expected: object, actual: object) -> IntegrityError:
    return IntegrityError(
        f"image {image_id} of the engine differs from the lock: its {part} are {actual}, expected {expected}",
        where="image",
        next_step="remove the image from the engine; the next run loads it again",
    )
