"""The resolver and the lockfile are functions of what they are handed: no clock, files, network, chance or SQL."""

import ast
from pathlib import Path

import pytest

REGISTRY = Path(__file__).resolve().parents[2] / "registry"
PURE = (
    *("grammar", "ranges", "constraints", "hardware", "hosts"),
    *(f"{room}/{path.stem}" for room in ("resolution", "importing") for path in sorted((REGISTRY / room).glob("*.py"))),
    *("toml", "lockfile", "labels", "answerable", "locking", "staleness", "named"),
    *("difference", "changed_values", "changed_manifests", "changed_platforms"),
)
IMPURE = {
    *("os", "io", "pathlib", "socket", "time", "datetime", "random", "secrets", "subprocess", "tempfile", "logging"),
    *("sqlalchemy", "httpx", "urllib", "http", "platform", "locale", "uuid"),
}


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_reaches_nothing_outside(name: str) -> None:
    tree = ast.parse((REGISTRY / f"{name}.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {module.partition(".")[0] for module in imported} & IMPURE
    assert not any(module.startswith("benchlock.registry.catalogue") for module in imported)
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"open", "print", "input", "exec", "eval"}
