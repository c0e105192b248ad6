"""The host's fingerprint, and which CPUs a run gets."""

import os
from pathlib import Path

import pytest

from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.records.run_types import HOST_FACTS, MAY_BE_NONE
from benchlock.evaluator.runner import host_platform
from benchlock.evaluator.runner.host_platform import choose_cpus, parse_cpuinfo, read_governor, this_host

CPUINFO = """\
processor	: 0
model name	: Some CPU @ 2.00GHz
flags		: sse2 avx2 fma

processor	: 1
model name	: Another CPU
"""


def test_the_fingerprint_has_every_fact_of_a_record() -> None:
    facts = this_host().fingerprint("engine 1.2")
    assert set(HOST_FACTS) <= set(facts)
    assert all(facts[name] for name in HOST_FACTS if name not in MAY_BE_NONE)
    assert facts["engine"] == "engine 1.2"


def test_the_host_says_what_the_kernel_says() -> None:
    host = this_host()
    assert (host.os, host.kernel) == ("linux", f"Linux {os.uname().release}")
    assert list(host.cpus) == sorted(os.sched_getaffinity(0))
    assert list(host.cpu_flags) == sorted(host.cpu_flags)
    assert host.facts.platform == f"linux/{host.arch}"
    assert (host.facts.cpus, host.facts.memory) == (len(host.cpus), host.memory)


def test_the_memory_is_what_the_control_group_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_platform, "find_memory", lambda: 1 << 20)
    assert this_host().facts.memory == 1 << 20


def test_cpuinfo_is_that_of_the_first_processor() -> None:
    found = parse_cpuinfo(CPUINFO)
    assert (found["model name"], found["flags"]) == ("Some CPU @ 2.00GHz", "sse2 avx2 fma")


def test_governors_are_named_once(tmp_path: Path) -> None:
    assert read_governor(tmp_path) is None
    for number, governor in enumerate(["performance", "powersave", "performance"]):
        folder = tmp_path / f"cpu{number}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(governor + "\n")
    assert read_governor(tmp_path) == "performance, powersave"


def test_the_lowest_cpus_are_chosen() -> None:
    assert choose_cpus((7, 3, 5), 2) == (3, 5)


def test_too_few_cpus_are_said() -> None:
    with pytest.raises(UnavailableError, match="requires 3 CPUs, but only 2 are available"):
        choose_cpus((0, 1), 3)
