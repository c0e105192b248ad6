"""What a lockfile owes whoever relies on it: one test, or a few, for each promise."""

import hashlib
import io
import json
import random
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from benchlock.api.local.local_registry import open_registry
from benchlock.artifacts.blob_store import read, verify
from benchlock.artifacts.digest import Digest, digest_bytes, from_hex
from benchlock.artifacts.errors import IntegrityError, UnavailableError, UnknownNameError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.runner.host_platform import choose_platform
from benchlock.evaluator.runner.lock_verification import verify_lock
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.lock.lock_assembly import preferences_of, question_of
from benchlock.registry.lock.lock_creation import Harness, known_manifests
from benchlock.registry.lock.lockfile import Lock, dump, list_blob_references, load
from benchlock.registry.requests.evaluation_request import parse_request
from benchlock.registry.requests.hardware_requirements import HostFacts
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.resolution.resolver import resolve
from benchlock.registry.resolution.resolver_types import ORDER
from benchlock.registry.text import toml
from tests.support.api.commands import Commands
from tests.support.resolution.locks import REQUEST, make_lock, request, shelf
from tests.support.resolution.universe import Universe
from tests.support.resolution.variants import variant

HARNESS = Harness("0.1.0", b"harness")
NEWEST = variant({})
OLDER = variant({"model": {"version": "0.9.0"}, "request": {"model": {"name": "digits", "version": "*"}}})
NEWER = variant(
    {
        "model": {"version": "1.1.0"},
        "dataset": {"version": "1.1.0"},
        "image": {"version": "1.1.0", "config": "other"},
        "files": {"model/model.onnx": "better"},
    }
)
LOCKS = Path(__file__).resolve().parents[2] / "cases" / "locks"


@pytest.fixture
def lock(catalogue: Catalogue, store: LocalStore) -> Lock:
    """The lock of the request over a catalogue that has one version of each kind."""
    NEWEST.publish(catalogue, store)
    return make_lock(request(), {}, HARNESS, store, catalogue)


# 1. The same bytes


def test_the_order_of_rows_is_no_content() -> None:
    """Over a catalogue of several versions and images, shuffled, the same versions and so the same lock."""
    shelves = [shelf(version=version) for version in ("0.9.0", "1.0.0", "1.1.0", "1.2.0-rc.1", "2.0.0")]
    rows = [
        *shelf().snapshot().rows,
        *(one for each in shelves for one in each.snapshot().of("model", "digits")),
        *(replace(one, name="onnxruntime-other") for one in shelf().snapshot().of("image", "onnxruntime-cpu")),
    ]
    answers = set()
    for seed in range(30):
        random.Random(seed).shuffle(rows)
        found = resolve(question_of(request()), Universe(rows), {})
        answers.add(tuple(str(one) for one in found.chosen().values()))
    assert len(answers) == 1


def test_two_registries_processes_and_users_write_the_same_bytes(tmp_path: Path) -> None:
    """Published in another order, at other times, in other folders; hash seed, zone, locale, user and host differ."""
    ann = {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C", "USER": "ann", "HOSTNAME": "here"}
    bob = {"PYTHONHASHSEED": "2", "TZ": "Asia/Kathmandu", "LC_ALL": "de_DE.UTF-8", "USER": "bob", "HOSTNAME": "there"}
    texts = set()
    for name, kinds, variants, variables in (
        ("one", ORDER, [OLDER, NEWER, NEWEST], ann),
        ("an other", ORDER[::-1], [NEWEST, NEWER, OLDER], {**bob, "HOME": str(tmp_path)}),
    ):
        folder = tmp_path / name
        folder.mkdir()
        registry = open_registry(str(folder / "registry"), print)
        for one in variants:
            one.publish(registry.catalogue, registry.store, kinds)
        (folder / "digits.yaml").write_text(REQUEST)
        commands = Commands(folder / "registry", variables=variables)
        done = subprocess.run(
            commands.command("lock", "digits.yaml"),
            cwd=folder,
            env=commands.environment(),
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        texts.add((folder / "digits.lock").read_bytes())
    assert len(texts) == 1


# 2. Digest and size of every input


def digests_of(value: Any) -> Iterator[str]:  # noqa: ANN401 - any parsed value
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from digests_of(part)
    elif isinstance(value, str) and re.fullmatch(r"(sha256:)?[0-9a-f]{64}", value):
        yield value if value.startswith("sha256:") else from_hex(value)


def test_every_digest_of_a_lock_is_named_and_every_file_of_its_manifests_locked(lock: Lock, store: LocalStore) -> None:
    blobs = {one.digest for one in list_blob_references(lock)}
    assert blobs == {*digests_of(lock.document)}
    sorts = {"manifest": 4, "file": 5, "wheels lock": 1, "wheel": 2, "configuration": 1, "layer": 3, "harness": 1}
    assert {sort: sum(one.sort == sort for one in list_blob_references(lock)) for sort in sorts} == sorts
    files = {file.sha256 for one in known_manifests([lock], store).values() for file in getattr(one, "files", ())}
    assert {from_hex(str(sha256)) for sha256 in files} <= blobs


def test_every_input_has_the_digest_and_the_size_that_its_bytes_have(lock: Lock, store: LocalStore) -> None:
    for one in list_blob_references(lock):
        content = read(store, one.digest, name=one.name)
        assert one.digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert one.size == (None if one.sort == "manifest" else len(content))


@pytest.mark.parametrize("index", range(len([*list_blob_references(NEWEST.lock)])))
def test_one_byte_changed_is_refused_before_a_run(lock: Lock, store: LocalStore, index: int) -> None:
    """Of whatever is named. The acceptance tests do it to real images, and to trees."""
    one = [*list_blob_references(lock)][index]
    verify_lock(lock, lock.image.platforms[0], store, SILENT)
    place = store.path(one.digest)
    content = bytearray(place.read_bytes())
    content[-1] ^= 1
    place.unlink()
    place.write_bytes(content)
    with pytest.raises(IntegrityError) as raised:
        verify_lock(lock, lock.image.platforms[0], store, SILENT)
    assert one.name in raised.value.what


# 3 and 4. The id


def test_the_id_is_that_of_the_canonical_json_of_the_rest(lock: Lock) -> None:
    """Recomputed from the file alone, by two libraries that know nothing of locks."""
    document = tomllib.loads(dump(lock))
    assert document.pop("id") == f"sha256:{hashlib.sha256(rfc8785.dumps(document)).hexdigest()}" == lock.id


def test_order_comments_layout_and_spelling_of_numbers_change_no_id(lock: Lock) -> None:
    other = toml.dumps({**lock.document, "id": lock.id}, sorted(lock.document, reverse=True), ())
    other = "# looked at\n" + other.replace("seconds = 600.0", "seconds = 6e2 # ten minutes")
    assert other != dump(lock)
    for text in (other, other.replace("6e2", "600"), dump(lock).replace("min_duration = 1.0", "min_duration = 1")):
        assert load(text, "x.lock").id == lock.id
    with pytest.raises(IntegrityError):
        load(other.replace("6e2", "601"), "x.lock")


# 5. The request


def test_the_request_is_inside_and_leads_to_the_same_lock(lock: Lock, catalogue: Catalogue, store: LocalStore) -> None:
    """From nothing but the file, though everything has a newer version by now: what was locked is preferred."""
    found = load(dump(lock), "x.lock")
    asked = parse_request(found.request, "x.lock")
    assert make_lock(asked, {}, HARNESS, store, catalogue) == lock
    NEWER.publish(catalogue, store)
    assert make_lock(asked, preferences_of(found), HARNESS, store, catalogue) == lock
    assert make_lock(asked, {}, HARNESS, store, catalogue) != lock


def test_a_request_as_of_a_time_leads_to_the_same_lock_for_ever(catalogue: Catalogue, store: LocalStore) -> None:
    NEWEST.publish(catalogue, store)
    then = max(entry.published_at for entry in catalogue.list()).isoformat()
    asked = parse_request({**request().document, "as_of": then}, "request.yaml")
    lock = make_lock(asked, {}, HARNESS, store, catalogue)
    NEWER.publish(catalogue, store)
    assert make_lock(parse_request(lock.request, "x.lock"), {}, HARNESS, store, catalogue) == lock


def test_a_failure_that_the_time_causes_says_so(catalogue: Catalogue, store: LocalStore) -> None:
    """Nothing was published then; that there is an answer by now is said only where there is one."""
    asked = parse_request({**request().document, "as_of": "2020-01-01T00:00:00Z"}, "request.yaml")
    with pytest.raises(UnknownNameError, match="as of 2020-01-01T00:00:00Z, the time in the request") as before:
        make_lock(asked, {}, HARNESS, store, catalogue)
    assert "remove as_of" not in str(before.value)
    NEWEST.publish(catalogue, store)
    with pytest.raises(UnknownNameError) as after:
        make_lock(asked, {}, HARNESS, store, catalogue)
    assert "remove as_of: now the request resolves to model/digits 1.0.0, framework/onnxruntime " in str(after.value)


# 6. Several platforms


def test_one_lock_holds_several_platforms_and_each_is_picked_offline() -> None:
    """From the text alone: a host takes its own, and needs nothing of the other."""
    both = load((LOCKS / "1.0-platforms.lock").read_text(), "1.0-platforms.lock")
    amd64, arm64 = (choose_platform(both, HostFacts("linux", arch, 2, 4 << 30)).platform for arch in ("amd64", "arm64"))
    assert [str(one) for one in (amd64, arm64)] == ["linux/amd64/cpu", "linux/arm64/cpu"]
    assert {one.sort for one in list_blob_references(both) if one.platform == arm64} == {"wheels lock", "wheel"}
    assert {one.sort for one in list_blob_references(both) if one.platform == amd64} == {
        *("wheels lock", "wheel", "configuration", "layer")
    }
    with pytest.raises(UnavailableError, match=r"linux/amd64/cpu: .*\n  linux/arm64/cpu: "):
        choose_platform(both, HostFacts("linux", "riscv64", 2, 4 << 30))


# 7, 8 and 9. Minimal changes, staleness and yanks: tests/acceptance/test_locking.py does them with real commands


# 10. Schemas: test_lockfile.py, on the golden locks of tests/cases/locks


# 11. Nothing volatile


def test_a_lock_made_later_is_the_same_lock(lock: Lock, catalogue: Catalogue, store: LocalStore) -> None:
    assert make_lock(request(), {}, HARNESS, store, catalogue) == lock


def test_no_time_place_or_person_is_in_it(lock: Lock, tmp_path: Path) -> None:
    text = dump(lock)
    assert not re.search(r"\d{4}-\d\d-\d\d|T\d\d:\d\d|://", text)
    for place in (tmp_path, tmp_path.name, Path.home(), Path.cwd()):
        assert str(place) not in text
    assert not re.search(r'= "[/~]', text)


# 12. Conflicts


def test_a_conflict_says_who_asked_what_there_is_why_not_and_what_would_do() -> None:
    """For people and for scripts; the golden cases of tests/cases/resolve hold every sort of conflict."""
    asked = request(model="{name: digits, version: '>=1.1'}")
    with pytest.raises(ConflictError) as raised:
        resolve(question_of(asked), shelf().snapshot(), {})
    prose, document = str(raised.value), json.loads(json.dumps(raised.value.conflict))
    for words in ("the request", "model/digits >=1.1", "1.0.0", "outside >=1.1"):
        assert words in prose
        assert words.split()[-1] in json.dumps(document)
    assert raised.value.next_step


# 13. Runnable without the catalogue


def test_what_a_lock_names_is_all_that_a_run_reads(lock: Lock, store: LocalStore, tmp_path: Path) -> None:
    """A store with those blobs alone, and no catalogue at all; the acceptance tests run one so."""
    elsewhere = LocalStore(tmp_path / "elsewhere")
    for one in list_blob_references(lock):
        elsewhere.put(io.BytesIO(read(store, one.digest, name=one.name)))
    again = load(dump(lock), "x.lock")
    verified = verify_lock(again, again.image.platforms[0], elsewhere, SILENT)
    manifests: Mapping[Digest, object] = known_manifests([again], elsewhere)
    assert {*manifests} == {one.digest for one in again.artifacts().values()}
    assert verified.files + len(manifests) == len({one.digest for one in list_blob_references(lock)})
    verify(elsewhere, digest_bytes(HARNESS.content), name="the harness")
