"""Energy, utilization and memory of NVIDIA accelerators by NVML, only where the driver's library exists."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
"""The library of the driver."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


@contextmanager
def measure_accelerators(device: str, library: Any = None) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - a C library
    """Measure every visible accelerator inside the context.

    Args:
        device: The device of the job; nothing is measured, or loaded, unless it is ``cuda``.
        library: NVML; None for that of the driver.

    Yields:
        A table that is filled at the end. ``devices`` has, for each accelerator, ``joules``, and at the end
        ``used_bytes`` by all processes and ``utilization``, the driver's share of busy time in its last sample period;
        None for what the accelerator does not report. ``unavailable`` is the reason for no devices.
    """
    usage: dict[str, Any] = {}
    if not device.startswith("cuda"):
        yield usage
        return
    before = _read_devices(library)
    yield usage
    after = _read_devices(library)
    if isinstance(before, str) or isinstance(after, str):
        usage["unavailable"] = f"NVML: {before if isinstance(before, str) else after}"
        return
    if len(before) != len(after):
        usage["unavailable"] = "NVML: the number of accelerators changed"
        return
    for start, end in zip(before, after, strict=True):
        energy = (start["joules"], end["joules"])
        end["joules"] = None if None in energy else energy[1] - energy[0]
    usage["devices"] = after


def _read_devices(library: Any) -> list[dict[str, Any]] | str:  # noqa: ANN401 - a C library
    """Return what each accelerator reports now, its ``joules`` since the driver was loaded; or why there is none."""
    try:
        nvml = library or ctypes.CDLL(LIBRARY)
        if (code := nvml.nvmlInit_v2()) != 0:
            return f"error {code}"
        count = _read(nvml.nvmlDeviceGetCount_v2, into=ctypes.c_uint())
        get_handle, indices = nvml.nvmlDeviceGetHandleByIndex_v2, range(count.value if count else 0)
        handles = [_read(get_handle, ctypes.c_uint(index), into=ctypes.c_void_p()) for index in indices]
        devices = [_describe(nvml, handle) for handle in handles if handle]
        nvml.nvmlShutdown()
    except (OSError, AttributeError) as error:
        return str(error)
    return devices or "no accelerator can be read"


def _describe(nvml: Any, handle: ctypes.c_void_p) -> dict[str, Any]:  # noqa: ANN401 - a C library
    energy = _read(nvml.nvmlDeviceGetTotalEnergyConsumption, handle, into=ctypes.c_ulonglong())
    memory = _read(nvml.nvmlDeviceGetMemoryInfo, handle, into=_Memory())
    busy = _read(nvml.nvmlDeviceGetUtilizationRates, handle, into=_Utilization())
    return {
        "joules": None if energy is None else energy.value / 1000,
        "used_bytes": None if memory is None else memory.used,
        "utilization": None if busy is None else busy.gpu / 100,
    }


def _read(function: Any, *arguments: Any, into: Any) -> Any:  # noqa: ANN401 - C functions and structures
    """Return ``into`` as a function fills it; None where the accelerator does not support it."""
    return into if function(*arguments, ctypes.byref(into)) == 0 else None
