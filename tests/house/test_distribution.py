"""What ships: one package, with every module of its five folders, and nothing else."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.client.matrix_clients import EmbeddedMatrices
from benchlock.api.local.local_registry import open_registry
from benchlock.api.web.links import (
    artifact_path,
    compare_path,
    comparison_path,
    job_path,
    leaderboard_path,
    lock_diff_path,
    lock_path,
    matrix_path,
    run_path,
)
from benchlock.evaluator.workflows.compare import plan_turns
from benchlock.registry.lock.lockfile import dataset_of
from benchlock.registry.requests.matrix_request import read_matrix
from tests.api.web.conftest import Seeds
from tests.support.api.serving import service
from tests.support.evaluator.queues import wish
from tests.support.registry.matrices import MATRIX

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
DATA = (
    *("evaluator/charts/*.css", "evaluator/charts/*.ttf", "evaluator/charts/*.txt"),
    *("evaluator/report/*.css", "evaluator/report/*.jinja"),
    *("api/web/assets/*", "api/web/templates/*"),
)
MOST_BYTES_OF_PAGES = 150_000
COMPARISON = "5f0c3a9d1b22e47a"
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


def test_the_pages_are_a_small_part_of_the_wheel(wheel: zipfile.ZipFile) -> None:
    sizes = [entry.compress_size for entry in wheel.infolist() if entry.filename.startswith("benchlock/api/web/")]
    assert len(sizes) > 40
    assert sum(sizes) <= MOST_BYTES_OF_PAGES


def test_the_wheel_alone_serves_every_kind_of_page(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """Nothing but Python is there: no Node, no other program, and no file of the repository."""
    site, home = tmp_path / "site", tmp_path / "registry"
    wheel.extractall(site)
    paths = _seed(home)
    templates = {Path(name).name.partition(".")[0] for name in wheel.namelist() if "/api/web/templates/" in name}
    assert templates - {"base", "macros", "token"} == set(paths)  # a new token is shown after a form alone
    with (
        service(home, variables={"PYTHONPATH": str(site), "PATH": ""}) as served,
        httpx.Client(base_url=served.url, headers={"accept": "text/html"}, timeout=60) as client,
    ):
        for name, path in paths.items():
            page = client.get(path)
            assert page.status_code == (404 if name == "problem" else 200), (name, page.text)
            assert page.text.rstrip().endswith("</html>"), name
            assert "<h1" in page.text, name
        for asset in re.findall(r'"(/assets/[^"]*)"', client.get("/").text):
            assert client.get(asset).content


def _seed(home: Path) -> dict[str, str]:
    """Fill a registry; the path of a page by its template."""
    registry = open_registry(str(home), print, create=True)
    seeds = Seeds(registry)
    locks = [seeds.lock(), seeds.lock("other")]
    first, second = (seeds.run(lock).id for lock in locks)
    again, queue = seeds.run(locks[0]).id, open_queue(registry)
    job = queue.submit(wish(lock=locks[0].id)).id
    queue.submit_comparison([(wish(lock=lock.id), turn) for lock, turn in plan_turns(locks, COMPARISON, 3, {})])
    matrix = read_matrix(MATRIX, "matrix.yaml")
    EmbeddedMatrices(EmbeddedRegistry(registry), queue).submit(matrix)
    registry.database.dispose()
    dataset = dataset_of(locks[0])
    return {
        "home": "/",
        "catalogue": "/artifacts",
        "artifact": artifact_path("model", "digits"),
        "runs": "/runs",
        "run": run_path(first),
        "provenance": f"{run_path(first)}/provenance",
        "samples": f"{run_path(first)}/samples",
        "trace": f"{run_path(first)}/trace",
        "lock": lock_path(locks[0].id),
        "lock_diff": lock_diff_path(*(lock.id for lock in locks)),
        "verdict": f"{run_path(again)}/verdict",
        "comparison": comparison_path(COMPARISON),
        "compare": compare_path((first, second)),
        "leaderboards": "/leaderboards",
        "leaderboard": leaderboard_path(f"{dataset.name}@{dataset.version}", dataset.split),
        "matrix": matrix_path(matrix.id),
        "jobs": "/jobs",
        "job": job_path(job),
        "new": "/new",
        "tokens": "/tokens",
        "audit": "/audit",
        "yank": f"/yank?target=model/digits@{locks[0].subject.version}",
        "used_by": f"/used-by?target=model/digits@{locks[0].subject.version}",
        "api": "/v1/docs",
        "problem": "/nothing",
    }


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
