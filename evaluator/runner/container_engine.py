"""The container engine: images by id and confined containers, through its SDK."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchlock.artifacts.errors import UnavailableError

_SYSTEM_SOCKET = "unix:///var/run/docker.sock"

LABEL = "benchlock.run"
"""The label with the id of the run that a container belongs to."""

_ANSWER_SECONDS = 10
_MAX_SCRATCH_ENTRIES = 1 << 16
"""The maximum number of files and folders in a file system in memory; each takes about 1 kB of the kernel."""
_WORK_SECONDS = 900
_SINK_SECONDS = 10

Sink = Callable[[bytes, bytes], None]
"""A function that takes a chunk of standard output and one of standard error; either may be empty."""


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """An image in the engine: its id there, the diff ids of its layers from the lowest, and its run settings."""

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
    """A container: its command, and everything that it may have.

    Attributes:
        run: The id of the run.
        image: The engine's id of the image.
        command: The command with its arguments.
        mounts: The folders of the host.
        environment: The environment variables.
        user: The numbers ``user:group``.
        memory: The memory limit in bytes; the limit includes swap.
        scratch: The size in bytes of each file system in memory: ``/tmp``, which is also the home folder, ``/dev/shm``
            and ``in_memory``; all count as memory.
        processes: The maximum number of processes.
        cpus: The numbers of its CPUs.
        accelerators: The numbers of its NVIDIA accelerators, in the driver's order.
        name: The name of the container; an engine has only one container of a name at a time.
        labels: Further labels.
        in_memory: The path of a further file system in memory.
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
    """The container of a name: its id, its labels, and whether it runs or is about to."""

    id: str
    labels: Mapping[str, str]
    lives: bool


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a container: its exit code, and whether the kernel killed a process in it for its memory."""

    code: int
    out_of_memory: bool


class Container:
    """A started container. A separate thread passes its output to a sink."""

    def __init__(self, container: Any, reader: threading.Thread) -> None:  # noqa: ANN401 - the SDK has no types
        """Wrap the SDK's container and the thread that reads its output."""
        self._container = container
        self._reader = reader

    def wait(self, seconds: float) -> Exit | None:
        """Wait for the end of the container; return None if it still runs after ``seconds``.

        Raises:
            UnavailableError: The connection to the engine was lost.
        """
        is_over = threading.Event()
        answers: list[Exit | Exception] = []

        def watch() -> None:
            try:
                answers.append(self._exit())
            except Exception as error:  # noqa: BLE001 - raised below, in the thread that waits
                answers.append(error)
            is_over.set()

        threading.Thread(target=watch, daemon=True, name="container-wait").start()
        if not is_over.wait(seconds):
            return None
        self._reader.join(_SINK_SECONDS)
        answer = answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        """Kill the container; do nothing if it has ended."""
        with _translate_errors("killing a container"):
            self._container.reload()
            if self._container.status == "running":
                self._container.kill()
        self._reader.join(_SINK_SECONDS)

    def terminate(self) -> None:
        """Send SIGTERM to the first process of the container."""
        with _translate_errors("stopping a container"):
            self._container.kill("SIGTERM")

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of all processes of the container; None if the engine does not report it.

        The engine reads the control group, of version 1 or 2.
        """
        with _translate_errors("reading the CPU time of a container"):
            stats = self._container.client.api.stats(self._container.id, stream=False, one_shot=True)
        total = ((stats.get("cpu_stats") or {}).get("cpu_usage") or {}).get("total_usage")
        return total / 1e9 if isinstance(total, int) and total > 0 else None

    def _exit(self) -> Exit:
        with _translate_errors("waiting for a container"):
            code = int(self._container.wait(timeout=None)["StatusCode"])
            self._container.reload()
            return Exit(code, bool(self._container.attrs["State"]["OOMKilled"]))


class Engine:
    """A connection to a container engine that responds."""

    def __init__(self, client: Any, version: str) -> None:  # noqa: ANN401 - the SDK has no types
        """Wrap the SDK's client."""
        self._client = client
        self.version = version

    @classmethod
    def connect(cls, url: str | None) -> Self | None:
        """Connect to the engine at ``url`` (None: the system's own socket); None if none responds."""
        if _is_missing_socket(url or _SYSTEM_SOCKET):
            return None
        import docker  # noqa: PLC0415 - only what runs containers loads it
        from docker.errors import DockerException  # noqa: PLC0415
        from requests.exceptions import RequestException  # noqa: PLC0415

        try:
            client = docker.DockerClient(base_url=url, version="auto", timeout=_ANSWER_SECONDS)
            description = client.version()
        except (DockerException, RequestException, OSError):
            return None
        client.api.timeout = _WORK_SECONDS
        name = (description.get("Components") or [{"Name": "Engine"}])[0]["Name"]
        return cls(client, f"{name} {description['Version']}")

    def image(self, image_id: str) -> LoadedImage | None:
        """Return the image with this id in the engine; None if there is none."""
        from docker.errors import ImageNotFound  # noqa: PLC0415

        with _translate_errors("looking up an image"):
            try:
                return _describe_image(self._client.images.get(image_id))
            except ImageNotFound:
                return None

    def load(self, archive: Iterable[bytes]) -> LoadedImage:
        """Load the only image of a docker-archive from a stream of bytes."""
        with _translate_errors("loading an image"):
            images = self._client.images.load(archive)
        if len(images) != 1:
            raise UnavailableError(f"the engine loaded {len(images)} images from an archive that contains one")
        return _describe_image(images[0])

    def pull(self, reference: str, platform: str) -> LoadedImage:
        """Pull the image of ``reference`` (``NAME@sha256:…``) for ``platform`` (``linux/amd64``) from its registry.

        Raises:
            UnavailableError: The engine cannot pull it.
        """
        name, _, digest = reference.partition("@")
        advice = (
            "run `docker pull` to see the cause (`docker login` for a private registry), or load the image another way"
        )
        with _translate_errors(f"pulling {reference}", advice):
            for event in self._client.api.pull(name, tag=digest, platform=platform, stream=True, decode=True):
                if "error" in event:
                    raise UnavailableError(
                        f"the container engine failed while pulling {reference}: {event['error']}", next_step=advice
                    )
            return _describe_image(self._client.images.get(reference))

    def start(self, confinement: Confinement, sink: Sink) -> Container:
        """Start a container whose output goes to ``sink``; ``remove`` ends and removes it."""
        with _translate_errors("starting a container"), _explain_start_error(confinement):
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
        """End and remove every container of a run, and return their number."""
        with _translate_errors("removing a container"):
            containers = self._client.containers.list(all=True, filters={"label": f"{LABEL}={run}"})
            for container in containers:
                container.remove(force=True, v=True)
        return len(containers)

    def find_container(self, name: str) -> NamedContainer | None:
        """Find the container of that name; None if there is none."""
        from docker.errors import NotFound  # noqa: PLC0415

        with _translate_errors("looking up a container"):
            try:
                container = self._client.containers.get(name)
            except NotFound:
                return None
            return NamedContainer(container.id, container.labels, container.status not in ("exited", "dead"))

    def end(self, container: str) -> None:
        """End and remove a container by the engine's own id; it is gone on return."""
        from docker.errors import NotFound  # noqa: PLC0415

        with _translate_errors("removing a container"), suppress(NotFound):
            self._client.containers.get(container).remove(force=True, v=True)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _is_missing_socket(url: str) -> bool:
    """Check whether ``url`` is a Unix socket that does not exist; the SDK would never close its own end."""
    path = url.removeprefix("unix://")
    return path != url and path.startswith("/") and not Path(path).exists()


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
        # Without "utility" and "compute" a container gets the devices without the driver's libraries.
        "device_requests": [
            DeviceRequest(
                driver="nvidia",
                device_ids=[str(number) for number in confinement.accelerators],
                capabilities=[["gpu", "compute", "utility"]],
            )
        ]
        * bool(confinement.accelerators),
        # The reader takes the output at once and limits its size, so the engine needs no copy.
        "log_config": LogConfig(type="none"),
    }


def _describe_image(image: Any) -> LoadedImage:  # noqa: ANN401 - the SDK has no types
    return LoadedImage(
        id=image.id, layers=tuple(image.attrs["RootFS"].get("Layers") or ()), config=image.attrs.get("Config") or {}
    )


def _read(stream: Any, sink: Sink) -> None:  # noqa: ANN401 - the SDK has no types
    """Pass the output to the sink until the container has ended."""
    try:
        for output, error in stream:
            sink(output or b"", error or b"")
    finally:
        _close(stream)


def _close(stream: Any) -> None:  # noqa: ANN401 - the SDK has no types
    with suppress(OSError):  # the engine may have closed its end
        stream.close()
    stream._response.close()  # noqa: SLF001 - the SDK closes only the socket, not the file that reads from it


@contextmanager
def _explain_start_error(confinement: Confinement) -> Iterator[None]:
    """Explain what the image or the engine lacks, for known messages of the engine."""
    from docker.errors import APIError  # noqa: PLC0415

    try:
        yield
    except APIError as error:
        message = str(error)
        if "executable file not found" in message or f'exec: "{confinement.command[0]}"' in message:
            raise UnavailableError(
                f"the image has no {confinement.command[0]} on its PATH, which starts the harness",
                next_step="use an image that has it; the image's manifest names it under `python`",
            ) from error
        if confinement.name is not None and f'container name "/{confinement.name}" is already in use' in message:
            raise UnavailableError(
                f"another run is already measuring on this host: container {confinement.name} exists",
                next_step="wait until that run has ended",
            ) from error
        if "could not select device driver" in message:
            raise UnavailableError(
                "the container engine cannot pass NVIDIA GPUs to a container",
                next_step="install the NVIDIA Container Toolkit, or run as a process",
            ) from error
        raise


@contextmanager
def _translate_errors(doing: str, advice: str = "see the engine's log, or run as a process") -> Iterator[None]:
    """Turn the errors of the SDK and of the connection into one error that names the failed action."""
    from docker.errors import DockerException  # noqa: PLC0415
    from requests.exceptions import RequestException  # noqa: PLC0415

    try:
        yield
    except (DockerException, RequestException, OSError) as error:
        raise UnavailableError(
            f"the container engine failed while {doing}: {error}",
            next_step=advice,
        ) from error
