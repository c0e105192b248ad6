"""A harness of the standard library alone, for tests of what is around a measurement.

It measures nothing: it lasts as long as a lock says, and writes down when, unless a container keeps it from that. What
starts, confines, ends and records it is the same as for the real one.
"""

import base64
import hashlib
import io
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchlock.artifacts.digest import Descriptor, to_hex
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.lock.lockfile import LockedFile, LockedHarness, LockedLayer, LockedPlatform
from tests.evaluator.evaluation import NOTHING, Evaluation
from tests.support.system.python_image import PythonImage

_MAIN = """
import json, os, signal, sys, time
job, out = sys.argv[1:]
told = json.load(open(os.path.join(job, "job.json")))
log, failure, until = {log!r}, {failure!r}, time.monotonic() + {seconds}
def note(what):
    with open(log, "a") as file:
        file.write("%s %d %.3f %s\\n" % (what, os.getpid(), time.time(), out))
if log and os.path.isdir(os.path.dirname(log)):
    note("start")
    if failure == "kills":
        os.kill(os.getppid(), signal.SIGKILL)
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))
        note("on")
    note("end")
else:
    time.sleep({seconds})
if failure == "crash":
    os._exit(3)
result = {{
    "schema": 1,
    "outcome": "failed" if failure else "done",
    "failure": {{"class": failure, "message": "as the lock says"}} if failure else None,
    "quality": {{}},
    "performance": None,
    "environment": {{
        "python": "3", "packages": [{{"name": "none", "version": "1"}}], "threads": {{}}, "device": "cpu"
    }},
    "timings": {{"accuracy": 0.1}},
}}
with open(os.path.join(out, "result.json"), "w") as file:
    json.dump(result, file)
"""


class Stubbed(Evaluation):
    """An evaluation whose harness is the stub; each call of ``holding`` says how the next locks' ones behave."""

    seconds = 0.0
    failure = ""
    log = ""

    def holding(self, seconds: float, failure: str = "", log: Path | None = None) -> "Stubbed":
        """``failure`` is how the run ends, nothing where it is well; ``kills``: the harness kills who started it."""
        self.seconds, self.failure, self.log = seconds, failure, "" if log is None else str(log)
        return self

    def _harness(self) -> LockedHarness:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as written:
            text = _MAIN.format(seconds=self.seconds, failure=self.failure, log=self.log)
            written.writestr(zipfile.ZipInfo("__main__.py"), text)
        kept: Descriptor = self.store.put(io.BytesIO(archive.getvalue()))
        return LockedHarness(version="1.0.0", digest=kept.digest, size=kept.size)


def stubbed(store: LocalStore, folder: Path, image: PythonImage | None = None) -> Stubbed:
    """Locks for processes of this Python, and for containers of ``image``, with the stub for their harness."""
    path = wheel(folder)
    kept = store.put_file(path)
    layered: dict[str, Any] = {}
    if image is not None:
        for digest in (image.id, *(layer.digest for layer in image.layers)):
            store.put_file(image.store.path(digest), digest)
        layers = tuple(LockedLayer(digest=layer.digest, size=layer.size) for layer in image.layers)
        layered = {"image_id": image.id, "config_size": len(image.config), "layers": layers}
    platform = LockedPlatform(
        os="linux",
        arch="amd64",
        device="cpu",
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        wheels_lock=NOTHING.wheels_lock,
        wheels=(LockedFile(path=f"wheels/{path.name}", sha256=to_hex(kept.digest), size=kept.size),),
        **layered,
    )
    return Stubbed(store, folder, platform)


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when something measured, by the host's clock, as far as is known, and ``where``."""

    begin: float
    end: float
    where: str


def events(log: Path) -> list[tuple[str, ...]]:
    """The starts and ends that the harnesses wrote."""
    return [found for found in _written(log) if found[0] != "on"]


def spans(log: Path) -> list[Span]:
    """When each harness was there for certain; where it was killed, until it last wrote. ``where`` is its folder."""
    times: dict[tuple[str, str], list[float]] = {}
    for _, pid, at, out in _written(log):
        times.setdefault((pid, out), []).append(float(at))
    return [Span(min(found), max(found), out) for (_, out), found in times.items()]


def _written(log: Path) -> list[tuple[str, ...]]:
    return [tuple(line.split()) for line in log.read_text().splitlines()] if log.exists() else []


def wheel(folder: Path) -> Path:
    """A wheel with one empty module: an environment is made of one at least."""
    path = folder / "none-1-py3-none-any.whl"
    entries = {
        "none.py": "",
        "none-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: none\nVersion: 1\n",
        "none-1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{name},{_recorded(text.encode())},{len(text)}" for name, text in entries.items()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in entries.items():
            archive.writestr(name, text)
        archive.writestr("none-1.dist-info/RECORD", "\n".join([*rows, "none-1.dist-info/RECORD,,", ""]))
    return path


def _recorded(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
