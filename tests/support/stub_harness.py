"""A harness of the standard library alone, for tests of what is around a measurement.

It measures nothing: it holds what no two harnesses of a host may hold at once, for as long as a lock says, and writes
down when. What starts, confines, ends and records it is the same as for the real one.
"""

import base64
import hashlib
import io
import sys
import zipfile
from pathlib import Path

from artifacts.digest import Descriptor, to_hex
from artifacts.local import LocalStore
from evaluator.harness_archive import HARNESS_VERSION
from registry.lockfile import LockedFile, LockedHarness, LockedPlatform
from tests.evaluator.runner.evaluation import NOTHING, Evaluation

_MAIN = """
import fcntl, json, os, sys, time
job, out = sys.argv[1:]
told = json.load(open(os.path.join(job, "job.json")))
log = {log!r}
if log:
    with open(log, "a") as file:
        alone = open(log + ".alone", "w")
        try:
            fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.write("together %d\\n" % os.getpid())
            file.flush()
            fcntl.flock(alone, fcntl.LOCK_EX)
        file.write("start %d %.3f\\n" % (os.getpid(), time.time()))
        file.flush()
        time.sleep({seconds})
        file.write("end %d %.3f\\n" % (os.getpid(), time.time()))
else:
    time.sleep({seconds})
failure = {failure!r}
if failure == "crash":
    os._exit(3)
result = {{
    "schema": 1,
    "outcome": "failed" if failure else "done",
    "failure": {{"class": failure, "message": "as the lock says"}} if failure else None,
    "quality": {{}} if failure else {{"top1": {{"n": 30, "correct": 27}}}},
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
        self.seconds, self.failure, self.log = seconds, failure, "" if log is None else str(log)
        return self

    def _harness(self) -> LockedHarness:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as written:
            text = _MAIN.format(seconds=self.seconds, failure=self.failure, log=self.log)
            written.writestr(zipfile.ZipInfo("__main__.py"), text)
        kept: Descriptor = self.store.put(io.BytesIO(archive.getvalue()))
        return LockedHarness(version=HARNESS_VERSION, digest=kept.digest, size=kept.size)


def stubbed(store: LocalStore, folder: Path) -> Stubbed:
    """Locks for processes of this Python, with the stub for their harness."""
    path = wheel(folder)
    kept = store.put_file(path)
    platform = LockedPlatform(
        os="linux",
        arch="amd64",
        device="cpu",
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        wheels_lock=NOTHING.wheels_lock,
        wheels=(LockedFile(path=f"wheels/{path.name}", sha256=to_hex(kept.digest), size=kept.size),),
    )
    return Stubbed(store, folder, platform)


def events(log: Path) -> list[tuple[str, ...]]:
    """What the harnesses wrote."""
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
