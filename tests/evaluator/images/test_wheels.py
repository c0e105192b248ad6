import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.images.wheels import IndexOptions, Target, Wheel, fetch, host_target, resolve

NOWHERE = IndexOptions()


def names(wheels: tuple[Wheel, ...]) -> list[str]:
    return [f"{wheel.name}=={wheel.version}" for wheel in wheels]


@pytest.mark.usefixtures("index")
def test_all_requirements_are_resolved_together() -> None:
    wheels = resolve(["onnxruntime==1.31.1", "numpy>=2,<3"], host_target(), NOWHERE)
    assert names(wheels) == ["flatbuffers==25.1", "numpy==2.1.0", "onnxruntime==1.31.1"]


def test_a_wheel_has_the_digest_of_its_file(index: Path) -> None:
    (wheel,) = resolve(["flatbuffers"], host_target(), NOWHERE)
    assert wheel.digest == digest_bytes((index / wheel.filename).read_bytes())


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("requirements", [["onnxruntime==9.9"], ["onnxruntime==1.30.0", "numpy>=2"]])
def test_requirements_that_nothing_satisfies_are_invalid_input(requirements: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="onnxruntime"):
        resolve(requirements, host_target(), NOWHERE)


@pytest.mark.usefixtures("index")
def test_an_index_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(UnavailableError):
        resolve(["absent"], host_target(), IndexOptions(index_url="http://127.0.0.1:9/simple"))


def test_another_minor_version_of_python_is_refused() -> None:
    with pytest.raises(UnavailableError, match=r"3\.6") as raised:
        resolve(["numpy"], Target("3.6", "x86_64", 36), NOWHERE)
    assert "markers" in str(raised.value)


def test_wheels_are_chosen_for_the_target_and_not_for_the_host(index: Path, make_wheel: Callable[..., Path]) -> None:
    host = host_target()
    for glibc in (17, host.glibc):
        make_wheel("built", tag=f"py3-none-manylinux_2_{glibc}_{host.machine}")
    older = Target(host.python, host.machine, host.glibc - 1)
    assert f"manylinux_2_{host.glibc}_" in resolve(["built"], host, NOWHERE)[0].filename
    assert "manylinux_2_17_" in resolve(["built"], older, NOWHERE)[0].filename
    assert len(list(index.glob("built-*"))) == 2


def test_find_links_adds_a_folder(index: Path, tmp_path: Path, make_wheel: Callable[..., Path]) -> None:
    (tmp_path / "more").mkdir()
    made = make_wheel("extra")
    made.rename(tmp_path / "more" / made.name)
    assert names(resolve(["extra"], host_target(), IndexOptions((str(tmp_path / "more"),)))) == ["extra==1.0"]
    assert not list(index.glob("extra-*"))


@pytest.mark.usefixtures("index")
def test_exactly_the_resolved_files_are_fetched(tmp_path: Path, store: LocalStore) -> None:
    wheels = resolve(["onnxruntime==1.31.1"], host_target(), NOWHERE)
    sizes = fetch(wheels, tmp_path / "wheels", host_target(), NOWHERE, store)
    assert {path.name for path in (tmp_path / "wheels").iterdir()} == {wheel.filename for wheel in wheels}
    assert sizes == {wheel.digest: (tmp_path / "wheels" / wheel.filename).stat().st_size for wheel in wheels}


def test_what_the_store_has_is_not_fetched(index: Path, tmp_path: Path, store: LocalStore) -> None:
    wheels = resolve(["onnxruntime==1.31.1"], host_target(), NOWHERE)
    for wheel in wheels:
        store.put_file(index / wheel.filename)
    shutil.rmtree(index)
    fetch(wheels, tmp_path / "wheels", host_target(), NOWHERE, store)
    assert len(list((tmp_path / "wheels").iterdir())) == len(wheels)


def test_other_bytes_under_the_same_name_are_an_integrity_error(
    index: Path, tmp_path: Path, store: LocalStore, make_wheel: Callable[..., Path]
) -> None:
    wheels = resolve(["flatbuffers"], host_target(), NOWHERE)
    make_wheel("flatbuffers", "25.1", {"flatbuffers/__init__.py": "changed = True\n"})
    with pytest.raises(IntegrityError) as raised:
        fetch(wheels, tmp_path / "wheels", host_target(), NOWHERE, store)
    assert wheels[0].digest.removeprefix("sha256:") in str(raised.value)
    assert digest_bytes((index / wheels[0].filename).read_bytes()).removeprefix("sha256:") in str(raised.value)


def test_a_wheel_under_another_name_than_resolved_is_said(index: Path, tmp_path: Path, store: LocalStore) -> None:
    (wheel,) = resolve(["flatbuffers"], host_target(), NOWHERE)
    (index / wheel.filename).rename(index / "flatbuffers-25.1-1-py3-none-any.whl")
    with pytest.raises(UnavailableError, match=f"pip resolved {wheel.filename}, but fetched no file with that name"):
        fetch([wheel], tmp_path / "wheels", host_target(), NOWHERE, store)


def test_a_damaged_wheel_in_the_store_is_an_integrity_error(index: Path, tmp_path: Path, store: LocalStore) -> None:
    (wheel,) = resolve(["flatbuffers"], host_target(), NOWHERE)
    place = store.path(store.put_file(index / wheel.filename).digest)
    place.chmod(0o644)
    place.write_bytes(b"damaged")
    with pytest.raises(IntegrityError) as raised:
        fetch([wheel], tmp_path / "wheels", host_target(), NOWHERE, store)
    assert all(part in str(raised.value) for part in (wheel.filename, wheel.digest, digest_bytes(b"damaged")))
