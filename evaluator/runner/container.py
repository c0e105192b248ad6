"""A run in a container: its image loaded and compared with the lock, its confinement, its end."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import UNSET

from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.progress import Progress
from benchlock.artifacts.store import BlobStore, read
from benchlock.evaluator.images.archive import docker_archive
from benchlock.evaluator.runner.collection import OutputCollector, Settlement, init_arguments
from benchlock.evaluator.runner.ending import Ending
from benchlock.evaluator.runner.engine import Confinement, Engine, LoadedImage, Mount
from benchlock.evaluator.runner.jobs import HARNESS, INTERPRETER, Place, unwritable
from benchlock.evaluator.runner.output import Output
from benchlock.evaluator.runner.quota import OutputWatch, Quota, choose_quota
from benchlock.registry.lockfile import LockedLimits, LockedPlatform

MARK = "container"
"""The file in a run's folder that is there as long as the run may have a container."""

_NOBODY = 65534
_JOB = "/job"
_OUTPUT = "/out"
_SETTINGS = ("Env", "Entrypoint", "Cmd", "WorkingDir", "User")


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """What a container is made of; ``image`` is what the engine calls it.

    With ``keeps_output`` the container writes to the output folder itself, as only a stage without a model may.
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
    """The platform's image in the engine, compared with the lock.

    Where it is not there it is loaded from the store, or, if it is a finished one, pulled from its registry.

    Raises:
        IntegrityError: what the engine has is not what the lock names.
        UnavailableError: the engine failed, or cannot pull.
    """
    assert platform.image_id is not UNSET
    config = read(store, platform.image_id, name="the image's configuration")
    if platform.finished:
        return _provide_finished(platform, config, engine, progress)
    assert platform.layers is not UNSET
    found = engine.image(platform.image_id)
    if found is None:
        layers = [Descriptor(layer.digest, layer.size) for layer in platform.layers]
        size = sum(layer.size for layer in layers)
        with progress.task("loading the image into the engine", size) as advance:

            def told() -> Any:  # noqa: ANN401 - an iterator of bytes that reports
                for piece in docker_archive(config, layers, store):
                    yield piece
                    advance(len(piece))

            found = engine.load(told())
    check_image(found, platform.image_id, config, [layer.digest for layer in platform.layers])
    return found


def _provide_finished(platform: LockedPlatform, config: bytes, engine: Engine, progress: Progress) -> LoadedImage:
    assert platform.image_id is not UNSET
    assert platform.reference is not UNSET
    assert platform.diff_ids is not UNSET
    found = engine.image(platform.image_id) or engine.image(platform.reference)
    if found is None:
        with progress.task(f"pulling {platform.reference}"):
            found = engine.pull(platform.reference, f"{platform.os}/{platform.arch}")
    check_image(found, platform.image_id, config, list(platform.diff_ids))
    return found


def check_image(found: LoadedImage, image_id: Digest, config: bytes, layers: list[Digest]) -> None:
    """The engine's image is the one that ``config`` describes.

    Its layers are compared always. Engines differ in what they call an id: where it is not the digest of the
    configuration, the settings that a run depends on are compared with it.

    Raises:
        IntegrityError: names what differs.
    """
    if found.layers != tuple(layers):
        raise _other(image_id, "layers", list(layers), list(found.layers))
    if found.id != image_id:
        wanted: Mapping[str, Any] = json.loads(config).get("config") or {}
        for name in _SETTINGS:
            if (wanted.get(name) or None) != (found.config.get(name) or None):
                raise _other(image_id, name, wanted.get(name), found.config.get(name))


def run_container(engine: Engine, what: ContainerRun, place: Place, progress: Progress) -> Ending:
    """Run the harness to its end, or to the end of its time. The container is gone afterwards, whatever happened.

    Raises:
        UnavailableError: the engine failed.
    """
    output = Output(progress)
    quota = what.quota or choose_quota(place.root, what.limits.bytes)
    collector = None if what.keeps_output else OutputCollector(place.output, _within_memory(quota, what.limits), output)
    mark = place.root / MARK
    mark.touch()
    start = time.perf_counter()
    try:
        sink = output.feed if collector is None else collector.feed
        container = engine.start(confinement(what, place), sink)
        started, used = time.perf_counter(), time.process_time()
        watch: OutputWatch | Settlement
        if collector is None:
            watch = OutputWatch(place.output, quota, container.kill)
        else:
            watch = Settlement(container, collector)
        with watch:
            found = container.wait(what.limits.seconds)
        ran, watched = time.perf_counter() - started, time.process_time() - used
        if found is None:
            container.kill()
    finally:
        if collector is not None:
            collector.close()
        output.close()
        engine.remove(what.run)
        mark.unlink()
    if collector is not None and collector.fault is not None:
        raise unwritable(place, collector.fault)
    code, out_of_memory = (None, False) if found is None else (found.code, found.out_of_memory)
    return Ending(code, out_of_memory, output.log, started - start, ran, watched, watch.excess, cpu=watch.cpu)


def _within_memory(quota: Quota, limits: LockedLimits) -> Quota:
    """Return the quota of an output folder in memory; the kernel holds the container to its memory besides."""
    return replace(quota, size=min(quota.size, limits.bytes // 2))


def confinement(what: ContainerRun, place: Place) -> Confinement:
    """Exactly what the lock allows, as a user without rights on the host: the caller, or nobody where that is root.

    A container that runs a model can write nowhere but in its own memory. A file of the host that is removed while it
    is open, or one that is allocated at once, would be beyond every watch of a folder.
    """
    user = os.getuid() or _NOBODY
    group = os.getgid() if os.getuid() else _NOBODY
    harness = ("-B", f"{_JOB}/{HARNESS}", _JOB, _OUTPUT)
    job = Mount(place.job, _JOB)
    return Confinement(
        run=what.run,
        image=what.image,
        command=(f"python{what.python}", *(() if what.keeps_output else init_arguments(_OUTPUT)), *harness),
        mounts=(job, Mount(place.output, _OUTPUT, writable=True)) if what.keeps_output else (job,),
        in_memory=None if what.keeps_output else _OUTPUT,
        environment={"LANG": "C.UTF-8", "TZ": "UTC", **INTERPRETER},
        user=f"{user}:{group}",
        memory=what.limits.bytes,
        scratch=what.limits.bytes // 2,
        processes=what.limits.processes,
        cpus=what.cpus,
        accelerators=what.accelerators,
        name=what.name,
        labels=what.labels,
    )


def _other(image_id: Digest, what: str, wanted: object, found: object) -> IntegrityError:
    return IntegrityError(
        f"the engine's image {image_id} is not the locked one: its {what} are {found}, and {wanted} are locked",
        where="image",
        next_step="remove that image from the engine; the next run loads it again",
    )
