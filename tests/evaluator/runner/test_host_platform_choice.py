"""Which platform, which isolation, and what may not run as a process."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.runner.container_engine import Engine
from benchlock.evaluator.runner.host_platform import (
    Choice,
    carries_code,
    check_code,
    choose_isolation,
    choose_platform,
    this_host,
)
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.registry.lock.lockfile import Lock, LockedPlatform
from benchlock.registry.manifests import Model
from benchlock.registry.requests.hardware_requirements import Accelerator, HostFacts
from tests.evaluator.evaluation import NOTHING, Evaluation
from tests.evaluator.runner.test_outcome_surroundings import FINISHED

GIB = 1 << 30
HOST = HostFacts("linux", "amd64", 2, 4 * GIB, (), "nvidia-smi not found")
FAST = HostFacts("linux", "amd64", 2, 4 * GIB, (Accelerator("NVIDIA H200 NVL", 140 * GIB, "550.54.15"),))
ON_CPU = "running on linux/amd64/cpu; other platforms of the lock"
ALL = ("cpu", "cuda11", "cuda12", "rocm6")
ENGINE = Engine(None, "Engine 1")
LAYERED = msgspec.structs.replace(NOTHING, image_id=digest_bytes(b"config"), layers=())


def platform(**changes: str) -> LockedPlatform:
    return msgspec.structs.replace(NOTHING, **changes)


@pytest.fixture
def evaluation(tmp_path: Path) -> Evaluation:
    return Evaluation(LocalStore(tmp_path / "store"), tmp_path, NOTHING)


def lock(evaluation: Evaluation, *platforms: LockedPlatform, **hardware: Any) -> Lock:  # noqa: ANN401 - any key
    return evaluation.lock(platforms=platforms, hardware=hardware)


def test_the_platform_of_this_host_is_chosen_in_silence(evaluation: Evaluation) -> None:
    fitting = platform()
    asked = lock(evaluation, platform(arch="arm64"), platform(os="darwin"), fitting)
    assert choose_platform(asked, HOST) == Choice(fitting)


def test_an_accelerator_comes_first_then_the_name(evaluation: Evaluation) -> None:
    asked = lock(evaluation, *(platform(device=device) for device in ("cpu", "cuda12", "cuda11", "rocm6")))
    choice = choose_platform(asked, FAST, driven=ALL)
    assert str(choice.platform) == "linux/amd64/cuda11"
    assert choice.word == (
        "running on linux/amd64/cuda11; other platforms of the lock"
        "\n  linux/amd64/cuda12: matches, too"
        "\n  linux/amd64/rocm6: the device rocm6 cannot be detected on a host"
        "\n  linux/amd64/cpu: matches, too"
    )


def test_a_cpu_is_chosen_where_the_accelerator_lacks_something_and_it_is_said(evaluation: Evaluation) -> None:
    asked = lock(evaluation, platform(device="cuda12"), platform(), accelerator={"count": 2, "driver": ">=560"})
    assert choose_platform(asked, HOST, driven=ALL).word == (
        "running on linux/amd64/cpu; other platforms of the lock"
        "\n  linux/amd64/cuda12: needs an NVIDIA accelerator; none found (nvidia-smi not found)"
    )
    assert choose_platform(asked, FAST, driven=ALL).word == (
        "running on linux/amd64/cpu; other platforms of the lock"
        "\n  linux/amd64/cuda12: requires 2 accelerators; this host has NVIDIA H200 NVL (140GiB); "
        "requires the driver >=560; this host has 550.54.15"
    )


def test_a_device_that_cannot_be_driven_is_not_chosen(evaluation: Evaluation) -> None:
    """Figures of a CPU are never recorded as those of an accelerator."""
    choice = choose_platform(lock(evaluation, platform(device="cuda11"), platform()), FAST)
    assert choice.platform.device == "cpu"
    assert choice.word == f"{ON_CPU}\n  linux/amd64/cuda11: device cuda11 is not supported yet"
    with pytest.raises(UnavailableError, match="cuda11: device cuda11 is not supported yet"):
        choose_platform(lock(evaluation, platform(device="cuda11")), FAST)


def test_an_accelerator_is_given_to_the_run_as_many_as_the_lock_asks_for(evaluation: Evaluation) -> None:
    one, other = FAST.accelerators[0], Accelerator("NVIDIA A100-SXM4-40GB", 40 * GIB, "550.54.15")
    several = HostFacts("linux", "amd64", 2, 4 * GIB, (other, one, one, one))
    asked = lock(evaluation, platform(device="cuda12"), accelerator={"name": "H200", "count": 2})
    assert choose_platform(asked, several) == Choice(platform(device="cuda12"), accelerators=(1, 2))
    assert choose_platform(lock(evaluation, platform(device="cuda12")), several).accelerators == (0,)
    assert choose_platform(lock(evaluation, platform()), several).accelerators == ()


def test_an_old_driver_is_refused_before_anything_starts(evaluation: Evaluation) -> None:
    old = HostFacts("linux", "amd64", 2, 4 * GIB, (Accelerator("NVIDIA T4", 15 * GIB, "470.256.02"),))
    with pytest.raises(UnavailableError) as caught:
        choose_platform(lock(evaluation, platform(device="cuda12")), old)
    assert "cuda12: needs NVIDIA's driver 525.60.13 or newer; this host has 470.256.02" in caught.value.what


def test_the_platform_of_the_original_run_comes_first(evaluation: Evaluation) -> None:
    asked = lock(evaluation, platform(device="cuda12"), platform())
    again = choose_platform(asked, FAST, "linux/amd64/cpu", driven=ALL)
    assert again == Choice(platform(), f"{ON_CPU}\n  linux/amd64/cuda12: matches, too")
    elsewhere = choose_platform(lock(evaluation, platform(arch="arm64"), platform()), HOST, "linux/arm64/cpu")
    assert elsewhere == Choice(platform(), f"{ON_CPU}\n  linux/arm64/cpu: this host is linux/amd64")


def test_where_none_fits_each_says_why(evaluation: Evaluation) -> None:
    platforms = [platform(device="cuda12"), platform(), platform(arch="arm64")]
    with pytest.raises(UnavailableError) as caught:
        choose_platform(lock(evaluation, *platforms, memory="64GiB"), HOST)
    assert caught.value.what == (
        "no platform of the lock matches this host:"
        "\n  linux/amd64/cuda12: needs an NVIDIA accelerator; none found (nvidia-smi not found); "
        "requires 64GiB of memory; this host has 4GiB"
        "\n  linux/amd64/cpu: requires 64GiB of memory; this host has 4GiB"
        "\n  linux/arm64/cpu: this host is linux/amd64"
    )
    assert caught.value.next_step
    assert "linux/amd64/cpu, 2 CPUs, 4GiB of memory" in caught.value.next_step


def test_conditions_that_a_newer_version_added_are_not_looked_at(evaluation: Evaluation) -> None:
    """A newer minor schema is warned about, and what is new in it is not used."""
    asked = lock(evaluation, platform(), cpus=2, fans=8, accelerator={"name": "H200", "cooling": "water"})
    assert choose_platform(asked, HOST) == Choice(platform())


@pytest.mark.parametrize(
    "hardware", [{"cpus": "2"}, {"memory": 4}, {"memory": "lots"}, {"accelerator": {}}, {"device": []}]
)
def test_conditions_of_another_form_are_refused(evaluation: Evaluation, hardware: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"hardware of the lock's request"):
        choose_platform(lock(evaluation, **hardware), HOST)


def test_this_host_fits_a_lock_of_its_kind(evaluation: Evaluation) -> None:
    host = this_host()
    choose_platform(lock(evaluation, platform(os=host.os, arch=host.arch)), host.facts)


def test_a_container_is_the_choice_where_it_can_be_had() -> None:
    assert choose_isolation(None, LAYERED, ENGINE) == ("container", None)


@pytest.mark.parametrize(
    ("where", "engine", "reason", "mended"),
    [
        (LAYERED, None, "no container engine responds", "start Docker"),
        (NOTHING, ENGINE, "the image has no layers", "build the image with layers"),
        (NOTHING, None, "the image has no layers", "build the image with layers"),
        (NOTHING, None, ", and no container engine responds", "; start Docker"),
    ],
)
def test_a_process_is_the_choice_where_it_cannot_and_says_so(
    where: LockedPlatform, engine: Engine | None, reason: str, mended: str
) -> None:
    isolation, word = choose_isolation(None, where, engine)
    assert isolation == "process"
    assert word is not None
    assert reason in word
    with pytest.raises(UnavailableError, match=reason) as caught:
        choose_isolation("container", where, engine)
    assert mended in str(caught.value.next_step)


def test_what_is_asked_for_is_had_in_silence() -> None:
    assert choose_isolation("process", LAYERED, ENGINE) == ("process", None)
    assert choose_isolation("container", LAYERED, ENGINE) == ("container", None)


def test_a_finished_image_runs_in_a_container_alone() -> None:
    assert choose_isolation(None, FINISHED, ENGINE) == ("container", None)
    assert choose_isolation("container", FINISHED, ENGINE) == ("container", None)
    for asked, engine in (("process", ENGINE), (None, None), ("container", None)):
        with pytest.raises(UnavailableError, match="finished image, which runs only in a container") as caught:
            choose_isolation(asked, FINISHED, engine)  # type: ignore[arg-type]
        assert str(FINISHED.reference) in str(caught.value.where)


def model(evaluation: Evaluation, **changes: Any) -> Model:  # noqa: ANN401 - parts of any type
    found = read_manifests(evaluation.lock(), evaluation.store)["model"]
    assert isinstance(found, Model)
    return msgspec.structs.replace(found, **changes)


def test_a_model_without_code_runs_anywhere(evaluation: Evaluation) -> None:
    check_code(model(evaluation), "process", allow_code=False)


def test_code_needs_a_container_or_leave(evaluation: Evaluation) -> None:
    step = {"python": {"file": "code.py", "function": "f"}}
    evaluation.model["inputs"][0]["steps"].append(step)
    evaluation.files["code.py"] = b"def f(x): return x"
    carrying = model(evaluation)
    with pytest.raises(UnavailableError, match=r"the model contains code \(inputs\[0\]\.steps\[3\]\.python\)"):
        check_code(carrying, "process", allow_code=False)
    check_code(carrying, "process", allow_code=True)
    check_code(carrying, "container", allow_code=False)


def test_an_exported_program_is_code(evaluation: Evaluation) -> None:
    """PyTorch evaluates texts of the file as Python when it loads and calls the program."""
    exported = model(evaluation, format="torch-export")
    with pytest.raises(UnavailableError, match=r"the model contains code \(format: torch-export\)"):
        check_code(exported, "process", allow_code=False)
    check_code(exported, "process", allow_code=True)
    assert carries_code(exported)
    assert not carries_code(model(evaluation))


def test_an_unsafe_model_never_runs_as_a_process(evaluation: Evaluation) -> None:
    unsafe = model(evaluation, unsafe=True)
    with pytest.raises(UnavailableError, match="only in a container"):
        check_code(unsafe, "process", allow_code=True)
    check_code(unsafe, "container", allow_code=False)
