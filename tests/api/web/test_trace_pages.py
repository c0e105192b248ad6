"""The page of a trace says what disturbed its run."""

import pytest

from benchlock.api.web.page import Viewer
from benchlock.api.web.pages.trace_pages import make_trace
from benchlock.api.web.rendering import render_page
from benchlock.evaluator.records.timing_validity import flag_of
from benchlock.evaluator.statistics import metric_types
from tests.api.web.conftest import Seeds


def test_the_flag_of_a_run_is_at_the_top_of_its_trace(seeds: Seeds, monkeypatch: pytest.MonkeyPatch) -> None:
    run = seeds.run(seeds.lock())
    assert make_trace(seeds.registry, run.id).context["notices"] == ()
    monkeypatch.setattr(metric_types, "DISTURBED_AT_MOST", 0.01)  # fewer than its pre-empted calls
    page = make_trace(seeds.registry, run.id)
    ((kind, cause, advice),) = page.context["notices"]
    assert (kind, cause) == ("bad", f"Flagged: {flag_of(run)}")
    assert "use a quieter host" in advice
    text = render_page(page, Viewer(path="/")).decode()
    assert 0 < text.index("Flagged: ") < text.index("This run has no trace")
