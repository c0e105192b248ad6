"""ARCHITECTURE.md and docs/architecture name files and folders that exist, and all folders of the packages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "artifacts", "evaluator", "migrations", "registry")
PAGES = (ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "architecture").glob("*.md")))
BLOCK = re.compile(r"^```\n.*?^```\n", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`([a-z][\w.-]*/[\w./-]*|[\w.-]+\.(?:py|md|toml|yaml))`")
FOLDER = re.compile(r"(\w+)/")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_exists(page: Path) -> None:
    paths = PATH.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_map_has_every_folder_of_the_packages() -> None:
    (block,) = BLOCK.findall(PAGES[0].read_text(encoding="utf-8"))
    folders = {
        path.name for package in PACKAGES for path in (ROOT / package).glob("*/") if (path / "__init__.py").exists()
    }
    assert set(FOLDER.findall(block)) == folders | set(PACKAGES) | {"versions"}
