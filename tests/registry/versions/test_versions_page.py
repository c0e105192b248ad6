"""docs/reference/versions.md is true: every row of its tables, and the error that it shows."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.versions.semantic_version import from_pep440, parse_version
from benchlock.registry.versions.version_ranges import Constraint, Range

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "versions.md").read_text()


def _rows(heading: str) -> Iterator[list[str]]:
    """The cells of the tables below a heading, heads included; a bar inside a cell stands behind a backslash."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
        yield from ([cell.strip().replace("\\|", "|") for cell in line] for line in lines if "---" not in line[0])


def _texts(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_each_form_means_what_the_page_says() -> None:
    compared = 0
    for cells in _rows("What may be written"):
        pairs = [cells[:2], cells[2:]] if len(cells) == 4 else [cells[:2]]
        for form, meaning in pairs:
            for text, plain in zip(_texts(form), _texts(meaning), strict=True) if _texts(meaning) else ():
                compared += 1
                assert Range.parse(text) == Range.parse(plain), text
    assert compared == 17


def test_pre_releases_are_chosen_where_the_page_says() -> None:
    head, *rows = _rows("Pre-releases")
    for constraint, *answers in rows:
        (text,) = _texts(constraint)
        for version, answer in zip(head[1:], answers, strict=True):
            parsed = parse_version(version)
            plainly, with_leave = (Constraint.parse(text).admits(parsed, prereleases=leave) for leave in (False, True))
            told = "yes" if plainly else "only if allowed" if with_leave else "no"
            assert told == answer, (text, version)
    assert len(rows) == 5


def test_python_packages_have_the_versions_that_the_page_says() -> None:
    rows = list(_rows("Versions of Python packages"))[1:]
    for package, here, _ in rows:
        upstream, versions = _texts(package), _texts(here)
        for index, text in enumerate(upstream):
            if versions:
                assert str(from_pep440(text)) == versions[min(index, len(versions) - 1)]
            else:
                assert here == "refused"
                with pytest.raises(InvalidInputError):
                    from_pep440(text)
    assert len(rows) == 3


def test_the_refusal_of_a_bare_partial_version_reads_as_on_the_page() -> None:
    with pytest.raises(InvalidInputError) as caught:
        Constraint.parse("1.12")
    assert f"```\n{caught.value}\n```" in PAGE
