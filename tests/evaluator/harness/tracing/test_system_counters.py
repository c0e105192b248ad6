"""Counters of the processor and of the operating system over calls."""

from benchlock.evaluator.harness.tracing.system_counters import SystemCounters

HARDWARE = ("cycles", "instructions", "cache_references", "cache_misses")


def test_a_counter_is_known_or_has_a_reason() -> None:
    counters = SystemCounters()
    counters.begin()
    pages = bytearray(64 << 20)
    pages[::4096] = b"1" * len(pages[::4096])
    counters.end()
    counts = counters.read()
    assert counts["minor_faults"] > 0
    assert counts["task_clock_ns"] >= 0
    for name in HARDWARE:
        assert counts[name] is not None or counts["reason"]
        assert counts[name] is None or counts[name] > 0
    counters.clear()
    assert counters.read()["minor_faults"] == 0
