"""What a container printed as its output: files and text apart, within the quota, whatever was printed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.runner.container_init import MARK
from benchlock.evaluator.runner.container_run import OutputCollector, init_arguments
from benchlock.evaluator.runner.output_limits import ConsoleOutput, Quota

QUOTA = Quota(size=1 << 20, entries=10)
NAMES = ("result.json", "loadgen/log.txt", "predictions")


def printed(files: dict[str, bytes], entries: int = 1, size: int | None = None) -> bytes:
    sizes = {name: len(content) for name, content in files.items()}
    header = {"entries": entries, "bytes": sum(sizes.values()) if size is None else size, "files": sizes}
    return MARK + json.dumps(header).encode() + b"\n" + b"".join(files.values())


def collect(folder: Path, *pieces: bytes) -> tuple[OutputCollector, ConsoleOutput]:
    log = ConsoleOutput(SILENT)
    collector = OutputCollector(folder, QUOTA, log, NAMES)
    for piece in pieces:
        collector.feed(piece, b"")
    collector.close()
    log.close()
    return collector, log


def kept(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("step", [1, 2, 7, 1 << 20])
def test_files_and_text_are_taken_apart_wherever_pieces_end(step: int, tmp_path: Path) -> None:
    files = {"result.json": b"{}" * 40, "predictions": b"", "loadgen/log.txt": MARK + b"text\n"}
    stream = b"before\n" + printed(files) + b"after\0\n"
    collector, log = collect(tmp_path, *(stream[start : start + step] for start in range(0, len(stream), step)))
    assert kept(tmp_path) == files
    assert log.log == b"before\nafter\0\n"
    assert collector.settled.is_set()
    assert (collector.excess, collector.fault) == (None, None)


def test_text_is_handed_on_as_it_comes(tmp_path: Path) -> None:
    log = ConsoleOutput(SILENT)
    collector = OutputCollector(tmp_path, QUOTA, log, NAMES)
    collector.feed(b"a line\n", b"an error\n")
    log.close()
    assert log.log == b"an error\na line\n"


@pytest.mark.parametrize(
    ("stream", "excess"),
    [
        (printed({}, size=2 << 20), "more than 1MiB"),
        (printed({"predictions": b"x"}, size=1).replace(b": 1}", b": 2097152}"), "more than 1MiB"),
        (printed({}, entries=11), "more than 10 files"),
        (MARK + b'{"error": "Permission denied"}\n', "an unreadable folder (Permission denied)"),
    ],
)
def test_what_is_beyond_the_quota_is_not_kept(stream: bytes, excess: str, tmp_path: Path) -> None:
    collector, log = collect(tmp_path, stream, b"content" * 100)
    assert collector.excess == excess
    assert (kept(tmp_path), log.log) == ({}, b"")
    assert collector.settled.is_set()


@pytest.mark.parametrize(
    "stream",
    [
        printed({"result.json": b"{}"})[:-1],  # it ends early
        printed({"../escape": b"x"}),
        printed({"/etc/escape": b"x"}),
        printed({"other": b"x"}),
        MARK + b"no JSON\n",
        MARK + b'{"files": {"result.json": -1}}\n',
        MARK + b"x" * (1 << 18),
    ],
)
def test_a_malformed_account_keeps_nothing(stream: bytes, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    collector, _ = collect(inner, stream)
    assert kept(tmp_path) == {}
    assert (collector.excess, collector.fault) == (None, None)


def test_the_last_account_counts(tmp_path: Path) -> None:
    planted, honest = printed({"result.json": b"planted", "predictions": b"planted"}), printed({"result.json": b"{}"})
    collect(tmp_path, planted + b"text" + honest)
    assert kept(tmp_path) == {"result.json": b"{}"}


def test_a_folder_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "result.json").mkdir()
    collector, _ = collect(tmp_path, printed({"result.json": b"{}"}))
    assert isinstance(collector.fault, FileExistsError)


def initiate(folder: Path, code: str) -> subprocess.CompletedProcess[bytes]:
    """Run ``container_init.py`` as a plain process; SIGTERM, which it waits for, is sent by the end of its output."""
    with subprocess.Popen(
        [sys.executable, *init_arguments(str(folder)), "-c", code], stdout=subprocess.PIPE, env={"PATH": os.defpath}
    ) as process:
        assert process.stdout is not None
        printed = b""
        while MARK not in printed or not printed.endswith(b"END"):
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                break
            printed += piece
        process.terminate()
        return subprocess.CompletedProcess(process.args, process.wait(60), printed)


def test_the_first_process_prints_regular_files_alone_and_ends_as_the_harness_did(tmp_path: Path) -> None:
    folder, target = tmp_path / "out", tmp_path / "target"
    folder.mkdir()
    target.mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "samples.safetensors").symlink_to(tmp_path / "secret")
    (folder / "loadgen").symlink_to("/etc")
    with (folder / "quality.safetensors").open("wb") as sparse:
        sparse.truncate(1 << 20)
    os.mkfifo(folder / "golden.npz")
    (folder / "result.json").write_bytes(b"{}")
    (folder / "predictions.safetensors").write_bytes(b"predictions END")
    ended = initiate(folder, "import sys; print('text', flush=True); sys.exit(3)")
    assert ended.returncode == 3
    log = ConsoleOutput(SILENT)
    collector = OutputCollector(target, Quota(size=2 << 20, entries=10), log)
    collector.feed(ended.stdout, b"")
    log.close()
    assert kept(target) == {"result.json": b"{}", "predictions.safetensors": b"predictions END"}
    assert log.log == b"text\n"
    assert collector.settled.is_set()


def test_the_first_process_says_which_signal_killed_the_harness(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_bytes(b"END")
    assert initiate(tmp_path, "import os; os.kill(os.getpid(), 9)").returncode == 128 + 9
