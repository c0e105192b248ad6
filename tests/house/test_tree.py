"""The tree of the packages: its size, the names in it, and imports without circles."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "artifacts", "evaluator", "migrations", "registry")
MODULES = {
    ".".join(("benchlock", *path.with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    if path.parts[:2] != ("migrations", "versions")
}
TREES = {path: ast.parse((ROOT / path).read_text(encoding="utf-8")) for path in MODULES.values()}
LARGEST_FOLDERS = {"api/cli": 25}
LARGEST_FOLDER = 15
PARTICIPLE = re.compile(
    "[a-z]{2,}ed|begun|bound|built|chosen|done|drawn|found|given|gone|held|kept|known|left|lost|made|meant|read|said|seen"
    "|sent|shown|taken|told|written"
)
NOUNS = {"ConcurrencyBound"}
"""Names whose last word looks like a participle and is a noun."""
CONTRACT = Path("api/schemas")
"""Its classes are named in the OpenAPI document, of which clients are generated."""

GLOSSARY = ROOT / "docs" / "glossary.md"
TERMS = {"can't be said yet", "unknown wire type "}
"""Texts with a retired word that stay: a value of the JSON output, and a term of Protocol Buffers."""


def find_imports(name: str, path: Path) -> Iterator[str]:
    """Yield the modules of the packages that a module imports, at its start or later."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                yield from [found for found in (f"{base}.{alias.name}", base) if found in MODULES][:1]


GRAPH = {name: set(find_imports(name, path)) - {name} for name, path in MODULES.items()}


def test_folders_are_small() -> None:
    modules = Counter(path.parent.as_posix() for path in TREES if path.name != "__init__.py")
    assert {f: n for f, n in modules.items() if n > LARGEST_FOLDERS.get(f, LARGEST_FOLDER)} == {}


def test_a_file_name_occurs_twice_at_most() -> None:
    names = Counter(path.name for path in TREES if not path.name.startswith("__"))
    assert {name: count for name, count in names.items() if count > 2} == {}


def test_no_files_import_each_other_in_a_circle() -> None:
    TopologicalSorter(GRAPH).prepare()


def test_no_two_folders_import_each_other() -> None:
    folders = {
        (MODULES[name].parent, MODULES[imported].parent) for name, imports in GRAPH.items() for imported in imports
    }
    assert [(str(a), str(b)) for a, b in folders if a < b and (b, a) in folders] == []


def test_no_module_or_class_is_named_by_a_participle() -> None:
    modules = [str(path) for path in TREES if PARTICIPLE.fullmatch(path.stem)]
    classes = [
        f"{path}: {node.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and path.parent != CONTRACT and node.name not in NOUNS
        if PARTICIPLE.fullmatch(re.split("(?=[A-Z])", node.name)[-1].lower())
    ]
    assert modules + classes == []


def retired_words() -> list[str]:
    """The words of the glossary's last table; an entry with an explanation in parentheses depends on its context."""
    rows = re.findall(
        r"^\| ([^|(]+) \|", GLOSSARY.read_text(encoding="utf-8").partition("## Retired words")[2], re.MULTILINE
    )
    return [word.strip() for row in rows[1:] for word in row.split(",")]


def test_no_text_has_a_word_that_the_glossary_retires() -> None:
    words = retired_words()
    assert {"figure", "says", "whoever"} < set(words)
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, words))})s?\b", re.IGNORECASE)
    found = []
    for path, tree in TREES.items():
        notes = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        found += [
            f"{path}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in notes
            if " " in node.value and node.value not in TERMS and pattern.search(node.value)
        ]
    assert found == []
