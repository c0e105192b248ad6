"""The quota of a run's output: what counts, and that whoever exceeds it is stopped while it writes."""

import errno
import os
import threading
from pathlib import Path

import pytest

from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.runner.output_limits import OutputWatch, Quota, choose_quota, find_excess

QUOTA = Quota(size=1 << 20, entries=10)


def test_what_a_harness_leaves_is_within_the_quota(tmp_path: Path) -> None:
    (tmp_path / "loadgen").mkdir()
    (tmp_path / "loadgen" / "log.txt").write_bytes(bytes(1000))
    assert find_excess(tmp_path, QUOTA) is None


@pytest.mark.parametrize("name", ["big", "deep/er/big"])
def test_the_length_of_a_file_counts_and_not_its_blocks(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.truncate(500 << 30)
    assert find_excess(tmp_path, QUOTA) == "more than 1MiB"


def test_files_folders_links_and_pipes_all_count(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"folder-{number}").mkdir()
        (tmp_path / f"folder-{number}" / "link").symlink_to("/etc/passwd")
    assert find_excess(tmp_path, QUOTA) is None
    os.mkfifo(tmp_path / "pipe")
    assert find_excess(tmp_path, QUOTA) == "more than 10 files"


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "root").symlink_to("/")
    (tmp_path / "self").symlink_to(".")
    assert find_excess(tmp_path, QUOTA) is None


def test_a_run_is_stopped_while_it_writes(tmp_path: Path) -> None:
    stopped = threading.Event()
    with OutputWatch(tmp_path, QUOTA, stopped.set) as watch:
        for number in range(20):
            (tmp_path / str(number)).touch()
        assert stopped.wait(60)
    assert watch.excess == "more than 10 files"


def test_a_folder_that_cannot_be_read_is_excess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refuse(path: Path) -> object:  # root reads every folder, whatever its mode
        if path.name == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return scandir(path)

    monkeypatch.setattr("benchlock.evaluator.runner.output_limits.os.scandir", refuse)
    assert find_excess(tmp_path, QUOTA) == "an unreadable folder (Permission denied)"


def test_a_stop_that_fails_is_tried_again(tmp_path: Path) -> None:
    stopped, tries = threading.Event(), list[int]()

    def stop() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise UnavailableError("the engine does not answer")
        stopped.set()

    with (tmp_path / "big").open("wb") as stream:
        stream.truncate(2 << 20)
    with OutputWatch(tmp_path, QUOTA, stop) as watch:
        assert stopped.wait(60)
    assert watch.excess == "more than 1MiB"


def test_what_is_written_last_is_seen_at_the_end(tmp_path: Path) -> None:
    with OutputWatch(tmp_path, QUOTA, lambda: None) as watch, (tmp_path / "late").open("wb") as stream:
        stream.truncate(2 << 20)
    assert watch.excess == "more than 1MiB"


def test_the_quota_follows_the_memory_and_leaves_disk_free(tmp_path: Path) -> None:
    small = choose_quota(tmp_path, 1 << 30)
    status = os.statvfs(tmp_path)
    assert small.size <= max(4 << 30, status.f_bavail * status.f_frsize // 2)
    assert choose_quota(tmp_path, 1 << 60).size < status.f_blocks * status.f_frsize
