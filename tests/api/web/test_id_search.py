"""The search box finds runs, jobs and locks by the beginnings of their ids."""

import pytest

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.web.id_search import find_ids, find_only_path
from benchlock.api.web.links import job_path, lock_path, run_path
from benchlock.api.web.pages.catalogue_pages import CatalogueQuery, make_catalogue
from benchlock.registry.catalogue.catalogue_protocol import ContentFilter
from benchlock.registry.catalogue.version_lists import VersionFilter
from tests.api.web.conftest import Seeds
from tests.support.evaluator.queues import wish
from tests.support.registry.frameworks import publish_framework


def test_an_id_leads_to_its_page_whole_or_in_part(seeds: Seeds) -> None:
    lock = seeds.lock()
    run, queue = seeds.run(lock), open_queue(seeds.registry)
    job = queue.submit(wish(lock=lock.id)).id
    for path, texts in {
        run_path(run.id): (run.id, run.id.removeprefix("run/"), run.id[:20], f" {run.id.upper()[4:20]} "),
        job_path(job): (job, job.removeprefix("job/"), job[:24]),
        lock_path(lock.id): (lock.id, lock.id.removeprefix("sha256:"), lock.id[:15], lock.id[7:15]),
    }.items():
        for text in texts:
            assert find_only_path(find_ids(seeds.registry, queue, text)) == path


@pytest.mark.parametrize("text", ["", "run", "run/", "sha256:", "abc", "digits", "run/01 or", "job/%", "sha256:xyzt"])
def test_a_text_that_is_no_id_finds_none(seeds: Seeds, text: str) -> None:
    seeds.run(seeds.lock())
    assert find_ids(seeds.registry, open_queue(seeds.registry), text).rows == ()


def test_several_ids_are_listed_and_an_artifact_is_not_passed_by(seeds: Seeds) -> None:
    lock = seeds.lock()
    runs, queue = [seeds.run(lock).id for _ in range(2)], open_queue(seeds.registry)

    def search(text: str) -> tuple[str | None, list[object]]:
        listing = VersionFilter(content=ContentFilter(search=text))
        page = make_catalogue(seeds.registry, CatalogueQuery(search=text), listing, queue)
        return page.context["jump"], [row[0] or row[2] for row in page.tables["ids"].rows]

    assert search(runs[0][:8]) == (None, runs[::-1])
    assert search(runs[0]) == (run_path(runs[0]), [runs[0]])
    beginning = lock.id[7:15]
    assert search(beginning) == (lock_path(lock.id), [lock.id])
    publish_framework(seeds.registry.catalogue, seeds.registry.store, f"a{beginning}", "1.0.0")
    assert search(beginning) == (None, [lock.id])
