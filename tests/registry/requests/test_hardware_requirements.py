"""Which platforms a request admits, and what it asks of hosts; one lock for all of them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlock.registry.lock.lockfile import dump, load
from benchlock.registry.manifests import Image
from benchlock.registry.requests.evaluation_request import Request, conditions_of, parse_request
from benchlock.registry.requests.hardware_requirements import (
    AcceleratorCondition,
    Hardware,
    HostConditions,
    parse_drivers,
)
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.text.quantities import Amount
from tests.support.resolution.locks import FILES, IMAGE, Shelf, published, request, shelf

OTHER_PLATFORMS = """\
  - {{os: linux, arch: amd64, device: cuda12, python: "3.11", wheels: amd64/pylock.toml}}
  - {{os: darwin, arch: arm64, device: cpu, python: "3.11", wheels: amd64/pylock.toml}}
files:
"""
CPU, ARM, CUDA, MAC = "linux/amd64/cpu", "linux/arm64/cpu", "linux/amd64/cuda12", "darwin/arm64/cpu"


def wide_shelf() -> Shelf:
    """A shelf whose image has four platforms."""
    one = shelf()
    image = published(IMAGE.replace("files:\n", OTHER_PLATFORMS), FILES["image"], version="1.0.0")
    assert isinstance(image, Image)
    return replace(one, chosen=replace(one.chosen, image=image))


def asking(hardware: dict[str, Any]) -> Request:
    return parse_request(request().document | {"hardware": hardware}, "request.yaml")


@pytest.mark.parametrize(
    ("hardware", "platforms"),
    [
        ({}, [MAC, CPU, CUDA, ARM]),
        ({"os": "linux"}, [CPU, CUDA, ARM]),
        ({"os": "linux", "arch": ["arm64", "amd64"], "device": "cpu"}, [CPU, ARM]),
        ({"device": ["cuda12", "cpu"], "arch": "amd64"}, [CPU, CUDA]),
        ({"arch": "arm64"}, [MAC, ARM]),
        ({"os": ["linux", "windows"], "device": ["cuda12"]}, [CUDA]),
        ({"os": "linux", "arch": "amd64", "device": "cpu"}, [CPU]),
    ],
)
def test_one_lock_has_every_platform_that_is_admitted_and_provided(
    hardware: dict[str, Any], platforms: list[str]
) -> None:
    asked = asking(hardware)
    lock = wide_shelf().lock(asked)
    assert [str(one) for one in lock.image.platforms] == platforms
    assert ["/".join(offer[:3]) for offer in wide_shelf().resolution(asked).platforms] == platforms
    again = load(dump(lock), "x.lock")
    assert (again.id, again.request["hardware"]) == (lock.id, hardware)


TEXTS = ("linux", "darwin", "amd64", "cpu", "cuda12")
wanted = st.none() | st.sampled_from(TEXTS) | st.lists(st.sampled_from(TEXTS), min_size=1, unique=True)


@given(st.tuples(wanted, wanted, wanted), st.tuples(*[st.sampled_from(TEXTS)] * 3))
def test_a_platform_is_admitted_if_each_key_is_absent_or_names_it(
    asked: tuple[str | list[str] | None, ...], platform: tuple[str, str, str]
) -> None:
    written = {key: value for key, value in zip(("os", "arch", "device"), asked, strict=True) if value is not None}
    expected = all(
        value is None or have == value or (isinstance(value, list) and have in value)
        for value, have in zip(asked, platform, strict=True)
    )
    assert asking(written).hardware.admits((*platform, "3.11", True)) == expected


@pytest.mark.parametrize(
    ("hardware", "conditions"),
    [
        ({}, HostConditions()),
        ({"os": "linux", "arch": "amd64", "device": "cpu"}, HostConditions()),
        ({"cpus": 4, "memory": "8GiB"}, HostConditions(cpus=4, memory=Amount(8 << 30, "8GiB"))),
        ({"accelerator": "H200"}, HostConditions(accelerator=AcceleratorCondition("H200"))),
        ({"accelerator": {"count": 2}}, HostConditions(accelerator=AcceleratorCondition(count=2))),
        (
            {
                "device": ["cpu", "cuda12"],
                "accelerator": {"name": "A100", "count": 8, "memory": "40GiB", "driver": ">=535.04"},
            },
            HostConditions(
                accelerator=AcceleratorCondition("A100", 8, Amount(40 << 30, "40GiB"), parse_drivers(">=535.4"))
            ),
        ),
    ],
)
def test_what_is_asked_of_hosts(hardware: dict[str, Any], conditions: HostConditions) -> None:
    assert asking(hardware).conditions == conditions
    assert conditions_of({"hardware": hardware}) == conditions


def test_conditions_are_in_the_lock_and_its_id_covers_them() -> None:
    asked: tuple[dict[str, Any], ...] = (
        {},
        {"cpus": 2},
        {"cpus": 3},
        {"memory": "8GiB"},
        {"accelerator": "H200"},
        {"accelerator": {"count": 2}},
    )
    locks = [wide_shelf().lock(asking(one)) for one in asked]
    assert len({lock.id for lock in locks}) == len(asked)
    assert len({tuple(map(str, lock.image.platforms)) for lock in locks}) == 1


def test_an_accelerator_is_not_asked_in_vain() -> None:
    """Where only images for CPUs are there, unless the request says that a CPU will do."""
    with pytest.raises(ConflictError, match="for linux/amd64/cpu, linux/arm64/cpu only"):
        shelf().lock(asking({"accelerator": "H200"}))
    lock = shelf().lock(asking({"accelerator": "H200", "device": ["cpu", "cuda12"]}))
    assert _names(lock.image.platforms) == [CPU, ARM]


def test_hardware_is_spelled_as_people_say_it() -> None:
    assert str(Hardware(("linux",), None, ("cpu", "cuda12"))) == "linux/*/cpu or cuda12"


def _names(platforms: Iterable[object]) -> list[str]:
    return [str(one) for one in platforms]
