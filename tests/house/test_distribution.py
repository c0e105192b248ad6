"""What ships: every module of the five packages, and nothing else."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
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
        if (ROOT / name).is_file() and name.split("/")[0] in (
            *PACKAGES,
            "tests",
            "pyproject.toml",
            "setup.py",
            "README.md",
            "LICENSE",
        ):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source],
        env={**os.environ, "BENCHLOCK_COMMIT": COMMIT},
        check=True,
        capture_output=True,
    )
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    expected = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert shipped == expected | {"api/commit.txt"}


def test_the_wheel_says_of_which_commit_it_is(wheel: zipfile.ZipFile) -> None:
    assert wheel.read("api/commit.txt").decode() == f"{COMMIT}\n"


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    names = {name.split(".dist-info/")[1] for name in wheel.namelist() if ".dist-info/" in name}
    assert names == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}
    entry_points = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert wheel.read(entry_points).decode() == "[console_scripts]\nbenchlock = api.cli.main:main\n"


@pytest.mark.parametrize("name", ["runtime.txt", "dev.txt", "example.txt", "bench.txt"])
def test_the_locked_environments_have_hashes_and_no_index(name: str) -> None:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert pins
    assert all("==" in line and line.endswith("\\") for line in pins)
    assert not [line for line in lines if "://" in line or (line.startswith("--") and "hash" not in line)]
