import marshal
import os
import struct
import sys
from pathlib import Path
from types import CodeType

import pytest

from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.images.wheel_install import Sources, compile_all

ENVIRONMENT = {"PATH": os.environ["PATH"]}
SOURCE = "NAMES = {'b', 'a', 'c'}\n\ndef f(x):\n    return x in {'one', 'two', 3, None}\n"


def compiled(folder: Path, final: str = "/opt/final") -> bytes:
    compile_all([sys.executable], [Sources(folder, str(folder), final)], ENVIRONMENT, SILENT)
    (cached,) = (folder / "package" / "__pycache__").glob("module.*.pyc")
    return cached.read_bytes()


def plant(folder: Path) -> Path:
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "module.py").write_text(SOURCE)
    (folder / "package" / "template.py").write_text("{{ no Python }}\n")
    for number in range(300):
        (folder / "package" / f"other{number}.py").write_text(SOURCE)
    return folder


def test_byte_code_is_never_checked_against_its_source(tmp_path: Path) -> None:
    (flags,) = struct.unpack("<I", compiled(plant(tmp_path))[4:8])
    assert flags == 0b01  # PEP 552: by the source's digest, unchecked


def test_byte_code_holds_the_final_path(tmp_path: Path) -> None:
    code = marshal.loads(compiled(plant(tmp_path))[16:])
    assert isinstance(code, CodeType)
    assert code.co_filename == "/opt/final/package/module.py"


def test_byte_code_is_the_same_in_another_folder_and_process(tmp_path: Path) -> None:
    first, second = plant(tmp_path / "1"), plant(tmp_path / "a longer name")
    assert compiled(first) == compiled(second)
    written = [{path.name: path.read_bytes() for path in folder.rglob("*.pyc")} for folder in (first, second)]
    assert len(written[0]) == 301
    assert written[0] == written[1]


def test_what_is_no_python_has_no_byte_code(tmp_path: Path) -> None:
    compiled(plant(tmp_path))
    assert not list(tmp_path.rglob("template.*.pyc"))


def test_an_interpreter_that_does_not_run_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="compiling byte code"):
        compile_all(["/bin/false"], [Sources(plant(tmp_path), "/", "/")], ENVIRONMENT, SILENT)
