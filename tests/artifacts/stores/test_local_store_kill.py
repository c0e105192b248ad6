"""kill -9 while blobs are written: nothing half-written is ever visible, nothing finished is lost."""

import io
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchlock.artifacts.blob_store import verify
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.stores.local_store import LocalStore

# Dies by SIGKILL just before its Nth step on files (an audited call: open, mkdir, chmod, rename, remove, flock).
STEPS = """
import io, os, signal, sys
from pathlib import Path
from benchlock.artifacts.stores.local_store import LocalStore

root, file, deadline = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
steps = 0

def count(event, arguments):
    global steps
    if event in {"open", "os.mkdir", "os.chmod", "os.rename", "os.remove", "fcntl.flock"}:
        steps += 1
        if steps == deadline:
            os.kill(os.getpid(), signal.SIGKILL)

store = LocalStore(root)
sys.addaudithook(count)
print(store.put(io.BytesIO(b"first")).digest, flush=True)
print(store.put_file(file).digest, flush=True)
"""

# Writes blobs without end, saying the digest of each that it was told is there.
ENDLESS = """
import io, random, sys
from pathlib import Path
from benchlock.artifacts.stores.local_store import LocalStore

store, numbers = LocalStore(Path(sys.argv[1])), random.Random(int(sys.argv[2]))
while True:
    content = numbers.randbytes(numbers.choice([0, 10, 5_000, 300_000, 3_000_000]))
    print(store.put(io.BytesIO(content)).digest, flush=True)
"""


def started(script: str, *arguments: object) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)


def check(root: Path, promised: set[Digest]) -> None:
    """Every visible blob is whole and read-only, every promised one is visible, the rest lies in incoming/ alone."""
    store = LocalStore(root)
    visible = set(store.list())
    assert promised <= visible
    for digest in visible:
        verify(store, digest, name=digest)
        assert store.path(digest).stat().st_mode & 0o777 == 0o444
    with store.collecting():
        store.sweep()
    files = {path for path in root.rglob("*") if path.is_file()}
    assert files <= {root / "lock"} | {store.path(digest) for digest in visible}
    again = store.put(io.BytesIO(b"goes on"))
    verify(store, again.digest, name="goes on")
    store.delete(again.digest)


def test_killed_before_each_step(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"second" * 1000)
    for deadline in range(1, 100):
        root = tmp_path / str(deadline)
        process = started(STEPS, root, file, deadline)
        said, _ = process.communicate(timeout=60)
        promised = {Digest(line) for line in said.splitlines()}
        check(root, promised)
        if process.returncode == 0:
            assert len(promised) == 2
            break
        assert process.returncode == -signal.SIGKILL
    else:
        pytest.fail("never came to an end")
    assert deadline > 15  # so many steps were really cut short


def test_killed_at_random(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    numbers = random.Random(seed)
    root, promised = tmp_path / f"seed-{seed}", set[Digest]()  # errors show the path, and so the seed
    for round_ in range(8):
        with started(ENDLESS, root, seed + round_) as process:
            assert process.stdout
            promised.add(Digest(process.stdout.readline().strip()))
            time.sleep(numbers.uniform(0, 0.15))
            process.kill()
            promised |= {Digest(line.strip()) for line in process.stdout if line.endswith("\n")}
        check(root, promised)
    assert len(promised) > 8
