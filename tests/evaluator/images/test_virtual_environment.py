import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.images.virtual_environment import Environments, find_interpreter
from benchlock.evaluator.images.wheels import host_target, running_python

Wheels = list[tuple[str, Digest]]
LIST = "import json, sys, importlib.metadata as m; print(json.dumps(sorted(d.name for d in m.distributions())))"


@pytest.fixture
def environments(tmp_path: Path, store: LocalStore) -> Environments:
    return Environments(tmp_path / "environments", store, SILENT)


@pytest.fixture
def wheels(store: LocalStore, make_wheel: Callable[..., Path]) -> Wheels:
    script = {"two-1.0.dist-info/entry_points.txt": "[console_scripts]\ntwo = two:main\n"}
    made = [make_wheel("one"), make_wheel("two", files={"two.py": "def main():\n    print('two runs')\n", **script})]
    return [(f"wheels/{path.name}", store.put_file(path).digest) for path in made]


def run(python: Path, code: str) -> str:
    return subprocess.run([python, "-B", "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def module(python: Path) -> Path:
    return Path(run(python, "import one; print(one.__file__)"))


def test_an_environment_holds_the_wheels_and_nothing_else(environments: Environments, wheels: Wheels) -> None:
    python = environments.materialise(wheels, running_python())
    assert json.loads(run(python, LIST)) == ["one", "two"]
    assert run(python, "import sys; print('%d.%d' % sys.version_info[:2])") == running_python()
    assert subprocess.run([python.parent / "two"], check=True, capture_output=True).stdout == b"two runs\n"
    assert Path(run(python, "import one; print(one.__cached__)")).exists()
    assert run(python, "import one; print(one.NAME.__class__, (lambda: 0).__code__.co_filename)").startswith("<class")


def test_it_is_made_once(environments: Environments, wheels: Wheels) -> None:
    python = environments.materialise(wheels, running_python())
    before = module(python).stat().st_ino
    assert environments.materialise(wheels[::-1], running_python()) == python
    assert module(python).stat().st_ino == before


def test_other_wheels_are_another_environment(environments: Environments, wheels: Wheels) -> None:
    python = environments.materialise(wheels, running_python())
    assert environments.materialise(wheels[:1], running_python()) != python


def test_nothing_but_environments_stays(environments: Environments, wheels: Wheels) -> None:
    python = environments.materialise(wheels, running_python())
    assert {path.name for path in environments.root.iterdir()} == {"lock", python.parents[2].name}


def test_a_changed_byte_is_found_and_both_digests_named(environments: Environments, wheels: Wheels) -> None:
    file = module(environments.materialise(wheels, running_python()))
    before = file.read_bytes()
    file.write_bytes(before.replace(b"one", b"0ne"))
    with pytest.raises(IntegrityError) as raised:
        environments.materialise(wheels, running_python())
    for part in ("one/__init__.py", digest_bytes(before), digest_bytes(file.read_bytes())):
        assert part in str(raised.value)


def damage_missing(file: Path) -> None:
    file.unlink()


def damage_extra(file: Path) -> None:
    file.with_name("sitecustomize.py").write_text("")


def damage_link(file: Path) -> None:
    other = file.with_name("elsewhere.txt")
    file.rename(other)
    file.symlink_to(other)


def damage_stamp(file: Path) -> None:
    (file.parents[5] / "files.json").write_text("{}")


def damage_interpreter(file: Path) -> None:
    python = file.parents[4] / "bin" / "python"
    python.unlink()
    python.symlink_to("/bin/true")


@pytest.mark.parametrize(
    "damage", [damage_missing, damage_extra, damage_link, damage_stamp, damage_interpreter], ids=lambda f: f.__name__
)
def test_a_damaged_environment_is_refused(
    environments: Environments, wheels: Wheels, damage: Callable[[Path], None]
) -> None:
    damage(module(environments.materialise(wheels, running_python())))
    with pytest.raises(IntegrityError, match=r"damaged|cannot read"):
        environments.materialise(wheels, running_python())


def test_a_damaged_wheel_leaves_nothing(environments: Environments, wheels: Wheels, store: LocalStore) -> None:
    place = store.path(wheels[0][1])
    place.chmod(0o644)
    place.write_bytes(b"damaged")
    with pytest.raises(IntegrityError, match=r"one-1\.0"):
        environments.materialise(wheels, running_python())
    assert {path.name for path in environments.root.iterdir()} == {"lock"}


def test_there_is_no_python_2(environments: Environments, wheels: Wheels) -> None:
    with pytest.raises(UnavailableError, match=r"this image needs Python 2\.9 to run in a process"):
        environments.materialise(wheels, "2.9")


def test_a_wheel_for_a_newer_library_is_unavailable_here(environments: Environments) -> None:
    host = host_target()
    name = f"x-1.0-py3-none-manylinux_2_{host.glibc + 1}_{host.machine}.whl"
    with pytest.raises(UnavailableError, match="does not run on this machine"):
        environments.materialise([(name, digest_bytes(b""))], running_python())


def test_a_name_that_is_no_wheel_is_invalid(environments: Environments) -> None:
    with pytest.raises(InvalidInputError):
        environments.materialise([("wheels/x.zip", digest_bytes(b""))], running_python())


def test_two_processes_make_one_environment(environments: Environments, wheels: Wheels) -> None:
    code = (
        "import sys, json; from pathlib import Path; from benchlock.artifacts.stores.local_store import LocalStore;"
        "from benchlock.artifacts.user_output import SILENT;"
        "from benchlock.evaluator.images.virtual_environment import Environments;"
        "print(Environments(Path(sys.argv[1]), LocalStore(Path(sys.argv[2])), SILENT)"
        ".materialise(json.loads(sys.argv[3]), sys.argv[4]))"
    )
    blobs = environments.root.parent / "blobs"
    command = [sys.executable, "-c", code, str(environments.root), str(blobs), json.dumps(wheels), running_python()]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate()[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert answers[0] == answers[1] == str(environments.materialise(wheels, running_python()))


def test_a_command_of_a_missing_python_that_does_not_start_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pyenv has one for each version, which fails unless that version is selected."""
    shim = tmp_path / "python2.9"
    shim.write_text("#!/bin/sh\necho 'pyenv: python2.9: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(UnavailableError, match=r"^this image needs Python 2\.9 to run in a process") as caught:
        find_interpreter("2.9")
    assert caught.value.where == f"{shim} is not a working CPython 2.9"
    step = str(caught.value.next_step)
    assert step.startswith("install python2.9, run in a container, or build an image for Python 3")
