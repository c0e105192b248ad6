"""The documentation site: it builds without a warning, loads nothing from elsewhere, and has what the code has."""

import html
import inspect
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal

import click
import pytest

import benchlock
from benchlock.api.cli.command_group import benchlock as program
from benchlock.api.error_codes import EXIT_UNDECIDED, FAULTS
from tests.house import json_schemas
from tests.house.python_page import describe_function
from tests.house.reference_pages import (
    ADVICE,
    EXITS,
    TAGS,
    build_openapi,
    find_commands,
    find_error_classes,
    generate,
    split_help,
)

ROOT = Path(__file__).resolve().parents[2]
LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("use", "href")}
FOREIGN_LINKS = {"canonical"}
KINDS = ("tutorials", "how-to", "reference", "explanation")


def build_site(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder), *options]
    variables = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = build_site(folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return generate()


class _Resources(HTMLParser):
    """The addresses that a browser loads to show a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if (tag, name) in LOADED]


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    shown = {path: _Resources(path.read_text(encoding="utf-8")).addresses for path in site.rglob("*.html")}
    assert len(shown) > 40
    foreign = [(path.name, one) for path, all_of in shown.items() for one in all_of if re.match(r"([a-z]+:)?//", one)]
    assert foreign == []
    for path, all_of in shown.items():
        local = [one.partition("#")[0].partition("?")[0] for one in all_of if not one.startswith("data:")]
        assert [one for one in local if one and not (path.parent / one).exists()] == [] or path.name == "404.html"


def test_no_style_loads_anything_from_elsewhere(site: Path) -> None:
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert [
        one for style in styles for one in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^)\"']+)", style)
    ] == []


def test_no_picture_loads_anything_from_elsewhere() -> None:
    pictures = sorted((ROOT / "docs" / "assets").glob("*.svg"))
    assert [path.name for path in pictures] == ["favicon.svg", "flow.svg", "terminal.svg"]
    for path in pictures:
        assert not re.search(r"url\(.?http|@import|href=.http|<script", path.read_text(encoding="utf-8")), path


def test_the_recording_has_the_commands_of_the_readme() -> None:
    """``make recording`` writes it anew."""
    picture = (ROOT / "docs" / "assets" / "terminal.svg").read_text(encoding="utf-8")
    text = html.unescape(re.sub("<[^>]*>", "", picture)).replace("\N{NO-BREAK SPACE}", " ")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    recorded = readme.partition("terminal.svg")[0]
    commands = re.findall(r"^\$ (benchlock .*?)(?:  .*)?$", recorded, re.MULTILINE)
    assert commands
    for command in commands:
        assert f"$ {command}" in text


def test_no_page_needs_what_the_theme_loads_from_elsewhere(site: Path) -> None:
    """The theme's script loads a library for diagrams (class ``mermaid``), and numbers of a repository."""
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert 'class="mermaid"' not in text
        assert 'data-md-component="source"' not in text


def test_the_site_can_be_searched_and_is_dark_at_night(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    assert any("bundle create" in entry["title"] for entry in entries)
    assert 'data-md-color-scheme="slate"' in (site / "index.html").read_text(encoding="utf-8")


def test_code_in_tables_has_no_escapes(site: Path) -> None:
    text = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    assert "<code>--isolation container|process</code>" in text
    assert [path for path in site.rglob("*.html") if "\\|</code>" in path.read_text(encoding="utf-8")] == []


def test_a_link_to_nothing_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[a page](missing.md)\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(settings.replace("[tests/", f"[{ROOT}/tests/"))
    done = build_site(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert done.returncode == 1
    assert "'index.md' contains a link 'missing.md', but the target is not found" in done.stderr


def test_every_page_is_of_one_kind() -> None:
    folders = {path.relative_to(ROOT / "docs").parts[0] for path in (ROOT / "docs").rglob("*.md")}
    assert folders == {*KINDS, "index.md"}


def test_every_page_has_the_title_of_the_navigation(pages: dict[str, str]) -> None:
    entries = re.findall(r"^ +- ([^:\n]+): (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(entries) > 40
    texts = {path: pages.get(path) or (ROOT / "docs" / path).read_text(encoding="utf-8") for _, path in entries}
    titles = {path: texts[path].partition("\n")[0] for _, path in entries if path != "index.md"}
    assert titles == {path: f"# {title}" for title, path in entries if path != "index.md"}


def test_every_command_has_help_and_an_example(pages: dict[str, str]) -> None:
    shared = {option.help for option in program.params if isinstance(option, click.Option)}
    for _, name, command in find_commands():
        text, example = split_help(command)
        assert len(text.splitlines()[0]) <= 60  # fits its line of the help text
        assert re.sub("--registry [^ ]+ ", "", example).startswith(f"benchlock {name}")
        assert [
            option.name for option in command.params if option.name != "help" and not getattr(option, "help", "")
        ] == []
        section = pages["reference/cli.md"].partition(f"### benchlock {name}\n")[2].partition("\n### ")[0]
        options = [one for one in command.params if isinstance(one, click.Option) and one.help not in shared]
        rows = [re.search(rf"^\| `[^`]*{one.opts[-1]}[ `,]", section, re.MULTILINE) for one in options]
        assert None not in rows, name


def test_every_public_member_is_in_the_reference(pages: dict[str, str]) -> None:
    """All of ``benchlock.__all__``, with all members and all parameters."""
    page = pages["reference/python.md"]
    for name in benchlock.__all__:
        one = getattr(benchlock, name)
        (section,) = re.findall(rf"^##+ {name}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
        assert one.__doc__.partition("\n")[0].replace("``", "`") in section
        members = {name: one} if callable(one) and not isinstance(one, type) else vars(one)
        for key in set(members) - set(vars(benchlock.BenchlockError)):
            if inspect.isfunction(members[key]) and not key.startswith("_"):
                method = section if key == name else section.partition(f"### {name}.{key}\n")[2].partition("\n### ")[0]
                parameters = set(inspect.signature(members[key]).parameters) - {"self"}
                assert set(re.findall(r"^\* `\*?([a-z_]+)`: ", method, re.MULTILINE)) == parameters, (name, key)
            elif not key.startswith("_"):
                assert f"| `{key}` | `" in section, (name, key)


def test_a_docstring_becomes_markdown() -> None:
    def example(count: int, *names: str, mode: Literal["a", "b"] | None = None, first: "Path | None" = None) -> str:
        """Do one thing.

        As ``other`` does.

        Args:
            count: How many; a long
                text: of two lines.
            *names: Names.
            mode: The mode.
            first: A path.

        Returns:
            The
            result.

        Raises:
            ValueError: It is wrong.
        """
        return f"{count}{names}{mode}{first}"

    assert "\n".join(describe_function("pack.example", example)).split("\n") == [
        "", "```python", "pack.example(", "    count: int,", "    *names: str,",
        "    mode: Literal['a', 'b'] | None = None,", "    first: Path | None = None,", ") -> str", "```", "",
        "Do one thing.", "", "As `other` does.",
        "", "**Arguments:**", "", "* `count`: How many; a long text: of two lines.", "* `*names`: Names.",
        "* `mode`: The mode.", "* `first`: A path.",
        "", "**Returns:** The result.",
        "", "**Raises:**", "", "* `ValueError`: It is wrong.",
    ]  # fmt: skip


def test_every_error_code_says_what_to_do() -> None:
    codes = {*find_error_classes(), *FAULTS}
    assert set(ADVICE) == codes


def test_every_exit_code_is_explained() -> None:
    assert set(EXITS) - {0} == {fault.exit_code for fault in FAULTS.values()} | {EXIT_UNDECIDED, 130}


def test_every_operation_and_every_key_is_in_the_reference(pages: dict[str, str]) -> None:
    for path, methods in build_openapi()["paths"].items():
        for method, operation in methods.items():
            assert f"### {method.upper()} {path}\n" in pages["reference/http.md"]
            assert operation["tags"][0] in TAGS
    for text in json_schemas.generate().values():
        for definition in json.loads(text)["$defs"].values():
            for key in definition.get("properties", ()):
                assert f"| `{key}`" in pages["reference/manifests.md"]
