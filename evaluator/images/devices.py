"""Whether the wheels that an index offers are for the device that was asked for: they are named alike for all."""

import re
from collections.abc import Iterable

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.images.wheels import Wheel

CPU = "cpu"
_CUDA = "cuda"
_NVIDIA = "nvidia-"
_SUFFIX = re.compile(r"-cu([0-9]+)")
_RUNTIME = "nvidia-cuda-runtime"
"""CUDA's own runtime. From CUDA 13 on its name says no version of CUDA any more, and its version does."""


def check_device(wheels: Iterable[Wheel], device: str) -> None:
    """Nothing, where ``wheels`` are for ``device``: ``cpu`` without NVIDIA's libraries, ``cuda12`` with CUDA 12's.

    Raises:
        InvalidInputError: they are not; names the wheels that say so.
    """
    chosen = list(wheels)
    nvidia = [wheel for wheel in chosen if wheel.name.startswith(_NVIDIA)]
    if device == CPU:
        if nvidia:
            raise _refusal(device, f"they need {', '.join(wheel.name for wheel in nvidia)}")
        return
    wanted = device.removeprefix(_CUDA)
    others = [wheel for wheel in nvidia if _cuda(wheel) not in (None, wanted)]
    if others:
        raise _refusal(device, f"they need {', '.join(f'{one.name} {one.version}' for one in others)}")
    if not any(_cuda(wheel) == wanted for wheel in nvidia):
        raise _refusal(device, f"none of them is a library of CUDA {wanted}")


def _cuda(wheel: Wheel) -> str | None:
    """The major version of CUDA that the wheel's name or version tells; None where neither does."""
    suffix = _SUFFIX.search(wheel.name)
    if suffix is not None:
        return suffix[1]
    return wheel.version.partition(".")[0] if wheel.name.startswith(_RUNTIME) else None


def _refusal(device: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"the wheels that the index offers are not for the device {device}: {reason}",
        next_step=f"choose a version that is built for {device}, or name an index or a folder of such builds with "
        "--index-url or --find-links",
    )
