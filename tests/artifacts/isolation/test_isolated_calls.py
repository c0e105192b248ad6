"""Functions in a process with limits: whatever they do, it costs the caller an error."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchlock.artifacts.blob_store import BlobNotFoundError, BlobReader
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.isolation.isolated_calls import run_isolated
from benchlock.artifacts.isolation.resource_limits import IsolatedFaultError, LimitExceededError, Limits
from benchlock.artifacts.stores.local_store import LocalStore
from tests.support.artifacts.memory_store import MemoryStore

FUNCTIONS = "tests.support.artifacts.isolated"
SMALL = Limits(memory=256 << 20, cpu_seconds=2, seconds=20, result=1 << 16)


def call(name: str, arguments: object = None, limits: Limits = SMALL, blobs: BlobReader | None = None) -> object:
    return run_isolated(f"{FUNCTIONS}:{name}", arguments, limits=limits, subject="the trial", blobs=blobs)


def test_values_go_there_and_come_back() -> None:
    value = {"a": [1, 2.5, None, True, "ä"], "b": {}}
    assert call("echo", value) == value


def test_blobs_of_a_folder_and_of_memory_are_read(tmp_path: Path) -> None:
    for store in (LocalStore(tmp_path), MemoryStore()):
        blob = store.put(io.BytesIO(b"some bytes"))
        assert call("read_blob", [blob.digest], blobs=store) == ["some bytes", 10, False]


def test_errors_of_the_store_reach_the_function_and_the_caller(tmp_path: Path) -> None:
    with pytest.raises(BlobNotFoundError):
        call("read_blob", [Digest("sha256:" + "0" * 64)], blobs=LocalStore(tmp_path))


def test_errors_keep_their_class_and_words() -> None:
    with pytest.raises(IntegrityError) as raised:
        call("refuse", ["wrong bytes"])
    assert (raised.value.what, raised.value.where, raised.value.next_step) == ("wrong bytes", "there", "mend it")


def test_a_fault_is_an_error_without_a_traceback() -> None:
    with pytest.raises(IsolatedFaultError, match="the trial failed: ValueError: unforeseen"):
        call("fail")


def test_memory_is_limited() -> None:
    assert call("take_memory", 16 << 20) == 16 << 20
    with pytest.raises(LimitExceededError, match="256 MiB of memory"):
        call("take_memory", 512 << 20)


def test_processor_time_is_limited_inside_one_call_of_c() -> None:
    with pytest.raises(LimitExceededError, match="1 seconds of processor time"):
        call("spin", limits=Limits(cpu_seconds=1, seconds=60))


def test_the_time_of_a_call_is_limited() -> None:
    with pytest.raises(LimitExceededError, match=r"limit of 0\.3 seconds"):
        call("wait", "", limits=Limits(seconds=0.3))


def test_a_crash_names_its_signal() -> None:
    with pytest.raises(IsolatedFaultError, match=r"crashed \(SIGSEGV\)"):
        call("crash")


def test_no_file_is_written(tmp_path: Path) -> None:
    with pytest.raises(IsolatedFaultError, match="OSError"):
        call("write_file", str(tmp_path / "written"))
    assert (tmp_path / "written").read_bytes() == b""


def test_a_result_is_bounded() -> None:
    with pytest.raises(LimitExceededError, match="64 KiB for its findings"):
        call("say_much", 1 << 20)


def test_the_blob_that_was_opened_last_is_known(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    blob = store.put(io.BytesIO(b"x" * (1 << 17)))
    with pytest.raises(LimitExceededError) as raised:
        call("read_blob", [blob.digest], blobs=store)
    assert raised.value.blob == blob.digest


def test_the_child_has_neither_variables_nor_files_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHLOCK_TOKEN", "secret")
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        found = call("describe_self")
    assert isinstance(found, dict)
    assert "secret" not in str(found)
    assert found["core"] == [0, 0]
    assert os.getpid() not in (found["pid"], found["parent"])
    assert [name.partition(":")[0] for name in found["descriptors"]].count("socket") == 1


def test_calls_go_on_when_the_template_was_killed() -> None:
    found = call("describe_self")
    assert isinstance(found, dict)
    os.kill(found["parent"], signal.SIGKILL)
    deadline = time.monotonic() + 30
    while alive(found["parent"]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert call("echo", 1) == 1


def test_nothing_is_left_when_the_caller_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "pids"
    code = f"""
from benchlock.artifacts.isolation.isolated_calls import run_isolated
from benchlock.artifacts.isolation.resource_limits import Limits
import sys, threading
sys.path.insert(0, {str(Path(__file__).resolve().parents[3])!r})
found = run_isolated("{FUNCTIONS}:describe_self", None, limits=Limits(), subject="it")
open({str(ready)!r}, "w").write(str(found["parent"]))
run_isolated("{FUNCTIONS}:wait", "", limits=Limits(), subject="it")
"""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        deadline = time.monotonic() + 60
        while not (ready.exists() and ready.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        template = int(ready.read_text())
        while not (children := children_of(template)) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
    deadline = time.monotonic() + 30
    while any(map(alive, (template, *children))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children
    assert not any(map(alive, (template, *children)))


def test_a_forked_process_has_a_template_of_its_own() -> None:
    assert call("echo", 1) == 1
    child = os.fork()
    if not child:
        os._exit(0 if call("echo", 2) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert call("echo", 3) == 3


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def children_of(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
