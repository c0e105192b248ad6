"""One lock for many platforms: what it holds, and which of them this host runs, or why none."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchlock.artifacts.digest import parse_digest
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.images.wheels import host_target
from tests.support.api.commands import Commands
from tests.support.registry import tiny
from tests.support.registry.digits import locked, request, written
from tests.support.system.nvidia_smi import A100, H200, NO_DRIVER, install

HERE = host_target().arch
ELSEWHERE = "arm64" if HERE == "amd64" else "amd64"
CPU, CUDA, OTHER = f"linux/{HERE}/cpu", f"linux/{HERE}/cuda12", f"linux/{ELSEWHERE}/cpu"
WHEELS_ALONE = ("os", "arch", "device", "python", "wheels")
"""The keys of a platform that processes have, but containers not."""
NO_DRIVER_SAID = f"nvidia-smi exited with code 9: {NO_DRIVER}"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A tiny registry whose newest image has three platforms, on a host without an accelerator's driver."""
    folder = tmp_path_factory.mktemp("hardware")
    commands = replace(tiny.publish(folder), variables={"PATH": install(folder / "no-driver", [NO_DRIVER], ends=9)})
    image = json.loads((folder / "manifests" / "image.yaml").read_text())
    only_wheels = {key: image["platforms"][0][key] for key in WHEELS_ALONE}
    image["platforms"] += [only_wheels | {"device": "cuda12"}, only_wheels | {"arch": ELSEWHERE}]
    commands.done("publish", written(folder / "manifests" / "wide.yaml", image | {"version": "1.1.0"}))
    return commands


def with_accelerators(commands: Commands, folder: Path, *lines: str) -> Commands:
    return replace(commands, variables={"PATH": install(folder / "bin", lines)})


def lock_on(commands: Commands, folder: Path, **hardware: Any) -> Path:  # noqa: ANN401 - keys of a request
    return locked(commands, folder, request("digits-onnx") | {"hardware": hardware})


def spelled(platforms: list[dict[str, str]]) -> list[str]:
    return sorted("/".join((one["os"], one["arch"], one["device"])) for one in platforms)


@pytest.mark.parametrize(
    ("hardware", "platforms"),
    [
        ({}, {CPU, CUDA, OTHER}),
        ({"os": "linux", "arch": ["arm64", "amd64"], "device": "cpu"}, {CPU, OTHER}),
        ({"arch": HERE, "accelerator": {"name": "H200"}}, {CPU, CUDA}),
        ({"device": "cuda12", "accelerator": "H200"}, {CUDA}),
    ],
)
def test_one_lock_holds_every_platform_that_is_admitted(
    bare: Commands, tmp_path: Path, hardware: dict[str, Any], platforms: set[str]
) -> None:
    asked = written(tmp_path / "x.yaml", request("digits-onnx") | {"hardware": hardware})
    assert spelled(bare.done("resolve", asked)["platforms"]) == sorted(platforms)
    assert spelled(bare.done("lock", asked, "-o", tmp_path / "x.lock")["platforms"]) == sorted(platforms)
    bare.done("lock", asked, "-o", tmp_path / "x.lock", "--check")


def test_other_conditions_make_a_lock_stale(bare: Commands, tmp_path: Path) -> None:
    lock = lock_on(bare, tmp_path, os="linux")
    asked = written(tmp_path / "other.yaml", request("digits-onnx") | {"hardware": {"os": "linux", "cpus": 2}})
    answer = bare.call("lock", asked, "-o", lock, "--check")
    assert answer.code == 1
    assert 'hardware was {"os": "linux"}, is {"os": "linux", "cpus": 2}' in answer.document["reasons"]


def test_the_platform_of_this_host_is_run_and_the_choice_is_said(bare: Commands, tmp_path: Path) -> None:
    """The tiny image runs nothing, but what was chosen is recorded."""
    answer = bare.call("run", lock_on(bare, tmp_path), "--isolation", "process")
    assert (
        f"running on {CPU}; other platforms of the lock\n"
        f"  |   {CUDA}: needs an NVIDIA accelerator; none found ({NO_DRIVER_SAID})" in answer.stderr
    )
    last = bare.done("show", bare.done("runs", "--limit", "1")["runs"][0]["run"])
    assert spelled([last["start"]["platform"]]) == [CPU]
    assert (last["start"]["host"]["accelerator"], last["start"]["host"]["no_accelerator"]) == (None, NO_DRIVER_SAID)


def test_an_accelerator_comes_first_and_is_recorded(bare: Commands, tmp_path: Path) -> None:
    fast = with_accelerators(bare, tmp_path, H200)
    answer = fast.call("run", lock_on(bare, tmp_path), "--isolation", "process")
    assert f"running on {CUDA}; other platforms of the lock\n  |   {CPU}: matches, too" in answer.stderr
    last = fast.done("show", fast.done("runs", "--limit", "1")["runs"][0]["run"])
    assert (last["start"]["platform"]["device"], last["start"]["host"]["accelerator"]) == ("cuda12", "NVIDIA H200 NVL")
    assert last["start"]["host"]["accelerator_memory"] == [143771 << 20]


@pytest.mark.parametrize(
    ("hardware", "lines", "says"),
    [
        (
            {"memory": "900TiB"},
            [],
            (f"{CPU}: requires 900TiB of memory; this host has ", f"{OTHER}: this host is linux/{HERE}"),
        ),
        ({"arch": ELSEWHERE}, [], (f"host:\n  {OTHER}: this host is linux/{HERE}",)),
        ({"device": "cuda12"}, [], (f"{CUDA}: needs an NVIDIA accelerator; none found (nvidia-smi lists no GPU)",)),
        (
            {"device": "cuda12", "accelerator": {"name": "H200", "driver": ">=550"}},
            [A100],
            (
                "requires an accelerator named H200; this host has NVIDIA A100-SXM4-40GB (40GiB)",
                "; requires the driver >=550; this host has 535.104.05",
            ),
        ),
        (
            {"device": "cuda12"},
            ["NVIDIA T4, 15360, 470.256.02"],
            ("needs NVIDIA's driver 525.60.13 or newer; this host has 470.256.02",),
        ),
    ],
)
def test_where_no_platform_fits_each_says_why(
    bare: Commands, tmp_path: Path, hardware: dict[str, Any], lines: list[str], says: tuple[str, ...]
) -> None:
    lock = lock_on(bare, tmp_path, **hardware)
    error = with_accelerators(bare, tmp_path, *lines).error(5, "run", lock)
    assert error["message"].startswith("no platform of the lock matches this host:\n  ")
    assert [said for said in says if said not in error["message"]] == []
    assert (error["where"], CPU in error["next"]) == ("image.platforms", True)


def test_an_accelerator_for_cpus_alone_is_refused(bare: Commands, tmp_path: Path) -> None:
    asked = {"device": "cpu", "accelerator": "H200"}
    error = bare.error(2, "lock", written(tmp_path / "x.yaml", request("digits-onnx") | {"hardware": asked}))
    assert error["where"].startswith("hardware.accelerator")
    assert "cuda12" in error["next"]


@pytest.mark.image
def test_a_figure_of_a_cpu_is_never_called_one_of_an_accelerator(registry: Commands, tmp_path: Path) -> None:
    """Wheels for CPUs in an image that says it is for accelerators, on a host that seems to have one."""
    image = registry.done("show", "image/onnxruntime-cpu")["manifest"]
    platforms = [{key: image["platforms"][0][key] for key in WHEELS_ALONE} | {"device": "cuda12"}]
    blobs = LocalStore(registry.registry / "blobs")
    files = [
        {"path": file["path"], "role": "wheels", "source": str(blobs.path(parse_digest(f"sha256:{file['sha256']}")))}
        for file in image["files"]
        if file["role"] == "wheels"
    ]
    crossed = image | {"name": "onnxruntime-cuda12", "platforms": platforms, "files": files}
    drafts = tiny.author(tmp_path / "manifests")[2:]
    registry.done("publish", written(tmp_path / "image.yaml", crossed), *drafts)
    fast = with_accelerators(registry, tmp_path, H200)
    lock = lock_on(registry, tmp_path, device="cuda12", accelerator="H200")
    answer = fast.call("run", lock, "--isolation", "process")
    assert (answer.code, answer.document["end"]["outcome"], answer.document["end"]["metrics"]) == (1, "failed", [])
    assert answer.document["end"]["failure_class"] == "load"
    assert (
        "cuda12 was requested, but this framework is built only for CPUs" in answer.document["end"]["failure_message"]
    )
    shown = fast.done("show", answer.document["run"])
    assert shown["start"]["platform"]["device"] == "cuda12"
