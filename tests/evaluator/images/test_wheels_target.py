import pytest
from packaging.tags import sys_tags

from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.images.wheels import Target, host_target, read_target


def test_the_tags_of_the_running_interpreter_are_those_that_packaging_finds() -> None:
    assert host_target().tags() == frozenset(sys_tags())


def test_platforms_go_from_the_newest_library_to_the_oldest() -> None:
    platforms = list(Target("3.11", "x86_64", 18).platforms())
    assert platforms[:3] == ["manylinux_2_18_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"]
    assert platforms[-3:] == ["manylinux_2_5_x86_64", "manylinux1_x86_64", "linux_x86_64"]


def test_a_newer_library_is_not_among_the_tags() -> None:
    tags = {str(tag) for tag in Target("3.12", "aarch64", 28).tags()}
    assert {"cp312-cp312-manylinux_2_28_aarch64", "cp39-abi3-manylinux2014_aarch64", "py3-none-any"} <= tags
    assert "cp312-cp312-manylinux_2_29_aarch64" not in tags
    assert "cp311-cp311-manylinux_2_28_aarch64" not in tags


@pytest.mark.parametrize(("machine", "libc"), [("riscv64", "glibc 2.36"), ("x86_64", "musl 1.2"), ("x86_64", "glibc")])
def test_what_nothing_is_built_for_is_unavailable(machine: str, libc: str) -> None:
    with pytest.raises(UnavailableError):
        read_target("3.11", machine, libc)


def test_the_architecture_has_the_word_of_images() -> None:
    assert read_target("3.11", "aarch64", "glibc 2.36").arch == "arm64"
