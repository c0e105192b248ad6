"""Who may import what, where import-linter cannot see it: third-party libraries, and what a start loads."""

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from benchlock.api.local.local_registry import open_registry
from benchlock.registry.lock.lockfile import dump
from tests.support.resolution.locks import REQUEST
from tests.support.resolution.variants import variant

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "artifacts", "evaluator", "migrations", "registry")
HEAVY = (
    "torch",
    "tensorflow",
    "onnxruntime",
    "ai_edge_litert",
    "mlperf_loadgen",
    "docker",
    "dvc",
    "huggingface_hub",
    "kubernetes",
    "pyarrow",
    "ray",
)
NOT_FOR_ANSWERS = {
    *HEAVY,
    "alembic",
    "benchlock.api.http",
    "benchlock.evaluator.runner.container_engine",
    "benchlock.evaluator.statistics.run_metrics",
    "granian",
    "greenlet",
    "httpx",
    "installer",
    "litestar",
    "numpy",
    "pip",
    "prometheus_client",
    "pydantic",
    "rich",
    "safetensors",
    "scipy",
    "sqlalchemy.ext.asyncio",
    "sqlalchemy.orm",
    "tomlkit",
    "typer",
}
"""What no command needs that only reads the catalogue and the store: each of them would be felt at every start."""
NOT_FOR_READING = {"benchlock.evaluator.harness_archive", "packaging.pylock"}
"""What making a lock needs, and nothing before it."""
OWNED = (
    *HEAVY,
    "pycocotools",
    "semver",
    "tokenizers",
    "rfc8785",
    "ruamel",
    "tomlkit",
    "httpx",
    "installer",
    "zstandard",
    "IPython",
)


@cache
def absolute_imports(path: Path) -> set[str]:
    """The modules that a file imports by their full name, at the top or inside a function."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
    return names


def importers(library: str) -> set[str]:
    """The modules that import ``library``, at the top or inside a function."""
    return {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if any(name.split(".")[0] == library for name in absolute_imports(path))
    }


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_parts_are_imported_from_the_package_alone() -> None:
    """The folders lie at the top of the repository, so that ``import registry`` would work there, and nowhere else."""
    folders = (*PACKAGES, "benchmarks", "examples", "tests")
    others = {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if any(name.split(".")[0] in PACKAGES for name in absolute_imports(path))
    }
    assert others == set()


@pytest.mark.parametrize("library", OWNED)
def test_a_library_has_at_most_its_owners(library: str) -> None:
    owners = importers(library)
    harness = "evaluator/harness/"
    beside = {
        owner
        for owner in owners
        if owner.startswith((f"{harness}tracing/", f"{harness}operators/", f"{harness}training/"))
    }
    assert len(owners - beside) <= 1, owners
    # A framework's profiler, its operators and its training lie beside its predictor, in modules of the same name.
    names = (
        owner.rpartition("/")[2]
        .replace("_operators.py", ".py")
        .replace("_training.py", ".py")
        .replace("_profile.py", ".py")
        .replace("_distributed.py", ".py")
        for owner in beside
    )
    assert {f"{harness}predictors/{name}" for name in names} <= owners, owners


@pytest.mark.parametrize("library", ["litestar", "granian", "prometheus_client", "uvloop"])
def test_the_service_alone_knows_what_serves_it(library: str) -> None:
    assert all(module.startswith("api/http/") for module in importers(library))


def test_the_registry_and_the_artifacts_load_nothing_heavy() -> None:
    modules = [
        ".".join(("benchlock", *path.relative_to(ROOT).with_suffix("").parts))
        for package in ("artifacts", "registry")
        for path in (ROOT / package).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    ]
    assert loaded_by("\n".join(f"import {module}" for module in modules)).isdisjoint(HEAVY)


def test_the_version_is_answered_without_any_library() -> None:
    loaded = loaded_by(
        "import sys; sys.argv = ['benchlock', '--version']; from benchlock.api.cli.main import main; main()"
    )
    assert loaded.isdisjoint({"click", "rich", "sqlalchemy", "msgspec", "numpy", "docker", "alembic", "scipy"})


def test_help_loads_no_command_no_database_and_no_engine() -> None:
    loaded = loaded_by("from benchlock.api.cli.main import run; run(['--help'])")
    assert loaded.isdisjoint({"sqlalchemy", "numpy", "docker", "alembic", "scipy", "litestar", "httpx", "ruamel"})
    assert {name for name in loaded if name.startswith("benchlock.api.cli.")} == {
        f"benchlock.api.cli.{name}" for name in ("command_group", "main", "output")
    }


def test_runs_are_listed_without_scipy_special() -> None:
    """It takes a fifth of the time that the command line of runs takes to load."""
    assert "scipy.special" not in loaded_by("import benchlock.api.cli.run_commands")


def test_a_worker_that_waits_at_a_server_loads_no_database_and_nothing_that_runs_need() -> None:
    """Without them its process needs less memory: `benchmarks/idle_workers.py`."""
    loaded = loaded_by("import benchlock.api.cli.queue.worker_command")
    assert loaded.isdisjoint({"sqlalchemy", "numpy", "scipy", "PIL", "docker", "benchlock.evaluator.workflows.run"})


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a registry of one version of each kind, a request, one that nothing answers, and a lock."""
    folder = tmp_path_factory.mktemp("desk")
    registry, whole = open_registry(str(folder / "registry"), print), variant({})
    whole.publish(registry.catalogue, registry.store)
    for name, text in {"request": REQUEST, "unanswered": REQUEST.replace("^1.0", "^9.0")}.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "old.lock").write_text(dump(whole.lock))
    return folder


READING = ("list", "show model/digits", "resolve request.yaml", "resolve unanswered.yaml", "diff old.lock old.lock")
MAKING = ("lock request.yaml -o new.lock", "lock unanswered.yaml -o new.lock")


@pytest.mark.parametrize("words", [*READING, *MAKING])
def test_an_answer_loads_no_more_than_it_needs(words: str, desk: Path) -> None:
    arguments = ["--registry", str(desk / "registry"), *words.split()]
    expected = 3 if "unanswered" in words else 0
    loaded = loaded_by(
        f"import os; from benchlock.api.cli.main import run; os.chdir({str(desk)!r})\n"
        f"assert run({arguments}) == {expected}"
    )
    assert "sqlalchemy" in loaded
    assert loaded & (NOT_FOR_ANSWERS | (set() if words in MAKING else NOT_FOR_READING)) == set()


def test_the_python_api_imports_nothing_of_the_command_line() -> None:
    users = [*(ROOT / "api" / "python").rglob("*.py"), *(ROOT / "api" / "client").rglob("*.py")]
    assert users
    assert {name for path in users for name in imports_of(path) if name.startswith("benchlock.api.cli.")} == set()
    assert not [name for name in loaded_by("import benchlock; benchlock.open") if name.startswith("benchlock.api.cli.")]


def test_a_command_loads_the_module_of_no_other(desk: Path) -> None:
    loaded = loaded_by(
        f"from benchlock.api.cli.main import run; assert run(['--registry', {str(desk / 'registry')!r}, 'list']) == 0"
    )
    assert {
        name for name in loaded if name.startswith("benchlock.api.cli.") and name.endswith(("_command", "_commands"))
    } == {"benchlock.api.cli.artifact_commands"}


FROZEN = "benchlock.migrations.frozen"
RFC_8785 = {"benchlock.artifacts.json_codec", "benchlock.artifacts.errors"}
"""Canonical JSON, which is the same for ever."""


def imports_of(path: Path) -> set[str]:
    """The modules of benchlock that a file imports, at the top or inside a function."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative imports are not looked at"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] == "benchlock"}


@pytest.mark.parametrize("path", sorted((ROOT / "migrations/versions").glob("*.py")), ids=lambda path: path.stem)
def test_a_revision_is_made_of_frozen_modules_alone(path: Path) -> None:
    assert {name for name in imports_of(path) if not name.startswith(FROZEN)} == set()


@pytest.mark.parametrize("path", sorted((ROOT / "migrations/frozen").glob("*.py")), ids=lambda path: path.stem)
def test_a_frozen_module_depends_on_nothing_that_changes(path: Path) -> None:
    assert {name.rpartition(".")[0] for name in imports_of(path)} <= RFC_8785


def private_names(path: Path) -> set[str]:
    """The private names of benchlock's modules that a test imports, reads or replaces."""
    modules: set[str] = set()
    names = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchlock"):
            modules |= {alias.asname or alias.name for alias in node.names if alias.name.islower()}
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("benchlock."):
            names.add(node.value.rpartition(".")[2])
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            names.add(node.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            names |= {str(argument.value) for argument in node.args[1:2] if isinstance(argument, ast.Constant)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_no_test_uses_a_private_name_of_a_module() -> None:
    used = {str(path.relative_to(ROOT)): private_names(path) for path in (ROOT / "tests").rglob("*.py")}
    assert {path: names for path, names in used.items() if names} == {}
