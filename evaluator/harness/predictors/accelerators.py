"""What every framework is asked of NVIDIA's accelerators before a model is loaded onto one."""

CPU = "cpu"
_CUDA = "cuda"


def check_cuda(device: str, built_for: str | None, found: int) -> None:
    """Nothing, where ``device`` (``cuda12``) can be used.

    ``built_for`` is the version of CUDA that the framework was built for, ``None`` where it was built for CPUs alone;
    ``found`` is how many accelerators the framework sees.

    Raises:
        ValueError: it cannot; says why.
    """
    if not device.startswith(_CUDA):
        raise ValueError(f"the device {device!r} is not built")
    if not built_for:
        raise ValueError(f"{device} was asked for, and this framework is built for CPUs alone")
    if built_for.partition(".")[0] != device.removeprefix(_CUDA):
        raise ValueError(f"{device} was asked for, and this framework is built for CUDA {built_for}")
    if not found:
        raise ValueError(f"{device} was asked for, and this framework, built for CUDA {built_for}, sees no accelerator")
