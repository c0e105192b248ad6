"""Reports on recorded runs: the same bytes each time, one page without foreign parts, and runs that are refused."""

import csv
import json
import re
from dataclasses import replace as change
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape
from msgspec.structs import replace

from benchlock.api.local.local_registry import LocalRegistry, open_registry
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.analysis.table_formats import format_csv, format_markdown
from benchlock.evaluator.analysis.tables import Column, Table
from benchlock.evaluator.charts.matrix_charts import Bar, draw_bars
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.report.prices import parse_prices
from benchlock.evaluator.report.report_files import list_files, make_report, render_page, write_report
from benchlock.evaluator.report.run_sections import choose_quality, describe_costs, describe_runs, find_distribution
from benchlock.evaluator.report.sections import Report, Section
from benchlock.evaluator.report.systems import System, group_systems
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.registry.lock.lockfile import Lock, dataset_of
from benchlock.registry.manifests.metric_definitions import DEFINITIONS
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant

NASTY = '=HYPERLINK("http://evil")<script>alert(1)</script><img src=x onerror=y>|`x`\u202e'


@pytest.fixture
def registry(tmp_path: Path) -> LocalRegistry:
    return open_registry(str(tmp_path / "registry"), print)


@pytest.fixture
def lock(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> Lock:
    made = variant({"lock": CURRENT, "files": IDX})
    release(monkeypatch, made.lock.harness)
    made.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(made.lock)
    return made.lock


@pytest.fixture
def runs(registry: LocalRegistry, lock: Lock) -> list[Run]:
    """Two recorded runs, the second of them twice as slow."""
    made = [make_run(lock, registry.store, slowness=slowness) for slowness in (1, 2)]
    for run in made:
        assert run.end is not None
        registry.records.start(run.start)
        registry.records.finish(run.id, run.end)
    return [registry.records.get(run.id) for run in made]


@pytest.fixture
def system(registry: LocalRegistry, lock: Lock, runs: list[Run]) -> System:
    (system,), warnings = group_systems([(lock, runs[0])], registry.store)
    assert warnings == ()
    return system


def measured(name: str, value: float, batch: int | None = None, reach: float = 0.01) -> Metric:
    definition = DEFINITIONS[name]
    ci = Interval(value * (1 - reach), value * (1 + reach))
    return Metric(name, value, definition.unit, definition.direction, 64, ci, definition.version, batch)


def with_metrics(system: System, scenario: str, *metrics: Metric) -> System:
    """The system with a run of another scenario, which has these metrics."""
    arm = system.arms[0]
    end = arm.runs[0].end
    assert end is not None
    run = replace(arm.runs[0], end=replace(end, metrics=metrics, blobs={}))
    lock = replace(arm.lock, scenario={**arm.lock.scenario, "name": scenario})
    return change(system, arms=(*system.arms, replace(arm, lock=lock, runs=(run,))))


class Page(HTMLParser):
    """What a page refers to, and the tags that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def test_the_same_runs_give_the_same_bytes(
    registry: LocalRegistry, lock: Lock, runs: list[Run], tmp_path: Path
) -> None:
    prices = parse_prices(["0.10USD/h@2026-11-01"], [])
    contents = []
    for name in ("a", "b"):
        systems, warnings = group_systems([(lock, run) for run in runs], registry.store)
        page = write_report(make_report(systems, warnings, prices=prices), tmp_path / name)
        files = sorted(path for path in page.parent.rglob("*") if path.is_file())
        contents.append({path.relative_to(page.parent).as_posix(): path.read_bytes() for path in files})
    assert contents[0] == contents[1]
    assert {"report.html", "figures/latency.svg", "figures/latency.png", "tables/results.csv", "tables/cost.md"} < {
        *contents[0]
    }
    results = json.loads(contents[0]["tables/results.json"])
    cells = dict(zip((column["name"] for column in results["columns"]), results["rows"][0], strict=True))
    assert cells["calls"] == 2000
    assert cells["top1"] == 0.5
    assert cells["online_latency"] == pytest.approx(4.5e-6**0.5, rel=0.001)  # of 1.5 and 3 ms
    assert runs[0].id.encode() in contents[0]["tables/runs.csv"]


def test_the_page_needs_no_script_and_no_other_host(system: System) -> None:
    text = render_page(make_report([system], ["a warning"]))
    page = Page(text)
    assert not {"script", "iframe", "link", "img", "object", "form"} & {*page.tags}
    assert not [name for name, _ in page.attributes if name == "style" or name.startswith("on")]
    links = [value for name, value in page.attributes if name in ("href", "src")]
    assert {link.partition("/")[0] for link in links if not link.startswith("#")} == {"figures", "tables"}
    written = {name for name, _ in list_files(make_report([system], []))}
    assert {link for link in links if not link.startswith("#")} <= written
    assert "prefers-color-scheme: dark" in text
    assert "url(" not in text
    assert "a warning" in text
    assert not re.findall(r"https?://(?!www\.w3\.org)", text)


def test_every_question_has_its_answer_at_the_top(system: System) -> None:
    report = make_report([system], [])
    top = render_page(report).partition("</nav>")[0]
    assert len(report.sections) > 2
    assert all(words in report.sections[0].answer[0] for words in ("The top1 is", "The online latency is"))
    assert all(f"{section.question}</a> {escape(section.answer[0])}" in top for section in report.sections)


def test_what_the_runs_cannot_answer_is_stated(system: System) -> None:
    gaps = make_report([system], []).sections[-2]
    assert gaps.question == "What does this report not answer?"
    assert ["trace: framework" in gaps.answer[0], "batch_sweep" in gaps.answer[1]] == [True, True]
    rates = [measured("throughput", 100.0 * size, size) for size in (1, 2)]
    swept = with_metrics(system, "batch_sweep", *rates)
    assert len(make_report([swept], []).sections[-2].answer) == 1


def test_hostile_names_stay_text_in_every_format() -> None:
    columns = (Column(NASTY, NASTY, NASTY), Column("n", "s"))
    table = Table("t", NASTY, columns, ((NASTY, 0.5), (None, -1e-6)), {NASTY: NASTY}, (NASTY,))
    chart = draw_bars("c", NASTY, NASTY, [Bar(NASTY, (1.0,), NASTY)], unit=NASTY)
    text = render_page(Report(NASTY, (NASTY,), (Section(NASTY, (NASTY,), (chart,), table),)))
    page = Page(text)
    assert not {"script", "img"} & {*page.tags}
    assert "<script" not in text
    assert "onerror" not in dict(page.attributes)
    rows = list(csv.reader(format_csv(table).splitlines()))
    assert rows[1][0].startswith("'=")
    assert rows[2] == ["", "-1e-06"]
    markdown = format_markdown(table)
    assert not re.search(r"(?<!\\)[<>`]", markdown)
    assert len(re.findall(r"(?<!\\)\|", markdown.splitlines()[2])) == 3


def test_runs_that_are_not_comparable_are_refused(registry: LocalRegistry, lock: Lock, runs: list[Run]) -> None:
    other = replace(runs[1], start=replace(runs[1].start, host={**runs[1].start.host, "cpu_model": "Another CPU"}))
    pairs = [(lock, runs[0]), (lock, other)]
    with pytest.raises(RefusedError, match="cpu model differs") as caught:
        group_systems(pairs, registry.store)
    assert "show them anyway" in (caught.value.next_step or "")
    systems, warnings = group_systems(pairs, registry.store, force=True)
    assert any("cpu model differs" in warning for warning in warnings)
    assert len({system.name for system in systems}) == 2  # told apart by their hosts
    sweep = replace(lock, scenario={**lock.scenario, "name": "offline"})
    with pytest.raises(RefusedError, match="cpu model differs"):
        group_systems([(lock, runs[0]), (sweep, other)], registry.store)
    moved = replace(sweep, dataset=replace(dataset_of(lock), split="train"))
    with pytest.raises(RefusedError, match="the dataset differs"):
        group_systems([(lock, runs[0]), (moved, runs[1])], registry.store)


def test_batches_are_advised_by_their_metrics(system: System) -> None:
    rates = [measured("throughput", value, batch) for batch, value in ((1, 100.0), (2, 190.0), (4, 195.0))]
    swept = with_metrics(system, "batch_sweep", *rates, measured("optimal_batch", 2.0))
    section = next(part for part in describe_runs([swept]) if part.table is not None and part.table.id == "batches")
    assert section.answer[0].startswith(f"{system.name}: use batch 2 ")
    assert "highest at batch 4: 195 samples/s, +95% over batch 1." in section.answer[0]
    assert section.table is not None
    assert section.table.column("speedup") == (1.0, 1.9, 1.95)
    assert ">1.95<" in section.charts[0].svg()
    flat = with_metrics(system, "batch_sweep", *(replace(rate, ci=Interval(50.0, 300.0)) for rate in rates))
    section = next(part for part in describe_runs([flat]) if part.table is not None and part.table.id == "batches")
    assert "use batch 1, because no size is proven faster" in section.answer[0]
    rising = with_metrics(system, "batch_sweep", *rates[:2])
    section = next(part for part in describe_runs([rising]) if part.table is not None and part.table.id == "batches")
    assert "use batch 2, the largest that was measured: 190 samples/s, +90% over batch 1" in section.answer[0]
    assert "each doubling gains more than 5 %, so measure larger ones" in section.answer[0]
    wide = (*rates[:2], replace(measured("throughput", 250.0, 4), ci=Interval(195.0, 300.0)))
    doubtful = with_metrics(system, "batch_sweep", *wide)
    section = next(part for part in describe_runs([doubtful]) if part.table is not None and part.table.id == "batches")
    assert "use batch 4, the largest" in section.answer[0]
    assert "the intervals overlap so far that batch 2 may do" in section.answer[0]
    assert "measure larger ones" not in section.answer[0]
    few = with_metrics(system, "batch_sweep", *(replace(rate, ci=Interval(None, None)) for rate in rates))
    section = next(part for part in describe_runs([few]) if part.table is not None and part.table.id == "batches")
    assert "no batch size is recommended, because throughputs have no interval here" in section.answer[0]
    assert 'r="9"' not in "".join(chart.svg() for chart in section.charts)


def test_the_median_calls_of_sweeps_are_side_by_side(system: System) -> None:
    first = [measured("latency_p50", value, batch) for batch, value in ((1, 0.001), (8, 0.004))]
    second = [measured("latency_p50", value, batch) for batch, value in ((1, 0.002), (8, 0.003), (16, 0.007))]
    swept = with_metrics(system, "batch_sweep", *first)
    other = change(with_metrics(system, "batch_sweep", *second), name="other")
    parts = describe_runs([swept, other])
    section = next(part for part in parts if part.table is not None and part.table.id == "batch-calls")
    assert section.table is not None
    assert section.table.rows == ((1, 0.001, 0.002), (8, 0.004, 0.003), (16, None, 0.007))
    assert section.answer[0] == f"The shortest median call of 1 sample takes 1 ms, of {system.name}."
    assert section.answer[1].endswith("of other.")
    assert "median call (ms)" in section.charts[0].svg()


def test_flagged_times_are_not_called_the_shortest(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "online latency is" in make_report([system], []).sections[0].answer[0]
    monkeypatch.setattr("benchlock.evaluator.records.timing_validity.flag_of", lambda _: "a busy host")
    answer = make_report([system], []).sections[0].answer[0]
    assert "online latency is" not in answer
    assert f"The times of {system.name} were disturbed, so they are not ranked." in answer


def test_no_batch_size_is_advised_by_flagged_times(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = [measured("throughput", value, batch) for batch, value in ((1, 100.0), (2, 190.0), (4, 195.0))]
    swept = with_metrics(system, "batch_sweep", *rates)
    monkeypatch.setattr("benchlock.evaluator.records.timing_validity.flag_of", lambda _: "a busy host")
    section = next(part for part in describe_runs([swept]) if part.table is not None and part.table.id == "batches")
    assert section.answer[0].startswith(f"{system.name}: no batch size is recommended, because the times of run/")
    assert section.answer[0].endswith("are flagged: a busy host.")
    assert 'r="9"' not in "".join(chart.svg() for chart in section.charts)


def test_a_cold_start_names_its_longest_phase(system: System) -> None:
    phases = [measured(f"cold_start_{name}", value) for name, value in (("import", 1.5), ("load", 0.2))]
    started = with_metrics(system, "cold_start", *phases, measured("cold_start", 1.7))
    section = next(
        part for part in describe_runs([started]) if part.table is not None and part.table.id == "cold-start"
    )
    assert section.answer[0].endswith("a start takes 1.7 s; the longest phase is import, 1.5 s.")


def test_costs_need_a_price_and_state_it(system: System) -> None:
    assert describe_costs([system], ()) is None
    section = describe_costs([system], parse_prices(["0.10USD/h@2026-11-01"], []))
    assert section is not None
    assert section.table is not None
    seconds = system.metrics["latency_p50"].value
    assert list(section.table.column("cost")) == [pytest.approx(1e6 * seconds / 3600 * 0.10)]
    offline = with_metrics(system, "offline", measured("throughput", 505.0))
    both = describe_costs([offline], parse_prices(["0.10USD/h@2026-11-01"], []))
    assert both is not None
    assert both.table is not None
    assert both.table.column("cost")[0] == pytest.approx(0.0550, abs=1e-4)
    assert "0.1 USD/h on 2026-11-01" in " ".join(section.answer)
    own = parse_prices([f"{system.runs[0].id}=9EUR/h@2026-11-01", "1EUR/h@2026-11-01"], [system.runs[0].id])
    section = describe_costs([system], own)
    assert section is not None
    assert section.table is not None
    assert section.table.column("price")[0] == "9 EUR/h on 2026-11-01"


@pytest.mark.parametrize(
    "texts",
    [
        ["0.10"],
        ["0USD/h@2026-11-01"],
        ["1USD/h@2026-13-01"],
        ["1USD/h@2026-11-01", "1EUR/h@2026-11-01"],
        ["-1USD/h"],
        ["run/b=1USD/h@2026-11-01"],
    ],
)
def test_a_price_without_currency_or_date_is_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidInputError):
        parse_prices(texts, ["run/a"])


def test_the_band_is_that_of_dvoretzky_kiefer_and_wolfowitz() -> None:
    curve = find_distribution("a", np.arange(1000.0))
    assert curve.shares[50] - curve.low[50] == pytest.approx(0.04294694, abs=1e-7)  # sqrt(ln(40) / 2000)
    assert curve.seconds[0] == 0
    assert curve.shares[-1] == 1.0
    assert len(curve.shares) == 200
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        curve = find_distribution("a", random.random(100))
        true = np.array(curve.seconds)
        covered += bool((np.array(curve.low) <= true).all() and (np.array(curve.high) >= true).all())
    assert covered / 400 >= 0.93


def test_the_band_holds_between_the_points_that_are_drawn() -> None:
    seconds = np.sort(np.random.default_rng(3).random(20_000))
    curve = find_distribution("a", seconds)
    drawn = np.searchsorted(curve.seconds, seconds, side="right") - 1
    shares = np.arange(1, len(seconds) + 1) / len(seconds)
    assert (np.array(curve.low)[drawn] <= shares).all()
    assert (np.array(curve.high)[drawn] >= shares).all()


def test_what_is_online_does_not_depend_on_the_order_of_scenarios(system: System) -> None:
    slow = with_metrics(system, "multi_stream", measured("latency_p50", 9.0), measured("latency_p90", 9.0))
    turned = change(slow, arms=slow.arms[::-1])
    price = parse_prices(["1USD/h@2026-11-01"], [])
    for subject in (slow, turned):
        results, costs = next(describe_runs([subject])).table, describe_costs([subject], price)
        assert results is not None
        assert costs is not None
        assert costs.table is not None
        assert results.column("online_p90") == (system.metrics["latency_p90"].value,)
        assert max(rate for rate in costs.table.column("throughput") if isinstance(rate, float)) > 1


def test_one_metric_of_quality_ranks_all_systems(system: System) -> None:
    other = with_metrics(system, "offline", measured("ece_15", 0.95), measured("top1", 0.5))
    only = change(other, name="b", arms=other.arms[1:])
    section = next(describe_runs([change(system, name="a"), only]))
    assert section.table is not None
    assert section.table.column("top1") == (system.metrics["top1"].value, 0.5)
    assert "ece_15" not in " ".join(section.answer)


def test_the_main_metric_comes_before_calibration(system: System) -> None:
    first = with_metrics(system, "offline", measured("ece_15", 0.05), measured("top1", 0.5))
    only = change(first, arms=first.arms[1:])
    assert list(only.qualities) == ["ece_15", "top1"]
    assert choose_quality([only]) == "top1"


def test_a_file_is_no_folder_of_a_report(system: System, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(InvalidInputError, match="not a folder"):
        write_report(make_report([system], []), path)
