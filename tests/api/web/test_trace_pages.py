"""The page of a trace says what disturbed its run."""

from msgspec import to_builtins
from msgspec.structs import replace

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.page import Viewer
from benchlock.api.web.pages.trace_pages import make_trace
from benchlock.api.web.rendering import render_page
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import calls_of, flag_of
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.resolution.variants import variant


def recorded(registry: LocalRegistry, *, is_flagged: bool) -> Run:
    made = variant({"lock": CURRENT, "files": IDX})
    made.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(made.lock)
    run = make_run(made.lock, registry.store)
    assert run.end is not None
    calls = calls_of(run)
    assert calls is not None
    calls = replace(calls, preempted=calls.n if is_flagged else 0)
    run = replace(run, end=replace(run.end, details={**run.end.details, "calls": to_builtins(calls)}))
    assert run.end is not None
    registry.records.start(run.start)
    registry.records.finish(run.id, run.end)
    return run


def test_the_flag_of_a_run_is_at_the_top_of_its_trace(registry: LocalRegistry) -> None:
    run = recorded(registry, is_flagged=True)
    page = make_trace(registry, run.id)
    flag = flag_of(registry.records.get(run.id))
    assert flag is not None
    assert ("bad", f"Flagged: {flag}") in page.context["notices"]
    text = render_page(page, Viewer(path="/")).decode()
    assert text.index("Flagged:") < text.index("This run has no trace")


def test_a_run_without_a_flag_has_none_on_its_trace(registry: LocalRegistry) -> None:
    page = make_trace(registry, recorded(registry, is_flagged=False).id)
    assert not any("Flagged" in words for _, words in page.context["notices"])
