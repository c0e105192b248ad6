"""The lockfile: identity, schema versions, what stays of unknown fields, and the golden files that stay for ever."""

import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.registry.lock.lockfile import SCHEMA, Lock, dump, load, lock_id
from benchlock.registry.text import toml
from tests.support.resolution.locks import FINISHED, request, shelf

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ROOT / "tests" / "cases" / "locks"
GOLDEN = LOCKS / "1.0-quality-2.lock"
"""What is locked today: definitions of quality and of times by their second versions.

The files named `times-2` have the first version of quality, those without a suffix of both.
"""
PLATFORMS = LOCKS / "1.0-quality-2-platforms.lock"
NEXT_MAJOR = LOCKS / "2.0.lock"
READABLE = sorted(LOCKS.glob("1.*lock"))
WRITTEN = [f"{SCHEMA[0]}.{minor}" for minor in range(SCHEMA[1] + 1)]


@pytest.fixture
def lock() -> Lock:
    return shelf().lock(request())


def written(document: dict[str, Any]) -> str:
    """The text of a document that says its own id, whatever else it says."""
    content = {key: value for key, value in document.items() if key != "id"}
    return toml.dumps({**content, "id": lock_id(content)}, (), ())


def test_what_is_locked_today_is_the_golden_lock_of_this_schema(lock: Lock) -> None:
    assert dump(lock) == GOLDEN.read_text()
    assert load(GOLDEN.read_text(), "1.0.lock") == lock
    several = request(hardware="{os: linux, arch: [amd64, arm64], device: cpu}")
    assert dump(shelf().lock(several)) == PLATFORMS.read_text()
    assert dump(shelf(image_text=FINISHED).lock(request())) == (LOCKS / "1.1-quality-2.lock").read_text()


def test_every_schema_version_has_a_golden_lock_that_stays() -> None:
    kept = {path.stem for path in READABLE}
    assert {f"{SCHEMA[0]}.{minor}" for minor in range(SCHEMA[1] + 1)} <= kept
    assert {f"{SCHEMA[0]}.9"} <= kept  # from the future


@pytest.mark.parametrize("path", READABLE, ids=lambda path: path.name)
def test_a_golden_lock_loads_and_is_written_byte_for_byte(path: Path) -> None:
    text = path.read_text()
    found = load(text, path.name)
    assert dump(found) == text
    assert bool(found.warnings) == (path.stem.partition("-")[0] not in WRITTEN)


@pytest.mark.parametrize("path", [*READABLE, NEXT_MAJOR], ids=lambda path: path.name)
def test_the_id_is_of_the_canonical_json_of_all_the_rest(path: Path) -> None:
    """With nothing but the standard library and the library of RFC 8785."""
    document = tomllib.loads(path.read_text())
    claimed = document.pop("id")
    assert claimed == f"sha256:{hashlib.sha256(rfc8785.dumps(document)).hexdigest()}"


def test_the_next_major_schema_is_refused_before_anything_else() -> None:
    text = NEXT_MAJOR.read_text()
    for each in (text, text.replace("seed = 7", "seed = 8")):
        with pytest.raises(InvalidInputError, match=r"has schema 2\.0; only 1\.x is supported") as caught:
            load(each, "2.0.lock")
        assert caught.value.next_step == "use the version of benchlock that wrote it"


def test_another_process_writes_the_same_bytes() -> None:
    script = (
        "from tests.support.resolution.locks import request, shelf;"
        "from benchlock.registry.lock.lockfile import dump; import sys;"
        "sys.stdout.write(dump(shelf().lock(request())))"
    )
    for seed in ("1", "2"):
        out = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert out.stdout == GOLDEN.read_text()


def test_every_single_changed_value_breaks_the_id(lock: Lock) -> None:
    text = dump(lock)
    changes = [
        ('sha256 = "9a12', 'sha256 = "9a13'),
        ("size = 7\n\n[dataset]", "size = 8\n\n[dataset]"),
        ("seed = 7", "seed = 8"),
        ('version = "^1.0"', 'version = "^1.1"'),
        ("seconds = 600.0", "seconds = 601.0"),
        ("top1 = 2", "top1 = 1"),
        ("[limits]", "[limits]\nextra = 1"),
    ]
    for old, new in changes:
        assert text.count(old) == 1
        with pytest.raises(IntegrityError, match=lock.id) as caught:
            load(text.replace(old, new), "x.lock")
        assert caught.value.where == "x.lock"


def test_a_changed_id_is_an_integrity_error_and_names_both(lock: Lock) -> None:
    other = digest_bytes(b"other")
    with pytest.raises(IntegrityError, match=f"{other}.*{lock.id}"):
        load(dump(lock).replace(lock.id, other), "x.lock")


def test_order_comments_and_number_forms_are_no_content(lock: Lock) -> None:
    head, *tables = dump(lock).split("\n[limits]\n")
    moved = f"{head}\n# a comment\n[limits]\n{tables[0]}".replace("seconds = 600.0", "seconds = 600")
    assert load(moved, "x.lock").id == lock.id


def test_unknown_fields_of_a_newer_minor_schema_are_kept_covered_and_warned_about(lock: Lock) -> None:
    newer = written(
        {
            **lock.document,
            "schema": "1.7",
            "model": {**lock.document["model"], "licence_text": "x"},
            "novelty": {"b": [{"a": 1}, {"a": 2}], "a": True},
        }
    )
    found = load(newer, "x.lock")
    assert len(found.warnings) == 1
    assert "1.7" in found.warnings[0]
    assert found.document["novelty"] == {"b": [{"a": 1}, {"a": 2}], "a": True}
    again = load(dump(found), "x.lock")
    assert (again.id, again.document) == (found.id, found.document)
    with pytest.raises(IntegrityError):
        load(dump(found).replace("licence_text", "license_text"), "x.lock")


def test_a_lock_of_this_schema_warns_of_nothing(lock: Lock) -> None:
    assert load(dump(lock), "x.lock").warnings == ()


@pytest.mark.parametrize("schema", ["2.0", "0.9", "10.0"])
def test_another_major_schema_is_refused(lock: Lock, schema: str) -> None:
    with pytest.raises(InvalidInputError, match=schema):
        load(written({**lock.document, "schema": schema}), "x.lock")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "schema"),
        ("schema = 1", "schema"),
        ('schema = "one"', "schema"),
        ('schema = "1.0"', "no id"),
        ("schema =", "invalid TOML"),
        ('schema = "1.0"\nschema = "1.0"', "invalid TOML"),
        ("[" * 5000, "invalid TOML"),
        ('schema = "1.0"\nid = "sha256:0"\nwhen = 2026-11-21', "canonical JSON"),
        ('schema = "1.0"\nid = "sha256:0"\nmany = 99999999999999999999', "canonical JSON"),
    ],
)
def test_what_is_no_lockfile_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        load(text, "x.lock")


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        ("model", {"digest": "md5:1"}, r"\$.model.digest"),
        ("model", {"files": [{"path": "../x", "sha256": "0" * 64, "size": 1}]}, r"\.\."),
        ("model", {"files": [{"path": "/x", "sha256": "0" * 64, "size": 1}]}, "absolute"),
        ("model", {"files": [{"path": "x", "sha256": "0" * 64 + "\n", "size": 1}]}, "sha256"),
        ("model", {"files": [{"path": "x", "sha256": "0" * 64, "size": -1}]}, "size"),
        ("limits", {"cpus": "many"}, r"\$.limits.cpus"),
        ("image", {"platforms": None}, "platforms"),
    ],
)
def test_a_lock_of_the_wrong_shape_is_refused_with_the_place(
    lock: Lock, part: str, change: dict[str, Any], words: str
) -> None:
    table = {key: value for key, value in {**lock.document[part], **change}.items() if value is not None}
    with pytest.raises(InvalidInputError, match=words):
        load(written({**lock.document, part: table}), "x.lock")


def test_nothing_volatile_is_in_it(lock: Lock) -> None:
    assert set(lock.document) == {
        *("schema", "request", "model", "dataset", "framework", "image", "harness", "limits", "scenario", "metrics")
    }
    text = dump(lock)
    assert str(ROOT) not in text
    assert "2026-" not in text
