"""Resources as a person reads them, and records that have none or malformed ones."""

from benchlock.evaluator.records.resource_texts import describe_resources

USAGE = {
    "seconds": 2.0, "cpu_seconds": 1.9, "cpus": 1, "cpu_utilization": 0.95, "minor_faults": 120, "major_faults": 0,
    "voluntary_switches": 3, "involuntary_switches": 40, "read_bytes": None, "process_peak_bytes": 70 << 20,
}  # fmt: skip


def test_every_resource_has_its_unit_and_its_scope() -> None:
    energy = {"joules": {"package-0": 12.34000000000003}, "seconds": 5.0, "source": "RAPL", "scope": "host"}
    peak = {"bytes": 64 << 20, "source": "memory.peak", "scope": "container"}
    found = describe_resources(
        {"performance": {"resources": USAGE}, "resources": {"peak_memory": peak}, "energy": energy}
    )
    assert found["peak memory"] == "64.0 MiB (container, memory.peak)"
    assert found["CPU utilization"] == "95.0% of 1 CPUs, 1.9 CPU seconds"
    assert found["page faults"] == "120 minor, 0 major"
    assert found["context switches"] == "3 voluntary, 40 involuntary"
    assert found["bytes read"] == "-"
    assert found["energy"] == "package-0 12.34 J in 5 s (RAPL, host)"


def test_an_accelerator_has_what_it_reports() -> None:
    devices = [{"joules": 12.500000000000002, "used_bytes": 3 << 19, "utilization": None}]
    found = describe_resources({"performance": {"resources": USAGE | {"accelerators": {"devices": devices}}}})
    assert found["accelerator 0"] == "12.5 J, 1.5 MiB in use, utilization - at the end"


def test_what_is_unavailable_says_why() -> None:
    nvml = {"performance": {"resources": USAGE | {"accelerators": {"unavailable": "NVML: error 9"}}}}
    assert describe_resources(nvml)["accelerators"] == "unavailable: NVML: error 9"
    found = describe_resources({"resources": {"peak_memory": {"unavailable": "a"}}, "energy": {"unavailable": "b"}})
    assert found == {"peak memory": "unavailable: a", "energy": "unavailable: b"}


def test_records_without_resources_or_with_malformed_ones_show_none() -> None:
    assert describe_resources({}) == {}
    assert describe_resources({"resources": 5, "performance": [], "energy": None}) == {}
    found = describe_resources({"performance": {"resources": {"accelerators": {"devices": [5, {"joules": 1}]}}}})
    assert found == dict.fromkeys(
        ("CPU utilization", "page faults", "context switches", "bytes read", "accelerator 1"), "unavailable"
    )
