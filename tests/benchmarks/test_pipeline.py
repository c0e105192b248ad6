"""The benchmark of the pipeline times as many pictures as it divides by."""

import pytest

from benchmarks.piping import ways
from benchmarks.timing import bare


def test_a_loader_has_prefetched_as_much_when_the_clock_stops_as_when_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pictures: list[object] = []
    monkeypatch.setattr(bare, "onnxruntime_call", lambda *_: pictures.append)
    asked = {"pictures": ["a", "b"], "samples": 10, "model": "model.onnx"}
    coming = iter(ways._paths(asked))
    ways._loop(asked, coming)  # type: ignore[arg-type]
    assert len(pictures) == 10 + ways._SKIPPED
    assert len(list(coming)) == ways._SKIPPED
