"""A registry whose rows were edited behind its back: no command shows the figure, each says why, verify names it."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from benchlock.artifacts.stores.local_store import LocalStore
from tests.support.api.commands import BENCHLOCK
from tests.support.api.warm import Warm
from tests.support.artifacts.bundled import Bundled, bundled

FORGED = "UPDATE run_metrics SET value = 1.0, ci_low = 0.9, ci_high = 1.0 WHERE name = 'top1'"


class Plain(Warm):
    """Commands that answer in text."""

    def command(self, *words: str | Path) -> list[str]:
        return [str(BENCHLOCK), *map(str, words)]


@pytest.fixture
def original(schema: Path, tmp_path: Path) -> Bundled:
    return bundled(LocalStore(tmp_path / "made"), tmp_path, schema)


@pytest.fixture
def commands(original: Bundled, tmp_path: Path) -> Warm:
    """A registry with a run that came in a bundle."""
    found = Warm(tmp_path / "registry")
    found.done("bundle", "import", original.create(tmp_path / "run.tar"))
    return found


@pytest.fixture
def edit(commands: Warm) -> Callable[[str], None]:
    """Change rows with the triggers dropped."""

    def change(statement: str) -> None:
        with closing(sqlite3.connect(commands.registry / "registry.sqlite")) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for (name,) in names:
                connection.execute(f'DROP TRIGGER "{name}"')
            connection.execute(statement)
            connection.commit()

    return change


def test_a_run_that_agrees_is_shown_with_what_is_reported(commands: Warm, original: Bundled) -> None:
    shown = Plain(commands.registry).finished("show", original.run.id)
    assert shown.returncode == 0, shown.stderr
    assert "0.5000" in shown.stdout
    assert "reported, not recomputed" in shown.stdout
    (listed,) = commands.done("runs")["runs"]
    assert listed["evidence"]["state"] == "verified"
    assert {"start.host", "end.timings", "end.packages"} <= set(listed["evidence"]["reported"])
    verified = commands.done("verify", original.run.id)
    assert (verified["runs"], verified["contradictions"]) == (1, [])


def test_a_forged_row_is_never_shown_and_always_named(
    commands: Warm, original: Bundled, edit: Callable[[str], None]
) -> None:
    edit(FORGED)
    id_ = original.run.id
    for words in (("show", id_), ("runs",), ("bundle", "create", id_, "-o", "forged.tar")):
        told = Plain(commands.registry).finished(*words)
        assert told.returncode == 4 or "withheld" in told.stdout, told.stderr
        assert "1.0000" not in told.stdout
    for targets in ((id_,), ()):
        verified = commands.finished("verify", *targets)
        assert verified.returncode == 4
        assert id_ in verified.stdout + verified.stderr
    assert not Path("forged.tar").exists()


def test_a_missing_blob_is_said_instead_of_a_figure(commands: Warm, original: Bundled) -> None:
    assert original.run.end is not None
    digest = original.run.end.blobs["samples"].digest.removeprefix("sha256:")
    (commands.registry / "blobs" / "sha256" / digest[:2] / digest).unlink()
    shutil.rmtree(commands.registry / "evidence", ignore_errors=True)
    shown = Plain(commands.registry).finished("show", original.run.id)
    assert shown.returncode == 4
    assert "not verified" in shown.stdout
    assert "the blob samples is missing" in " ".join(shown.stdout.split())
    assert "0.5000" not in shown.stdout
