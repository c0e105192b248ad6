"""Containers as the engine really makes them: what they may, what they may not, and what is left of them."""

import dataclasses
import gc
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.runner.container_engine import LABEL, Confinement, Engine, Exit, Mount
from tests.support.system.python_image import PythonImage

pytestmark = pytest.mark.engine
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
MIB = 1 << 20


class Bench:
    """Starts containers of one image, all of one run, and keeps what they print."""

    def __init__(self, engine: Engine, image: str, folder: Path) -> None:
        self.engine = engine
        self.out = folder / "out"
        self.out.mkdir()
        self.out.chmod(0o777)
        self.printed = b""
        self.errors = b""
        self.confinement = Confinement(
            run=f"run/{folder.name}",
            image=image,
            command=(),
            mounts=(Mount(self.out, "/out", writable=True),),
            environment={"GREETING": "hello"},
            user="65534:65534",
            memory=128 * MIB,
            scratch=32 * MIB,
            processes=20,
            cpus=(0,),
        )

    def sink(self, output: bytes, error: bytes) -> None:
        self.printed += output
        self.errors += error

    def run(self, code: str, seconds: float = 60, **changes: Any) -> Exit | None:  # noqa: ANN401 - fields of any type
        command = (PYTHON, "-c", code)
        container = self.engine.start(dataclasses.replace(self.confinement, command=command, **changes), self.sink)
        ended = container.wait(seconds)
        if ended is None:
            container.kill()
        return ended

    def answer(self, code: str) -> Any:  # noqa: ANN401 - any JSON value
        """What ``code`` computes as ``answer``."""
        ended = self.run(f"import json\n{code}\nprint(json.dumps(answer))")
        assert ended == Exit(0, out_of_memory=False), self.errors.decode()
        return json.loads(self.printed)


@pytest.fixture
def image_id(engine: Engine, python_image: PythonImage) -> Digest:
    if engine.image(python_image.id) is None:
        engine.load(python_image.archive())
    return python_image.id


@pytest.fixture
def bench(engine: Engine, image_id: Digest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(engine, image_id, tmp_path)
    yield made
    engine.remove(made.confinement.run)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the SDK leaves the socket open that it could not connect
def test_no_engine_answers_where_there_is_none(tmp_path: Path) -> None:
    assert Engine.connect(f"unix://{tmp_path}/nothing.sock") is None
    gc.collect()


def test_the_version_names_the_engine(engine: Engine) -> None:
    name, _, version = engine.version.rpartition(" ")
    assert name
    assert version[0].isdigit()


def test_an_image_is_loaded_from_its_archive_under_its_id(engine: Engine, python_image: PythonImage) -> None:
    loaded = engine.load(python_image.archive())
    assert loaded.id == python_image.id
    assert loaded.layers == tuple(layer.digest for layer in python_image.layers)
    assert engine.image(python_image.id) == loaded


def test_an_unknown_image_is_none(engine: Engine) -> None:
    assert engine.image("sha256:" + "0" * 64) is None


def test_an_archive_that_is_none_is_an_error(engine: Engine) -> None:
    with pytest.raises(UnavailableError, match="failed while loading an image"):
        engine.load(iter([b"not a tar" * 1000]))


def test_what_it_prints_arrives_apart(bench: Bench) -> None:
    assert bench.run("import sys; print('out'); sys.stderr.write('err'); sys.exit(7)") == Exit(7, out_of_memory=False)
    assert (bench.printed, bench.errors) == (b"out\n", b"err")


def test_every_byte_of_a_long_output_arrives(bench: Bench) -> None:
    bench.run("import sys; sys.stdout.write('x' * 3_000_000)")
    assert bench.printed == b"x" * 3_000_000


def test_the_environment_is_what_was_given(bench: Bench) -> None:
    found = bench.answer("import os; answer = dict(os.environ)")
    assert (found["GREETING"], found["HOME"], found["TMPDIR"]) == ("hello", "/tmp", "/tmp")


def test_it_runs_as_the_given_user_without_any_capability(bench: Bench) -> None:
    status = bench.answer(
        "import os\nlines = dict(l.split(':', 1) for l in open('/proc/self/status') if ':' in l)\n"
        "answer = [os.getuid(), os.getgid(), *(lines[k].strip() for k in ('CapEff', 'CapBnd', 'NoNewPrivs'))]"
    )
    assert status == [65534, 65534, "0" * 16, "0" * 16, "1"]


def test_root_inside_has_no_capability_either(bench: Bench) -> None:
    assert bench.run("import os; os.setuid(1)", user="0:0") == Exit(1, out_of_memory=False)
    assert b"PermissionError" in bench.errors


def test_its_root_cannot_be_written(bench: Bench) -> None:
    assert bench.run("open('/file', 'w')", user="0:0") == Exit(1, out_of_memory=False)
    assert b"Read-only file system" in bench.errors


def test_only_the_writable_mount_can_be_written(bench: Bench, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    job.chmod(0o777)
    mounts = (*bench.confinement.mounts, Mount(job, "/job"))
    ended = bench.run("open('/out/file', 'w').write('1'); open('/job/file', 'w')", mounts=mounts)
    assert ended == Exit(1, out_of_memory=False)
    assert b"Read-only file system: '/job/file'" in bench.errors
    assert (bench.out / "file").read_text() == "1"
    assert not list(job.iterdir())


def test_scratch_is_in_memory_and_bounded(bench: Bench) -> None:
    found = bench.answer(
        "import os; answer = [os.statvfs(p).f_blocks * os.statvfs(p).f_frsize for p in ('/tmp', '/dev/shm')]"
    )
    assert found == [32 * MIB, 32 * MIB]


def test_code_in_scratch_may_be_executed(bench: Bench) -> None:
    assert bench.answer("import os; answer = os.statvfs('/tmp').f_flag & os.ST_NOEXEC") == 0


def test_it_has_no_network(bench: Bench) -> None:
    assert bench.answer("import socket; answer = [name for _, name in socket.if_nameindex()]") == ["lo"]


def test_it_has_the_chosen_cpus(bench: Bench) -> None:
    assert bench.answer("import os; answer = sorted(os.sched_getaffinity(0))") == [0]


def test_more_memory_than_the_limit_is_a_kill_that_is_seen(bench: Bench) -> None:
    ended = bench.run("x = bytearray(200 << 20)")
    assert ended is not None
    assert ended.out_of_memory
    assert ended.code == 137


def test_more_processes_than_the_limit_are_refused(bench: Bench) -> None:
    code = "import os, time\nfor _ in range(40):\n    if not os.fork(): time.sleep(30); os._exit(0)"
    assert bench.run(code, seconds=60) == Exit(1, out_of_memory=False)
    assert b"BlockingIOError" in bench.errors


def test_a_kill_from_inside_is_no_want_of_memory(bench: Bench) -> None:
    ended = bench.run(
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import os; os.kill(os.getpid(), 9)'])"
    )
    assert ended == Exit(0, out_of_memory=False)


def test_waiting_ends_in_time_and_leaves_it_running(bench: Bench) -> None:
    start = time.monotonic()
    used = time.process_time()
    assert bench.run("import time; time.sleep(60)", seconds=1) is None
    assert 1 <= time.monotonic() - start < 60
    assert time.process_time() - used < 0.5  # the parent waited in the kernel


def test_a_killed_container_stays_killed(bench: Bench) -> None:
    container = bench.engine.start(
        dataclasses.replace(bench.confinement, command=(PYTHON, "-c", "import time; time.sleep(60)")), bench.sink
    )
    container.kill()
    assert container.wait(60) == Exit(137, out_of_memory=False)
    container.kill()  # no error


def test_a_command_that_is_not_there_is_an_error(bench: Bench) -> None:
    with pytest.raises(UnavailableError, match="the image has no no-such-program on its PATH"):
        bench.engine.start(dataclasses.replace(bench.confinement, command=("no-such-program",)), bench.sink)


def test_accelerators_are_asked_of_the_engine_by_number(bench: Bench) -> None:
    """The engine of the tests has none to give, so the container is made and never started."""
    accelerated = dataclasses.replace(bench.confinement, command=(PYTHON, "-V"), accelerators=(1, 3))
    with pytest.raises(UnavailableError, match="cannot pass NVIDIA GPUs to a container") as caught:
        bench.engine.start(accelerated, bench.sink)
    assert "Container Toolkit" in str(caught.value.next_step)
    (made,) = bench.engine._client.containers.list(all=True, filters={"label": f"{LABEL}={accelerated.run}"})
    (asked,) = made.attrs["HostConfig"]["DeviceRequests"]
    assert (asked["Driver"], asked["DeviceIDs"], asked["Count"]) == ("nvidia", ["1", "3"], 0)
    assert asked["Capabilities"] == [["gpu", "compute", "utility"]]


def test_without_accelerators_none_are_asked_for(bench: Bench) -> None:
    bench.run("pass")
    (made,) = bench.engine._client.containers.list(all=True, filters={"label": f"{LABEL}={bench.confinement.run}"})
    assert not made.attrs["HostConfig"]["DeviceRequests"]


def test_removing_a_run_removes_its_containers_alone(bench: Bench) -> None:
    sleep = (PYTHON, "-c", "import time; time.sleep(60)")
    bench.engine.start(dataclasses.replace(bench.confinement, command=sleep), bench.sink)
    other = bench.confinement.run + "x"
    bench.engine.start(dataclasses.replace(bench.confinement, command=sleep, run=other), bench.sink)
    assert bench.engine.remove(bench.confinement.run) == 1
    assert bench.engine.remove(bench.confinement.run) == 0
    assert bench.engine.remove(other) == 1


def test_the_folder_is_written_by_the_user_inside(bench: Bench) -> None:
    bench.run("open('/out/file', 'w').close()")
    assert (bench.out / "file").stat().st_uid == 65534
