"""Containers of pods as processes of this checkout: a folder for each volume, and an end for all its processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_ENTRYPOINT: Final = (sys.executable, "-m", "benchlock.api.cli.main")
"""The one of the image (``Dockerfile``)."""
_KEPT: Final = ("PATH", "LANG", "VIRTUAL_ENV")
_LAST: Final = 2048
"""The bytes of the log that Kubernetes takes for a termination message."""


@dataclass
class Container:
    """The container of a pod; ``folder`` has its volumes, its log and its termination message.

    It sees nothing of a node but ``variables``; paths of its volumes are replaced by folders, in arguments and in
    variables.
    """

    pod: Mapping[str, Any]
    folder: Path
    secrets: Mapping[str, Mapping[str, str]]
    variables: Mapping[str, str]
    process: "subprocess.Popen[bytes]" = field(init=False)

    def __post_init__(self) -> None:
        spec = self.pod["spec"]
        (container,) = spec["containers"]
        self.folder.mkdir(parents=True)
        self.message, self.log = self.folder / "message", self.folder / "log"
        self.message.touch()
        self.places = {container["terminationMessagePath"]: self.message}
        volumes = {one["name"]: one for one in spec.get("volumes", ())}
        for mount in container.get("volumeMounts", ()):
            self.places[mount["mountPath"]] = self._fill(volumes[mount["name"]])
        own = {one["name"]: self._place(one["value"]) for one in container.get("env", ())}
        inherited = {name: os.environ[name] for name in _KEPT if name in os.environ}
        words = [*_ENTRYPOINT, *map(self._place, container["args"])]
        tmp = {"TMPDIR": str(self.places["/tmp"])} if "/tmp" in self.places else {}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                words,
                env={**inherited, **tmp, **self.variables, **own},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def terminated(self) -> dict[str, Any] | None:
        """The terminated state of the container, as Kubernetes tells it; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        text = self.message.read_text() or (self.log.read_bytes()[-_LAST:].decode() if code else "")
        code = 128 - code if code < 0 else code
        return {"exitCode": code, "reason": "Error" if code else "Completed", "message": text}

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the first process; all of them with SIGKILL, as when the kernel ends a container."""
        if self.process.poll() is not None:
            return
        if number is not signal.SIGKILL:
            self.process.send_signal(number)
            return
        self.process.send_signal(signal.SIGSTOP)
        for pid in (self.process.pid, *descendants(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def _fill(self, volume: Mapping[str, Any]) -> Path:
        place = self.folder / "volumes" / str(volume["name"])
        place.mkdir(parents=True)
        secret = volume.get("secret", {"items": ()})
        for item in secret["items"]:
            path = place / str(item["path"])
            path.write_text(self.secrets[secret["secretName"]][item["key"]])
            path.chmod(secret["defaultMode"])
        return place

    def _place(self, text: str) -> str:
        """A text, with the folder here in place of a path in the container."""
        for path, place in self.places.items():
            if text == path or text.startswith(f"{path}/"):
                return f"{place}{text[len(path) :]}"
        return text


def descendants(pid: int) -> list[int]:
    found = []
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found
