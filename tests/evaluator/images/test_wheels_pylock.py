import tomllib
from pathlib import Path

from packaging.pylock import Pylock
from packaging.utils import canonicalize_name

from benchlock.artifacts.digest import Digest
from benchlock.evaluator.images.build import encode_pylock
from benchlock.evaluator.images.wheels import Target, Wheel

CASES = Path(__file__).parents[2] / "cases" / "images"
TARGET = Target("3.11", "x86_64", 36)


def wheel(name: str, version: str, digit: str) -> Wheel:
    return Wheel(canonicalize_name(name), version, f"{name}-{version}-py3-none-any.whl", Digest(f"sha256:{digit * 64}"))


WHEELS = (wheel("torch", "2.13.0+cpu", "a"), wheel("numpy", "2.4.6", "b"))
SIZES = {WHEELS[0].digest: 200, WHEELS[1].digest: 100}


def test_a_lock_is_the_bytes_of_its_golden_case() -> None:
    assert encode_pylock(WHEELS, SIZES, TARGET) == (CASES / "pylock.linux-amd64-cpu.toml").read_bytes()


def test_the_order_of_the_wheels_changes_nothing() -> None:
    assert encode_pylock(WHEELS, SIZES, TARGET) == encode_pylock(WHEELS[::-1], SIZES, TARGET)


def test_a_lock_is_valid_and_names_paths_and_never_urls() -> None:
    lock = Pylock.from_dict(tomllib.loads(encode_pylock(WHEELS, SIZES, TARGET).decode()))
    wheels = [wheel for package in lock.packages for wheel in package.wheels or ()]
    assert [wheel.path for wheel in wheels] == [
        "wheels/numpy-2.4.6-py3-none-any.whl",
        "wheels/torch-2.13.0+cpu-py3-none-any.whl",
    ]
    assert [wheel.url for wheel in wheels] == [None, None]
    assert [wheel.upload_time for wheel in wheels] == [None, None]
    assert [dict(wheel.hashes) for wheel in wheels] == [{"sha256": "b" * 64}, {"sha256": "a" * 64}]
