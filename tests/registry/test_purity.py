"""The resolver and the lockfile are functions of what they are handed: no clock, files, network, chance or SQL."""

import ast
from pathlib import Path

import pytest

REGISTRY = Path(__file__).resolve().parents[2] / "registry"
FOLDERS = ("resolution", "versions", "scaffold/mlmodelscope", "lock")
IMPURE_MODULES = {"lock/lock_creation", "lock/split_checks"}
"""Modules of these folders that read blobs or take the time."""
PURE = (
    *(f"{folder}/{path.stem}" for folder in FOLDERS for path in sorted((REGISTRY / folder).glob("*.py"))),
    *("requests/hardware_requirements", "text/toml", "inspection/label_files"),
)
IMPURE = {
    *("os", "io", "pathlib", "socket", "time", "datetime", "random", "secrets", "subprocess", "tempfile", "logging"),
    *("sqlalchemy", "httpx", "urllib", "http", "platform", "locale", "uuid"),
}


def test_every_folder_has_modules() -> None:
    assert all(any(name.startswith(f"{folder}/") for name in PURE) for folder in FOLDERS)
    assert set(PURE) > IMPURE_MODULES


@pytest.mark.parametrize("name", sorted(set(PURE) - IMPURE_MODULES))
def test_a_pure_module_reaches_nothing_outside(name: str) -> None:
    tree = ast.parse((REGISTRY / f"{name}.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {module.partition(".")[0] for module in imported} & IMPURE
    assert not any(
        module.startswith(("benchlock.registry.catalogue", "benchlock.registry.database")) for module in imported
    )
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"open", "print", "input", "exec", "eval"}
