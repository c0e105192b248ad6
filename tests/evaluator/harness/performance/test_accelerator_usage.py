"""NVML by a library that stands for the driver's: differences, values that are not supported, and errors.

No accelerator of a test machine has been measured with it.
"""

from typing import Any

import pytest

from benchlock.evaluator.harness.performance import accelerator_usage
from benchlock.evaluator.harness.performance.accelerator_usage import measure_accelerators


class Driver:
    """Two accelerators whose energy grows by 1.5 J a reading; the second reports no energy."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.millijoules, self.ended = code, 0, False

    def nvmlInit_v2(self) -> int:  # noqa: N802 - NVML's name, as all below
        return self.code

    def nvmlShutdown(self) -> int:  # noqa: N802
        self.ended = True
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802, ANN401 - a reference
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802, ANN401
        handle._obj.value = index.value + 1
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, energy: Any) -> int:  # noqa: N802, ANN401
        self.millijoules += 1500 if handle.value == 1 else 0
        energy._obj.value = self.millijoules
        return 0 if handle.value == 1 else 3

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:  # noqa: N802, ANN401
        memory._obj.used = handle.value << 20
        return 0

    def nvmlDeviceGetUtilizationRates(self, _handle: Any, busy: Any) -> int:  # noqa: N802, ANN401
        busy._obj.gpu = 87
        return 0


def test_every_accelerator_has_its_energy_memory_and_utilization() -> None:
    driver = Driver()
    with measure_accelerators("cuda12", driver) as usage:
        assert usage == {}
    assert usage["devices"] == [
        {"joules": 1.5, "used_bytes": 1 << 20, "utilization": 0.87},
        {"joules": None, "used_bytes": 2 << 20, "utilization": 0.87},
    ]
    assert driver.ended


def test_a_cpu_has_no_accelerators_and_loads_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", None)
    with measure_accelerators("cpu") as usage:
        pass
    assert usage == {}


def test_a_library_that_is_missing_or_fails_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with measure_accelerators("cuda12", Driver(code=9)) as usage:
        pass
    assert usage == {"unavailable": "NVML: error 9"}
    monkeypatch.setattr(accelerator_usage, "LIBRARY", "no-such-library.so")
    with measure_accelerators("cuda12") as usage:
        pass
    assert "no-such-library.so" in usage["unavailable"]


def test_an_accelerator_that_disappears_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter((2, 1))

    def count(_self: Driver, number: Any) -> int:  # noqa: ANN401
        number._obj.value = next(counts)
        return 0

    monkeypatch.setattr(Driver, "nvmlDeviceGetCount_v2", count)
    with measure_accelerators("cuda12", Driver()) as usage:
        pass
    assert usage == {"unavailable": "NVML: the number of accelerators changed"}
