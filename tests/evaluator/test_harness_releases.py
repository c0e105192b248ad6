"""Only harnesses that benchlock released make figures that decide something, under their own version."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from benchlock.artifacts.digest import Digest, digest_bytes, parse_digest
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.harness_archive import HARNESS_VERSION, build_harness
from benchlock.evaluator.harness_releases import RELEASES, check_version, find_version, is_released
from benchlock.evaluator.records.run_comparison import Sides
from benchlock.evaluator.records.run_document import encode_run, remove_marks_of_reading
from benchlock.evaluator.records.run_types import SELF_REPORTED, Run, mark_calls
from benchlock.evaluator.runner.self_reported_times import mark_run
from benchlock.evaluator.workflows.claim_verdicts import claims_of
from benchlock.evaluator.workflows.compare import compare_runs
from benchlock.evaluator.workflows.repeat import repeat
from benchlock.evaluator.workflows.rerun import judge_rerun
from benchlock.registry.lock.lockfile import Lock, LockedHarness, dump, from_content
from benchlock.registry.manifests.manifest_content import content
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant

CLAIM = {
    "metric": "top1",
    "value": 0.5,
    "tolerance": 0.1,
    "dataset": {"name": "digits", "version": "1.0.0", "split": "test"},
}


def harness(digest: Digest, version: str) -> LockedHarness:
    return LockedHarness(version=version, digest=digest, size=1)


def parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_every_release_has_a_digest_and_a_version_of_its_own() -> None:
    text = Path(find_version.__code__.co_filename).read_text()
    listed = re.findall(r'Digest\("(sha256:\w+)"\): "([\d.]+)"', text)
    assert dict(listed) == dict(RELEASES)
    assert len({digest for digest, _ in listed}) == len({version for _, version in listed}) == len(listed)
    assert all(parse_digest(digest) == digest for digest, _ in listed)
    versions = [parts(version) for _, version in listed]
    assert versions == sorted(versions)
    assert versions[-1] < parts(HARNESS_VERSION)


def test_this_builds_own_harness_is_released() -> None:
    assert is_released(harness(digest_bytes(build_harness()), HARNESS_VERSION))


@pytest.mark.parametrize("version", ["1.0.0", "1.3.0", "9.9.9", ""])
def test_a_harness_that_nobody_released_is_not_released_under_any_version(version: str) -> None:
    own = harness(digest_bytes(b"a harness of my own"), version)
    assert not is_released(own)
    check_version(own)  # its figures are marked; nothing is known of its version


@pytest.mark.parametrize("digest", [*RELEASES, digest_bytes(build_harness())])
def test_a_released_harness_has_one_version(digest: Digest) -> None:
    version = find_version(digest)
    assert version is not None
    for stated in {*RELEASES.values(), HARNESS_VERSION, "0.1.0"} - {version}:
        assert not is_released(harness(digest, stated))
        with pytest.raises(IntegrityError, match=f"harness {re.escape(stated)} with the digest of harness"):
            check_version(harness(digest, stated))
    check_version(harness(digest, version))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "blobs")


@pytest.fixture
def lock(store: LocalStore) -> Lock:
    """A lock whose harness nobody released."""
    made = variant(
        {
            "lock": CURRENT,
            "files": IDX,
            "model": {"claims": [CLAIM]},
            "request": {"metrics": ["top1", "latency"]},
        }
    )
    for manifest in made.manifests.values():
        for blob in (content(manifest), *made.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    assert not is_released(made.lock.harness)
    return made.lock


@pytest.fixture
def examiner(store: LocalStore, lock: Lock, tmp_path: Path) -> Examiner:
    return Examiner(store, tmp_path, {lock.id: dump(lock)}.__getitem__)


def unmarked(run: Run) -> Run:
    """Return the run as a build recorded it that knows the harness, or that had no such marks."""
    assert run.end is not None
    details = {name: value for name, value in run.end.details.items() if name != SELF_REPORTED}
    metrics = tuple(replace(metric, self_reported=False) for metric in run.end.metrics)
    return replace(run, end=replace(run.end, metrics=metrics, details=mark_calls(details, self_reported=False)))


AS_RECORDED: list[Callable[[Run], Run]] = [lambda run: run, unmarked]


@pytest.mark.parametrize("recorded", AS_RECORDED, ids=["marked", "unmarked"])
def test_all_figures_of_an_unreleased_harness_are_marked_however_they_were_recorded(
    recorded: Callable[[Run], Run],
    lock: Lock,
    store: LocalStore,
    examiner: Examiner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = recorded(make_run(lock, store, isolation="container"))
    for _ in range(2):  # compared, and remembered
        examined = examiner.examine(run)
        assert examined.evidence is not None
        assert (examined.evidence.state, examined.evidence.reasons) == ("verified", ())
        assert examined.end is not None
        assert {metric.name for metric in examined.end.metrics} >= {"top1", "latency_p50"}
        assert all(metric.self_reported for metric in examined.end.metrics)
        assert all(one["self_reported"] for one in examined.end.details["calls"]["undisturbed"])
        assert encode_run(remove_marks_of_reading(examined)) == encode_run(run)  # as a bundle has it
    marked = mark_run(run, lock, store).end
    assert marked is not None
    assert all(metric.self_reported for metric in marked.metrics)
    release(monkeypatch, lock.harness)
    known = examiner.examine(unmarked(run)).end  # remembered by a build that did not know it
    assert known is not None
    assert not any(metric.self_reported for metric in known.metrics)


def test_no_figure_of_an_unreleased_harness_decides_a_claim_or_a_comparison(
    lock: Lock, store: LocalStore, examiner: Examiner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = (examiner.examine(unmarked(make_run(lock, store, slowness=slowness))) for slowness in (1, 2))
    (claim,) = claims_of(lock, run, store)
    assert claim.answer == "can't be said yet"
    assert "unreleased harness" in claim.reason
    found = compare_runs([(lock, run), (lock, other)]).findings[0][1]
    assert {one.answer for one in found} == {"undecided"}
    assert all(one.self_reported for one in found)
    repeated = repeat(lambda _: run, {}, 2)
    assert all(one.metric.self_reported for one in repeated.metrics)
    release(monkeypatch, lock.harness)
    (claim,) = claims_of(lock, examiner.examine(unmarked(make_run(lock, store))), store)
    assert claim.answer == "holds"


def test_a_rerun_with_an_unreleased_harness_says_that_bytes_are_equal_and_decides_nothing(
    lock: Lock, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, again, other = (make_run(lock, store, right=right) for right in (1, 1, 2))
    verdict = judge_rerun(lock, run, again, store, Sides((run,), (again,)))
    assert verdict.verdict == "undecided"
    assert "is not a released harness" in verdict.reasons[0]
    assert "the predictions of all 2 samples are bit-equal" in verdict.reported
    differing = judge_rerun(lock, run, other, store)
    assert differing.verdict == "not reproduced"  # that the bytes differ is a fact
    release(monkeypatch, lock.harness)
    assert judge_rerun(lock, run, again, store).verdict == "reproduced"


def test_runs_of_a_released_harness_under_a_false_version_contradict_their_lock(
    lock: Lock, store: LocalStore, tmp_path: Path
) -> None:
    """However such a lock came to be stored: a false old version has fewer checks."""
    digest = next(iter(RELEASES))
    false = from_content(structs.replace(lock, harness=harness(digest, HARNESS_VERSION)))
    examined = Examiner(store, tmp_path, {false.id: dump(false)}.__getitem__).examine(make_run(false, store))
    assert examined.evidence is not None
    assert examined.evidence.state == "contradicted"
    assert "with the digest of harness 1.0.0" in examined.evidence.reasons[0]
    assert examined.end is not None
    assert examined.end.metrics == ()
