"""The documentation names files and folders that exist; the map has all folders of the packages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "artifacts", "evaluator", "migrations", "registry")
MAP = ROOT / "ARCHITECTURE.md"
PAGES = (MAP, *sorted((ROOT / "docs" / "explanation" / "architecture").glob("*.md")))
OTHER_PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"^```.*?^```\n", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`([a-z][\w.-]*/[\w./-]*|[\w.-]+\.(?:py|md|toml|yaml))`")
MODULE = re.compile(r"`([\w-]+/[\w./-]+\.py)`")
FOLDER = re.compile(r"(\w+)/")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_exists(page: Path) -> None:
    paths = PATH.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", OTHER_PAGES, ids=lambda page: page.name)
def test_every_module_exists(page: Path) -> None:
    paths = MODULE.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_map_has_every_folder_of_the_packages() -> None:
    (block,) = BLOCK.findall(MAP.read_text(encoding="utf-8"))
    folders = {path.parent.name for package in PACKAGES for path in (ROOT / package).glob("*/__init__.py")}
    assert set(FOLDER.findall(block)) == folders | set(PACKAGES) | {"versions"}
