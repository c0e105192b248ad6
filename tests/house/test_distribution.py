"""What ships: one package, with every module of its five folders, and nothing else."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
DATA = (
    *("evaluator/charts/*.css", "evaluator/charts/*.ttf", "evaluator/charts/*.txt"),
    *("evaluator/report/*.css", "evaluator/report/*.jinja"),
    *("api/web/assets/*", "api/web/templates/*"),
)
PACKAGES = ("api", "artifacts", "evaluator", "migrations", "registry")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy of what the repository holds, so that leftovers of other builds do not count."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in listing.splitlines():
        if (ROOT / name).exists() and name.split("/")[0] in (
            *PACKAGES,
            "benchlock",
            "tests",
            "pyproject.toml",
            "setup.py",
            "README.md",
            "LICENSE",
        ):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target, follow_symlinks=False)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source],
        env={**os.environ, "BENCHLOCK_COMMIT": COMMIT},
        check=True,
        capture_output=True,
    )
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_the_wheel_holds_one_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    files = {str(path.relative_to(ROOT)) for name in DATA for path in ROOT.glob(name)}
    expected = modules | files | {"__init__.py", "__main__.py", "py.typed", "api/commit.txt"}
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert shipped == {f"benchlock/{name}" for name in expected}


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["list"]])
def test_a_user_may_have_folders_with_the_names_of_the_parts(
    wheel: zipfile.ZipFile, tmp_path: Path, words: list[str]
) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    wheel.extractall(site)
    for name in (*PACKAGES, "tests"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("raise RuntimeError('this is the user's own package')\n")
    environment = os.environ | {"PYTHONPATH": f".:{site}", "BENCHLOCK_REGISTRY": str(tmp_path / "registry")}
    create = [sys.executable, "-m", "benchlock", "db", "create"]
    assert subprocess.run(create, cwd=project, env=environment, capture_output=True, check=False).returncode == 0
    code = "import benchlock, runpy; print(benchlock.__file__); runpy.run_module('benchlock', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(site / "benchlock" / "__init__.py"))


def test_the_wheel_says_of_which_commit_it_is(wheel: zipfile.ZipFile) -> None:
    assert wheel.read("benchlock/api/commit.txt").decode() == f"{COMMIT}\n"


def test_the_top_level_of_an_environment_gets_one_name(wheel: zipfile.ZipFile) -> None:
    top = next(name for name in wheel.namelist() if name.endswith("top_level.txt"))
    assert wheel.read(top).decode().split() == ["benchlock"]


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    names = {name.split(".dist-info/")[1] for name in wheel.namelist() if ".dist-info/" in name}
    assert names == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}
    entry_points = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert wheel.read(entry_points).decode() == "[console_scripts]\nbenchlock = benchlock.api.cli.main:main\n"


@pytest.mark.parametrize("name", ["runtime.txt", "dev.txt", "example.txt", "bench.txt"])
def test_the_locked_environments_have_hashes_and_no_index(name: str) -> None:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert pins
    assert all("==" in line and line.endswith("\\") for line in pins)
    assert not [line for line in lines if "://" in line or (line.startswith("--") and "hash" not in line)]
