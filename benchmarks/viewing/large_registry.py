"""Pages of a large registry: their weight, when a reader sees them, and how long the service takes to answer."""

import re
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.answering import paged
from benchmarks.viewing.bars import bar, p95, worst_bar
from benchmarks.viewing.browsing import SLOW_CPU, SLOW_LATENCY_MS, Opened, open_browser, open_page
from benchmarks.viewing.server_ends import explain_end

ASKED, OPENINGS, SETTLE_MS = 40, 3, 500
WEIGHT_KIB, REQUESTS, ASSET_KB, COMPARE_KIB = 60, 6, 12, 30
LIST_MS, CHART_MS, LAST_PAGE, PAINTED_MS, SLOW_PAINTED_MS = 50, 150, 1.5, 500, 1500
_WITH_CHARTS = "form or a page with charts"
METHOD = f"""\
A registry with {paged.VERSIONS:,} versions and one artifact with {paged.OF_ONE:,} more, {paged.RUNS:,} runs of
{paged.LOCKS} locks, one of them with {paged.SAMPLES:,} samples and two with {paged.COMPARED:,}, and {paged.WAITING}
waiting jobs and machines. The newest {paged.MEASURED} runs have files of their own, which older ones share. Every page
is opened {OPENINGS} times plainly and slowly: by a processor that the browser makes {SLOW_CPU} times as slow, over a
network of 1.6 Mbit/s with {SLOW_LATENCY_MS} ms of latency. A cell is the median. An answer is the time from a request
to the whole answer, of one client without a browser, {ASKED} times; the first request of each page, which compares runs
with their files and reads samples, does not count. The last page of a list is requested in turn with its first.
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """Pages as opened plainly and slowly, milliseconds of answers, and bytes of scripts and of styles."""

    opened: Mapping[str, Sequence[tuple[Opened, Opened]]]
    lists: Mapping[str, Sequence[float]]
    charts: Mapping[str, Sequence[float]]
    last_pages: Mapping[str, Sequence[tuple[float, float]]]
    assets: Mapping[str, int]


def measure_large(folder: Path, _rounds: int) -> Iterator[str]:
    """Request and open every page; yield tables and bars."""
    measured = _measure(folder)
    yield from _tables(measured)
    yield from _bars(measured)


def _measure(folder: Path) -> Measured:
    with closing(paged.LargeBenchlock(folder, paged.VERSIONS)) as server, explain_end(server):
        lists, charts = (
            {name: [first for (first,) in _request(server.url, path)] for name, path in paths.items()}
            for paths in (server.lists, server.charts)
        )
        last_pages = {
            name: [(first, last) for first, last in _request(server.url, server.lists[name], path)]
            for name, path in server.last_pages.items()
        }
        opened: defaultdict[str, list[tuple[Opened, Opened]]] = defaultdict(list)
        with open_browser() as browser:
            for name, path in (server.lists | server.charts).items():
                for _ in range(OPENINGS):
                    plain, slow = (
                        open_page(browser, server.url + path, settle_ms=SETTLE_MS, is_slow=is_slow)
                        for is_slow in (False, True)
                    )
                    opened[name].append((plain, slow))
        return Measured(opened, lists, charts, last_pages, _weigh_assets(server.url))


def _request(url: str, *paths: str) -> Iterator[list[float]]:
    """Request each path once a round; yield the milliseconds of each round but the first."""
    with httpx.Client(base_url=url, headers={"accept": "text/html"}, timeout=60) as client:
        for number in range(ASKED + 1):
            took = []
            for path in paths:
                start = time.perf_counter()
                client.get(path).raise_for_status()
                took.append((time.perf_counter() - start) * 1000)
            if number:
                yield took


def _weigh_assets(url: str) -> dict[str, int]:
    """Return the bytes, before compression, of all scripts and of all styles that the front page loads."""
    with httpx.Client(base_url=url, headers={"accept": "text/html"}) as client:
        page = client.get("/").raise_for_status().text
        patterns = {"script": r'<script[^>]* src="([^"]+)"', "style": r'<link rel="stylesheet" href="([^"]+)"'}
        return {
            name: sum(len(client.get(path).raise_for_status().content) for path in re.findall(pattern, page))
            for name, pattern in patterns.items()
        }


def _medians(measured: Measured, part: str, *, is_slow: bool = False) -> dict[str, float]:
    """Return the median of a part of the opened pages by the name of the page."""
    return {
        name: statistics.median(getattr(pair[is_slow], part) for pair in pairs)
        for name, pairs in measured.opened.items()
    }


def _tables(measured: Measured) -> Iterator[str]:
    yield "| page | KiB | requests | largest contentful paint, ms | slow | long tasks beyond 50 ms, ms | slow |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    columns = [
        _medians(measured, part, is_slow=is_slow)
        for part, is_slow in (
            ("weight", False),
            ("requests", False),
            ("painted", False),
            ("painted", True),
            ("long_tasks", False),
            ("long_tasks", True),
        )
    ]
    for name in measured.opened:
        weight, *others = (column[name] for column in columns)
        yield f"| {name} | {weight / 1024:.1f} | {' | '.join(f'{value:,.0f}' for value in others)} |"
    for title, answers in (("list", measured.lists), (_WITH_CHARTS, measured.charts)):
        yield f"\n| {title} | median, ms | 95th percentile, ms |\n| --- | ---: | ---: |"
        for name, values in answers.items():
            yield f"| {name} | {statistics.median(values):.1f} | {p95(values):.1f} |"
    yield ""


def _bars(measured: Measured) -> Iterator[str]:
    weights = {name: weight / 1024 for name, weight in _medians(measured, "weight").items()}
    yield worst_bar("weight of a page", weights, WEIGHT_KIB, unit=" KiB")
    yield worst_bar("requests of a page", _medians(measured, "requests"), REQUESTS)
    yield bar(
        f"weight of a comparison of two runs of {paged.COMPARED:,} samples",
        *(weights[paged.TWO_RUNS], COMPARE_KIB),
        unit=" KiB",
    )
    for name, size in measured.assets.items():
        yield bar(f"all {name}s before compression", size / 1000, ASSET_KB, unit=" KB")
    kinds = (("list", measured.lists, LIST_MS), (_WITH_CHARTS, measured.charts, CHART_MS))
    for title, answers, most in kinds:
        percentiles = {name: p95(values) for name, values in answers.items()}
        yield worst_bar(f"95th percentile of the answer with a {title}", percentiles, most, unit=" ms")
    ratios = {
        name: statistics.median(last / first for first, last in pairs) for name, pairs in measured.last_pages.items()
    }
    yield worst_bar("last page of a list by its first", ratios, LAST_PAGE, unit=" times")
    for title, is_slow, most in (("", False, PAINTED_MS), (", slow", True, SLOW_PAINTED_MS)):
        painted = _medians(measured, "painted", is_slow=is_slow)
        yield worst_bar(f"largest contentful paint{title}", painted, most, unit=" ms")
    yield worst_bar("long tasks beyond 50 ms", _medians(measured, "long_tasks"), 0, unit=" ms")
