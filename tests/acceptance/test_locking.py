"""The commands on locks as a user calls them: what moves and what stays, yanks, ids, and what is never asked again."""

import difflib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchlock.api.cli.main import run
from benchlock.api.local.local_registry import open_registry
from benchlock.api.local.registry_database import DATABASE_FILE as DATABASE
from tests.support.api.commands import Answer
from tests.support.api.warm import Warm
from tests.support.registry import tiny
from tests.support.registry.digits import locked, request
from tests.support.resolution.locks import REQUEST
from tests.support.resolution.variants import variant

CASES = Path(__file__).resolve().parent.parent / "cases" / "locks"
FIRST: dict[str, Any] = {}
NEWER = {
    "model": {"version": "1.1.0"},
    "dataset": {"version": "1.1.0", "description": "newer"},
    "image": {"version": "1.1.0", "wheels": ["numpy-2.4.1-py3-none-any.whl", "onnxruntime-1.31.1-py3-none-any.whl"]},
    "files": {"model/model.onnx": "better weights"},
}
NEXT = {
    "model": {"version": "1.2.0", "framework.version": ">=1.32 <2"},
    "framework": {"version": "1.32.0"},
    "image": {"version": "1.2.0", "provides": "1.32.0", "wheels": ["onnxruntime-1.32.0-py3-none-any.whl"]},
}


@dataclass(frozen=True)
class Desk:
    """A registry, a request and the lock of it; commands run in this process."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def request(self) -> Path:
        return self.folder / "digits.yaml"

    @property
    def path(self) -> Path:
        return self.folder / "digits.lock"

    def ask(self, **replaced: object) -> None:
        """Write the request, with whole keys replaced."""
        kept = [line for line in REQUEST.splitlines() if line.partition(":")[0] not in replaced]
        lines = [*kept, *(f"{key}: {json.dumps(value)}" for key, value in replaced.items())]
        self.request.write_text("\n".join(lines))

    def publish(self, *cases: dict[str, Any]) -> None:
        registry = open_registry(str(self.folder / "registry"), print)
        for case in cases:
            variant(case).publish(registry.catalogue, registry.store)

    def call(self, *words: str | Path) -> Answer:
        self.capsys.readouterr()
        code = run(["--registry", str(self.folder / "registry"), "--json", *map(str, words)])
        said = self.capsys.readouterr()
        return Answer(code, json.loads(said.out) if said.out else {}, said.err)

    def lock(self, *options: str) -> Answer:
        answer = self.call("lock", self.request, *options)
        assert answer.code == 0, answer
        return answer

    def refused(self, code: int, *words: str | Path) -> dict[str, Any]:
        answer = self.call(*words)
        assert answer.code == code, answer
        error: dict[str, Any] = answer.document["error"]
        return error


@pytest.fixture
def desk(tmp_path: Path, schema: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    (tmp_path / "registry").mkdir()
    shutil.copy(schema, tmp_path / "registry" / DATABASE)
    desk = Desk(tmp_path, capsys)
    desk.publish(FIRST)
    desk.ask()
    return desk


def moved_tables(before: str, after: str) -> set[str]:
    """The tables of TOML in which a line differs, the top being ``""``."""
    found, table = set(), ""
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), n=10_000, lineterm=""):
        if line.startswith(("---", "+++", "@@")):
            continue
        if line[1:].startswith("["):
            table = line[1:].strip("[]").partition(".")[0] if line[1:].endswith("]") else table
        if line[0] in "+-":
            found.add(table)
    return found


# What moves, and what stays


def test_a_newer_version_of_everything_changes_no_lock(desk: Desk) -> None:
    first = desk.lock()
    assert (first.document["replaced"], first.document["changes"], first.stderr) == (None, [], "")
    text = desk.path.read_text()
    desk.publish(NEWER, NEXT)
    again = desk.lock()
    assert desk.path.read_text() == text
    assert (again.document["replaced"], again.document["changes"]) == (first.document["lock"], [])
    assert again.stderr == "no changes\n"


@pytest.mark.parametrize(
    ("target", "tables"),
    [
        ("model/digits", {"", "model"}),
        ("dataset/digits", {"", "dataset"}),
        ("image/onnxruntime-cpu", {"", "image"}),
        ("framework/onnxruntime", set()),
    ],
)
def test_an_upgrade_moves_that_one_alone(desk: Desk, target: str, tables: set[str]) -> None:
    """The top is the lock's id. Of the framework there is no newer version."""
    desk.lock()
    before = desk.path.read_text()
    desk.publish(NEWER)
    desk.lock("--upgrade", target)
    assert moved_tables(before, desk.path.read_text()) == tables


def test_an_upgrade_moves_what_must_move_with_it(desk: Desk) -> None:
    desk.lock()
    before = desk.path.read_text()
    desk.publish(NEWER, NEXT)
    desk.lock("--upgrade", "model/digits")
    after = desk.path.read_text()
    assert moved_tables(before, after) == {"", "model", "framework", "image"}
    assert [line for line in after.splitlines() if line.startswith("version =")][1] == 'version = "1.0.0"'  # dataset


def test_what_moved_and_what_stayed_is_said_in_the_words_of_diff(desk: Desk) -> None:
    first = desk.lock().document["lock"]
    desk.publish(NEWER)
    answer = desk.lock("--upgrade", "model/digits")
    told = desk.call("diff", first[:15], answer.document["lock"][:15])
    assert answer.document["changes"] == told.document["changes"]
    assert answer.document["replaced"] == first
    assert answer.stderr.splitlines() == [
        "model/digits 1.0.0 → 1.1.0: graph changed, labels unchanged",
        "unchanged: dataset/digits 1.0.0, framework/onnxruntime 1.31.1, image/onnxruntime-cpu 1.0.0",
    ]


def test_an_upgrade_of_nothing_is_refused(desk: Desk) -> None:
    error = desk.refused(2, "lock", desk.request, "--upgrade", "model/digits")
    assert "no lock to upgrade" in error["message"]
    assert error["where"] == str(desk.path)
    assert "omit --upgrade" in error["next"]
    assert not desk.path.exists()


@pytest.mark.parametrize(
    ("words", "message", "next_step"),
    [
        (("--upgrade", "model/digit"), "the lock has no model/digit", "upgrade one of model/digits, "),
        (("--upgrade", "model/digits@^1.1"), "takes no constraint: model/digits@^1.1", "write ^1.1 in the request"),
        (("--upgrade", "digits"), "invalid reference 'digits'", "KIND/NAME"),
        (("--upgrade", "model/digits", "--check"), "exclude each other", "omit one of them"),
    ],
)
def test_an_upgrade_that_cannot_be_meant_is_refused(
    desk: Desk, words: tuple[str, ...], message: str, next_step: str
) -> None:
    desk.lock()
    before = desk.path.read_text()
    error = desk.refused(2, "lock", desk.request, *words)
    assert message in error["message"]
    assert next_step in error["next"]
    assert desk.path.read_text() == before


# Fresh and stale


def test_a_stale_lock_is_an_answer_of_check_alone(desk: Desk) -> None:
    """``lock --check`` asks and exits 1. Whatever only reads a lock asks nothing."""
    desk.lock()
    desk.ask(seed=8)
    answer = desk.call("lock", desk.request, "--check")
    assert (answer.code, answer.document["fresh"]) == (1, False)
    assert answer.document["reasons"] == ["seed was 7, is 8"]
    assert desk.call("diff", desk.path, desk.path).code == 0
    assert desk.call("verify", desk.path).code == 0


def test_a_run_neither_checks_nor_resolves(tmp_path: Path) -> None:
    """A registry that has the blobs and no row of the catalogue runs a lock. This one's wheel is none, and says so."""
    lock = locked(tiny.publish(tmp_path), tmp_path, request("digits-onnx"))
    bare = Warm(tmp_path / "bare")
    shutil.copytree(tmp_path / "registry" / "blobs", bare.registry / "blobs")
    bare.done("db", "create")
    assert bare.done("list")["artifacts"] == []
    assert bare.error(2, "lock", tmp_path / "digits-onnx.request.yaml", "-o", tmp_path / "x.lock")["code"] == (
        "unknown-name"
    )
    assert "File is not a zip file" in bare.error(2, "run", lock)["message"]
    assert [one["end"]["outcome"] for one in bare.done("runs")["runs"]] == ["failed"]


# Yanks: kept where locked, never newly chosen, but where it is asked for exactly

YANKED = "model/digits 1.1.0 is yanked: wrong weights"


def yank(desk: Desk) -> None:
    answer = desk.call("yank", "model/digits@1.1.0", "--reason", "wrong weights")
    assert answer.code == 0, answer


def test_a_yanked_version_that_is_locked_is_kept_with_its_reason(desk: Desk) -> None:
    desk.publish(NEWER)
    first = desk.lock()
    assert first.document["model"]["version"] == "1.1.0"
    yank(desk)
    again = desk.lock()
    assert again.document["lock"] == first.document["lock"]
    assert f"warning: {YANKED}" in again.stderr
    check = desk.call("lock", desk.request, "--check")
    assert (check.code, check.document["fresh"], check.document["warnings"]) == (0, True, [YANKED])


def test_a_yanked_version_is_not_newly_chosen(desk: Desk) -> None:
    desk.publish(NEWER)
    yank(desk)
    answer = desk.lock()
    assert (answer.document["model"]["version"], answer.stderr) == ("1.0.0", "")


def test_a_yanked_version_is_chosen_where_it_is_asked_for_exactly(desk: Desk) -> None:
    desk.publish(NEWER)
    yank(desk)
    desk.ask(model={"name": "digits", "version": "1.1.0"})
    answer = desk.lock()
    assert answer.document["model"]["version"] == "1.1.0"
    assert YANKED in answer.stderr


def test_an_upgrade_leaves_a_yanked_version(desk: Desk) -> None:
    """Preferred it is kept, upgraded it goes: here to an older one."""
    desk.publish(NEWER)
    desk.lock()
    yank(desk)
    answer = desk.lock("--upgrade", "model/digits")
    assert answer.document["model"]["version"] == "1.0.0"
    assert "warning" not in answer.stderr


def test_where_only_a_yanked_version_fits_the_conflict_says_so(desk: Desk) -> None:
    desk.publish(NEWER)
    yank(desk)
    desk.ask(model={"name": "digits", "version": ">=1.1"})
    error = desk.refused(3, "lock", desk.request)
    assert "wrong weights" in error["message"]
    assert error["conflict"]


# Ids, and locks of other versions


def test_the_first_digits_of_an_id_will_do(desk: Desk) -> None:
    lock = desk.lock().document["lock"]
    assert desk.call("diff", lock[: len("sha256:") + 4], desk.path).document == {"changes": []}
    assert desk.refused(2, "diff", lock[: len("sha256:") + 3], desk.path)["code"] == "invalid-input"
    assert desk.refused(2, "diff", f"{lock[:-1]}x", desk.path)["code"] == "invalid-input"
    other = "0" if lock[14] != "0" else "1"
    assert desk.refused(2, "diff", lock[:14] + other, desk.path)["code"] == "unknown-name"


def test_a_lock_of_a_newer_minor_schema_is_read_with_a_warning(desk: Desk) -> None:
    answer = desk.call("diff", CASES / "1.9.lock", CASES / "1.9.lock")
    assert (answer.code, answer.document) == (0, {"changes": []})
    assert "schema 1.9, newer than 1.1: new keys are preserved, but not used" in answer.stderr


def test_a_lock_of_a_newer_major_schema_is_refused(desk: Desk) -> None:
    error = desk.refused(2, "diff", CASES / "2.0.lock", CASES / "1.0.lock")
    assert "has schema 2.0" in error["message"]
    assert error["next"] == "use the version of benchlock that wrote it"


def test_a_lock_that_was_edited_is_replaced_only_once_it_is_away(desk: Desk) -> None:
    desk.lock()
    desk.path.write_text(desk.path.read_text().replace("seed = 7", "seed = 8"))
    error = desk.refused(4, "lock", desk.request)
    assert "delete it and lock the request again" in error["next"]
    desk.path.unlink()
    desk.lock()


def test_why_says_what_was_asked_and_why_no_newer_version(desk: Desk) -> None:
    desk.lock()
    desk.publish(NEWER, NEXT)
    answer = desk.call("why", "model/digits", desk.path)
    assert (answer.code, answer.document["version"]) == (0, "1.0.0")
    assert [(one["constraint"], one["by"]) for one in answer.document["asked"]] == [("^1.0", "the request")]
    (newer,) = answer.document["newer"]
    assert (newer["versions"], newer["reason"]) == (["1.2.0"], "kept")
    assert desk.lock("--upgrade", "model/digits").document["model"]["version"] == "1.2.0"


def test_why_is_told_in_a_few_lines(desk: Desk) -> None:
    desk.lock()
    desk.capsys.readouterr()
    assert run(["--registry", str(desk.folder / "registry"), "why", "framework/onnxruntime", str(desk.path)]) == 0
    assert desk.capsys.readouterr().out.splitlines() == [
        "framework/onnxruntime 1.31.1",
        "  model/digits 1.0.0 requires framework/onnxruntime >=1.20 <2",
        "  no newer version is published",
    ]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("model/digts", "did you mean model/digits?"),
        ("framework/pytorch", "did you mean framework/onnxruntime?"),
        ("model/digits@^1", "use model/digits"),
        ("digits", "KIND/NAME"),
    ],
)
def test_why_of_what_the_lock_does_not_have_is_refused(desk: Desk, target: str, says: str) -> None:
    desk.lock()
    assert says in desk.refused(2, "why", target, desk.path)["next"]
