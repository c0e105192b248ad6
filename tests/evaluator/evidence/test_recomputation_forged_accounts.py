"""Results that state more of LoadGen than lists can show, and peaks that the log of the first probe does not have."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence.recomputation import Evidence, Subject, recompute
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.evaluator.runner.run_outcome import ReportedPeak
from benchlock.registry.manifests.manifest_content import content
from tests.support.evaluator.evidence import IDX, make_run
from tests.support.resolution.variants import variant

FIRST = {"phase": "performance", "qps": 100.0, "valid": True, "queries": 9, "completed_qps": 99.5, "latency_p99_ns": 5}


class Reader:
    """What LoadGen's logs say: the performance phase ran at 100 queries a second, and there are no other logs."""

    def read_first_probe(self, rate: float) -> dict[str, Any]:
        return {**{name: value for name, value in FIRST.items() if name != "phase"}, "qps": rate}

    def read_probes(self, _rates: object) -> None:
        return None


@pytest.mark.parametrize(
    ("probes", "peak", "word"),
    [
        ([FIRST, {"phase": "peak", "qps": 104.0, "valid": False, "queries": 9}], (100.0, 104.0), None),
        ([FIRST | {"phase": "peak"}, {"qps": 104.0, "valid": False, "queries": 9}], (100.0, 104.0), "0 probes"),
        ([FIRST, FIRST | {"qps": 1e6}, {"qps": 1.04e6, "valid": False}], (1e6, 1.04e6), "2 probes"),
        (
            [FIRST | {"qps": 1e6}, {"qps": 1.04e6, "valid": False, "queries": 9}],
            (1e6, 1.04e6),
            "the harness reports qps",
        ),
        ([FIRST, {"qps": 1e6, "valid": True, "queries": 9}, {"qps": 3e6, "valid": False}], (1e6, 3e6), "between"),
    ],
    ids=["honest", "none of the performance phase", "two of it", "another rate", "a wide bracket"],
)
def test_a_peak_follows_from_the_log_of_its_first_probe(
    probes: list[dict[str, Any]], peak: tuple[float, float], word: str | None
) -> None:
    lock: Any = type("Locked", (), {"scenario": {"name": "server", "target_qps": 100.0, "min_queries": 1}})()
    platform: Any = None
    result: Any = type("Result", (), {"peak": ReportedPeak(peak[0], peak[1], tuple(probes))})()
    evidence, reader = Evidence(Subject(lock, platform, {}), result, {}, {}), Reader()
    if word is None:
        found = evidence._peak(reader)  # type: ignore[arg-type]
        assert found is not None
        assert found.answered == peak[0]
        return
    with pytest.raises(InvalidInputError, match=word):
        evidence._peak(reader)  # type: ignore[arg-type]


def test_an_account_too_large_for_lists(tmp_path: Path) -> None:
    """A list leaves out what is so large, and would show the figures of an invalid run without its verdict."""
    store = LocalStore(tmp_path / "blobs")
    shelf = variant({"files": IDX})
    for manifest in shelf.manifests.values():
        for blob in (content(manifest), *shelf.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    run = make_run(shelf.lock, store)
    assert run.end is not None
    blobs = dict(run.end.blobs)
    subject = Subject(shelf.lock, shelf.lock.image.platforms[0], read_manifests(shelf.lock, store))
    assert recompute(subject, blobs, store, None).failure is None
    with store.open(blobs["result"].digest) as stream:
        result = json.load(stream)
    result["loadgen"]["settings"]["pad"] = "x" * 20_000
    with store.open(blobs["loadgen-detail"].digest) as stream:
        log = stream.read()
    line = {"key": "effective_pad", "value": "x" * 20_000, "metadata": {}}
    blobs["result"] = store.put(io.BytesIO(json.dumps(result).encode()))
    blobs["loadgen-detail"] = store.put(io.BytesIO(log + f":::MLLOG {json.dumps(line)}\n".encode()))
    failure = recompute(subject, blobs, store, None).failure
    assert failure is not None
    assert "the maximum is 16384" in failure.message
