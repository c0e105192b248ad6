"""Resources of timed calls and peak memory: what this process used, and what a kernel does not show."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from benchlock.evaluator.harness.core.resource_usage import measure_usage, read_peak, read_peak_memory, reset_peak

PAGES = 2000


def test_the_usage_is_what_happens_inside() -> None:
    with measure_usage() as usage:
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        touched = np.ones((PAGES, 4096 // 8))
    assert touched.size
    assert 0.1 <= usage["cpu_seconds"] < 1
    assert usage["seconds"] >= usage["cpu_seconds"] / usage["cpus"]
    assert usage["cpu_utilization"] == pytest.approx(usage["cpu_seconds"] / usage["seconds"] / usage["cpus"])
    assert usage["cpus"] == len(os.sched_getaffinity(0))
    assert usage["minor_faults"] > 0
    assert min(usage["major_faults"], usage["voluntary_switches"], usage["involuntary_switches"]) >= 0


def test_bytes_read_and_peak_are_those_of_the_kernel_s_files(tmp_path: Path) -> None:
    (tmp_path / "io").write_text("rchar: 999\nread_bytes: 4096\n")
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t  2048 kB\n")
    with measure_usage(tmp_path) as usage:
        (tmp_path / "io").write_text("rchar: 9999\nread_bytes: 12288\n")
    assert (usage["read_bytes"], usage["process_peak_bytes"]) == (8192, 2 << 20)


def test_what_the_kernel_does_not_show_is_none(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("VmHWM:\n")
    with measure_usage(tmp_path) as usage:
        pass
    assert (usage["read_bytes"], usage["process_peak_bytes"]) == (None, None)


@pytest.mark.parametrize("name", ["memory.peak", "memory/memory.max_usage_in_bytes"])
def test_the_peak_of_a_container_is_that_of_its_control_group(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("123456\n")
    assert read_peak_memory("container", tmp_path) == {"bytes": 123456, "source": name, "scope": "container"}


def test_a_container_that_shows_no_peak_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "memory.peak").write_text("max\n")
    assert "shows neither memory.peak nor" in read_peak_memory("container", tmp_path)["unavailable"]


def test_the_peak_of_a_process_is_not_that_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "memory.peak").write_text("1")
    peak = read_peak_memory("process", tmp_path)
    assert (peak["scope"], peak["source"]) == ("largest process", "ru_maxrss")
    assert peak["bytes"] > 1 << 20


def test_a_peak_is_forgotten_and_read_again(tmp_path: Path) -> None:
    assert reset_peak()
    before = read_peak()
    block = bytearray(b"x" * (64 << 20))
    after = read_peak()
    assert before is not None
    assert after is not None
    assert after - before >= len(block) // 2
    del block
    assert reset_peak()
    assert (read_peak() or 0) < after - (32 << 20)
    assert (reset_peak(tmp_path / "none"), read_peak(tmp_path / "none")) == (False, None)
