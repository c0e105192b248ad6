"""The page of a trace says what disturbed its run."""

from msgspec.structs import replace

from benchlock.api.web.page import Viewer
from benchlock.api.web.pages.run_pages import list_time_notices
from benchlock.api.web.pages.trace_pages import make_trace
from benchlock.api.web.rendering import render_page
from tests.api.web.conftest import Seeds
from tests.support.evaluator.evidence import make_run


def test_what_makes_times_of_a_run_unreliable_is_at_the_top_of_its_trace(seeds: Seeds) -> None:
    lock = seeds.lock()
    calm = seeds.run(lock)
    assert make_trace(seeds.registry, calm.id).context["notices"] == ()
    end = make_run(lock, seeds.registry.store, slowness=2).end
    assert end is not None
    busy = seeds.run(lock, end=replace(end, details={**end.details, "loadgen": {"clocks_agree": False}}))
    page = make_trace(seeds.registry, busy.id)
    bad = tuple(notice for notice in list_time_notices(busy) if notice[0] == "bad")
    assert bad
    assert page.context["notices"] == bad
    text = render_page(page, Viewer(path="/")).decode()
    assert 0 < text.index("Times are unusable") < text.index("This run has no trace")
