"""What only the run can tell: the device that was used, and which framework a finished image has."""

import msgspec
import pytest

from benchlock.artifacts.digest import digest_bytes
from benchlock.evaluator.runner.run_outcome import Failure, Package, Result, Surroundings, find_mismatch
from benchlock.registry.lock.lockfile import LockedPlatform
from benchlock.registry.manifests import Framework
from tests.evaluator.evaluation import NOTHING

FRAMEWORK = Framework(
    schema=1, name="pytorch", version="2.13.0", license="BSD-3-Clause", predictor="pytorch", distributions=("torch",)
)
DIGEST = digest_bytes(b"config")
FINISHED = LockedPlatform(
    os="linux",
    arch="amd64",
    device="cpu",
    python="3.12",
    reference=f"example.org/torch@{DIGEST}",
    image_id=DIGEST,
    config_size=6,
    diff_ids=(),
)


def result(device: str | None = "cpu", **packages: str) -> Result:
    found = tuple(Package(name, version) for name, version in packages.items())
    return Result(1, "done", None, {}, None, Surroundings("3.12.1", found, {}, device), {})


def on(device: str, platform: LockedPlatform = NOTHING) -> LockedPlatform:
    return msgspec.structs.replace(platform, device=device)


@pytest.mark.parametrize(("locked", "ran"), [("cpu", "cpu"), ("cpu", None), ("cuda12", "cuda12")])
def test_the_locked_device_is_the_one_that_ran(locked: str, ran: str | None) -> None:
    assert find_mismatch(result(ran), on(locked), FRAMEWORK) is None


@pytest.mark.parametrize("ran", ["cpu", "cuda11", None])
def test_a_figure_of_another_device_is_none(ran: str | None) -> None:
    """``None`` is what a harness says that was made before there were others than CPUs."""
    said = f"the model ran on device {ran or 'cpu'}, but cuda12 is locked"
    assert find_mismatch(result(ran), on("cuda12"), FRAMEWORK) == Failure("load", said)


def test_a_finished_image_has_the_framework_that_it_provides() -> None:
    assert find_mismatch(result(torch="2.13.0+cu129"), FINISHED, FRAMEWORK) is None
    assert find_mismatch(result(torch="2.12.0"), NOTHING, FRAMEWORK) is None  # its wheels are in the lock


@pytest.mark.parametrize(
    ("packages", "has"),
    [
        ({"torch": "2.12.1"}, "torch 2.12.1"),
        ({"torch": "2.13.0a0+git1"}, "torch 2.13.0a0+git1"),
        ({"torch": "nonsense"}, "torch nonsense"),
        ({"numpy": "2.4"}, "none of torch"),
    ],
)
def test_another_framework_is_a_failure(packages: dict[str, str], has: str) -> None:
    found = find_mismatch(result(**packages), FINISHED, FRAMEWORK)
    assert found == Failure("load", f"the manifest of the image states pytorch 2.13.0, but the image has {has}")
