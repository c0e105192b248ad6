"""Whether runs are comparable: the pages and ``benchlock compare`` give one verdict with the same reasons."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import replace as changed
from datetime import timedelta
from functools import cache, partial
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markupsafe import escape
from msgspec.structs import replace

from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.compare_command import compare
from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.local.local_registry import LocalRegistry, open_registry
from benchlock.api.web.page import Page, Viewer
from benchlock.api.web.pages.compare_pages import make_compare
from benchlock.api.web.pages.leaderboard_pages import LeaderboardQuery, make_leaderboard
from benchlock.api.web.rendering import render_page
from benchlock.artifacts.errors import BenchlockError, RefusedError
from benchlock.evaluator.evidence.run_examination import ExaminedRecords
from benchlock.evaluator.records.run_groups import RunGroup
from benchlock.evaluator.records.run_types import Run, RunEnd, RunId
from benchlock.evaluator.report.leaderboards import NO_QUALITY, SPEEDS
from benchlock.evaluator.workflows.compare import compare_recorded_runs
from benchlock.registry.lock.lockfile import dataset_of
from benchlock.registry.resolution.resolver_types import ORDER
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.recorded import HOST, NOON, PLATFORM
from tests.support.resolution.variants import variant

SPLIT = {"splits.other": {"images": "images.idx", "labels": "labels.idx", "samples": 2}}
LIMITS = {"time": "11m", "memory": "2GiB", "cpus": 1, "processes": 256}
SCENARIO = {"name": "single_stream", "min_queries": 662, "min_duration": "1s", "warmup": 9}
FAILED = RunEnd(outcome="failed", ended_at=NOON, failure_class="engine", failure_message="no engine")
CONTRADICTED = replace(FAILED, failure_class="crash")
ABANDONED = RunEnd(outcome="abandoned", ended_at=NOON)


def dataset(name: str = "digits", split: str = "test") -> dict[str, Any]:
    return {"dataset": {"name": name, "version": "*", "split": split}}


@dataclass(frozen=True)
class Side:
    """How a run differs from that of the shelf's lock: its manifests, request and lock, its host, and its end."""

    model: str = "digits"
    dataset: str = "digits"
    request: dict[str, Any] = field(default_factory=dict)
    lock: dict[str, Any] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    platform: dict[str, Any] = field(default_factory=dict)
    isolation: Any = "process"
    end: RunEnd | None = None
    is_open: bool = False


def seed(registry: LocalRegistry, side: Side, number: int) -> Run:
    """Publish what the lock of a run names, and record the run, the ``number``-th of the registry."""
    wanted = {"model": {"name": side.model, "version": "*"}, "hardware": {"os": "linux"}} | side.request
    made = variant({
        "model": {"name": side.model},
        "dataset": {"name": side.dataset} | SPLIT,
        "image": {"platforms": ["linux/amd64/cpu", "linux/arm64/cpu"]},
        "files": IDX,
        "request": wanted,
        "lock": CURRENT | side.lock,
    })  # fmt: skip
    kinds = tuple(kind for kind in ORDER if number == 0 or getattr(side, kind, "digits") != "digits")
    made.publish(registry.catalogue, registry.store, kinds)
    registry.catalogue.put_lock(made.lock)
    at = NOON + timedelta(minutes=5 * number)
    made_as = "failed" if "trace" in side.request else "done"  # there is no trace
    run = make_run(made.lock, registry.store, at=at, slowness=1 + number % 3, isolation=side.isolation, outcome=made_as)
    start = replace(run.start, host=HOST | side.host, platform=PLATFORM | side.platform)
    registry.records.start(start)
    if not side.is_open:
        end = run.end if side.end is None else replace(side.end, ended_at=at + timedelta(minutes=1))
        assert end is not None
        registry.records.finish(run.id, end)
    return registry.records.get(run.id)


def run_compare(registry: LocalRegistry, *words: str) -> Result:
    """Run ``benchlock compare`` in this process."""
    invocation = SimpleNamespace(opened=EmbeddedRegistry(registry), as_json=True, progress=Invocation.progress)
    return CliRunner().invoke(compare, list(words), obj=invocation)


def html(page: Page) -> str:
    return render_page(page, Viewer()).decode()


BASE, FORCED = "the first run", "another host"
PAIRS: dict[str, tuple[Side, tuple[str, ...]]] = {
    "the same lock": (Side(), ()),
    "another seed": (Side(request={"seed": 99}), ()),
    "another model": (Side("other"), ()),
    "another dataset": (Side(dataset="others", request=dataset("others")), ("the dataset differs",)),
    "another split": (Side(request=dataset(split="other")), ("the dataset differs",)),
    "another scenario": (Side(request={"scenario": SCENARIO}), ("the scenario differs",)),
    "other limits": (Side(request={"limits": LIMITS}), ("the limits differ",)),
    "another trace": (Side(request={"trace": "model"}, end=FAILED), ("the trace differs", "RUN has no result")),
    "another harness": (Side(lock={"harness.digest": "sha256:" + "1" * 64}), ("the harness differs",)),
    "another isolation": (Side(isolation="container"), ("the isolation differs: process, container",)),
    "another host": (
        Side(host={"cpu_model": "<b>B</b> CPU", "cpu_flags": ["avx2", "avx512f"], "cores": 64}),
        (
            "the host's cpu model differs: A CPU, <b>B</b> CPU",
            "the host's cpu flags differ in avx512f, sse",
            "the host's cores differs: 2, 64",
        ),
    ),
    "another platform": (Side(platform={"arch": "arm64"}), ("the host's arch differs: amd64, arm64",)),
    "everything at once": (
        Side(
            "other",
            request={"limits": LIMITS, "seed": 99, "scenario": SCENARIO},
            isolation="container",
            host={"kernel": "Linux 5"},
        ),
        (
            "the scenario differs",
            "the limits differ",
            "the isolation differs: process, container",
            "the host's kernel differs: Linux 6.1, Linux 5",
        ),
    ),
    "a failed run": (Side(end=FAILED), ("RUN has no result",)),
    "an abandoned run": (Side(end=ABANDONED), ("RUN has no result",)),
    "a run in progress": (Side(is_open=True), ("RUN has no result",)),
}


OTHERS: dict[str, Side] = {
    "a contradicted record": Side(end=CONTRADICTED),
    "another quality": Side("fast", request={"metrics": ["top5", "latency"]}),
    "quality alone": Side("slow", request={"metrics": ["top1"]}),
    "speed alone": Side("quick", request={"metrics": ["latency"]}),
    "a third model on another host": Side("third", host={"cpu_model": "<b>B</b> CPU", "cores": 64}),
}
"""More runs for leaderboards."""


@dataclass(frozen=True)
class Pool:
    """A registry in which each side of ``PAIRS`` and of ``OTHERS`` was recorded once, after the run ``BASE``."""

    registry: LocalRegistry
    runs: Mapping[str, Run]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    registry = open_registry(str(tmp_path_factory.mktemp("pool") / "registry"), print)
    sides = {BASE: Side(), **{name: side for name, (side, _) in PAIRS.items()}, **OTHERS}
    return Pool(registry, {name: seed(registry, side, number) for number, (name, side) in enumerate(sides.items())})


@pytest.mark.parametrize("name", PAIRS)
def test_the_page_and_the_command_agree_whether_a_pair_is_comparable(pool: Pool, name: str) -> None:
    registry, (_, expected) = pool.registry, PAIRS[name]
    runs = [pool.runs[BASE].id, pool.runs[name].id]
    page, answer = make_compare(registry, runs, anyway=False), run_compare(registry, *runs)
    text, reasons = html(page), page.context["reasons"]
    assert reasons == tuple(f"{runs[1]}: {reason.replace('RUN', runs[1])}" for reason in expected)
    assert ("<strong>Not comparable.</strong>" in text) == bool(expected)
    assert ("<strong>Comparable.</strong>" in text) == (not expected)
    if expected:
        assert isinstance(answer.exception, RefusedError)
        assert answer.exception.what == f"these runs are not comparable with {runs[0]}: {'; '.join(reasons)}"
        assert all(f"<li>{escape(reason)}</li>" in text for reason in reasons)
        assert set(page.tables) == {"runs"}
    if expected and name != FORCED:
        return
    if expected:
        page, answer = make_compare(registry, runs, anyway=True), run_compare(registry, "--force", *runs)
    document = json.loads(answer.stdout)
    assert (document["comparable"], tuple(document["reasons"])) == (not expected, reasons)
    told = {(finding["metric"], finding["answer"], finding["reason"]) for finding in document["findings"]}
    assert len(told) == len(page.tables["findings"].rows) > 0
    for metric, verdict, reason in told:
        change, rest = match.groups() if (match := re.fullmatch(r"([+-]?[\d.]+%)[,;]? (.+)", reason)) else ("", reason)
        finding = f"{metric} {change}".rstrip()
        assert any(
            f": {verdict}: " in line and f" {finding}" in line and line.endswith(f": {rest}")
            for line in page.context["answers"]
        )


def test_what_the_command_does_not_compare_the_page_refuses_in_the_same_words(pool: Pool) -> None:
    runs = [pool.runs[name].id for name in (BASE, "a contradicted record")]
    refusal = run_compare(pool.registry, *runs).exception
    assert isinstance(refusal, BenchlockError)
    assert "contradicts its evidence" in refusal.what
    for anyway in (False, True):
        with pytest.raises(type(refusal)) as caught:
            make_compare(pool.registry, runs, anyway=anyway)
        assert caught.value.what == refusal.what


class Some(ExaminedRecords):
    """The records of a registry, of which boards read only some."""

    chosen: frozenset[RunId] = frozenset()

    def list_newest(self, group: RunGroup, limit: int, before: RunId | None = None) -> tuple[RunId, ...]:
        newest = super().list_newest(group, len(self.chosen) + 1000, before)
        return tuple(id_ for id_ in newest if id_ in self.chosen)[:limit]


def test_no_board_has_an_incomparable_pair_or_a_speed_without_quality(pool: Pool) -> None:
    records = Some(pool.registry.database, pool.registry.examiner)
    registry = changed(pool.registry, records=records)
    lock = registry.read_lock(pool.runs[BASE].start.lock)
    query = LeaderboardQuery(f"{dataset_of(lock).name}@{dataset_of(lock).version}", dataset_of(lock).split)
    at_most_once = cache(partial(compare_recorded_runs, pool.registry.records, pool.registry.read_lock))
    mine = {
        run.id
        for run in pool.runs.values()
        if run.end is not None and run.end.outcome == "done" and run.evidence is not None
        and run.evidence.state == "verified" and registry.read_lock(run.start.lock).dataset == lock.dataset
    }  # fmt: skip

    @given(st.sets(st.sampled_from(sorted(pool.runs)), min_size=1))
    @example(set(pool.runs))
    @example({BASE, "another quality"})
    @example({"speed alone"})
    @example({BASE, "speed alone"})
    @settings(max_examples=25, deadline=None, database=None)
    def check(names: set[str]) -> None:
        records.chosen = frozenset(pool.runs[name].id for name in names)
        page = make_leaderboard(registry, query)
        boards = [board for board, *_ in page.context["boards"]]
        shown = [run.id for board in boards for system in board.systems for run in system.runs]
        assert sorted(shown) == sorted(records.chosen & mine)
        for board, (_, path, _) in zip(boards, page.context["boards"], strict=True):
            runs = [run.id for system in board.systems for run in system.runs]
            for pair in combinations(runs, 2):
                assert at_most_once(pair).reasons == (), pair
            names_of = [column.name for column in board.table.columns]
            speed = next(name for name in SPEEDS if name in names_of)
            quality = names_of[names_of.index("quality_rank") + 1]
            assert names_of.index(quality) < names_of.index(speed)
            rows = board.table.records()
            says_so = NO_QUALITY in board.table.notes
            assert says_so == all(row[quality] is None for row in rows)
            assert says_so or all(row[speed] is None or row[quality] is not None for row in rows)
            assert (path != "") == (len(board.systems) > 1)

    check()
