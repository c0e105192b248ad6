"""Which wheels are for which device."""

import pytest
from packaging.utils import canonicalize_name

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.images.frameworks import check_device
from benchlock.evaluator.images.wheels import Wheel


def wheel(text: str) -> Wheel:
    name, _, version = text.partition(" ")
    return Wheel(canonicalize_name(name), version, f"{name}-{version}-py3-none-any.whl", digest_bytes(text.encode()))


CUDA12 = ("torch 2.13.0", "nvidia-cublas-cu12 12.9.1.4", "nvidia-cudnn-cu12 9.10.2.21", "nvidia-nccl-cu12 2.27.5")
CUDA13 = ("torch 2.13.0", "nvidia-cublas 13.1.0.3", "nvidia-cuda-runtime 13.0.96", "nvidia-nccl-cu13 2.28.9")


@pytest.mark.parametrize(
    ("device", "wheels"),
    [
        ("cpu", ("torch 2.13.0", "numpy 2.4.0")),
        ("cuda12", CUDA12),
        ("cuda12", ("tensorflow 2.21.0", "nvidia-cuda-runtime 12.9.79")),
        ("cuda13", CUDA13),
    ],
)
def test_wheels_of_the_device_are_accepted(device: str, wheels: tuple[str, ...]) -> None:
    check_device(map(wheel, wheels), device)


@pytest.mark.parametrize(
    ("device", "wheels", "reason"),
    [
        ("cpu", CUDA12, "they need nvidia-cublas-cu12, nvidia-cudnn-cu12, nvidia-nccl-cu12"),
        ("cuda12", CUDA13, "they need nvidia-cuda-runtime 13.0.96, nvidia-nccl-cu13 2.28.9"),
        ("cuda12", ("torch 2.13.0",), "none of them is a CUDA 12 library"),
        ("cuda12", ("torch 2.13.0", "nvidia-cublas 12.9"), "none of them is a CUDA 12 library"),
    ],
)
def test_wheels_of_another_device_are_refused(device: str, wheels: tuple[str, ...], reason: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_device(map(wheel, wheels), device)
    assert caught.value.what == f"the wheels of the index are not for device {device}: {reason}"
    assert "another source of wheels" in str(caught.value.next_step)
