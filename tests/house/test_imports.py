"""Who may import what, where import-linter cannot see it: third-party libraries, and what a start loads."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    "ray",
)
ONE_OWNER = (*HEAVY, "semver", "rfc8785", "ruamel", "tomlkit", "httpx", "installer")


def importers(library: str) -> set[str]:
    """The modules that import ``library``, at the top or inside a function."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                    if isinstance(node, ast.ImportFrom) and not node.level
                    else []
                )
                if any(name.split(".")[0] == library for name in names):
                    found.add(str(path.relative_to(ROOT)))
    return found


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport json, sys; print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("library", ONE_OWNER)
def test_a_library_has_at_most_one_owner(library: str) -> None:
    assert len(importers(library)) <= 1, importers(library)


def test_the_registry_and_the_artifacts_load_nothing_heavy() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in ("artifacts", "registry")
        for path in (ROOT / package).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    ]
    assert loaded_by("\n".join(f"import {module}" for module in modules)).isdisjoint(HEAVY)


def test_the_version_is_answered_without_any_library() -> None:
    loaded = loaded_by("import sys; sys.argv = ['benchlock', '--version']; from api.cli.main import main; main()")
    assert loaded.isdisjoint({"click", "rich", "sqlalchemy", "msgspec", "numpy", "docker", "alembic", "scipy"})


def test_help_loads_no_database_and_no_engine() -> None:
    loaded = loaded_by("from api.cli.main import run; run(['--help'])")
    assert loaded.isdisjoint({"sqlalchemy", "numpy", "docker", "alembic", "scipy", "litestar", "httpx"})
