"""Energy from a tree of counters as the kernel shows it: differences, wraps, and the reasons for none."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchlock.evaluator.runner.energy import describe_counters, describe_energy, read_energy

RANGE = 262_143_328_850


def powercap(root: Path, packages: dict[str, int]) -> Path:
    """A host with these packages, each with a core domain below it that must not count."""
    for number, (name, counter) in enumerate(packages.items()):
        for zone, named in ((f"intel-rapl:{number}", name), (f"intel-rapl:{number}:0", "core")):
            (root / zone).mkdir(parents=True, exist_ok=True)
            (root / zone / "name").write_text(f"{named}\n")
            (root / zone / "energy_uj").write_text(f"{counter}\n")
            (root / zone / "max_energy_range_uj").write_text(f"{RANGE}\n")
    return root


def test_the_energy_of_each_package_is_the_difference(tmp_path: Path) -> None:
    before = read_energy(powercap(tmp_path, {"package-0": 5_000_000, "package-1": 7_000_000}))
    after = read_energy(powercap(tmp_path, {"package-0": 9_500_000, "package-1": 7_250_000}))
    found = describe_energy(before, replace(after, at=before.at + 2))
    assert found["joules"] == {"package-0": 4.5, "package-1": 0.25}
    assert (found["seconds"], found["source"]) == (pytest.approx(2), "RAPL")


def test_a_counter_that_wrapped_once_is_continued(tmp_path: Path) -> None:
    before = read_energy(powercap(tmp_path, {"package-0": RANGE - 1_000_000}))
    after = read_energy(powercap(tmp_path, {"package-0": 999_999}))
    assert describe_energy(before, after)["joules"] == {"package-0": 2.0}


def test_a_counter_that_may_have_wrapped_twice_is_not_used(tmp_path: Path) -> None:
    before = read_energy(powercap(tmp_path, {"package-0": 1}))
    found = describe_energy(before, replace(before, at=before.at + 200))
    assert found == {"unavailable": "the counters may have wrapped twice in 200 s; the limit is 131 s"}


def test_a_host_without_counters_has_no_energy(tmp_path: Path) -> None:
    nothing = read_energy(tmp_path / "powercap")
    assert describe_energy(nothing, nothing) == {"unavailable": f"no {tmp_path / 'powercap'}"}
    assert read_energy(tmp_path).reason == f"no RAPL package in {tmp_path}"
    assert read_energy(powercap(tmp_path / "psys", {"psys": 1})).reason == f"no RAPL package in {tmp_path / 'psys'}"


def test_a_counter_that_cannot_be_read_has_a_reason(tmp_path: Path) -> None:
    root = powercap(tmp_path, {"package-0": 1})
    (root / "intel-rapl:0" / "energy_uj").write_text("much")
    assert read_energy(root).reason == f"{root}: not a number"
    (root / "intel-rapl:0" / "energy_uj").unlink()
    assert read_energy(root).reason == f"{root}: No such file or directory"


def test_packages_that_change_have_no_energy(tmp_path: Path) -> None:
    before, after = (read_energy(powercap(tmp_path / name, {name: 1})) for name in ("package-0", "package-1"))
    assert describe_energy(before, after) == {"unavailable": "the packages changed during the run"}


def test_counters_of_a_host_are_available_or_say_why_not(tmp_path: Path) -> None:
    assert all(text.startswith("unavailable: ") for text in describe_counters(tmp_path).values())
    (tmp_path / "bus/event_source/devices/cpu").mkdir(parents=True)
    (tmp_path / "fs/cgroup/system.slice").mkdir(parents=True)
    (tmp_path / "fs/cgroup/system.slice/memory.peak").write_text("1")
    powercap(tmp_path / "class/powercap", {"package-0": 1})
    assert describe_counters(tmp_path) == dict.fromkeys(("PMU", "energy", "peak memory"), "available")
