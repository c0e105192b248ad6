"""The container engine: images by id and confined containers, through its SDK."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchlock.artifacts.errors import UnavailableError

LABEL = "benchlock.run"
"""Names the run that a container belongs to."""

_ANSWER_SECONDS = 10
_MAX_SCRATCH_ENTRIES = 1 << 16
"""Files and folders of a file system in memory; each takes about a kilobyte of the kernel."""
_WORK_SECONDS = 900
_SINK_SECONDS = 10

Sink = Callable[[bytes, bytes], None]
"""Takes a piece of standard output and a piece of standard error, either of which may be empty."""


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """An image as the engine describes it: what it calls it, its layers' diff ids from the lowest, its run settings."""

    id: str
    layers: tuple[str, ...]
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host at an absolute path of the container."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """A container: what it runs, and all that it may have.

    ``memory`` and ``scratch`` are in bytes; swap is no way around ``memory``. ``scratch`` is the size of the in-memory
    file systems at ``/tmp``, which is its home too, ``/dev/shm`` and ``in_memory``; all count as memory.
    ``accelerators`` are NVIDIA's, by their numbers in the driver's order. An engine has one container of a ``name``, as
    long as it is there.
    """

    run: str
    image: str
    command: tuple[str, ...]
    mounts: tuple[Mount, ...]
    environment: Mapping[str, str]
    user: str
    memory: int
    scratch: int
    processes: int
    cpus: tuple[int, ...]
    accelerators: tuple[int, ...] = ()
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    in_memory: str | None = None


@dataclass(frozen=True, slots=True)
class NamedContainer:
    """The container that has a name: what the engine calls it, its labels, and whether it runs or is about to."""

    id: str
    labels: Mapping[str, str]
    lives: bool


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended. ``out_of_memory``: the kernel killed in it, and the engine saw it."""

    code: int
    out_of_memory: bool


class Container:
    """One started container. What it prints goes to the sink that it was started with, from a thread of its own."""

    def __init__(self, container: Any, reader: threading.Thread) -> None:  # noqa: ANN401 - the SDK has no types
        self._container = container
        self._reader = reader

    def wait(self, seconds: float) -> Exit | None:
        """How it ended, or None where it runs still after ``seconds``. Waits in the kernel.

        Raises:
            UnavailableError: the engine went away.
        """
        ended = threading.Event()
        answers: list[Exit | Exception] = []

        def watch() -> None:
            try:
                answers.append(self._exit())
            except Exception as error:  # noqa: BLE001 - raised below, in the thread that waits
                answers.append(error)
            ended.set()

        threading.Thread(target=watch, daemon=True, name="container-wait").start()
        if not ended.wait(seconds):
            return None
        self._reader.join(_SINK_SECONDS)
        answer = answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        """End it at once; no error where it has ended."""
        with _translated("killing a container"):
            self._container.reload()
            if self._container.status == "running":
                self._container.kill()
        self._reader.join(_SINK_SECONDS)

    def terminate(self) -> None:
        """Send SIGTERM to the first process of the container."""
        with _translated("ending a container"):
            self._container.kill("SIGTERM")

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of all processes that the container has or had; None where the engine does not say.

        The engine reads the control group, of either version.
        """
        with _translated("reading the CPU time of a container"):
            stats = self._container.client.api.stats(self._container.id, stream=False, one_shot=True)
        total = ((stats.get("cpu_stats") or {}).get("cpu_usage") or {}).get("total_usage")
        return total / 1e9 if isinstance(total, int) and total > 0 else None

    def _exit(self) -> Exit:
        with _translated("waiting for a container"):
            code = int(self._container.wait(timeout=None)["StatusCode"])
            self._container.reload()
            return Exit(code, bool(self._container.attrs["State"]["OOMKilled"]))


class Engine:
    """An engine that answers."""

    def __init__(self, client: Any, version: str) -> None:  # noqa: ANN401 - the SDK has no types
        self._client = client
        self.version = version

    @classmethod
    def connect(cls, url: str | None) -> Self | None:
        """The engine at ``url`` (None: the system's own socket), or None where none answers."""
        import docker  # noqa: PLC0415 - only what runs containers loads it
        from docker.errors import DockerException  # noqa: PLC0415
        from requests.exceptions import RequestException  # noqa: PLC0415

        try:
            client = docker.DockerClient(base_url=url, version="auto", timeout=_ANSWER_SECONDS)
            found = client.version()
        except (DockerException, RequestException, OSError):
            return None
        client.api.timeout = _WORK_SECONDS
        name = (found.get("Components") or [{"Name": "Engine"}])[0]["Name"]
        return cls(client, f"{name} {found['Version']}")

    def image(self, image_id: str) -> LoadedImage | None:
        """What the engine has under ``image_id``; None if nothing."""
        from docker.errors import ImageNotFound  # noqa: PLC0415

        with _translated("looking for an image"):
            try:
                return _loaded(self._client.images.get(image_id))
            except ImageNotFound:
                return None

    def load(self, archive: Iterable[bytes]) -> LoadedImage:
        """The one image of a docker-archive, loaded from its bytes as they come."""
        with _translated("loading an image"):
            images = self._client.images.load(archive)
        if len(images) != 1:
            raise UnavailableError(f"the engine loaded {len(images)} images of an archive that holds one")
        return _loaded(images[0])

    def pull(self, reference: str, platform: str) -> LoadedImage:
        """The image that ``reference`` (``NAME@sha256:…``) names for ``platform`` (``linux/amd64``), from its registry.

        Raises:
            UnavailableError: the engine cannot have it.
        """
        name, _, digest = reference.partition("@")
        advice = "see what `docker pull` says of it (`docker login` gives it a password), or load it by other means"
        with _translated(f"pulling {reference}", advice):
            for event in self._client.api.pull(name, tag=digest, platform=platform, stream=True, decode=True):
                if "error" in event:
                    raise UnavailableError(
                        f"the container engine failed while pulling {reference}: {event['error']}", next_step=advice
                    )
            return _loaded(self._client.images.get(reference))

    def start(self, confinement: Confinement, sink: Sink) -> Container:
        """A running container; every byte that it prints goes to ``sink``. :meth:`remove` ends and forgets it."""
        with _translated("starting a container"), _explained(confinement):
            container = self._client.containers.create(**_options(confinement))
            stream = container.attach(stdout=True, stderr=True, stream=True, logs=False, demux=True)
            try:
                container.start()
            except BaseException:
                _close(stream)
                raise
        reader = threading.Thread(target=_read, args=(stream, sink), daemon=True, name="container-output")
        reader.start()
        return Container(container, reader)

    def remove(self, run: str) -> int:
        """End and remove every container of a run; how many there were."""
        with _translated("removing a container"):
            found = self._client.containers.list(all=True, filters={"label": f"{LABEL}={run}"})
            for container in found:
                container.remove(force=True, v=True)
        return len(found)

    def named(self, name: str) -> NamedContainer | None:
        """The container of that name, None where there is none."""
        from docker.errors import NotFound  # noqa: PLC0415

        with _translated("looking for a container"):
            try:
                found = self._client.containers.get(name)
            except NotFound:
                return None
            return NamedContainer(found.id, found.labels, found.status not in ("exited", "dead"))

    def end(self, container: str) -> None:
        """End and remove a container by the engine's own id; it is gone when this returns."""
        from docker.errors import NotFound  # noqa: PLC0415

        with _translated("removing a container"), suppress(NotFound):
            self._client.containers.get(container).remove(force=True, v=True)

    def close(self) -> None:
        self._client.close()


def _options(confinement: Confinement) -> dict[str, Any]:
    from docker.types import DeviceRequest, LogConfig, Ulimit  # noqa: PLC0415

    scratch = f"rw,exec,nosuid,nodev,mode=1777,size={confinement.scratch},nr_inodes={_MAX_SCRATCH_ENTRIES}"
    return {
        "image": confinement.image,
        "entrypoint": list(confinement.command[:1]),
        "command": list(confinement.command[1:]),
        "name": confinement.name,
        "labels": {LABEL: confinement.run, **confinement.labels},
        "environment": {**confinement.environment, "HOME": "/tmp", "TMPDIR": "/tmp"},  # noqa: S108 - its own tmpfs
        "user": confinement.user,
        "working_dir": "/",
        "hostname": "benchlock",
        "volumes": [f"{m.source}:{m.target}:{'rw' if m.writable else 'ro'}" for m in confinement.mounts],
        "network_mode": "none",
        "ipc_mode": "private",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "mem_limit": confinement.memory,
        "memswap_limit": confinement.memory,
        "shm_size": confinement.scratch,
        "tmpfs": dict.fromkeys(filter(None, ("/tmp", confinement.in_memory)), scratch),  # noqa: S108 - its own tmpfs
        "pids_limit": confinement.processes,
        "cpuset_cpus": ",".join(map(str, confinement.cpus)),
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        # Without "utility" and "compute" a container gets the devices, and not the driver's libraries that use them.
        "device_requests": [
            DeviceRequest(
                driver="nvidia",
                device_ids=[str(number) for number in confinement.accelerators],
                capabilities=[["gpu", "compute", "utility"]],
            )
        ]
        * bool(confinement.accelerators),
        # What it prints is read as it comes, and kept in bounds by the reader; the engine keeps no second copy.
        "log_config": LogConfig(type="none"),
    }


def _loaded(image: Any) -> LoadedImage:  # noqa: ANN401 - the SDK has no types
    return LoadedImage(
        id=image.id, layers=tuple(image.attrs["RootFS"].get("Layers") or ()), config=image.attrs.get("Config") or {}
    )


def _read(stream: Any, sink: Sink) -> None:  # noqa: ANN401 - the SDK has no types
    """Hand on what comes until the container has ended."""
    try:
        for output, error in stream:
            sink(output or b"", error or b"")
    finally:
        _close(stream)


def _close(stream: Any) -> None:  # noqa: ANN401 - the SDK has no types
    with suppress(OSError):  # the engine may have closed its end
        stream.close()
    stream._response.close()  # noqa: SLF001 - the SDK closes the socket alone, and leaves the file that reads from it


@contextmanager
def _explained(confinement: Confinement) -> Iterator[None]:
    """Say what the image or the engine lacks, where the engine's words for it are known."""
    from docker.errors import APIError  # noqa: PLC0415

    try:
        yield
    except APIError as error:
        said = str(error)
        if "executable file not found" in said or f'exec: "{confinement.command[0]}"' in said:
            raise UnavailableError(
                f"the image has no {confinement.command[0]} on its PATH, and the harness is started by it",
                next_step="use an image that has it; `python` of the image's manifest says which one is wanted",
            ) from error
        if confinement.name is not None and f'container name "/{confinement.name}" is already in use' in said:
            raise UnavailableError(
                f"this host is measuring already: the container {confinement.name} is there",
                next_step="wait for its end",
            ) from error
        if "could not select device driver" in said:
            raise UnavailableError(
                "the container engine cannot give NVIDIA's accelerators to a container",
                next_step="install NVIDIA's container toolkit for it, or run as a process (--isolation process)",
            ) from error
        raise


@contextmanager
def _translated(
    doing: str, advice: str = "see the engine's own log, or run as a process (--isolation process)"
) -> Iterator[None]:
    """Turn what the SDK and the connection raise into one error that names what was being done."""
    from docker.errors import DockerException  # noqa: PLC0415
    from requests.exceptions import RequestException  # noqa: PLC0415

    try:
        yield
    except (DockerException, RequestException, OSError) as error:
        raise UnavailableError(
            f"the container engine failed while {doing}: {error}",
            next_step=advice,
        ) from error
