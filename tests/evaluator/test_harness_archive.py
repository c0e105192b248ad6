"""The zipapp: the same bytes from any folder, sources alone, and nothing of benchlock beside them."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from benchlock.evaluator.harness_archive import HARNESS_VERSION, add_bytecode, build_harness

SOURCES = Path(__file__).parents[2] / "evaluator" / "harness"


def test_two_folders_give_the_same_bytes(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path in sorted(copy.rglob("*"), reverse=True):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "job.cpython-311.pyc").write_bytes(b"bytecode")
    (copy / "notes.txt").write_text("no source")
    assert build_harness(copy) == build_harness() == build_harness()


def test_it_holds_sources_alone_sorted_stored_and_without_times() -> None:
    with zipfile.ZipFile(BytesIO(build_harness())) as archive:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        assert names == ["__main__.py", *sorted(names[1:])]
        assert all(name.endswith(".py") for name in names)
        assert {"harness/main.py", "harness/steps/image.py", "harness/predictors/litert.py"} <= set(names)
        assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
        assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
        assert archive.read("harness/core/job.py") == (SOURCES / "core" / "job.py").read_bytes()


def test_another_source_is_another_archive(tmp_path: Path) -> None:
    copy = tmp_path / "harness"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "core" / "job.py").write_text((copy / "core" / "job.py").read_text() + "\n")
    assert build_harness(copy) != build_harness()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "harness.pyz"
    path.write_bytes(build_harness())
    return path


def loaded_by(statement: str, archive: Path) -> set[str]:
    """All modules of an interpreter that sees the archive and the installed libraries, but not this project."""
    code = f"import json, sys; sys.path.insert(0, {str(archive)!r})\n{statement}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=archive.parent,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


ALL_PHASES = (
    "harness.main, harness.phases.phase_process, harness.phases.accuracy, harness.phases.golden_phase, "
    "harness.performance.peak_search"
)


def test_all_of_it_imports_without_benchlock(archive: Path) -> None:
    loaded = {name.partition(".")[0] for name in loaded_by(f"import {ALL_PHASES}", archive)}
    assert not loaded & {"benchlock", "msgspec", "sqlalchemy", "scipy"}
    assert {"numpy", "PIL", "safetensors", "mlperf_loadgen"} <= loaded


def test_the_process_that_watches_loads_no_library(archive: Path) -> None:
    loaded = {name.partition(".")[0] for name in loaded_by("import harness.main", archive)}
    assert not loaded & {"numpy", "PIL", "safetensors", "mlperf_loadgen"}


def test_its_byte_code_stands_in_for_its_sources(archive: Path) -> None:
    replaced(archive, add_bytecode(archive.read_bytes()), "harness/__init__.py", b"this is no Python")
    assert said_version(archive) == HARNESS_VERSION


def test_byte_code_of_another_interpreter_is_ignored(archive: Path) -> None:
    replaced(archive, add_bytecode(archive.read_bytes()), "harness/__init__.pyc", b"\0" * 64)
    assert said_version(archive) == HARNESS_VERSION


def test_byte_code_changes_no_source() -> None:
    plain, more = (zipfile.ZipFile(BytesIO(held)) for held in (build_harness(), add_bytecode(build_harness())))
    assert set(more.namelist()) == {*plain.namelist(), *(f"{name}c" for name in plain.namelist())}
    assert all(more.read(name) == plain.read(name) for name in plain.namelist())


def test_a_harness_of_others_is_left_as_it_is() -> None:
    for other in (b"no archive", build_harness() + b"more"):
        assert add_bytecode(other) == other


def replaced(archive: Path, content: bytes, name: str, other: bytes) -> None:
    """The content as the archive, with other bytes under the name."""
    with zipfile.ZipFile(BytesIO(content)) as whole, zipfile.ZipFile(archive, "w") as opened:
        for entry in whole.namelist():
            opened.writestr(entry, other if entry == name else whole.read(entry))


def said_version(archive: Path) -> str:
    return subprocess.run(
        [sys.executable, str(archive), "--version"], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_it_says_its_version(archive: Path) -> None:
    assert said_version(archive) == HARNESS_VERSION
