"""Which platform, which isolation, and what may not run as a process."""

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from artifacts.digest import digest_bytes
from artifacts.errors import UnavailableError
from artifacts.local import LocalStore
from evaluator.runner.choice import check_code, choose_isolation, choose_platform
from evaluator.runner.engine import Engine
from evaluator.runner.host import Accelerator, Host, this_host
from evaluator.runner.verification import read_manifests
from registry.lockfile import Lock, LockedPlatform
from registry.manifests import Model

from .evaluation import NOTHING, Evaluation

HOST = Host("linux", "amd64", "A CPU", ("sse",), (0, 1), 4 << 30, "Linux 6", None, None)
ENGINE = Engine(None, "Engine 1")
LAYERED = msgspec.structs.replace(NOTHING, image_id=digest_bytes(b"config"), layers=())


def platform(**changes: str) -> LockedPlatform:
    return msgspec.structs.replace(NOTHING, **changes)


@pytest.fixture
def evaluation(tmp_path: Path) -> Evaluation:
    return Evaluation(LocalStore(tmp_path / "store"), tmp_path, NOTHING)


def lock(evaluation: Evaluation, *platforms: LockedPlatform, **hardware: Any) -> Lock:  # noqa: ANN401 - any key
    return evaluation.lock(platforms=platforms, hardware=hardware)


def test_the_first_platform_that_fits_is_chosen(evaluation: Evaluation) -> None:
    fitting = platform(python="3.11")
    asked = lock(evaluation, platform(arch="arm64"), platform(os="darwin"), fitting, platform(python="3.12"))
    assert choose_platform(asked, HOST) == fitting


def test_a_device_is_chosen_where_the_host_has_it(evaluation: Evaluation) -> None:
    asked = lock(evaluation, platform(device="cuda"), platform())
    assert choose_platform(asked, HOST).device == "cpu"
    fast = dataclasses.replace(HOST, accelerator=Accelerator("H200", "550"))
    assert choose_platform(asked, fast).device == "cuda"


def test_no_platform_that_fits_is_said_with_both_sides(evaluation: Evaluation) -> None:
    with pytest.raises(UnavailableError, match=r"the lock has linux/arm64/cpu; here is linux/amd64/cpu"):
        choose_platform(lock(evaluation, platform(arch="arm64")), HOST)


@pytest.mark.parametrize(
    ("hardware", "reason"),
    [
        ({"cpus": 3}, "3 CPUs, here are 2"),
        ({"memory": "5GiB"}, "5GiB of memory"),
        ({"accelerator": "H200"}, "the accelerator H200, here is none"),
    ],
)
def test_less_hardware_than_asked_for_is_said(evaluation: Evaluation, hardware: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnavailableError, match=reason):
        choose_platform(lock(evaluation, **hardware), HOST)


def test_as_much_hardware_as_asked_for_will_do(evaluation: Evaluation) -> None:
    assert choose_platform(lock(evaluation, cpus=2, memory="4GiB"), HOST) == evaluation.platform


def test_this_host_fits_a_lock_of_its_kind(evaluation: Evaluation) -> None:
    host = this_host()
    choose_platform(lock(evaluation, platform(os=host.os, arch=host.arch)), host)


def test_a_container_is_the_choice_where_it_can_be_had() -> None:
    assert choose_isolation(None, LAYERED, ENGINE) == ("container", None)


@pytest.mark.parametrize(
    ("where", "engine", "reason"),
    [(LAYERED, None, "no container engine answers"), (NOTHING, ENGINE, "the image has no layers")],
)
def test_a_process_is_the_choice_where_it_cannot_and_says_so(
    where: LockedPlatform, engine: Engine | None, reason: str
) -> None:
    isolation, word = choose_isolation(None, where, engine)
    assert isolation == "process"
    assert word is not None
    assert reason in word
    with pytest.raises(UnavailableError, match=reason):
        choose_isolation("container", where, engine)


def test_what_is_asked_for_is_had_in_silence() -> None:
    assert choose_isolation("process", LAYERED, ENGINE) == ("process", None)
    assert choose_isolation("container", LAYERED, ENGINE) == ("container", None)


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
    with pytest.raises(UnavailableError, match=r"the model carries code \(inputs\[0\]\.steps\[3\]\.python\)"):
        check_code(carrying, "process", allow_code=False)
    check_code(carrying, "process", allow_code=True)
    check_code(carrying, "container", allow_code=False)


def test_an_unsafe_model_never_runs_as_a_process(evaluation: Evaluation) -> None:
    unsafe = model(evaluation, unsafe=True)
    with pytest.raises(UnavailableError, match="in a container alone"):
        check_code(unsafe, "process", allow_code=True)
    check_code(unsafe, "container", allow_code=False)
